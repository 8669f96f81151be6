package keyless

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"
)

func TestMessagesArePadded(t *testing.T) {
	const other = headerLength + 4 + 3
	for payload, wanted := range map[int]int{
		0: 1024, 512: 1024, 1024 - other - 3: 1024, 1024 - other - 2: 1025, 1024 - other - 1: 1026, 1024 - other: 1024,
		5000: other + 5000, bodyLengthMax - 7: headerLength + bodyLengthMax,
	} {
		message, err := Encode(7, OpPing, nil, make([]byte, payload))
		if err != nil || len(message) != wanted {
			t.Errorf("a payload of %d octets: %d octets, %v; wanted %d", payload, len(message), err, wanted)
			continue
		}
		reply, err := readReply(bytes.NewReader(message))
		if err != nil || reply.ID != 7 || reply.Opcode != OpPing || len(reply.Payload) != payload {
			t.Errorf("read back as %+v, %v", reply, err)
		}
	}
	if _, err := Encode(7, OpPing, nil, make([]byte, bodyLengthMax-6)); err == nil {
		t.Error("too long, and written")
	}
}

// Answers come in another order than they were asked for, and one of them never.
func TestRepliesFindTheirRequests(t *testing.T) {
	near, far := net.Pipe()
	conn := New(near)
	defer conn.Close()
	go func() {
		var held []Reply
		for range 3 {
			request, err := readReply(far)
			if err != nil {
				return
			}
			held = append(held, request)
		}
		for at := len(held) - 1; at >= 0; at-- {
			if string(held[at].Payload) == "b" {
				continue
			}
			message, _ := Encode(held[at].ID, OpPong, nil, held[at].Payload)
			far.Write(message)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	results := make(chan error, 3)
	for _, text := range []string{"a", "b", "c"} {
		go func() {
			reply, err := conn.Do(ctx, OpPing, nil, []byte(text))
			switch {
			case text == "b" && errors.Is(err, context.DeadlineExceeded):
				results <- nil
			case err != nil:
				results <- err
			case string(reply.Payload) != text:
				results <- errors.New(text + " was answered by " + string(reply.Payload))
			default:
				results <- nil
			}
		}()
	}
	for range 3 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	far.Close()
	if _, err := conn.Do(context.Background(), OpPing, nil, nil); err == nil {
		t.Error("the connection has ended")
	}
}

func TestRepliesThatAreNoneAreRefused(t *testing.T) {
	good, _ := Encode(1, OpPong, nil, []byte("x"))
	for _, change := range []func([]byte){
		func(m []byte) { m[0] = 2 },
		func(m []byte) { binary.BigEndian.PutUint16(m[9:], 0xffff) },
		func(m []byte) { binary.BigEndian.PutUint16(m[2:], 0xffff) },
	} {
		message := bytes.Clone(good)
		change(message)
		if _, err := readReply(bytes.NewReader(message)); err == nil {
			t.Errorf("% x was read", message[:16])
		}
	}
}
