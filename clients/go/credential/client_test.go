package credential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestConcurrentLookupsOfANameShareARequest(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	hold := make(chan struct{})
	store.hold = hold
	client := store.client(t, nil)
	// A caller that gives up does not cancel the request for others.
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() {
		_, err := client.Get(ctx, "/a")
		gone <- err
	}()
	until(t, "the request begins", func() bool { return len(store.asked()) == 1 })
	var all sync.WaitGroup
	for number := 0; number < 200; number++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if text := text(t, client, "/A"); text != "one" {
				t.Error(text)
			}
		}()
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(hold)
	all.Wait()
	if asked := store.asked(); len(asked) != 1 {
		t.Errorf("%d requests", len(asked))
	}
	if stats := client.Stats(); stats.Requests != 1 || stats.Hits+stats.Misses != 201 {
		t.Errorf("%+v", stats)
	}
}

func TestNamesDuringRequestsAreCollectedForTheNext(t *testing.T) {
	store := newFake(t)
	hold := make(chan struct{})
	store.hold = hold
	client := store.client(t, nil)
	var all sync.WaitGroup
	get := func(name string) {
		store.set(name, name)
		all.Add(1)
		go func() {
			defer all.Done()
			if text := text(t, client, name); text != name {
				t.Error(text)
			}
		}()
	}
	for number := 0; number < atOnce; number++ {
		get(fmt.Sprintf("/first%d", number))
		until(t, "a request begins", func() bool { return len(store.asked()) == number+1 })
	}
	for number := 0; number < 100; number++ {
		get(fmt.Sprintf("/n%d", number))
	}
	until(t, "they wait", func() bool {
		client.lock.Lock()
		defer client.lock.Unlock()
		return len(client.queue) == 100
	})
	close(hold)
	all.Wait()
	if asked := store.asked(); len(asked) != atOnce+1 || len(asked[atOnce]) != 100 {
		t.Errorf("%d requests", len(asked))
	}
}

func TestGetManyUsesOneRequestAndNamesEachError(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	store.set("/b", "two")
	client := store.client(t, nil)
	found, err := client.GetMany(context.Background(), []string{"a", "/B", "/none", "/a", ""})
	if !errors.Is(err, ErrNotFound) || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "/none: does not exist") {
		t.Error(err)
	}
	if len(found) != 3 || found["a"] != found["/a"] || found["/B"].Name != "/b" {
		t.Error(found)
	}
	if asked := store.asked(); !reflect.DeepEqual(asked, [][]string{{"/a", "/b", "/none"}}) {
		t.Error(asked)
	}
	if _, err := client.Get(context.Background(), "/none"); !errors.Is(err, ErrNotFound) || len(store.asked()) != 1 {
		t.Error("the absence is not cached", err)
	}
	names := make([]string, namesMax+1)
	for number := range names {
		names[number] = fmt.Sprintf("/n%d", number)
		store.set(names[number], "x")
	}
	if found, err := client.GetMany(context.Background(), names); err != nil || len(found) != len(names) || len(store.asked()) != 3 {
		t.Error(len(found), err, len(store.asked()))
	}
}

func TestRejectedBatchIsSentInHalves(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	store.set("/b", "two")
	client := store.client(t, nil)
	found, err := client.GetMany(context.Background(), []string{"/a", "/bad", "/b"})
	if len(found) != 2 || !errors.Is(err, ErrNotFound) || len(store.asked()) > 5 {
		t.Error(found, err, store.asked())
	}
}

func TestStoreWithoutBatchesGetsSingleRequests(t *testing.T) {
	store := newFake(t)
	store.old = true
	store.set("/a", "one")
	client := store.client(t, nil)
	found, err := client.GetMany(context.Background(), []string{"/a", "/none"})
	if len(found) != 1 || !errors.Is(err, ErrNotFound) || text(t, client, "/a") != "one" {
		t.Error(found, err)
	}
	if asked := store.asked(); !reflect.DeepEqual(asked, [][]string{{"/a"}, {"/none"}}) {
		t.Error(asked)
	}
}

