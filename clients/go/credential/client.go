// Package credential is a client of Bulla's credential store with a cache, for programs that read secrets often.
//
//	client, err := credential.New(credential.Options{
//		URL:   "https://store.example:8844",
//		Token: credential.NewSecret(os.Getenv("BULLA_TOKEN")),
//	})
//	…
//	found, err := client.Get(ctx, "/team/database")
//	…
//	password, err := found.Text()
//	open(password.Reveal())
//
// Build one Client and share it. It connects at the first lookup.
//
//   - Concurrent lookups of one name share one request. While two requests are in progress, further names are collected for the
//     next one.
//   - The store reports changes over server-sent events: a changed value is read again immediately, and a change of permissions empties
//     the cache. After a gap in the events every value is read again before it is served.
//   - While the store is unreachable, cached values are served for Options.MaxStale.
//
// It needs only the standard library.
package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// nameMax is the maximum length of a name, as in the store.
const nameMax = 1024

// Options of a Client. The zero value of each option except URL is its default.
type Options struct {
	// URL of the store: https://HOST:PORT. Other schemes are refused, because the token is sent with each request.
	URL string
	// Token is an API token (bulla_…) without expiry.
	Token Secret
	// TokenFunc returns the token for each request and replaces Token, for tokens that are renewed, such as a service account's
	// file. It must be fast. An error counts as an unavailable store.
	TokenFunc func(context.Context) (Secret, error)
	// Roots are the trusted certificates, PEM. Default: the system's.
	Roots []byte
	// TLS has further settings, such as a client certificate.
	TLS *tls.Config
	// TTL is how long a value is fresh while the store does not report changes, minus a random fifth. Default: 60 s.
	TTL time.Duration
	// NegativeTTL is the same for the absence of a credential. Default: 15 s.
	NegativeTTL time.Duration
	// Revalidate is how long after TTL a value is still served while it is read again. Default: 30 s.
	Revalidate time.Duration
	// MaxStale is how long a value is served while the store is unreachable, since it was last known to be current. Default: 1 h.
	MaxStale time.Duration
	// MaxEntries and MaxBytes limit the cache; the least recently used entries are evicted. Names without a credential have an
	// additional quarter of MaxBytes. Defaults: 10,000 and 64 MiB.
	MaxEntries int
	MaxBytes   int64
	// Timeout of one lookup with all retries. Default: 10 s.
	Timeout time.Duration
	// NoEvents disables the stream of changes.
	NoEvents bool
	// OnChange is called after a credential has changed, with its name in lower case, or with "" if any credential may have changed.
	// The calls are one at a time. It may call Get, which returns the new value.
	OnChange func(name string)
}

// Stats are counters of a Client.
type Stats struct {
	// Requests sent to the store, with retries and the stream of changes.
	Requests uint64
	// Retries among Requests.
	Retries uint64
	// Hits are lookups that a fresh entry answered.
	Hits uint64
	// StaleHits are lookups that a stale entry answered, because it is being read again or the store is unreachable.
	StaleHits uint64
	// Misses are lookups that waited for a request, which they may have shared.
	Misses uint64
	// Changes received.
	Changes uint64
	// Gaps in the stream of changes, with its first start.
	Gaps uint64
}

// Client is a client of the credential store. Any number of goroutines may use it. Close ends its background tasks.
type Client struct {
	options   Options
	transport *transport
	// Ends with Close.
	ctx  context.Context
	stop context.CancelFunc
	// Starts the stream of changes with the first lookup.
	following sync.Once
	// Held during OnChange.
	notifying sync.Mutex

	// Protects the fields below.
	lock  sync.Mutex
	cache *cache
	// The lookup in progress of each name. A change of the name removes it: its result is not cached, and later callers start
	// another one.
	flights map[string]*flight
	queue   []*flight
	// Workers that send the queue, and among them those that have not taken a batch yet.
	workers, starting int
	// The store has no route for batches until this time.
	single time.Time
	stats  Stats
}

// New returns a client. It does not connect.
func New(options Options) (*Client, error) {
	setDefault(&options.TTL, 60*time.Second)
	setDefault(&options.NegativeTTL, 15*time.Second)
	setDefault(&options.Revalidate, 30*time.Second)
	setDefault(&options.MaxStale, time.Hour)
	setDefault(&options.MaxEntries, 10_000)
	setDefault(&options.MaxBytes, 64<<20)
	setDefault(&options.Timeout, 10*time.Second)
	settings := &tls.Config{}
	if options.TLS != nil {
		settings = options.TLS.Clone()
	}
	if options.Roots != nil {
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(options.Roots) {
			return nil, invalid("Roots has no certificate in PEM")
		}
	}
	client := &Client{options: options, flights: map[string]*flight{}}
	client.cache = newCache(&client.options)
	client.ctx, client.stop = context.WithCancel(context.Background())
	var err error
	if client.transport, err = newTransport(&client.options, settings); err != nil {
		return nil, err
	}
	return client, nil
}

func setDefault[T int | int64 | time.Duration](option *T, usual T) {
	if *option <= 0 {
		*option = usual
	}
}

