// Package keyless requests signatures from a key service by the Keyless protocol, version 1, over TLS or a Unix socket.
//
// A Conn has many concurrent requests. It sends pings while it is idle, because a service closes a connection that is silent for
// half a minute. A Client reconnects after a connection has ended. NewSigner creates a crypto.Signer for a public key
// whose private key the service holds. The package needs only the standard library.
package keyless

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Interval of pings. By default a service closes a connection that is silent for 30 s.
const pingEvery = 10 * time.Second

// Timeout of a write.
const writeWithin = 10 * time.Second

// Maximum messages of one write: 16 KB, one TLS record.
const batchMax = 16

// Opcodes of requests and replies.
const (
	OpRSAMD5SHA1    = 0x02
	OpRSASHA1       = 0x03
	OpRSASHA224     = 0x04
	OpRSASHA256     = 0x05
	OpRSASHA384     = 0x06
	OpRSASHA512     = 0x07
	OpECDSAMD5SHA1  = 0x12
	OpECDSASHA1     = 0x13
	OpECDSASHA224   = 0x14
	OpECDSASHA256   = 0x15
	OpECDSASHA384   = 0x16
	OpECDSASHA512   = 0x17
	OpEd25519       = 0x18
	OpSeal          = 0x21
	OpUnseal        = 0x22
	OpRSAPSSSHA256  = 0x35
	OpRSAPSSSHA384  = 0x36
	OpRSAPSSSHA512  = 0x37
	OpSuccess       = 0xf0
	OpPing          = 0xf1
	OpPong          = 0xf2
	OpError         = 0xff
	tagSKI          = 0x04
	tagOpcode       = 0x11
	tagPayload      = 0x12
	tagPadding      = 0x20
	headerLength    = 8
	itemHeadLength  = 3
	paddedLength    = 1024
	bodyLengthMax   = 0xffff
	protocolVersion = 1
)

// SKI names a key: SHA-1 of its subjectPublicKey's content (RFC 5280 section 4.2.1.2, method 1).
type SKI [sha1.Size]byte

// SKIOf returns the identifier of this public key.
func SKIOf(public crypto.PublicKey) (SKI, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return SKI{}, err
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		return SKI{}, err
	}
	return sha1.Sum(info.Key.Bytes), nil
}

// Error is an error reply of a service.
type Error byte

var errorNames = map[Error]string{
	1: "cryptography failure", 2: "key not found", 3: "read error", 4: "version mismatch", 5: "bad opcode",
	6: "unexpected opcode", 7: "format error", 8: "internal error or overloaded", 9: "certificate not found",
	10: "expired", 11: "remote configuration",
}

func (e Error) Error() string {
	if name, ok := errorNames[e]; ok {
		return "keyless: " + name
	}
	return fmt.Sprintf("keyless: error %d", byte(e))
}

// ErrClosed is the error of pending requests when their connection ends.
var ErrClosed = errors.New("keyless: the connection has ended")

// Reply is a message from the service.
type Reply struct {
	ID      uint32
	Opcode  byte
	Payload []byte
	// Length of the whole message with its padding.
	Length int
}

// Conn is one connection. It is safe for concurrent use.
type Conn struct {
	stream net.Conn
	// One goroutine writes, so that the deadline of a request does not cut the message of another.
	out chan []byte

	lock    sync.Mutex
	next    uint32
	waiting map[uint32]chan Reply
	ended   error
	gone    chan struct{}
}

// Dial connects to a service: network "tcp" with a TLS configuration, or "unix" without one.
func Dial(ctx context.Context, network, address string, config *tls.Config) (*Conn, error) {
	stream, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if config != nil {
		secured := tls.Client(stream, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			stream.Close()
			return nil, err
		}
		stream = secured
	}
	return New(stream), nil
}

// New creates a connection over a stream, and owns the stream.
func New(stream net.Conn) *Conn { return newConn(stream, pingEvery) }

func newConn(stream net.Conn, ping time.Duration) *Conn {
	conn := &Conn{stream: stream, out: make(chan []byte, batchMax), waiting: make(map[uint32]chan Reply), gone: make(chan struct{})}
	go conn.read()
	go conn.writeAll()
	go conn.keep(ping)
	return conn
}

