// Package leaves gets certificates for hosts, with their keys, from `bulla proxy` ([proxy.minting]). Each is minted once, however
// many programs request it. A Store is a certificate storage of goproxy (ProxyHttpServer.CertStore).
package leaves

import (
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// answerMax is the maximum length of a response in bytes: a chain of ten certificates and a key.
	answerMax = 64 << 10
	// again is the time for which a failure, or the certificate generated in its place, is cached.
	again = time.Second
	// atOnce is the maximum of concurrent requests. Further ones wait, within their timeout.
	atOnce = 64
	// renewParts: a certificate is renewed when this fraction of its lifetime remains, one in renewParts.
	renewParts = 3
)

// ErrNone means that the rules of the proxy allow no certificate for the host.
var ErrNone = errors.New("leaves: there is no certificate for that host")

// Fallback is the policy for generating a certificate in this process instead.
type Fallback int

const (
	// Never: without the proxy there is no certificate.
	Never Fallback = iota
	// WhenAway: if the proxy did not respond, or has no certificate now. Its refusals are final.
	WhenAway
)

// Options of a Store. The zero value of each field means its default.
type Options struct {
	// Client sends the requests, with a client certificate if the proxy requires one. Default: http.DefaultClient.
	Client *http.Client
	// Max is the maximum number of certificates in memory, about 4 KB each. The least recently used is removed first. Default: 10,000.
	Max int
	// Within is the timeout of a request. Default: 10 s.
	Within time.Duration
	// Fallback is the policy. Default: Never.
	Fallback Fallback
}

// Store caches certificates until they expire. It is safe for concurrent use.
type Store struct {
	url     url.URL
	options Options

	lock sync.Mutex
	held map[string]*list.Element
	// Values are *entry, most recently used first.
	order  *list.List
	flying map[string]*flight
	// A slot for each request.
	places chan struct{}
}

// entry is the cached certificate of a host.
type entry struct {
	host        string
	certificate *tls.Certificate
	err         error
	renew, ends time.Time
}

// flight is a request that all callers for a host share. The other fields are valid after done is closed.
type flight struct {
	done        chan struct{}
	certificate *tls.Certificate
	err         error
	// Generated in this process, because the proxy did not respond.
	local bool
}

// New creates a Store that requests certificates at address, such as http://127.0.0.1:2410/certificate.
func New(address string, options Options) (*Store, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("leaves: %w", err)
	}
	if parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, fmt.Errorf("leaves: %q is no address like http://127.0.0.1:2410/certificate", address)
	}
	if options.Client == nil {
		options.Client = http.DefaultClient
	}
	if options.Max <= 0 {
		options.Max = 10_000
	}
	if options.Within <= 0 {
		options.Within = 10 * time.Second
	}
	return &Store{
		url: *parsed, options: options, held: map[string]*list.Element{}, order: list.New(), flying: map[string]*flight{},
		places: make(chan struct{}, atOnce),
	}, nil
}

// Fetch returns the certificate for a host, from the cache or by one request that concurrent callers share. gen generates a
// certificate if the policy of the Store allows it; it may be nil.
func (s *Store) Fetch(hostname string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	now := time.Now()
	s.lock.Lock()
	if element, ok := s.held[hostname]; ok {
		found := element.Value.(*entry)
		if now.Before(found.ends) {
			s.order.MoveToFront(element)
			if found.err == nil && now.After(found.renew) && s.flying[hostname] == nil {
				// In the background: the caller gets the current certificate, which is still valid.
				s.begin(hostname, nil)
			}
			s.lock.Unlock()
			return found.certificate, found.err
		}
		s.drop(element)
	}
	flying := s.flying[hostname]
	if flying == nil {
		flying = s.begin(hostname, gen)
	}
	s.lock.Unlock()
	<-flying.done
	return flying.certificate, flying.err
}

// Len returns the number of cached hosts.
func (s *Store) Len() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.held)
}

// begin starts a request for a host. The caller holds the lock.
func (s *Store) begin(hostname string, gen func() (*tls.Certificate, error)) *flight {
	flying := &flight{done: make(chan struct{})}
	s.flying[hostname] = flying
	go func() {
		// The waiting callers get a result even if gen panics.
		flying.err = errors.New("leaves: the fallback panicked")
		defer s.end(hostname, flying)
		certificate, err := s.ask(hostname)
		if err != nil && !errors.Is(err, ErrNone) && s.options.Fallback == WhenAway && gen != nil {
			flying.local = true
			certificate, err = gen()
			if err == nil && certificate == nil {
				err = errors.New("leaves: the fallback returned no certificate")
			}
		}
		flying.certificate, flying.err = certificate, err
	}()
	return flying
}

// end caches the result, and wakes the waiting callers.
func (s *Store) end(hostname string, flying *flight) {
	now := time.Now()
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.flying, hostname)
	defer close(flying.done)
	kept := &entry{host: hostname, certificate: flying.certificate, err: flying.err, ends: now.Add(again)}
	if flying.err == nil && !flying.local && flying.certificate.Leaf != nil {
		left := flying.certificate.Leaf.NotAfter.Sub(now)
		kept.ends, kept.renew = now.Add(left), now.Add(left-left/renewParts)
	}
	if element, ok := s.held[hostname]; ok {
		if before := element.Value.(*entry); flying.err != nil && before.err == nil && now.Before(before.ends) {
			// The current certificate is still valid: retry soon.
			before.renew = now.Add(again)
			return
		}
		s.drop(element)
	}
	s.held[hostname] = s.order.PushFront(kept)
	for len(s.held) > s.options.Max {
		s.drop(s.order.Back())
	}
}

func (s *Store) drop(element *list.Element) {
	delete(s.held, element.Value.(*entry).host)
	s.order.Remove(element)
}

// ask sends one request to the proxy.
func (s *Store) ask(hostname string) (*tls.Certificate, error) {
	asked, cancel := context.WithTimeout(context.Background(), s.options.Within)
	defer cancel()
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-asked.Done():
		return nil, fmt.Errorf("leaves: %d questions are under way: %w", atOnce, asked.Err())
	}
	address := s.url
	query := address.Query()
	query.Set("server_name", hostname)
	address.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(asked, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("leaves: %w", err)
	}
	answer, err := s.options.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("leaves: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, answerMax+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("leaves: %w", err)
	case answer.StatusCode == http.StatusNoContent:
		return nil, ErrNone
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("leaves: the proxy answered %s: %.200q", answer.Status, text)
	case len(text) > answerMax:
		return nil, fmt.Errorf("leaves: the proxy's answer is longer than %d octets", answerMax)
	}
	certificate, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("leaves: %w", err)
	}
	if certificate.Leaf == nil {
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return nil, fmt.Errorf("leaves: %w", err)
		}
	}
	return &certificate, nil
}