func TestCachedValueIsServedWhileTheStoreIsUnavailable(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	client := store.client(t, nil)
	at := time.Now()
	client.cache.now = func() time.Time { return at }
	text(t, client, "/a")
	store.change(func() { store.status = http.StatusServiceUnavailable })
	// Old, so that the store is asked.
	client.lock.Lock()
	at = at.Add(30 * time.Minute)
	client.lock.Unlock()
	if text(t, client, "/a") != "one" {
		t.Error("another value")
	}
	if asked := len(store.asked()); asked != 1+attemptsMax {
		t.Errorf("%d requests", asked)
	}
	if _, err := client.Get(context.Background(), "/b"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "/b") ||
		!strings.Contains(err.Error(), "the test wants 503") {
		t.Error(err)
	}
	client.lock.Lock()
	at = at.Add(31 * time.Minute)
	client.lock.Unlock()
	if _, err := client.Get(context.Background(), "/a"); !errors.Is(err, ErrUnavailable) {
		t.Error("served after MaxStale", err)
	}
	store.change(func() { store.status = 0 })
	store.set("/a", "two")
	until(t, "the store is asked again", func() bool {
		found, err := client.Get(context.Background(), "/a")
		return err == nil && found.ID == "2"
	})
}

func TestDoubtedValueIsReadAgain(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	client := store.client(t, nil)
	text(t, client, "/a")
	store.set("/a", "two")
	if text(t, client, "/a") != "one" {
		t.Error("not cached")
	}
	client.Doubt("/A")
	if text(t, client, "/a") != "two" {
		t.Error("not read again")
	}
}

func TestRefusedClientLosesItsCache(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	client := store.client(t, nil)
	text(t, client, "/a")
	store.change(func() { store.status = http.StatusUnauthorized })
	if _, err := client.Get(context.Background(), "/b"); !errors.Is(err, ErrForbidden) {
		t.Error(err)
	}
	if _, err := client.Get(context.Background(), "/a"); !errors.Is(err, ErrForbidden) {
		t.Error("still served", err)
	}
}

func TestChangeInvalidatesAndIsReadAgain(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	changes := make(chan string, 10)
	client := store.followed(t, func(options *Options) { options.OnChange = func(name string) { changes <- name } })
	if name := <-changes; name != "" {
		t.Error("the start of the stream is a gap", name)
	}
	text(t, client, "/a")
	store.set("/a", "two")
	before := len(store.asked())
	store.say(1, "credential.changed", `{"name":"/A","type":"password"}`)
	if name := <-changes; name != "/a" {
		t.Error(name)
	}
	until(t, "the value in use is read again", func() bool { return len(store.asked()) == before+1 })
	if text(t, client, "/a") != "two" {
		t.Error("an old value")
	}
	// A value that no caller has read since is not read again at the next change.
	store.say(2, "credential.changed", `{"name":"/other"}`)
	<-changes
	if stats := client.Stats(); stats.Changes != 2 || stats.Gaps != 1 || len(store.asked()) != before+1 {
		t.Errorf("%+v %v", stats, store.asked())
	}
}

