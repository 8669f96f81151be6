package credential

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// bulla is a store of its own, run by the program in BULLA.
type bulla struct {
	t       *testing.T
	program string
	folder  string
	server  *exec.Cmd
	// Closed when the server has ended.
	ended chan struct{}
	ports [3]int
	token Secret
}

func startBulla(t *testing.T) *bulla {
	program := os.Getenv("BULLA")
	if program == "" {
		t.Skip("BULLA does not name the program; see .ci/interop clients")
	}
	made := &bulla{t: t, program: program, folder: t.TempDir()}
	for number := range made.ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		made.ports[number] = listener.Addr().(*net.TCPAddr).Port
		_ = listener.Close()
	}
	t.Cleanup(made.stop)
	made.start()
	var token struct{ Token string }
	if err := json.Unmarshal(made.run("token", "create", "app", "--role", "viewer", "--output", "json"), &token); err != nil {
		t.Fatal(err)
	}
	made.token = NewSecret(token.Token)
	return made
}

func (b *bulla) command(arguments ...string) *exec.Cmd {
	command := exec.Command(b.program, arguments...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "BULLA_DATA=" + b.folder, "HOME=" + b.folder}
	return command
}

func (b *bulla) run(arguments ...string) []byte {
	b.t.Helper()
	output, err := b.command(arguments...).Output()
	if err != nil {
		b.t.Fatalf("bulla %v: %v", arguments, err)
	}
	return output
}

func (b *bulla) start() {
	log, err := os.Create(filepath.Join(b.folder, "log"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	address := func(number int) string { return fmt.Sprintf("127.0.0.1:%d", b.ports[number]) }
	b.server = b.command("up", "--roles", "server", "--listen", address(0), "--public-listen", address(1),
		"--credential-listen", address(2))
	b.server.Stderr = log
	if err := b.server.Start(); err != nil {
		b.t.Fatal(err)
	}
	server, ended := b.server, make(chan struct{})
	b.ended = ended
	go func() {
		_ = server.Wait()
		close(ended)
	}()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(log.Name())
		if bytes.Contains(text, []byte("bulla is up")) {
			return
		}
		select {
		case <-ended:
			b.t.Fatalf("the server does not start: %s", text)
		default:
		}
		if time.Now().After(end) {
			b.t.Fatalf("the server is not up in time: %s", text)
		}
	}
}

func (b *bulla) stop() {
	if b.server != nil {
		_ = b.server.Process.Kill()
		<-b.ended
		b.server = nil
	}
}

func (b *bulla) read(name string) []byte {
	b.t.Helper()
	content, err := os.ReadFile(filepath.Join(b.folder, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return content
}

func (b *bulla) url() string { return fmt.Sprintf("https://localhost:%d", b.ports[2]) }

// manage sends a request as the administrator and returns the response.
func (b *bulla) manage(method, path, body string) []byte {
	b.t.Helper()
	request, err := http.NewRequest(method, b.url()+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(b.read("admin.token"))))
	request.Header.Set("Content-Type", "application/json")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.read("root.pem"))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		b.t.Fatal(method, path, response.Status, string(content), err)
	}
	return content
}

func (b *bulla) set(name, kind, value string) {
	b.t.Helper()
	b.manage("PUT", "/api/v1/data", fmt.Sprintf(`{"name":%q,"type":%q,"value":%s}`, name, kind, value))
}

// grant returns the permission's ID.
func (b *bulla) grant(path string) string {
	b.t.Helper()
	var made struct{ UUID string }
	body := fmt.Sprintf(`{"actor":"uaa-client:app","path":%q,"operations":["read"]}`, path)
	if err := json.Unmarshal(b.manage("POST", "/api/v2/permissions", body), &made); err != nil {
		b.t.Fatal(err)
	}
	return made.UUID
}

func (b *bulla) client(change func(*Options)) *Client {
	b.t.Helper()
	options := Options{URL: b.url(), Roots: b.read("root.pem"), Token: b.token}
	if change != nil {
		change(&options)
	}
	client, err := New(options)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(client.Close)
	return client
}

