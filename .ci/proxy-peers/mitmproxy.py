"""mitmproxy with the benchmark's upstream: every name is this machine."""


def server_connect(data):
    data.server.address = ("127.0.0.1", data.server.address[1])