func TestResponseFromBeforeAChangeIsNotCachedOrShared(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	client := store.followed(t, nil)
	holds := []chan struct{}{make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	for number, hold := range holds {
		store.change(func() { store.hold = hold })
		go func() {
			text(t, client, "/a")
			done <- struct{}{}
		}()
		until(t, "the caller does not share an earlier request", func() bool { return len(store.asked()) == 2+number })
		store.say(number, "credential.changed", `{"name":"/a"}`)
		until(t, "the change arrives", func() bool { return client.Stats().Changes == uint64(number+1) })
	}
	store.change(func() { store.hold = nil })
	for number, hold := range holds {
		close(hold)
		<-done
		client.lock.Lock()
		if found, _ := client.cache.get("/a"); found != nil {
			t.Errorf("response %d is cached", number)
		}
		client.lock.Unlock()
	}
	text(t, client, "/a")
	text(t, client, "/a")
	if asked := store.asked(); len(asked) != 4 {
		t.Error(asked)
	}
}

func TestChangedAccessDropsEveryValue(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	client := store.followed(t, nil)
	text(t, client, "/a")
	store.change(func() { delete(store.values, "/a") })
	store.say(1, "access", `{"changed":true}`)
	until(t, "the value is dropped", func() bool {
		_, err := client.Get(context.Background(), "/a")
		return errors.Is(err, ErrNotFound)
	})
}

func TestStreamResumesAndAGapReadsEveryValueAgain(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	client := store.followed(t, nil)
	text(t, client, "/a")
	store.say(7, "place", "{}")
	store.change(func() { store.ready = `{"resumed":true}` })
	streams := func(wanted int) func() bool {
		return func() bool {
			store.lock.Lock()
			defer store.lock.Unlock()
			return len(store.resumed) == wanted
		}
	}
	store.cut()
	until(t, "the stream is resumed", func() bool { return streams(2)() && client.isFollowing() })
	store.change(func() {
		if store.resumed[1] != "0-7" {
			t.Error(store.resumed)
		}
	})
	before := len(store.asked())
	text(t, client, "/a")
	if stats := client.Stats(); stats.Gaps != 1 || len(store.asked()) != before {
		t.Errorf("a resumed stream has no gap: %+v", stats)
	}
	store.set("/a", "two")
	store.change(func() { store.ready = `{"resumed":false}` })
	store.cut()
	until(t, "the value is read again", func() bool { return text(t, client, "/a") == "two" })
	store.set("/a", "three")
	store.say(8, "lagged", `{"missed":9}`)
	until(t, "the value is read again", func() bool { return text(t, client, "/a") == "three" })
}

func TestEventParserDoesNotDependOnLines(t *testing.T) {
	stream := "id: 0-1\nevent: ready\ndata: {}\n\n:\n\nevent: credential.changed\r\nid:0-2\r\ndata: {\"name\":\r\ndata:\"/a\"}\r\n\r\nevent: cut"
	var all []event
	_ = read(strings.NewReader(stream), func() {}, func(event event) { all = append(all, event) })
	wanted := []event{{"0-1", "ready", "{}"}, {"0-2", "credential.changed", `{"name":"/a"}`}}
	if !reflect.DeepEqual(all, wanted) {
		t.Error(all)
	}
	for _, endless := range []string{strings.Repeat("x", eventMax+1), strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 100)} {
		if err := read(strings.NewReader(endless), func() {}, func(event) {}); err == nil || !strings.Contains(err.Error(), "too long") {
			t.Error(err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, options := range []Options{
		{URL: "http://store.example:8844"}, {URL: "store.example:8844"}, {URL: "https://"}, {URL: "https://user:pw@store.example"},
		{URL: "https://store.example", Roots: []byte("none")}, {URL: "https://store.example", Token: NewSecret("bulla_x\n")},
	} {
		if _, err := New(options); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "bulla_x") {
			t.Error(options.URL, err)
		}
	}
	client, err := New(Options{URL: "https://localhost:1/"})
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	if _, err := client.Get(context.Background(), "/a"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

func TestTokenOfAFunctionIsSentWithEachRequest(t *testing.T) {
	store := newFake(t)
	store.set("/a", "one")
	var there atomic.Bool
	client := store.client(t, func(options *Options) {
		options.TokenFunc = func(context.Context) (Secret, error) {
			if there.Load() {
				return NewSecret("bulla_token"), nil
			}
			return Secret{}, errors.New("no file")
		}
	})
	if _, err := client.Get(context.Background(), "/a"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no file") {
		t.Error(err)
	}
	there.Store(true)
	until(t, "the store is asked again", func() bool {
		_, err := client.Get(context.Background(), "/a")
		return err == nil
	})
}

func BenchmarkCachedGet(b *testing.B) {
	client, err := New(Options{URL: "https://localhost:1", NoEvents: true})
	if err != nil {
		b.Fatal(err)
	}
	client.cache.put("/a", &Credential{Name: "/a"}, time.Now(), true)
	b.RunParallel(func(each *testing.PB) {
		for each.Next() {
			if _, err := client.Get(context.Background(), "/a"); err != nil {
				b.Error(err)
			}
		}
	})
}
