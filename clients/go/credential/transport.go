package credential

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// responseMax is the maximum size of a response. A batch of the largest values is split in halves.
	responseMax = 64 << 20
	// messageMax is the maximum size shown of an error that is not from the store but, for example, from a proxy.
	messageMax = 300
	// attemptsMax is the maximum number of attempts of a request. Each has half of the timeout.
	attemptsMax  = 4
	attemptParts = 2
	// backoff is the maximum delay before the second attempt; doubled before each further one.
	backoff = 100 * time.Millisecond
	// pauseMin is how long no request is sent after a failure; doubled up to pauseMax.
	pauseMin = 250 * time.Millisecond
	pauseMax = 5 * time.Second
	// connectMax is the timeout of a connection, and of its TLS handshake.
	connectMax = 5 * time.Second
	// retriesMax is the maximum number of retries in a burst; each request adds retriesEarned. So a failing store does not get a
	// multiple of the usual load.
	retriesMax    = 10
	retriesEarned = 0.1
)

// transport sends requests to the store.
type transport struct {
	base    string
	options *Options
	http    *http.Client
	away    away

	requests, retries atomic.Uint64
	lock              sync.Mutex
	budget            float64
}

func newTransport(options *Options, settings *tls.Config) (*transport, error) {
	address, err := url.Parse(strings.TrimRight(options.URL, "/"))
	if err != nil || address.Scheme != "https" || address.Host == "" || address.User != nil || address.RawQuery != "" {
		return nil, invalid("URL %q is not https://HOST:PORT", options.URL)
	}
	if options.TokenFunc == nil && strings.ContainsAny(options.Token.Reveal(), " \r\n\t") {
		return nil, invalid("Token contains white space: trim the text of its file")
	}
	dialer := &net.Dialer{Timeout: connectMax}
	return &transport{
		base: address.String(), options: options, budget: retriesMax,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: settings,
				TLSHandshakeTimeout: connectMax, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: 5 * time.Minute,
				// HTTP/1.1: a request that is cut off closes its connection, so that the next one does not wait for a dead connection.
				TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
			},
			// A redirect must not take the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// request returns the body of a successful response. Temporary errors are retried, within the timeout and the budget.
func (t *transport) request(ctx context.Context, method, path string, body []byte) ([]byte, *Error) {
	ctx, cancel := context.WithTimeout(ctx, t.options.Timeout)
	defer cancel()
	t.earn()
	for attempt := 1; ; attempt++ {
		response, failed := t.attempt(ctx, method, path, body)
		if failed == nil || failed.Kind != ErrUnavailable {
			t.away.over()
			return response, failed
		}
		pause := jitter(backoff<<(attempt-1), 1)
		deadline, _ := ctx.Deadline()
		if attempt == attemptsMax || time.Until(deadline) < pause || ctx.Err() != nil || !t.retry() {
			t.away.failed(failed)
			return nil, failed
		}
		t.retries.Add(1)
		sleep(ctx, pause)
	}
}

func (t *transport) attempt(ctx context.Context, method, path string, body []byte) ([]byte, *Error) {
	most := t.options.Timeout / attemptParts
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no response within %v", most))
	defer cancel()
	response, failed := t.send(ctx, method, path, body, "")
	if failed != nil {
		return nil, failed
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, responseMax+1))
	if err != nil {
		return nil, lost(ctx, err)
	}
	if len(content) > responseMax {
		message := fmt.Sprintf("the response has more than %d bytes", responseMax)
		return nil, &Error{Kind: ErrRefused, Status: http.StatusRequestEntityTooLarge, Message: message}
	}
	return content, nil
}

// send sends one request and returns the response if it is successful.
func (t *transport) send(ctx context.Context, method, path string, body []byte, last string) (*http.Response, *Error) {
	request, err := http.NewRequestWithContext(ctx, method, t.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, invalid("cannot make a request to %q", t.base)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	token := t.options.Token
	if t.options.TokenFunc != nil {
		if token, err = t.options.TokenFunc(ctx); err != nil {
			return nil, unavailable("no token: %v", err)
		}
	}
	if text := token.Reveal(); text != "" {
		request.Header.Set("Authorization", "Bearer "+text)
	}
	request.Header.Set("User-Agent", "bulla-client-go")
	t.requests.Add(1)
	response, err := t.http.Do(request)
	if err != nil {
		return nil, lost(ctx, err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusal(response)
}

// lost returns the error of a request without a response.
func lost(ctx context.Context, err error) *Error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if own, ok := err.(*url.Error); ok {
		err = own.Err
	}
	return unavailable("%v", err)
}

// refusal returns the error of a response.
func refusal(response *http.Response) *Error {
	content, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	var answer struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	message := string(content[:min(len(content), messageMax)])
	if json.Unmarshal(content, &answer) == nil && answer.Error != "" {
		message = answer.Error
		if answer.Description != "" {
			message = answer.Description
		}
	}
	made := &Error{Kind: ErrRefused, Status: response.StatusCode, Message: message}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		made.Kind = ErrForbidden
	// The store or its database is unavailable, its disk is full, or there are too many requests. Other statuses, including 500,
	// depend on the request.
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		made.Kind = ErrUnavailable
	}
	return made
}

func (t *transport) earn() {
	t.lock.Lock()
	t.budget = min(t.budget+retriesEarned, retriesMax)
	t.lock.Unlock()
}

func (t *transport) retry() bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.budget < 1 {
		return false
	}
	t.budget--
	return true
}

// away is the state of an unavailable store.
type away struct {
	lock  sync.Mutex
	why   *Error
	until time.Time
	pause time.Duration
}

// now returns why the store counts as unavailable (nil: it does not), and whether a new attempt is due.
func (a *away) now() (*Error, bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.why, !time.Now().Before(a.until)
}

func (a *away) failed(why *Error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.pause = min(max(a.pause*2, pauseMin), pauseMax)
	a.why, a.until = why, time.Now().Add(jitter(a.pause, 0.5))
}

func (a *away) over() {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.why, a.pause = nil, 0
}

// sleep waits, at most until ctx ends.
func sleep(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
