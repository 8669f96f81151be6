package credential

import (
	"container/list"
	"math/rand"
	"time"
)

const (
	// absentParts: names without a credential have additional memory, one part in so many of the memory for values. So lookups of
	// such names evict no value.
	absentParts = 4
	// spread: lifetimes are shortened by a random part, at most this fraction, so that entries read together are not read again
	// together.
	spread = 0.2
	// followedFresh is how long an entry is fresh while the stream of changes is unbroken.
	followedFresh = 24 * time.Hour
)

// age is how current a cached entry is.
type age int

const (
	// fresh: known to be current.
	fresh age = iota
	// stale: served once more, while it is refreshed.
	stale
	// old: served only if the store does not respond.
	old
	// gone: never served.
	gone
)

// entry is a cached result of a lookup.
type entry struct {
	name string
	// nil: the store has no such credential.
	credential *Credential
	asked      time.Time
	freshFor   time.Duration
	// used: read since its last change.
	used bool
	// doubted: the value may have changed since it was read.
	doubted bool
}

func (e *entry) bytes() int64 {
	if e.credential == nil {
		return entryBytes + int64(len(e.name))
	}
	return e.credential.bytes()
}

// gap is a gap in the stream of changes: from a later time on, values requested until before are not trusted.
type gap struct{ from, before time.Time }

// cache maps names to entries. The lock of the client protects it.
type cache struct {
	options *Options
	now     func() time.Time
	values  lru
	absent  lru
	// The store reports every change since this time; zero: it does not.
	since time.Time
	// The end of the last stream; zero: it has not ended.
	until time.Time
	// The last gap, until its time has come.
	pending gap
	// Values requested until this time are not trusted.
	distrusted time.Time
}

func newCache(options *Options) *cache {
	made := &cache{options: options, now: time.Now}
	made.values = lru{entries: options.MaxEntries, bytes: options.MaxBytes}
	made.absent = lru{entries: options.MaxEntries, bytes: options.MaxBytes / absentParts}
	made.clear()
	return made
}

// get returns the entry of a name with its age.
func (c *cache) get(name string) (*entry, age) {
	found := c.values.get(name)
	if found == nil {
		found = c.absent.get(name)
	}
	if found == nil {
		return nil, gone
	}
	age := c.age(found)
	if age == gone {
		c.remove(name)
		return nil, gone
	}
	found.used = true
	return found, age
}

func (c *cache) age(e *entry) age {
	now := c.now()
	// Time since the entry was last known to be current.
	quiet := now.Sub(c.confirmed(e.asked, now))
	expired := e.credential != nil && !e.credential.ExpiresAt.IsZero() && !now.Before(e.credential.ExpiresAt)
	switch {
	case expired || quiet > c.options.MaxStale:
		return gone
	case e.doubted || c.distrusts(e.asked, now):
		return old
	case quiet < e.freshFor && (quiet > 0 || now.Sub(e.asked) < followedFresh):
		return fresh
	case quiet < e.freshFor+c.options.Revalidate:
		return stale
	default:
		return old
	}
}

// confirmed returns the last time at which the response to a request at asked was known to be current.
func (c *cache) confirmed(asked, now time.Time) time.Time {
	switch {
	case c.since.IsZero() || asked.Before(c.since):
		return asked
	case c.until.IsZero():
		return now
	case c.until.After(asked):
		return c.until
	default:
		return asked
	}
}

func (c *cache) distrusts(asked, now time.Time) bool {
	if !c.pending.from.IsZero() && !now.Before(c.pending.from) {
		c.distrusted, c.pending = c.pending.before, gap{}
	}
	return !c.distrusted.IsZero() && !asked.After(c.distrusted)
}

// put stores the result of a request at asked. used: a caller waits for it.
func (c *cache) put(name string, credential *Credential, asked time.Time, used bool) {
	lifetime := c.options.TTL
	if credential == nil {
		lifetime = c.options.NegativeTTL
	}
	c.remove(name)
	made := &entry{name: name, credential: credential, asked: asked, freshFor: jitter(lifetime, spread), used: used}
	if credential == nil {
		c.absent.put(made)
	} else {
		c.values.put(made)
	}
}

// remove returns whether the entry was read since its last change, so that it will likely be read again.
func (c *cache) remove(name string) bool {
	removed := c.values.remove(name)
	if removed == nil {
		removed = c.absent.remove(name)
	}
	return removed != nil && removed.used
}

func (c *cache) clear() {
	c.values.clear()
	c.absent.clear()
}

// follow begins a period in which the store reports every change; resumed: also the changes since the last stream ended.
func (c *cache) follow(resumed bool) {
	if !resumed || c.since.IsZero() {
		c.since = c.now()
	}
	c.until = time.Time{}
}

func (c *cache) unfollow() {
	if c.following() {
		c.until = c.now()
	}
}

func (c *cache) following() bool { return !c.since.IsZero() && c.until.IsZero() }

// gap records that any value may have changed until now. After the delay all earlier values must be read again before they are
// served.
func (c *cache) gap(delay time.Duration) {
	now := c.now()
	c.distrusts(now, now)
	if from := now.Add(delay); c.pending.from.IsZero() || from.Before(c.pending.from) {
		c.pending.from = from
	}
	c.pending.before = now
}

// lru maps names to entries and evicts the least recently used one.
type lru struct {
	// Limits.
	entries int
	bytes   int64
	held    map[string]*list.Element
	// Of *entry, the most recently used one first.
	order *list.List
	size  int64
}

func (l *lru) clear() {
	l.held, l.order, l.size = map[string]*list.Element{}, list.New(), 0
}

func (l *lru) get(name string) *entry {
	element := l.held[name]
	if element == nil {
		return nil
	}
	l.order.MoveToFront(element)
	return element.Value.(*entry)
}

func (l *lru) put(made *entry) {
	l.held[made.name] = l.order.PushFront(made)
	l.size += made.bytes()
	for len(l.held) > l.entries || l.size > l.bytes {
		l.remove(l.order.Back().Value.(*entry).name)
	}
}

func (l *lru) remove(name string) *entry {
	element := l.held[name]
	if element == nil {
		return nil
	}
	delete(l.held, name)
	removed := l.order.Remove(element).(*entry)
	l.size -= removed.bytes()
	return removed
}

// jitter returns a random time between whole * (1 - part) and whole.
func jitter(whole time.Duration, part float64) time.Duration {
	return time.Duration(float64(whole) * (1 - part*rand.Float64()))
}