// Err returns the reason why the connection has ended; nil while it is open.
func (c *Conn) Err() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.ended
}

// keep sends pings, and closes the connection if a ping gets no reply.
func (c *Conn) keep(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-c.gone:
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), writeWithin)
		_, err := c.Do(ctx, OpPing, nil, nil)
		cancel()
		if err != nil {
			c.end(fmt.Errorf("%w: a ping: %w", ErrClosed, err))
			return
		}
	}
}

// Close closes the connection. Pending requests fail.
func (c *Conn) Close() error { return c.stream.Close() }

func (c *Conn) read() {
	for {
		reply, err := readReply(c.stream)
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrClosed, err))
			return
		}
		c.lock.Lock()
		waiter := c.waiting[reply.ID]
		delete(c.waiting, reply.ID)
		c.lock.Unlock()
		// The request has ended: drop the late reply.
		if waiter != nil {
			waiter <- reply
		}
	}
}

func (c *Conn) end(err error) {
	c.stream.Close()
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.ended != nil {
		return
	}
	c.ended = err
	close(c.gone)
	for id, waiter := range c.waiting {
		delete(c.waiting, id)
		close(waiter)
	}
}

// Do sends a request and waits for its reply until the context ends. An error reply is returned as an Error.
func (c *Conn) Do(ctx context.Context, opcode byte, ski *SKI, payload []byte) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, err
	}
	waiter := make(chan Reply, 1)
	c.lock.Lock()
	if c.ended != nil {
		defer c.lock.Unlock()
		return Reply{}, c.ended
	}
	id := c.next
	c.next++
	c.waiting[id] = waiter
	c.lock.Unlock()
	forget := func() {
		c.lock.Lock()
		delete(c.waiting, id)
		c.lock.Unlock()
	}
	message, err := Encode(id, opcode, ski, payload)
	if err != nil {
		forget()
		return Reply{}, err
	}
	if err := c.send(ctx, message); err != nil {
		forget()
		return Reply{}, err
	}
	select {
	case reply, ok := <-waiter:
		if !ok {
			c.lock.Lock()
			defer c.lock.Unlock()
			return Reply{}, c.ended
		}
		if reply.Opcode == OpError {
			if len(reply.Payload) != 1 {
				return reply, errors.New("keyless: an error without a code")
			}
			return reply, Error(reply.Payload[0])
		}
		return reply, nil
	case <-ctx.Done():
		forget()
		return Reply{}, ctx.Err()
	}
}

// send passes a message to the goroutine that writes.
func (c *Conn) send(ctx context.Context, message []byte) error {
	select {
	case c.out <- message:
		return nil
	case <-c.gone:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeAll writes the queued messages, several in one write. An incomplete write ends the connection: no message could follow
// it.
func (c *Conn) writeAll() {
	for {
		var batch [][]byte
		select {
		case <-c.gone:
			return
		case message := <-c.out:
			batch = append(batch, message)
		}
		for len(batch) < batchMax && len(c.out) > 0 {
			batch = append(batch, <-c.out)
		}
		err := c.stream.SetWriteDeadline(time.Now().Add(writeWithin))
		if err == nil {
			_, err = c.stream.Write(bytes.Join(batch, nil))
		}
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrClosed, err))
			return
		}
	}
}

// Encode encodes a request, with padding.
func Encode(id uint32, opcode byte, ski *SKI, payload []byte) ([]byte, error) {
	message := make([]byte, headerLength, paddedLength)
	message[0] = protocolVersion
	binary.BigEndian.PutUint32(message[4:], id)
	item := func(tag byte, data []byte) {
		message = append(message, tag)
		message = binary.BigEndian.AppendUint16(message, uint16(len(data)))
		message = append(message, data...)
	}
	item(tagOpcode, []byte{opcode})
	if ski != nil {
		item(tagSKI, ski[:])
	}
	item(tagPayload, payload)
	if missing := paddedLength - len(message); missing > 0 {
		item(tagPadding, make([]byte, max(0, missing-itemHeadLength)))
	}
	if len(message)-headerLength > bodyLengthMax {
		return nil, errors.New("keyless: the payload is too long")
	}
	binary.BigEndian.PutUint16(message[2:], uint16(len(message)-headerLength))
	return message, nil
}

