// Package leaves gets certificates for hosts, with their keys, from `bulla proxy` ([proxy.minting]), each minted once however
// many programs ask. A Store is what goproxy calls its certificate storage (ProxyHttpServer.CertStore).
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
	// answerMax bounds an answer, in octets: a chain of ten and a key.
	answerMax = 64 << 10
	// again is how long a failure, or a certificate made in its place, stands for all who ask.
	again = time.Second
	// atOnce bounds the questions under way; more wait for their turn, within the time each has.
	atOnce = 64
	// renewParts: a certificate is asked for anew when one part in so many of its life is left.
	renewParts = 3
)

// ErrNone says that there is no certificate for that host, by the rules of the proxy.
var ErrNone = errors.New("leaves: there is no certificate for that host")

// Fallback says when a certificate is made here instead.
type Fallback int

const (
	// Never: without the proxy there is none.
	Never Fallback = iota
	// WhenAway: where the proxy did not answer, or has none now. What it refuses is refused.
	WhenAway
)

// Options of a Store; the zero value of each is the usual one.
type Options struct {
	// Client asks; one that presents a certificate, where the proxy wants one. Usual: http.DefaultClient.
	Client *http.Client
	// Max bounds the certificates in memory, some 4 KB each; what was asked for the longest ago goes first. Usual: 10,000.
	Max int
	// Within bounds a question. Usual: 10 s.
	Within time.Duration
	// Fallback is the policy. Usual: Never.
	Fallback Fallback
}

// Store keeps what it was given until it ends. Many goroutines may use it at once.
type Store struct {
	url     url.URL
	options Options

	lock sync.Mutex
	held map[string]*list.Element
	// Of *entry, what was asked for last first.
	order  *list.List
	flying map[string]*flight
	// A place for each question.
	places chan struct{}
}

// entry is what stands for a host.
type entry struct {
	host        string
	certificate *tls.Certificate
	err         error
	renew, ends time.Time
}

// flight is a question that all who need its answer wait for; the rest is read once done is closed.
type flight struct {
	done        chan struct{}
	certificate *tls.Certificate
	err         error
	// made here, in place of one of the proxy's.
	local bool
}

// New asks at address, which is like http://127.0.0.1:2410/certificate.
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

// Fetch is the certificate for a host: from memory, or by one question for all who ask meanwhile. gen makes one by the policy
// of the Store; it may be nil.
func (s *Store) Fetch(hostname string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	now := time.Now()
	s.lock.Lock()
	if element, ok := s.held[hostname]; ok {
		found := element.Value.(*entry)
		if now.Before(found.ends) {
			s.order.MoveToFront(element)
			if found.err == nil && now.After(found.renew) && s.flying[hostname] == nil {
				// Beside whoever asks, who has one that still holds.
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

// Len is how many hosts something is kept for.
func (s *Store) Len() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.held)
}

// begin asks for a host; under the lock.
func (s *Store) begin(hostname string, gen func() (*tls.Certificate, error)) *flight {
	flying := &flight{done: make(chan struct{})}
	s.flying[hostname] = flying
	go func() {
		// Whatever gen does, those who wait are told.
		flying.err = errors.New("leaves: no certificate was made")
		defer s.end(hostname, flying)
		certificate, err := s.ask(hostname)
		if err != nil && !errors.Is(err, ErrNone) && s.options.Fallback == WhenAway && gen != nil {
			flying.local = true
			certificate, err = gen()
			if err == nil && certificate == nil {
				err = errors.New("leaves: the certificate made here is none")
			}
		}
		flying.certificate, flying.err = certificate, err
	}()
	return flying
}

// end keeps what came, and tells those who wait.
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
			// It still holds: another try soon.
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

// ask is one question to the proxy.
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