// TestStore runs against a real store. Its time to live is a day: every value that is seen earlier was reported by the store.
func TestStore(t *testing.T) {
	store := startBulla(t)
	store.set("/app/db", "password", `"one"`)
	store.set("/app/second", "password", `"one"`)
	store.set("/other/secret", "value", `"hidden"`)
	permission := store.grant("/app/*")
	day := func(options *Options) {
		options.TTL, options.NegativeTTL, options.MaxStale = 24*time.Hour, 24*time.Hour, 48*time.Hour
	}
	client := store.client(day)

	t.Run("every type", func(t *testing.T) { everyType(t, store, client) })
	until(t, "the stream begins", client.isFollowing)

	t.Run("one request for 200 callers", func(t *testing.T) {
		// Without the stream of changes, which is a request and causes others.
		client := store.client(func(options *Options) { options.NoEvents = true })
		var all sync.WaitGroup
		for number := 0; number < 200; number++ {
			all.Add(1)
			go func() {
				defer all.Done()
				if text := text(t, client, "/app/db"); text != "one" {
					t.Error(text)
				}
			}()
		}
		all.Wait()
		if stats := client.Stats(); stats.Requests != 1 {
			t.Errorf("%+v", stats)
		}
	})

	t.Run("a change is seen", func(t *testing.T) {
		text(t, client, "/app/db")
		store.set("/app/db", "password", `"two"`)
		until(t, "the change is seen", func() bool { return text(t, client, "/app/db") == "two" })
		if _, err := client.Get(context.Background(), "/app/new"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		store.set("/app/new", "password", `"new"`)
		until(t, "the new name is seen", func() bool {
			_, err := client.Get(context.Background(), "/app/new")
			return err == nil
		})
	})

	t.Run("the store restarts", func(t *testing.T) {
		// The events above have arrived. Values that are being read again are awaited.
		text(t, client, "/app/db")
		text(t, client, "/app/second")
		store.stop()
		until(t, "the end of the stream is noticed", func() bool { return !client.isFollowing() })
		if text(t, client, "/app/db") != "two" || text(t, client, "/app/second") != "one" {
			t.Error("not served from the cache")
		}
		client.Doubt("/app/db")
		if text(t, client, "/app/db") != "two" {
			t.Error("a doubted value is not served while the store is away")
		}
		if _, err := client.Get(context.Background(), "/app/unknown"); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		store.start()
		store.set("/app/second", "password", `"two"`)
		until(t, "the change is seen", func() bool { return text(t, client, "/app/second") == "two" })
	})

	t.Run("a permission is revoked", func(t *testing.T) {
		until(t, "the stream is back", client.isFollowing)
		text(t, client, "/app/db")
		store.manage("DELETE", "/api/v2/permissions/"+permission, "")
		until(t, "the value is dropped", func() bool {
			_, err := client.Get(context.Background(), "/app/db")
			return errors.Is(err, ErrNotFound)
		})
		store.grant("/app/*")
		until(t, "the value is back", func() bool {
			_, err := client.Get(context.Background(), "/app/db")
			return err == nil
		})
	})

	t.Run("a token is revoked", func(t *testing.T) {
		store.run("token", "delete", "app")
		until(t, "the values are dropped", func() bool {
			_, err := client.Get(context.Background(), "/app/db")
			return errors.Is(err, ErrForbidden)
		})
	})
}

func everyType(t *testing.T, store *bulla, client *Client) {
	if _, err := client.Get(context.Background(), "/other/secret"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	generate := func(kind, parameters string) {
		body := fmt.Sprintf(`{"name":"/app/%s","type":%q,"parameters":%s}`, kind, kind, parameters)
		store.manage("POST", "/api/v1/data", body)
	}
	store.set("/app/value", "value", `"text"`)
	store.set("/app/json", "json", `{"a":{"port":5432}}`)
	generate("password", `{"length":40}`)
	generate("user", `{}`)
	generate("certificate", `{"common_name":"app.example.com","self_sign":true,"key_type":"p256"}`)
	// Generating these would take seconds.
	store.set("/app/ssh", "ssh", `{"public_key":"ssh-ed25519 AAAA","private_key":"private"}`)
	store.set("/app/rsa", "rsa", `{"public_key":"public","private_key":"private"}`)
	kinds := []string{"value", "json", "password", "user", "certificate", "ssh", "rsa"}
	names := []string{}
	for _, kind := range kinds {
		names = append(names, "/app/"+kind)
	}
	found, err := client.GetMany(context.Background(), names)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		one := found["/app/"+kind]
		if one.Type != kind || one.ID == "" || time.Since(one.CreatedAt) > time.Hour || !one.ExpiresAt.IsZero() {
			t.Error(kind, one)
		}
	}
	if text, err := found["/app/value"].Text(); err != nil || text.Reveal() != "text" {
		t.Error(err)
	}
	if port, err := found["/app/json"].Field("a", "port"); err != nil || port.Reveal() != "5432" {
		t.Error(err)
	}
	if text, err := found["/app/password"].Text(); err != nil || len(text.Reveal()) != 40 {
		t.Error(err)
	}
	if user, err := found["/app/user"].User(); err != nil || len(user.Username) != 20 || user.Password.Reveal() == "" ||
		!strings.HasPrefix(user.PasswordHash.Reveal(), "$6$") {
		t.Error(err)
	}
	certificate, err := found["/app/certificate"].Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if pair, err := certificate.TLS(); err != nil || pair.Leaf != nil && pair.Leaf.Subject.CommonName != "app.example.com" {
		t.Error(err)
	}
	if pair, err := found["/app/ssh"].SSH(); err != nil || pair.PublicKey != "ssh-ed25519 AAAA" || pair.Fingerprint == "" {
		t.Error(err)
	}
	if pair, err := found["/app/rsa"].RSA(); err != nil || pair.PrivateKey.Reveal() != "private" {
		t.Error(err)
	}
}
