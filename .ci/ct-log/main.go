// A Certificate Transparency log on loopback for the tests: trees, tiles and data tiles are Tessera's, on a folder; the
// signature is that of static-ct-api, which Tessera leaves to its users. Prints its URL and its key, then serves until
// standard input ends.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/ctonly"
	"github.com/transparency-dev/tessera/storage/posix"
)

const origin = "tessera.example/2026"

// The largest submission read: some hundred entries of a test.
const submissionMax = 16 << 20

// signer makes RFC6962NoteSignatures.
type signer struct {
	key   *ecdsa.PrivateKey
	logID [32]byte
}

func (s *signer) Name() string { return origin }

func (s *signer) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(origin+"\n\x05"), s.logID[:]...))
	return binary.BigEndian.Uint32(sum[:4])
}

func (s *signer) Sign(body []byte) ([]byte, error) {
	lines := bytes.Split(body, []byte("\n"))
	if len(lines) < 3 {
		return nil, errors.New("no checkpoint")
	}
	size, err := strconv.ParseUint(string(lines[1]), 10, 64)
	if err != nil {
		return nil, err
	}
	root, err := base64.StdEncoding.DecodeString(string(lines[2]))
	if err != nil {
		return nil, err
	}
	now := uint64(time.Now().UnixMilli())
	head := binary.BigEndian.AppendUint64([]byte{0, 1}, now)
	head = append(binary.BigEndian.AppendUint64(head, size), root...)
	digest := sha256.Sum256(head)
	signature, err := ecdsa.SignASN1(rand.Reader, s.key, digest[:])
	if err != nil {
		return nil, err
	}
	out := append(binary.BigEndian.AppendUint64(nil, now), 4, 3)
	return append(binary.BigEndian.AppendUint16(out, uint16(len(signature))), signature...), nil
}

type submission struct {
	TBS            []byte `json:"tbs"`
	IssuerKeyHash  []byte `json:"issuer_key_hash"`
	Precertificate []byte `json:"precertificate"`
	Certificate    []byte `json:"certificate"`
	Issuer         []byte `json:"issuer"`
}

func (s submission) entry() *ctonly.Entry {
	entry := &ctonly.Entry{
		Timestamp:         uint64(time.Now().UnixMilli()),
		FingerprintsChain: [][32]byte{sha256.Sum256(s.Issuer)},
	}
	if len(s.Certificate) > 0 {
		entry.Certificate = s.Certificate
		return entry
	}
	entry.IsPrecert = true
	entry.Certificate, entry.Precertificate, entry.IssuerKeyHash = s.TBS, s.Precertificate, s.IssuerKeyHash
	return entry
}

func main() {
	folder := os.Args[1]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	spki, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	check(err)
	ctx := context.Background()
	driver, err := posix.New(ctx, posix.Config{Path: folder})
	check(err)
	options := tessera.NewAppendOptions().
		WithCTLayout().
		WithCheckpointSigner(&signer{key: key, logID: sha256.Sum256(spki)}).
		WithCheckpointInterval(100*time.Millisecond).
		WithBatching(256, 20*time.Millisecond)
	appender, shutdown, reader, err := tessera.NewAppender(ctx, driver, options)
	check(err)
	add := tessera.NewCertificateTransparencyAppender(appender)
	awaiter := tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, 20*time.Millisecond)

	// Answers once all of it is in the tree that is served.
	http.HandleFunc("POST /add", func(w http.ResponseWriter, r *http.Request) {
		var all []submission
		if err := json.NewDecoder(io.LimitReader(r.Body, submissionMax)).Decode(&all); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		futures := make([]tessera.IndexFuture, 0, len(all))
		for _, one := range all {
			futures = append(futures, add(r.Context(), one.entry()))
		}
		for _, future := range futures {
			if _, _, err := awaiter.Await(r.Context(), future); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
	})
	http.Handle("GET /", http.FileServer(http.Dir(folder)))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("http://%s/ https://%s/ %s\n", listener.Addr(), origin, base64.StdEncoding.EncodeToString(spki))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = shutdown(ctx)
		os.Exit(0)
	}()
	log.Fatal(http.Serve(listener, nil))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
