package keyless

import (
	"context"
	"errors"
	"sync"
)

// Doer carries requests: a Conn, as long as it lives, or a Client, which connects anew.
type Doer interface {
	// Do sends a request and waits for its reply, or for the context's end. The error of an error reply is an Error.
	Do(ctx context.Context, opcode byte, ski *SKI, payload []byte) (Reply, error)
}

// Client keeps one connection, made with the first request and again after it has ended. Many goroutines may use it at
// once; those that find no connection wait for the one of them that makes it.
type Client struct {
	dial func(context.Context) (*Conn, error)

	lock   sync.Mutex
	conn   *Conn
	dialed chan struct{}
}

// NewClient connects with dial, which is Dial with its arguments.
func NewClient(dial func(context.Context) (*Conn, error)) *Client { return &Client{dial: dial} }

// Do is Conn's. A request whose connection ended before its reply is asked once more: a signature does no harm twice.
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

// Close ends the connection, if there is one. The next request makes another.
func (c *Client) Close() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// live is a connection that has not ended, as far as is known.
func (c *Client) live(ctx context.Context) (*Conn, error) {
	for {
		c.lock.Lock()
		if c.conn != nil && c.conn.Err() == nil {
			defer c.lock.Unlock()
			return c.conn, nil
		}
		dialed := c.dialed
		if dialed == nil {
			dialed = make(chan struct{})
			c.dialed = dialed
			c.lock.Unlock()
			return c.connect(ctx, dialed)
		}
		c.lock.Unlock()
		select {
		case <-dialed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Client) connect(ctx context.Context, dialed chan struct{}) (*Conn, error) {
	conn, err := c.dial(ctx)
	c.lock.Lock()
	defer c.lock.Unlock()
	if err == nil {
		c.conn = conn
	}
	c.dialed = nil
	close(dialed)
	return conn, err
}