// Close ends the stream of changes and all requests, and empties the cache. Later lookups fail with ErrUnavailable.
func (c *Client) Close() {
	c.stop()
	c.lock.Lock()
	c.cache.clear()
	c.lock.Unlock()
	c.transport.http.CloseIdleConnections()
}

// Get returns the current version of a credential. The end of ctx ends only this wait: the request continues for other callers and
// for the cache.
func (c *Client) Get(ctx context.Context, name string) (*Credential, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.follow()
	c.lock.Lock()
	lookup := c.begin(name)
	c.dispatch()
	c.lock.Unlock()
	if lookup.flight == nil {
		return lookup.result()
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	return c.await(ctx, lookup)
}

// GetMany returns the current versions of credentials by the names as given, in as few requests as possible. The error joins the
// errors of all names that are not in the map.
func (c *Client) GetMany(ctx context.Context, names []string) (map[string]*Credential, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.follow()
	lookups := make([]lookup, len(names))
	c.lock.Lock()
	for number, name := range names {
		lookups[number] = c.begin(name)
	}
	c.dispatch()
	c.lock.Unlock()

	ctx, cancel := c.limited(ctx)
	defer cancel()
	found := make(map[string]*Credential, len(names))
	var failed []error
	for _, lookup := range lookups {
		credential, err := c.await(ctx, lookup)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		found[lookup.asked] = credential
	}
	if len(failed) == 1 {
		return found, failed[0]
	}
	return found, errors.Join(failed...)
}

// limited returns ctx with the timeout of a lookup.
func (c *Client) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	most := c.options.Timeout
	return context.WithTimeoutCause(ctx, most, unavailable("no response within %v", most))
}

// Doubt marks the cached value of a name as doubtful, because a server rejected it. The next Get reads it from the store; while the
// store is unreachable the cached value is served.
func (c *Client) Doubt(name string) {
	key, err := normal(name)
	if err != nil {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.flights, key)
	if found, _ := c.cache.get(key); found != nil {
		found.doubted = true
	}
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	c.lock.Lock()
	defer c.lock.Unlock()
	stats := c.stats
	stats.Requests, stats.Retries = c.transport.requests.Load(), c.transport.retries.Load()
	return stats
}

// lookup is the lookup of one name by one caller: a result, or a flight to wait for.
type lookup struct {
	// The name as the caller gave it, and as the cache has it.
	asked, name string
	flight      *flight
	// A cached entry that is served if the store is unavailable.
	fallback   bool
	credential *Credential
	err        error
}

// begin looks into the cache, and begins a request or joins one if needed. Call dispatch afterwards.
func (c *Client) begin(asked string) lookup {
	name, err := normal(asked)
	if err != nil {
		return lookup{asked: asked, name: name, err: err}
	}
	made := lookup{asked: asked, name: name}
	if c.ctx.Err() != nil {
		made.err = unavailable("the client is closed").named(name)
		return made
	}
	found, age := c.cache.get(name)
	if found != nil {
		made.credential = found.credential
	}
	away, due := c.transport.away.now()
	switch {
	case age == fresh:
		c.stats.Hits++
	case found != nil && away != nil && !due:
		c.stats.StaleHits++
	case age == stale || age == old && away != nil:
		c.stats.StaleHits++
		c.join(name, false)
	case away != nil && !due:
		c.stats.Misses++
		made.err = away.named(name)
	default:
		made.fallback = found != nil
		made.flight = c.join(name, true)
		if made.flight == nil {
			made.err = unavailable("more than %d lookups wait", flightsMax).named(name)
		}
	}
	return made
}

// await returns the result of a lookup.
func (c *Client) await(ctx context.Context, lookup lookup) (*Credential, error) {
	if lookup.flight == nil {
		return lookup.result()
	}
	lookup.credential, lookup.err = lookup.flight.wait(ctx)
	c.lock.Lock()
	c.stats.Misses++
	cut := errors.Is(lookup.err, ErrUnavailable) || errors.Is(lookup.err, context.DeadlineExceeded)
	if cut && lookup.fallback {
		// Unless the entry was dropped or has expired in the meantime.
		if found, _ := c.cache.get(lookup.name); found != nil {
			lookup.credential, lookup.err = found.credential, nil
			c.stats.Misses--
			c.stats.StaleHits++
		}
	}
	c.lock.Unlock()
	return lookup.result()
}

func (l *lookup) result() (*Credential, error) {
	if l.err != nil {
		return nil, l.err
	}
	if l.credential == nil {
		return nil, &Error{Kind: ErrNotFound, Name: l.name}
	}
	return l.credential, nil
}

// normal returns a name as the cache has it: in lower case, with a leading slash. The store checks all other rules.
func normal(name string) (string, error) {
	bare := strings.TrimPrefix(name, "/")
	if bare == "" || utf8.RuneCountInString(bare) >= nameMax {
		return name, invalid("a name must have 1 to %d characters", nameMax).named(name)
	}
	return "/" + strings.Map(lower, bare), nil
}

// lower folds ASCII letters, as the store does.
func lower(letter rune) rune {
	if 'A' <= letter && letter <= 'Z' {
		return letter + 'a' - 'A'
	}
	return letter
}
