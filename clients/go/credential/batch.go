package credential

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"
)

const (
	// namesMax is the maximum number of names per request: half of the store's, so that a response with long values is not too large.
	namesMax = 500
	// atOnce is the maximum number of concurrent requests.
	atOnce = 2
	// flightsMax is the maximum number of names that wait for a request.
	flightsMax = 10_000
	// singleFor is how long a store without the route for batches gets single requests.
	singleFor = 10 * time.Minute
)

// flight is a lookup of one name in the store, which all callers of the name share.
type flight struct {
	name string
	// The time of the request.
	asked time.Time
	// A caller waits; otherwise it refreshes the cache. Protected by the lock of the client.
	wanted bool
	// Closed when the result below is set.
	done       chan struct{}
	credential *Credential
	err        error
}

// join returns the flight of a name in progress, or a new one; nil if too many wait. Call with the lock.
func (c *Client) join(name string, wanted bool) *flight {
	found := c.flights[name]
	if found == nil {
		if len(c.queue) >= flightsMax {
			return nil
		}
		found = &flight{name: name, done: make(chan struct{})}
		c.flights[name] = found
		c.queue = append(c.queue, found)
	}
	found.wanted = found.wanted || wanted
	return found
}

// wait returns the result, or why ctx has ended.
func (f *flight) wait(ctx context.Context) (*Credential, error) {
	select {
	case <-f.done:
	case <-ctx.Done():
		select {
		case <-f.done:
		default:
			if own := (*Error)(nil); errors.As(context.Cause(ctx), &own) {
				return nil, own.named(f.name)
			}
			return nil, ctx.Err()
		}
	}
	return f.credential, f.err
}

// dispatch starts workers for the queue. Call with the lock.
func (c *Client) dispatch() {
	for c.workers < atOnce && len(c.queue) > c.starting*namesMax {
		c.workers++
		c.starting++
		go c.work()
	}
}

// work sends the queue in batches. Names that arrive during a request are sent with the next one.
func (c *Client) work() {
	for first := true; ; first = false {
		c.lock.Lock()
		if first {
			c.starting--
		}
		count := min(len(c.queue), namesMax)
		if count == 0 {
			c.queue = nil
			c.workers--
			c.lock.Unlock()
			return
		}
		batch := c.queue[:count:count]
		c.queue = c.queue[count:]
		now := c.cache.now()
		for _, flight := range batch {
			flight.asked = now
		}
		single := now.Before(c.single)
		c.lock.Unlock()
		if single {
			c.sendEach(batch)
		} else {
			c.send(batch)
		}
	}
}

// finish sets the result of a flight and caches it, unless the name has changed since the request.
func (c *Client) finish(flight *flight, credential *Credential, err error) {
	c.lock.Lock()
	flight.credential, flight.err = credential, err
	if c.flights[flight.name] == flight {
		delete(c.flights, flight.name)
		if err == nil && c.ctx.Err() == nil {
			c.cache.put(flight.name, credential, flight.asked, flight.wanted)
		}
	}
	c.lock.Unlock()
	close(flight.done)
}

func (c *Client) fail(batch []*flight, err *Error) {
	if errors.Is(err, ErrForbidden) {
		// The store does not accept this client any more, so nothing that it read earlier is served.
		c.drop()
	}
	for _, flight := range batch {
		c.finish(flight, nil, err.named(flight.name))
	}
}

// send looks up a batch. If the store rejects it as a whole (one invalid name, values too large together), it is sent in halves, so
// that only one caller gets the error. Other errors go to all callers, because halves would fail as well.
func (c *Client) send(batch []*flight) {
	names := make([][]string, len(batch))
	for number, flight := range batch {
		names[number] = []string{flight.name}
	}
	body, err := json.Marshal(map[string]any{"lookups": names})
	if err != nil {
		c.fail(batch, invalid("cannot encode the names"))
		return
	}
	response, refused := c.transport.request(c.ctx, http.MethodPost, "/api/v1/lookup", body)
	switch {
	case refused == nil:
		c.deliver(batch, response)
	case refused.Status == http.StatusNotFound || refused.Status == http.StatusMethodNotAllowed:
		c.lock.Lock()
		c.single = c.cache.now().Add(singleFor)
		c.lock.Unlock()
		c.sendEach(batch)
	case (refused.Status == http.StatusBadRequest || refused.Status == http.StatusRequestEntityTooLarge) && len(batch) > 1:
		c.send(batch[:len(batch)/2])
		c.send(batch[len(batch)/2:])
	default:
		c.fail(batch, refused)
	}
}

// deliver hands the results of a batch to its flights.
func (c *Client) deliver(batch []*flight, response []byte) {
	var answer struct {
		Results []*document `json:"results"`
	}
	if json.Unmarshal(response, &answer) != nil || len(answer.Results) != len(batch) {
		c.fail(batch, unavailable("the response to a lookup is not valid"))
		return
	}
	for number, flight := range batch {
		c.settle(flight, answer.Results[number])
	}
}

// settle sets the result of a flight from the store's document; nil: there is no credential.
func (c *Client) settle(flight *flight, found *document) {
	if found == nil {
		c.finish(flight, nil, nil)
		return
	}
	if found.Error != "" {
		failed := Error{Kind: ErrRefused, Name: flight.name, Status: http.StatusInternalServerError, Message: found.Error}
		c.finish(flight, nil, &failed)
		return
	}
	if name, err := normal(found.Name); err != nil || name != flight.name || len(found.Value) == 0 {
		c.finish(flight, nil, unavailable("the response is not this credential").named(flight.name))
		return
	}
	c.finish(flight, found.credential(), nil)
}

// sendEach looks up names one by one, from a store without the route for batches.
func (c *Client) sendEach(batch []*flight) {
	for number, flight := range batch {
		path := "/api/v1/data?current=true&name=" + url.QueryEscape(flight.name)
		response, refused := c.transport.request(c.ctx, http.MethodGet, path, nil)
		switch {
		case refused == nil:
			var answer struct {
				Data []*document `json:"data"`
			}
			if json.Unmarshal(response, &answer) != nil || len(answer.Data) == 0 {
				c.finish(flight, nil, unavailable("the response to a lookup is not valid").named(flight.name))
				continue
			}
			c.settle(flight, answer.Data[0])
		case refused.Status == http.StatusNotFound:
			c.finish(flight, nil, nil)
		case refused.Status == http.StatusForbidden:
			c.finish(flight, nil, refused.named(flight.name))
		default:
			c.fail(batch[number:number+1], refused)
		}
	}
}
