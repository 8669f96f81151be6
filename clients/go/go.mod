module bulla.example/clients

go 1.22
