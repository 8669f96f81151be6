// Command keyless-check asks a key service for every kind of signature and checks each with Go's own cryptography; what
// should be refused has to be. It exits with 0 when all is as it should be.
//
//	keyless-check -address HOST:PORT -ca FILE -cert FILE -key FILE -keys FOLDER [-socket PATH]
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/md5"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	_ "crypto/sha256"
	_ "crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"bulla.example/clients/keyless"
)

// For the whole run.
const patience = 2 * time.Minute

var hashes = []crypto.Hash{crypto.MD5SHA1, crypto.SHA1, crypto.SHA224, crypto.SHA256, crypto.SHA384, crypto.SHA512}

// Hashes under which the service makes no RSA signatures.
var broken = map[crypto.Hash]bool{crypto.MD5SHA1: true, crypto.SHA1: true, crypto.SHA224: true}

type checker struct {
	ctx    context.Context
	where  string
	done   int
	failed int
}

func (c *checker) check(ok bool, format string, arguments ...any) {
	c.done++
	if !ok {
		c.failed++
		fmt.Fprintf(os.Stderr, "%s: %s\n", c.where, fmt.Sprintf(format, arguments...))
	}
}

func main() {
	address := flag.String("address", "", "the service, HOST:PORT")
	ca := flag.String("ca", "", "the authority of its certificate (PEM)")
	certificate := flag.String("cert", "", "the client's certificate (PEM)")
	key := flag.String("key", "", "the key of that (PEM)")
	folder := flag.String("keys", "", "folder of the public halves of the service's keys (*.pub, PEM)")
	socket := flag.String("socket", "", "the service's Unix socket")
	refused := flag.String("refused", "", "NAME: NAME.pem and NAME.key are a client that is not to be let in")
	flag.Parse()
	if err := run(*address, *ca, *certificate, *key, *folder, *socket, *refused); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, ca, certificate, key, folder, socket, refused string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	publics, err := readPublics(folder)
	if err != nil {
		return err
	}
	done, failed := 0, 0
	all := func(where string, conn *keyless.Conn) {
		defer conn.Close()
		c := &checker{ctx: ctx, where: where}
		c.everything(conn, publics)
		done, failed = done+c.done, failed+c.failed
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config, err := tlsConfig(ca, certificate, key, version)
		if err != nil {
			return err
		}
		conn, err := keyless.Dial(ctx, "tcp", address, config)
		if err != nil {
			return err
		}
		all(tls.VersionName(version), conn)
		if refused == "" {
			continue
		}
		if config, err = tlsConfig(ca, refused+".pem", refused+".key", version); err != nil {
			return err
		}
		done++
		if conn, err := keyless.Dial(ctx, "tcp", address, config); err == nil {
			// In TLS 1.3 a client hears only later that it is not let in.
			if _, err := conn.Do(ctx, keyless.OpPing, nil, []byte("?")); err == nil {
				failed++
				fmt.Fprintf(os.Stderr, "%s: %s is let in\n", tls.VersionName(version), refused)
			}
			conn.Close()
		}
	}
	if socket != "" {
		conn, err := keyless.Dial(ctx, "unix", socket, nil)
		if err != nil {
			return err
		}
		all("socket", conn)
	}
	fmt.Printf("%d checks, %d failed\n", done, failed)
	if failed > 0 {
		return errors.New("the service does not do what it should")
	}
	return nil
}

func tlsConfig(ca, certificate, key string, version uint16) (*tls.Config, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", ca)
	}
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: "localhost",
		MinVersion: version, MaxVersion: version,
	}, nil
}

func readPublics(folder string) ([]crypto.PublicKey, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.pub"))
	if err != nil {
		return nil, err
	}
	var publics []crypto.PublicKey
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		block, _ := pem.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("%s is not PEM", path)
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		publics = append(publics, public)
	}
	if len(publics) == 0 {
		return nil, fmt.Errorf("no *.pub in %s", folder)
	}
	return publics, nil
}

func (c *checker) everything(conn *keyless.Conn, publics []crypto.PublicKey) {
	for _, length := range []int{0, 1, 1000, 60000} {
		payload := bytes.Repeat([]byte{'p'}, length)
		reply, err := conn.Do(c.ctx, keyless.OpPing, nil, payload)
		c.check(err == nil && reply.Opcode == keyless.OpPong && bytes.Equal(reply.Payload, payload),
			"a ping of %d octets: %v", length, err)
		c.check(reply.Length >= 1024, "a reply of %d octets", reply.Length)
	}
	for _, public := range publics {
		c.signatures(conn, public)
	}
	c.deputies(conn, publics)
	c.errors(conn, publics[0])
	c.tickets(conn)
	c.many(conn, publics)
}

// digestOf is a hash's value of a message; the two of MD5SHA1 side by side.
func digestOf(hash crypto.Hash, message []byte) []byte {
	if hash == crypto.MD5SHA1 {
		first, second := md5.Sum(message), sha1.Sum(message)
		return append(first[:], second[:]...)
	}
	h := hash.New()
	h.Write(message)
	return h.Sum(nil)
}

