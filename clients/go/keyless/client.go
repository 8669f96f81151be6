package keyless

import (
	"context"
	"errors"
	"sync"
	"time"
)

// dialWithin bounds a dial, whatever the context of those who wait for it.
const dialWithin = 10 * time.Second

// Doer carries requests: a Conn, as long as it lives, or a Client, which connects anew.
type Doer interface {
	// Do sends a request and waits for its reply, or for the context's end. The error of an error reply is an Error.
	Do(ctx context.Context, opcode byte, ski *SKI, payload []byte) (Reply, error)
}

// Client keeps one connection, made with the first request and again after it has ended. Many goroutines may use it at
// once; those that find no connection wait for the one of them that makes it.
type Client struct {
	dial   func(context.Context) (*Conn, error)
	within time.Duration

	lock sync.Mutex
	conn *Conn
	// The dial under way, if there is one.
	dialing *dialing
}

// dialing is a dial that all who need a connection wait for; err is read once done is closed.
type dialing struct {
	done chan struct{}
	conn *Conn
	err  error
}

// NewClient connects with dial, which is Dial with its arguments.
func NewClient(dial func(context.Context) (*Conn, error)) *Client {
	return &Client{dial: dial, within: dialWithin}
}

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

// live is a connection that has not ended, as far as is known. A dial's failure is that of all who waited for it.
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
