package credential

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = time.Minute

// fake is a store over HTTPS whose responses a test decides.
type fake struct {
	server *httptest.Server

	lock   sync.Mutex
	values map[string]string
	// The names of each lookup.
	lookups [][]string
	// Answers lookups and streams instead of the store; 0: none.
	status int
	// Lookups wait for it, if any.
	hold chan struct{}
	// The route for batches is missing.
	old bool
	// Last-Event-ID of each stream, and the streams.
	resumed []string
	streams []chan string
	ready   string
	// The IDs of versions.
	version int
}

func newFake(t *testing.T) *fake {
	made := &fake{values: map[string]string{}, ready: `{"resumed":false}`}
	routes := http.NewServeMux()
	routes.HandleFunc("/api/v1/lookup", made.lookup)
	routes.HandleFunc("/api/v1/data", made.data)
	routes.HandleFunc("/api/v1/events", made.events)
	made.server = httptest.NewTLSServer(routes)
	t.Cleanup(func() {
		made.server.CloseClientConnections()
		made.server.Close()
	})
	return made
}

func (f *fake) roots() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
}

// client returns a client without a stream of changes. Its timeout does not decide a test.
func (f *fake) client(t *testing.T, change func(*Options)) *Client {
	options := Options{URL: f.server.URL, Roots: f.roots(), Token: NewSecret("bulla_token"), NoEvents: true, Timeout: 3 * patience}
	if change != nil {
		change(&options)
	}
	client, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// followed returns a client whose stream of changes has begun.
func (f *fake) followed(t *testing.T, change func(*Options)) *Client {
	client := f.client(t, func(options *Options) {
		options.NoEvents = false
		if change != nil {
			change(options)
		}
	})
	_, _ = client.Get(context.Background(), "/first")
	until(t, "the stream begins", client.isFollowing)
	return client
}

func (c *Client) isFollowing() bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.cache.following()
}

func (f *fake) set(name, value string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	text, _ := json.Marshal(value)
	f.values[name] = string(text)
	f.version++
}

func (f *fake) change(edit func()) {
	f.lock.Lock()
	defer f.lock.Unlock()
	edit()
}

func (f *fake) asked() [][]string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return append([][]string{}, f.lookups...)
}

// say sends an event on every stream.
func (f *fake) say(id int, kind, data string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, stream := range f.streams {
		stream <- fmt.Sprintf("id: 0-%d\nevent: %s\ndata: %s\n\n", id, kind, data)
	}
}

// cut ends every stream.
func (f *fake) cut() {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, stream := range f.streams {
		close(stream)
	}
	f.streams = nil
}

// begin counts a request, waits, and answers an error if the test wants one.
func (f *fake) begin(w http.ResponseWriter, r *http.Request, names []string) bool {
	f.lock.Lock()
	if names != nil {
		f.lookups = append(f.lookups, names)
	}
	status, hold := f.status, f.hold
	f.lock.Unlock()
	if hold != nil && names != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return false
		}
	}
	if r.Header.Get("Authorization") != "Bearer bulla_token" {
		status = http.StatusUnauthorized
	}
	if status != 0 {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error":"status","error_description":"the test wants %d"}`, status)
	}
	return status == 0
}

func (f *fake) document(name string) string {
	f.lock.Lock()
	defer f.lock.Unlock()
	value, ok := f.values[name]
	if !ok {
		return "null"
	}
	return fmt.Sprintf(`{"name":%q,"type":"password","id":"%d","version_created_at":"2026-11-21T05:00:00Z","metadata":null,"value":%s}`,
		name, f.version, value)
}

func (f *fake) lookup(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	old := f.old
	f.lock.Unlock()
	if old {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	var asked struct{ Lookups [][]string }
	if json.NewDecoder(r.Body).Decode(&asked) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	names := []string{}
	for _, list := range asked.Lookups {
		names = append(names, list...)
	}
	if !f.begin(w, r, names) {
		return
	}
	documents := []string{}
	for _, name := range names {
		if strings.Contains(name, "bad") && len(names) > 1 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		documents = append(documents, f.document(name))
	}
	_, _ = fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(documents, ","))
}

func (f *fake) data(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if !f.begin(w, r, []string{name}) {
		return
	}
	found := f.document(name)
	if found == "null" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = fmt.Fprintf(w, `{"data":[%s]}`, found)
}

func (f *fake) events(w http.ResponseWriter, r *http.Request) {
	if !f.begin(w, r, nil) {
		return
	}
	stream := make(chan string, 100)
	f.lock.Lock()
	f.resumed = append(f.resumed, r.Header.Get("Last-Event-ID"))
	f.streams = append(f.streams, stream)
	ready := f.ready
	f.lock.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "event: ready\ndata: %s\n\nevent: access\ndata: {\"changed\":false}\n\n", ready)
	w.(http.Flusher).Flush()
	for {
		select {
		case text, ok := <-stream:
			if !ok {
				return
			}
			_, _ = w.Write([]byte(text))
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// text returns the text of a credential.
func text(t *testing.T, client *Client, name string) string {
	t.Helper()
	found, err := client.Get(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := found.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text.Reveal()
}
