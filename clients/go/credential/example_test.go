package credential_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"os"
	"strings"

	"bulla.example/clients/credential"
)

func Example() {
	roots, err := os.ReadFile("root.pem")
	if err != nil {
		log.Fatal(err)
	}
	client, err := credential.New(credential.Options{
		URL:   "https://store.example:8844",
		Token: credential.NewSecret(os.Getenv("BULLA_TOKEN")),
		Roots: roots,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	found, err := client.Get(ctx, "/team/database")
	switch {
	case errors.Is(err, credential.ErrNotFound):
		log.Fatal("no such credential, or no permission")
	case err != nil:
		log.Fatal(err)
	}
	password, err := found.Text()
	if err != nil {
		log.Fatal(err)
	}
	connect(password.Reveal())
}

// A service account's token is read from its file for each request, and the program learns of new values.
func ExampleOptions() {
	client, err := credential.New(credential.Options{
		URL: "https://store.example:8844",
		TokenFunc: func(context.Context) (credential.Secret, error) {
			text, err := os.ReadFile("/var/run/secrets/tokens/bulla")
			return credential.NewSecret(strings.TrimSpace(string(text))), err
		},
		OnChange: func(name string) { log.Printf("changed: %q", name) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// A certificate of the store serves TLS. Each handshake takes the current version from the cache.
func ExampleCertificate() {
	client, err := credential.New(credential.Options{URL: "https://store.example:8844"})
	if err != nil {
		log.Fatal(err)
	}
	_ = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		found, err := client.Get(hello.Context(), "/team/web")
		if err != nil {
			return nil, err
		}
		certificate, err := found.Certificate()
		if err != nil {
			return nil, err
		}
		pair, err := certificate.TLS()
		return &pair, err
	}}
}

func connect(string) {}
