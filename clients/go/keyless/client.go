package keyless

import (
	"context"
	"errors"
	"sync"
	"time"
)

// dialWithin is the timeout of a dial. It does not depend on the contexts of the callers that wait for it.
const dialWithin = 10 * time.Second

// Doer sends requests: a Conn until its connection ends, or a Client, which reconnects.
type Doer interface {
	// Do sends a request and waits for its reply until the context ends. An error reply is returned as an Error.
	Do(ctx context.Context, opcode byte, ski *SKI, payload []byte) (Reply, error)
}

// Client keeps one connection. It connects at the first request, and again after the connection has ended. It is safe for
// concurrent use; goroutines without a connection share one dial.
type Client struct {
	dial   func(context.Context) (*Conn, error)
	within time.Duration

	lock sync.Mutex
	conn *Conn
	// The current dial, if there is one.
	dialing *dialing
}

// dialing is a dial that all callers without a connection share. err is valid after done is closed.
type dialing struct {
	done chan struct{}
	conn *Conn
	err  error
}

// NewClient creates a client that connects with dial: Dial with its arguments.
func NewClient(dial func(context.Context) (*Conn, error)) *Client {
	return &Client{dial: dial, within: dialWithin}
}

// Do is like Conn.Do. A request whose connection ended before its reply is retried once: repeating a signature is harmless.
func (c *Client) Do(ctx context.Context, opcode byte, ski *SKI, payload []byte) (Reply, error) {
	for again := false; ; again = true {
		conn, err := c.live(ctx)
		if err != nil {
			return Reply{}, err
		}
		reply, err := conn.Do(ctx, opcode, ski, payload)
		if again || !errors.Is(err, ErrClosed) {
			return reply, err
		}
	}
}

// Close closes the connection, if there is one. The next request connects again.
func (c *Client) Close() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// live returns a connection that has not ended as far as the client knows. All callers of a failed dial get its error.
func (c *Client) live(ctx context.Context) (*Conn, error) {
	c.lock.Lock()
	if c.conn != nil && c.conn.Err() == nil {
		defer c.lock.Unlock()
		return c.conn, nil
	}
	if c.dialing == nil {
		c.dialing = &dialing{done: make(chan struct{})}
		go c.connect(context.WithoutCancel(ctx), c.dialing)
	}
	dialing := c.dialing
	c.lock.Unlock()
	select {
	case <-dialing.done:
		return dialing.conn, dialing.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Client) connect(ctx context.Context, dialing *dialing) {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	conn, err := c.dial(ctx)
	c.lock.Lock()
	defer c.lock.Unlock()
	dialing.conn, dialing.err = conn, err
	c.conn, c.dialing = conn, nil
	close(dialing.done)
}
