package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// patience is beyond what anything here takes.
const patience = 60 * time.Second

// check asks by HTTP/1.1 and HTTP/2, reads a stream of events, speaks on a WebSocket, and by gRPC.
func check(proxy, ca, upstream, nginx string) error {
	through, err := url.Parse(proxy)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: no certificate", ca)
	}
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		client := &http.Client{Timeout: patience, Transport: &http.Transport{
			Proxy:             http.ProxyURL(through),
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			ForceAttemptHTTP2: version == "HTTP/2.0",
		}}
		if err := requests(client, upstream, nginx, version); err != nil {
			return fmt.Errorf("%s: %w", version, err)
		}
	}
	if err := messages(through, roots, upstream); err != nil {
		return fmt.Errorf("WebSocket: %w", err)
	}
	if err := rpc(through, roots, upstream); err != nil {
		return fmt.Errorf("gRPC: %w", err)
	}
	return nil
}

func requests(client *http.Client, upstream, nginx, version string) error {
	protocol, err := get(client, upstream+"/protocol")
	if err != nil || string(protocol) != version {
		return fmt.Errorf("asked by %q, %v", protocol, err)
	}
	file, err := get(client, nginx+"/file")
	if err != nil || len(file) != 1<<20 {
		return fmt.Errorf("nginx: %d octets, %v", len(file), err)
	}
	large := bytes.Repeat([]byte("x"), 8<<20)
	answer, err := client.Post(upstream+"/echo", "application/octet-stream", bytes.NewReader(large))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if echoed, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(echoed, large) {
		return fmt.Errorf("echo: %d octets, %v", len(echoed), err)
	}
	return stream(client, upstream, "go-"+version[5:6])
}

func get(client *http.Client, from string) ([]byte, error) {
	answer, err := client.Get(from)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", from, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

func stream(client *http.Client, upstream, id string) error {
	answer, err := client.Get(upstream + "/events?id=" + id)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		switch lines.Text() {
		case "data: first":
			if _, err := get(client, upstream+"/seen?id="+id); err != nil {
				return err
			}
		case "data: second":
			return nil
		}
	}
	return fmt.Errorf("the events ended: %v", lines.Err())
}

func messages(proxy *url.URL, roots *x509.CertPool, upstream string) error {
	dialer := websocket.Dialer{
		Proxy:            http.ProxyURL(proxy),
		TLSClientConfig:  &tls.Config{RootCAs: roots},
		HandshakeTimeout: patience,
	}
	connection, _, err := dialer.Dial(strings.Replace(upstream, "https", "wss", 1)+"/ws", nil)
	if err != nil {
		return err
	}
	defer connection.Close()
	for _, message := range []string{"hello", strings.Repeat("long", 1<<18)} {
		if err := connection.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
			return err
		}
		if _, echoed, err := connection.ReadMessage(); err != nil || string(echoed) != message {
			return fmt.Errorf("%d octets, %v", len(echoed), err)
		}
	}
	return nil
}

func rpc(proxy *url.URL, roots *x509.CertPool, upstream string) error {
	// gRPC's own way through a proxy is not taken to this machine itself.
	dial := func(_ context.Context, address string) (net.Conn, error) {
		connection, err := net.DialTimeout("tcp", proxy.Host, patience)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address)
		answer, err := http.ReadResponse(bufio.NewReaderSize(connection, 1), nil)
		if err != nil {
			return nil, err
		}
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("CONNECT: %s", answer.Status)
		}
		return connection, nil
	}
	target := "passthrough:///" + strings.TrimPrefix(upstream, "https://")
	trust := credentials.NewTLS(&tls.Config{RootCAs: roots})
	client, err := grpc.NewClient(target, grpc.WithTransportCredentials(trust), grpc.WithContextDialer(dial))
	if err != nil {
		return err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := healthpb.NewHealthClient(client).Check(within, &healthpb.HealthCheckRequest{})
	if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("%v, %v", answer, err)
	}
	return nil
}
