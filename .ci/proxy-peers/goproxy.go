// goproxy with a certificate store that makes each host's leaf once, the benchmark's authority and upstream: every name is
// this machine.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

// store keeps leaves by host, made once each.
type store struct {
	mutex sync.Mutex
	hosts map[string]*entry
}

type entry struct {
	once sync.Once
	leaf *tls.Certificate
	err  error
}

func (s *store) Fetch(host string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	s.mutex.Lock()
	one, is := s.hosts[host]
	if !is {
		one = new(entry)
		s.hosts[host] = one
	}
	s.mutex.Unlock()
	one.once.Do(func() { one.leaf, one.err = gen() })
	return one.leaf, one.err
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ca := must(tls.LoadX509KeyPair(os.Getenv("CA_CERT"), os.Getenv("CA_KEY")))
	ca.Leaf = must(x509.ParseCertificate(ca.Certificate[0]))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("UPSTREAM_ROOT")))) {
		log.Fatal("no root")
	}
	proxy := goproxy.NewProxyHttpServer()
	proxy.Logger = log.New(io.Discard, "", 0)
	proxy.CertStore = &store{hosts: make(map[string]*entry)}
	proxy.Tr = &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		MaxIdleConnsPerHost: 64,
		MaxIdleConns:        512,
		IdleConnTimeout:     60 * time.Second,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
		},
	}
	mitm := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&ca)}
	proxy.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		return mitm, host
	})
	log.Fatal(http.ListenAndServe(os.Getenv("ADDRESS"), proxy))
}
