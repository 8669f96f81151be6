package leaves

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// made is a certificate and its key in PEM, which holds from begins to ends.
func made(t *testing.T, host string, begins, ends time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host}, NotBefore: begins, NotAfter: ends,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})...)
}

// proxy answers with what serve says, and counts.
func proxy(t *testing.T, serve func(http.ResponseWriter, string)) (string, *atomic.Int32) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		asked.Add(1)
		serve(writer, request.URL.Query().Get("server_name"))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/certificate", &asked
}

func store(t *testing.T, address string, options Options) *Store {
	t.Helper()
	store, err := New(address, options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestAllWhoAskMeanwhileWaitForOneQuestion(t *testing.T) {
	gate := make(chan struct{})
	address, asked := proxy(t, func(writer http.ResponseWriter, host string) {
		<-gate
		_, _ = writer.Write(made(t, host, time.Now(), time.Now().Add(time.Hour)))
	})
	store := store(t, address, Options{})
	var waiting sync.WaitGroup
	found := make([]*tls.Certificate, 32)
	for at := range found {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			found[at], _ = store.Fetch("a.example", nil)
		}()
	}
	close(gate)
	waiting.Wait()
	for _, certificate := range found {
		if certificate == nil || certificate != found[0] {
			t.Fatal("they have different ones")
		}
	}
	if asked.Load() != 1 {
		t.Fatalf("%d questions", asked.Load())
	}
}

func TestMemoryIsBounded(t *testing.T) {
	address, asked := proxy(t, func(writer http.ResponseWriter, host string) {
		_, _ = writer.Write(made(t, host, time.Now(), time.Now().Add(time.Hour)))
	})
	store := store(t, address, Options{Max: 2})
	for _, host := range []string{"a.example", "b.example", "a.example", "c.example", "a.example"} {
		if _, err := store.Fetch(host, nil); err != nil {
			t.Fatal(err)
		}
	}
	if store.Len() != 2 || asked.Load() != 3 {
		t.Fatalf("%d held, %d questions", store.Len(), asked.Load())
	}
}

func TestOneThatEndsSoonIsRenewedBesideWhoAsks(t *testing.T) {
	address, _ := proxy(t, func(writer http.ResponseWriter, host string) {
		_, _ = writer.Write(made(t, host, time.Now(), time.Now().Add(time.Hour)))
	})
	store := store(t, address, Options{})
	first, err := store.Fetch("a.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	store.lock.Lock()
	store.held["a.example"].Value.(*entry).renew = time.Now().Add(-time.Second)
	store.lock.Unlock()
	if held, err := store.Fetch("a.example", nil); err != nil || held != first {
		t.Fatal("who asks has waited, or has another")
	}
	for limit := time.Now().Add(30 * time.Second); ; {
		if renewed, _ := store.Fetch("a.example", nil); renewed != first {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("it was not renewed")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFallbackIsByPolicyAndNeverForWhatIsRefused(t *testing.T) {
	status := http.StatusServiceUnavailable
	address, asked := proxy(t, func(writer http.ResponseWriter, host string) {
		if host == "refused.example" {
			writer.WriteHeader(http.StatusNoContent)
			return
		}
		writer.WriteHeader(status)
	})
	long := &x509.Certificate{NotAfter: time.Now().Add(1_000 * time.Hour)}
	gen := func() (*tls.Certificate, error) { return &tls.Certificate{Leaf: long}, nil }
	never, away := store(t, address, Options{}), store(t, address, Options{Fallback: WhenAway})
	if _, err := never.Fetch("a.example", gen); err == nil {
		t.Fatal("made against the policy")
	}
	for range 10 {
		if certificate, err := away.Fetch("a.example", gen); err != nil || certificate == nil {
			t.Fatal("not made", err)
		}
	}
	if asked.Load() > 5 {
		t.Fatalf("%d questions: it is asked again for each", asked.Load())
	}
	// One that was made here stands for a second, however long it holds: then the proxy may be back.
	away.lock.Lock()
	ends := away.held["a.example"].Value.(*entry).ends
	away.lock.Unlock()
	if left := time.Until(ends); left > 2*time.Second {
		t.Fatalf("what was made here stands for %s", left)
	}
	if _, err := away.Fetch("refused.example", gen); !errors.Is(err, ErrNone) {
		t.Fatal(fmt.Sprint("not refused: ", err))
	}
}

func TestAProxyThatSaysNothingIsNotWaitedFor(t *testing.T) {
	stop := make(chan struct{})
	address, _ := proxy(t, func(http.ResponseWriter, string) { <-stop })
	defer close(stop)
	store := store(t, address, Options{Within: 20 * time.Millisecond})
	if _, err := store.Fetch("a.example", nil); err == nil {
		t.Fatal("an answer of nobody")
	}
}
