package keyless

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// serve answers what it is asked with the same payload, `most` times, and hangs up.
func serve(stream net.Conn, most int) {
	defer stream.Close()
	for range most {
		request, err := readReply(stream)
		if err != nil {
			return
		}
		message, _ := Encode(request.ID, OpPong, nil, request.Payload)
		stream.Write(message)
	}
	// Read, and not answered.
	readReply(stream)
}

func TestAClientConnectsAnew(t *testing.T) {
	var dials atomic.Int32
	client := NewClient(func(context.Context) (*Conn, error) {
		dials.Add(1)
		near, far := net.Pipe()
		go serve(far, 2)
		return New(near), nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for at := range 6 {
		if _, err := client.Do(ctx, OpPing, nil, []byte("a")); err != nil {
			t.Fatalf("request %d: %v", at, err)
		}
	}
	if dials.Load() != 3 {
		t.Errorf("%d connections for six requests of two each", dials.Load())
	}
	client.Close()
	if _, err := client.Do(ctx, OpPing, nil, []byte("a")); err != nil {
		t.Errorf("after Close: %v", err)
	}
	none := NewClient(func(context.Context) (*Conn, error) { return nil, errors.New("nobody there") })
	if _, err := none.Do(ctx, OpPing, nil, nil); err == nil || err.Error() != "nobody there" {
		t.Errorf("nobody there: %v", err)
	}
}

func TestADialThatDoesNotEndFailsAllWhoWaitForItOnce(t *testing.T) {
	var dials atomic.Int32
	silent := NewClient(func(ctx context.Context) (*Conn, error) {
		dials.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	silent.within = time.Second
	// One who goes away takes nothing from the others.
	gone, leave := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := silent.Do(gone, OpPing, nil, nil)
		left <- err
	}()
	for dials.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	const waiters = 100
	failed := make(chan error)
	for range waiters {
		go func() {
			_, err := silent.Do(context.Background(), OpPing, nil, nil)
			failed <- err
		}()
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left: %v", err)
	}
	for range waiters {
		select {
		case err := <-failed:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("nobody is told")
		}
	}
	if dials.Load() > 10 {
		t.Errorf("%d dials", dials.Load())
	}
}

func TestAQuietConnectionIsKept(t *testing.T) {
	near, far := net.Pipe()
	conn := newConn(near, 10*time.Millisecond)
	defer conn.Close()
	for range 3 {
		request, err := readReply(far)
		if err != nil || request.Opcode != OpPing {
			t.Fatalf("%+v, %v", request, err)
		}
		message, _ := Encode(request.ID, OpPong, nil, request.Payload)
		if _, err := far.Write(message); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARequestThatNobodyWaitsForIsNotSent(t *testing.T) {
	near, far := net.Pipe()
	conn := New(near)
	defer conn.Close()
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := conn.Do(ended, OpPing, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	// A peer that reads nothing holds nobody up past the end of the request's time.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := conn.Do(ctx, OpPing, nil, nil); err == nil {
		t.Error("sent to nobody")
	}
	far.Close()
	for conn.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