func readReply(stream io.Reader) (Reply, error) {
	var header [headerLength]byte
	if _, err := io.ReadFull(stream, header[:]); err != nil {
		return Reply{}, err
	}
	if header[0] != protocolVersion {
		return Reply{}, fmt.Errorf("keyless: a reply of version %d", header[0])
	}
	body := make([]byte, binary.BigEndian.Uint16(header[2:]))
	if _, err := io.ReadFull(stream, body); err != nil {
		return Reply{}, err
	}
	reply := Reply{ID: binary.BigEndian.Uint32(header[4:]), Length: headerLength + len(body)}
	for len(body) >= itemHeadLength {
		tag, length := body[0], int(binary.BigEndian.Uint16(body[1:]))
		body = body[itemHeadLength:]
		if length > len(body) {
			return Reply{}, errors.New("keyless: an item runs past its message")
		}
		switch data := body[:length]; tag {
		case tagOpcode:
			if length != 1 {
				return Reply{}, errors.New("keyless: an opcode is one octet")
			}
			reply.Opcode = data[0]
		case tagPayload:
			reply.Payload = data
		}
		body = body[length:]
	}
	return reply, nil
}

// Signer signs with a key of the service.
type Signer struct {
	conn   Doer
	public crypto.PublicKey
	ski    SKI
}

// NewSigner creates a crypto.Signer. It sends no request.
func NewSigner(conn Doer, public crypto.PublicKey) (*Signer, error) {
	ski, err := SKIOf(public)
	if err != nil {
		return nil, err
	}
	return &Signer{conn: conn, public: public, ski: ski}, nil
}

// Public returns the public key.
func (s *Signer) Public() crypto.PublicKey { return s.public }

// Sign implements crypto.Signer: it signs a digest, or a message for Ed25519. It waits until the connection ends, which is within
// 20 s if the service does not reply. SignContext has a deadline.
func (s *Signer) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return s.SignContext(context.Background(), digest, opts)
}

// SignContext is Sign with a deadline.
func (s *Signer) SignContext(ctx context.Context, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	opcode, err := opcodeFor(s.public, opts)
	if err != nil {
		return nil, err
	}
	reply, err := s.conn.Do(ctx, opcode, &s.ski, digest)
	if err != nil {
		return nil, err
	}
	return reply.Payload, nil
}

func opcodeFor(public crypto.PublicKey, opts crypto.SignerOpts) (byte, error) {
	hash := opts.HashFunc()
	of := func(opcodes map[crypto.Hash]byte) (byte, error) {
		if opcode, ok := opcodes[hash]; ok {
			return opcode, nil
		}
		return 0, fmt.Errorf("keyless: no opcode for %T with %v", public, hash)
	}
	switch public.(type) {
	case ed25519.PublicKey:
		return of(map[crypto.Hash]byte{crypto.Hash(0): OpEd25519})
	case *ecdsa.PublicKey:
		return of(map[crypto.Hash]byte{
			crypto.MD5SHA1: OpECDSAMD5SHA1, crypto.SHA1: OpECDSASHA1, crypto.SHA224: OpECDSASHA224,
			crypto.SHA256: OpECDSASHA256, crypto.SHA384: OpECDSASHA384, crypto.SHA512: OpECDSASHA512,
		})
	case *rsa.PublicKey:
		if pss, ok := opts.(*rsa.PSSOptions); ok {
			if pss.SaltLength != rsa.PSSSaltLengthEqualsHash && pss.SaltLength != hash.Size() {
				return 0, errors.New("keyless: salts are as long as the hash")
			}
			return of(map[crypto.Hash]byte{
				crypto.SHA256: OpRSAPSSSHA256, crypto.SHA384: OpRSAPSSSHA384, crypto.SHA512: OpRSAPSSSHA512,
			})
		}
		return of(map[crypto.Hash]byte{
			crypto.MD5SHA1: OpRSAMD5SHA1, crypto.SHA1: OpRSASHA1, crypto.SHA224: OpRSASHA224,
			crypto.SHA256: OpRSASHA256, crypto.SHA384: OpRSASHA384, crypto.SHA512: OpRSASHA512,
		})
	}
	return 0, fmt.Errorf("keyless: no opcodes for %T", public)
}
