// A server that the clients speak with through the proxy, and the client in Go.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "upstream":
		err = serve(os.Args[2], os.Args[3])
	case len(os.Args) == 6 && os.Args[1] == "client":
		err = check(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	default:
		err = fmt.Errorf("proxy-check upstream CERTIFICATE KEY | client PROXY CA UPSTREAM NGINX")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// streams are those of /events that wait for their client to say that it has the first event.
var streams sync.Map

// serve prints its port, and then what pages in a browser report, a line each.
func serve(certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	rpc := grpc.NewServer()
	healthpb.RegisterHealthServer(rpc, health.NewServer())
	routes := http.NewServeMux()
	routes.HandleFunc("/protocol", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	routes.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	routes.HandleFunc("/events", events)
	routes.HandleFunc("/seen", seen)
	routes.HandleFunc("/ws", echoMessages)
	routes.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, page)
	})
	routes.HandleFunc("/report", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s\n", strings.ReplaceAll(string(body), "\n", " "))
	})
	server := http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				rpc.ServeHTTP(w, r)
				return
			}
			routes.ServeHTTP(w, r)
		}),
	}
	return server.ServeTLS(listener, "", "")
}

// events sends a second event only after its client has said that it saw the first: whoever holds answers back never ends.
func events(w http.ResponseWriter, r *http.Request) {
	told := make(chan struct{})
	id := r.URL.Query().Get("id")
	streams.Store(id, told)
	defer streams.Delete(id)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "data: first\n\n")
	w.(http.Flusher).Flush()
	select {
	case <-told:
		fmt.Fprint(w, "data: second\n\n")
	case <-r.Context().Done():
	}
}

func seen(w http.ResponseWriter, r *http.Request) {
	if told, is := streams.LoadAndDelete(r.URL.Query().Get("id")); is {
		close(told.(chan struct{}))
	} else {
		w.WriteHeader(http.StatusNotFound)
	}
}

func echoMessages(w http.ResponseWriter, r *http.Request) {
	connection, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer connection.Close()
	for {
		kind, message, err := connection.ReadMessage()
		if err != nil || connection.WriteMessage(kind, message) != nil {
			return
		}
	}
}

// page asks all that the other clients do, from within a browser.
const page = `<!doctype html><title>bulla</title><script>
const same = (what, is, wanted) => { if (is !== wanted) throw new Error(what + ": " + is) }
async function all() {
  same("protocol", await (await fetch("/protocol")).text(), "HTTP/2.0")
  const large = "x".repeat(1 << 20)
  same("echo", await (await fetch("/echo", {method: "POST", body: large})).text(), large)
  await new Promise((done, failed) => {
    const source = new EventSource("/events?id=browser")
    source.onmessage = event => {
      if (event.data === "first") fetch("/seen?id=browser")
      else { source.close(); event.data === "second" ? done() : failed(new Error(event.data)) }
    }
  })
  await new Promise((done, failed) => {
    const socket = new WebSocket("wss://" + location.host + "/ws")
    socket.onopen = () => socket.send("hello")
    socket.onerror = () => failed(new Error("the WebSocket failed"))
    socket.onmessage = event => { socket.close(); event.data === "hello" ? done() : failed(new Error(event.data)) }
  })
}
all().then(() => "passed", error => "" + error).then(body => fetch("/report", {method: "POST", body}))
</script>`
