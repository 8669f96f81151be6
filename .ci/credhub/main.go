// A program over CredHub's published client library, as Concourse uses it: one client that every worker shares, built while
// the server may be down; of each secret `name-like` with the whole path before the value, pipeline before team.
//
// Usage: credhub-lookups SERVER CA-FILE CLIENT SECRET WORKERS LOOKUPS PIPELINES [PERIOD_MS]
//
// With PERIOD_MS, every secret of every pipeline is asked for once each so many milliseconds, as Concourse's checks do.
//
// Writes one JSON document: how long lookups took, and how many requests, connections, handshakes and logins they cost.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"code.cloudfoundry.org/credhub-cli/credhub"
	"code.cloudfoundry.org/credhub-cli/credhub/auth"
)

// counting sits between the library and its connections.
type counting struct {
	inner      http.RoundTripper
	handshakes *atomic.Int64
	dials      *atomic.Int64
	requests   *atomic.Int64
	logins     *atomic.Int64
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	if request.URL.Path == "/oauth/token" {
		c.logins.Add(1)
	}
	trace := &httptrace.ClientTrace{
		ConnectDone:      func(string, string, error) { c.dials.Add(1) },
		TLSHandshakeDone: func(tls.ConnectionState, error) { c.handshakes.Add(1) },
	}
	return c.inner.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

// processor is this process's time on the processors, in milliseconds.
func processor() int64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return (usage.Utime.Nano() + usage.Stime.Nano()) / 1_000_000
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// lookup resolves a secret of a pipeline as Concourse does: the first path at which the search finds something is read.
func lookup(client *credhub.CredHub, pipeline, secret int) (string, error) {
	name := fmt.Sprintf("s%d", secret)
	paths := []string{fmt.Sprintf("/concourse/main/p%d/%s", pipeline, name), "/concourse/main/" + name}
	for _, path := range paths {
		found, err := client.FindByPartialName(path)
		if err != nil {
			return "", err
		}
		if len(found.Credentials) == 0 {
			continue
		}
		credential, err := client.GetLatestVersion(path)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(credential.Value), nil
	}
	return "", fmt.Errorf("nothing at %v", paths)
}

func main() {
	if len(os.Args) != 8 && len(os.Args) != 9 {
		fmt.Fprintln(os.Stderr,
			"usage: credhub-lookups SERVER CA-FILE CLIENT SECRET WORKERS LOOKUPS PIPELINES [PERIOD_MS]")
		os.Exit(2)
	}
	ca, err := os.ReadFile(os.Args[2])
	must(err)
	workers, lookups, pipelines := number(os.Args[5]), number(os.Args[6]), number(os.Args[7])
	var period time.Duration
	if len(os.Args) == 9 {
		period = time.Duration(number(os.Args[8])) * time.Millisecond
	}
	client, err := credhub.New(os.Args[1], credhub.CaCerts(string(ca)),
		credhub.Auth(auth.UaaClientCredentials(os.Args[3], os.Args[4])))
	must(err)
	var handshakes, dials, requests, logins atomic.Int64
	transport := client.Client().Transport.(*http.Transport)
	// Otherwise Go opens a connection whenever none is idle at the moment, and their number depends on the load of the machine.
	transport.MaxConnsPerHost = workers
	client.Client().Transport = counting{transport, &handshakes, &dials, &requests, &logins}

	const secrets = 5
	var next atomic.Int64
	took := make([][]time.Duration, workers)
	began := time.Now()
	var all sync.WaitGroup
	for worker := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				turn := int(next.Add(1)) - 1
				if turn >= lookups {
					return
				}
				// A round begins when its time has come.
				time.Sleep(time.Until(began.Add(time.Duration(turn/(secrets*pipelines)) * period)))
				pipeline, secret := turn/secrets%pipelines, turn%secrets
				start := time.Now()
				value, err := lookup(client, pipeline, secret)
				must(err)
				// The first three belong to the pipeline, the others to the team.
				wanted := fmt.Sprintf("team-%d", secret)
				if secret < 3 {
					wanted = fmt.Sprintf("p%d-%d", pipeline, secret)
				}
				if value != wanted {
					must(fmt.Errorf("%d of p%d is %q, not %q", secret, pipeline, value, wanted))
				}
				took[worker] = append(took[worker], time.Since(start))
			}
		}()
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	var each []time.Duration
	for _, of := range took {
		each = append(each, of...)
	}
	sort.Slice(each, func(a, b int) bool { return each[a] < each[b] })
	at := func(part float64) float64 {
		return float64(each[min(int(part*float64(len(each))), len(each)-1)].Microseconds()) / 1000
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"lookups":     len(each),
		"per_second":  float64(len(each)) / seconds,
		"p50_ms":      at(0.5),
		"p99_ms":      at(0.99),
		"cpu_ms":      processor(),
		"requests":    requests.Load(),
		"connections": dials.Load(),
		"handshakes":  handshakes.Load(),
		"logins":      logins.Load(),
	}))
}
