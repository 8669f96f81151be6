package credential

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// eventMax is the maximum size of one event.
	eventMax = 64 << 10
	// silenceMax is the timeout of a silent stream. The store sends something every 15 s.
	silenceMax = 45 * time.Second
	// againMin is the first delay before the stream is opened again; doubled up to againMax.
	againMin = 500 * time.Millisecond
	againMax = 30 * time.Second
	// unknownAgain is the delay if the store does not have the stream.
	unknownAgain = 10 * time.Minute
	// goodAfter: a stream that lasted this long counts as successful.
	goodAfter = 10 * time.Second
	// gapSpread: after a gap, clients spread their requests over this time.
	gapSpread = 2 * time.Second
)

// event is a server-sent event (WHATWG HTML section 9.2).
type event struct{ id, kind, data string }

// stream is the state of the stream of changes over all its connections.
type stream struct {
	client *Client
	// The ID of the last event.
	last string
	// It has begun before.
	begun bool
	// This connection continues where the previous one ended.
	resumed bool
}

// follow starts the stream of changes, once.
func (c *Client) follow() {
	if c.options.NoEvents {
		return
	}
	c.following.Do(func() {
		following := &stream{client: c}
		go following.run()
	})
}

func (s *stream) run() {
	pause := againMin
	for s.client.ctx.Err() == nil {
		began := time.Now()
		failed := s.connect()
		s.client.lock.Lock()
		s.client.cache.unfollow()
		s.client.lock.Unlock()
		if errors.Is(failed, ErrForbidden) {
			s.client.drop()
		}
		if time.Since(began) > goodAfter {
			pause = againMin
		}
		wait := pause
		if failed != nil && failed.Status == http.StatusNotFound {
			wait = unknownAgain
		}
		pause = min(pause*2, againMax)
		sleep(s.client.ctx, jitter(wait, 0.5))
	}
}

// connect reads the stream until it ends.
func (s *stream) connect() *Error {
	ctx, cancel := context.WithCancel(s.client.ctx)
	defer cancel()
	silence := time.AfterFunc(s.client.options.Timeout, cancel)
	defer silence.Stop()
	response, failed := s.client.transport.send(ctx, http.MethodGet, "/api/v1/events", nil, s.last)
	if failed != nil {
		return failed
	}
	defer response.Body.Close()
	err := read(response.Body, func() { silence.Reset(silenceMax) }, s.heard)
	return unavailable("the stream of changes ended: %v", err)
}

// read parses events until the stream ends. It calls alive for each line.
func read(from io.Reader, alive func(), heard func(event)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, eventMax)
	var next event
	size := 0
	for lines.Scan() {
		alive()
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" {
			if next != (event{}) {
				heard(next)
			}
			next, size = event{}, 0
			continue
		}
		if size += len(line); size > eventMax {
			return bufio.ErrTooLong
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			next.id = value
		case "event":
			next.kind = value
		case "data":
			next.data += value
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

// heard handles an event.
func (s *stream) heard(event event) {
	if event.id != "" {
		s.last = event.id
	}
	switch {
	case event.kind == "ready":
		var ready struct{ Resumed bool }
		s.resumed = json.Unmarshal([]byte(event.data), &ready) == nil && ready.Resumed
		if !s.resumed {
			// At the first stream no other client lost its stream at the same time, so no delay is needed.
			delay := time.Duration(0)
			if s.begun {
				delay = jitter(gapSpread, 1)
			}
			s.client.gap(delay)
		}
		s.begun = true
	case event.kind == "lagged":
		s.client.gap(jitter(gapSpread, 1))
		s.client.lock.Lock()
		if s.client.cache.following() {
			s.client.cache.follow(false)
		}
		s.client.lock.Unlock()
	case event.kind == "access":
		access := struct{ Changed bool }{}
		if json.Unmarshal([]byte(event.data), &access) != nil || access.Changed {
			s.client.count(func(stats *Stats) { stats.Changes++ })
			s.client.drop()
			s.client.notify("")
		}
		s.client.lock.Lock()
		if !s.client.cache.following() {
			s.client.cache.follow(s.resumed)
		}
		s.client.lock.Unlock()
	case strings.HasPrefix(event.kind, "credential."):
		s.client.count(func(stats *Stats) { stats.Changes++ })
		var change struct{ Name string }
		name, err := "", json.Unmarshal([]byte(event.data), &change)
		if err == nil {
			name, err = normal(change.Name)
		}
		if err != nil {
			s.client.gap(0)
			return
		}
		s.client.changed(name)
	}
}

func (c *Client) count(add func(*Stats)) {
	c.lock.Lock()
	add(&c.stats)
	c.lock.Unlock()
}

// changed drops a changed value. A value in use is read again immediately, so that it is cached even if the store fails next.
func (c *Client) changed(name string) {
	c.lock.Lock()
	delete(c.flights, name)
	if c.cache.remove(name) {
		c.join(name, false)
		c.dispatch()
	}
	c.lock.Unlock()
	c.notify(name)
}

// drop drops all values, because this client may not be permitted to read them any more.
func (c *Client) drop() {
	c.lock.Lock()
	defer c.lock.Unlock()
	clear(c.flights)
	c.cache.clear()
}

// gap records that any value may have changed until now: after the delay each is read again before it is served.
func (c *Client) gap(delay time.Duration) {
	c.lock.Lock()
	c.stats.Gaps++
	clear(c.flights)
	c.cache.gap(delay)
	c.lock.Unlock()
	if delay == 0 {
		c.notify("")
		return
	}
	time.AfterFunc(delay, func() { c.notify("") })
}

func (c *Client) notify(name string) {
	if c.options.OnChange == nil || c.ctx.Err() != nil {
		return
	}
	c.notifying.Lock()
	defer c.notifying.Unlock()
	c.options.OnChange(name)
}
