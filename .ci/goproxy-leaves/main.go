// Command goproxy-leaves is goproxy as it is, with leaves from `bulla proxy` for its certificate storage. It listens on a free
// port, which it says, and answers whatever is asked by itself.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"bulla.example/clients/leaves"
	"github.com/elazarl/goproxy"
)

func main() {
	store, err := leaves.New(os.Args[1], leaves.Options{})
	if err != nil {
		log.Fatal(err)
	}
	proxy := goproxy.NewProxyHttpServer()
	proxy.CertStore = store
	proxy.OnRequest().HandleConnect(goproxy.FuncHttpsHandler(
		func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
			return &goproxy.ConnectAction{
				Action:    goproxy.ConnectMitm,
				TLSConfig: goproxy.TLSConfigFromCA(&goproxy.GoproxyCa),
			}, host
		}))
	proxy.OnRequest().DoFunc(func(request *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		return request, goproxy.NewResponse(request, goproxy.ContentTypeText, http.StatusOK, "hello "+request.URL.Hostname())
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, proxy))
}

var _ goproxy.CertStorage = (*leaves.Store)(nil)