func (c *checker) signatures(conn *keyless.Conn, public crypto.PublicKey) {
	signer, err := keyless.NewSigner(conn, public)
	if err != nil {
		c.check(false, "%T: %v", public, err)
		return
	}
	message := make([]byte, 1000)
	rand.Read(message)
	if key, ok := public.(ed25519.PublicKey); ok {
		for _, length := range []int{0, 1, 32, 1000} {
			signature, err := signer.SignContext(c.ctx, message[:length], crypto.Hash(0))
			c.check(err == nil && ed25519.Verify(key, message[:length], signature), "Ed25519 over %d: %v", length, err)
		}
		return
	}
	for _, hash := range hashes {
		digest := digestOf(hash, message)
		signature, err := signer.SignContext(c.ctx, digest, hash)
		switch key := public.(type) {
		case *ecdsa.PublicKey:
			c.check(err == nil && ecdsa.VerifyASN1(key, digest, signature), "%s, %v: %v", key.Params().Name, hash, err)
		case *rsa.PublicKey:
			if broken[hash] {
				c.check(errors.Is(err, keyless.Error(1)), "RSA with %v is not made: %v", hash, err)
				continue
			}
			err = errors.Join(err, rsa.VerifyPKCS1v15(key, hash, digest, signature))
			c.check(err == nil, "RSA %d, PKCS #1, %v: %v", key.N.BitLen(), hash, err)
			options := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
			signature, err = signer.SignContext(c.ctx, digest, options)
			err = errors.Join(err, rsa.VerifyPSS(key, hash, digest, signature, options))
			c.check(err == nil, "RSA %d, PSS, %v: %v", key.N.BitLen(), hash, err)
		}
	}
}

// deputies: no key signs what is meant for another algorithm, and nothing signs digests of other lengths.
func (c *checker) deputies(conn *keyless.Conn, publics []crypto.PublicKey) {
	families := map[string]map[byte]int{
		"rsa":   {keyless.OpRSASHA256: 32, keyless.OpRSASHA384: 48, keyless.OpRSASHA512: 64, keyless.OpRSAPSSSHA256: 32, keyless.OpRSAPSSSHA384: 48, keyless.OpRSAPSSSHA512: 64, keyless.OpRSASHA1: 20},
		"ecdsa": {keyless.OpECDSASHA256: 32, keyless.OpECDSASHA384: 48, keyless.OpECDSASHA512: 64, keyless.OpECDSASHA1: 20},
		"ed":    {keyless.OpEd25519: 36},
	}
	for _, public := range publics {
		own := "rsa"
		if is[*ecdsa.PublicKey](public) {
			own = "ecdsa"
		} else if is[ed25519.PublicKey](public) {
			own = "ed"
		}
		ski, err := keyless.SKIOf(public)
		c.check(err == nil, "%v", err)
		for family, opcodes := range families {
			for opcode, length := range opcodes {
				lengths := []int{length}
				if family == own {
					if own == "ed" {
						continue
					}
					lengths = []int{0, length - 1, length + 1}
				}
				for _, length := range lengths {
					_, err := conn.Do(c.ctx, opcode, &ski, make([]byte, length))
					c.check(errors.Is(err, keyless.Error(1)), "%#x under %T over %d octets: %v", opcode, public, length, err)
				}
			}
		}
	}
}

func is[T any](value any) bool {
	_, ok := value.(T)
	return ok
}

func (c *checker) errors(conn *keyless.Conn, public crypto.PublicKey) {
	ski, err := keyless.SKIOf(public)
	c.check(err == nil, "%v", err)
	unknown := ski
	unknown[0] ^= 1
	for _, one := range []struct {
		opcode byte
		ski    *keyless.SKI
		wanted keyless.Error
	}{
		{keyless.OpRSASHA256, &unknown, 2}, {keyless.OpRSASHA256, nil, 8}, {0x00, &ski, 5}, {0x08, &ski, 5}, {0x20, &ski, 5},
		{0x23, &ski, 5}, {0x24, &ski, 5}, {keyless.OpSuccess, &ski, 6}, {keyless.OpPong, &ski, 6}, {keyless.OpError, &ski, 6},
	} {
		_, err := conn.Do(c.ctx, one.opcode, one.ski, make([]byte, 32))
		c.check(errors.Is(err, one.wanted), "opcode %#x: %v, wanted %v", one.opcode, err, one.wanted)
	}
}

func (c *checker) tickets(conn *keyless.Conn) {
	sealed, err := conn.Do(c.ctx, keyless.OpSeal, nil, []byte("session"))
	c.check(err == nil && !bytes.Contains(sealed.Payload, []byte("session")), "seal: %v", err)
	opened, err := conn.Do(c.ctx, keyless.OpUnseal, nil, sealed.Payload)
	c.check(err == nil && string(opened.Payload) == "session", "unseal: %v", err)
}

// many goroutines share the connection.
func (c *checker) many(conn *keyless.Conn, publics []crypto.PublicKey) {
	var group sync.WaitGroup
	results := make(chan error, 64)
	for at := range cap(results) {
		group.Add(1)
		go func() {
			defer group.Done()
			results <- handshake(c.ctx, conn, publics[at%len(publics)])
		}()
	}
	group.Wait()
	close(results)
	for err := range results {
		c.check(err == nil, "many at once: %v", err)
	}
}

// handshake signs once by whatever the key signs by, and checks it.
func handshake(ctx context.Context, conn *keyless.Conn, public crypto.PublicKey) error {
	signer, err := keyless.NewSigner(conn, public)
	if err != nil {
		return err
	}
	digest := digestOf(crypto.SHA256, []byte("many"))
	hash := crypto.SHA256
	if is[ed25519.PublicKey](public) {
		hash = crypto.Hash(0)
	}
	signature, err := signer.SignContext(ctx, digest, hash)
	if err != nil {
		return err
	}
	ok := false
	switch key := public.(type) {
	case ed25519.PublicKey:
		ok = ed25519.Verify(key, digest, signature)
	case *ecdsa.PublicKey:
		ok = ecdsa.VerifyASN1(key, digest, signature)
	case *rsa.PublicKey:
		ok = rsa.VerifyPKCS1v15(key, hash, digest, signature) == nil
	}
	if !ok {
		return fmt.Errorf("%T: the signature does not verify", public)
	}
	return nil
}
