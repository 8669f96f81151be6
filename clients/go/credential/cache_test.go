package credential

import (
	"fmt"
	"testing"
	"time"
)

// clock is a cache with a time that the test sets.
type clock struct {
	*cache
	at time.Time
}

func newClock(change func(*Options)) *clock {
	options := &Options{TTL: time.Minute, NegativeTTL: 10 * time.Second, Revalidate: 30 * time.Second, MaxStale: 10 * time.Minute,
		MaxEntries: 100, MaxBytes: 1 << 20}
	if change != nil {
		change(options)
	}
	made := &clock{cache: newCache(options), at: time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)}
	made.now = func() time.Time { return made.at }
	return made
}

func (c *clock) later(passed time.Duration) { c.at = c.at.Add(passed) }

func (c *clock) read(name string, expires time.Time) {
	c.put(name, &Credential{Name: name, ExpiresAt: expires, value: NewSecret(`"v"`)}, c.at, true)
}

func (c *clock) wants(t *testing.T, name string, wanted age) {
	t.Helper()
	if _, age := c.get(name); age != wanted {
		t.Errorf("%s has age %d, not %d", name, age, wanted)
	}
}

func TestEntryBecomesStaleThenOldThenGone(t *testing.T) {
	cache := newClock(nil)
	cache.wants(t, "/a", gone)
	cache.read("/a", time.Time{})
	cache.put("/none", nil, cache.at, true)
	cache.wants(t, "/a", fresh)
	cache.later(47 * time.Second)
	cache.wants(t, "/a", fresh)
	cache.wants(t, "/none", old)
	cache.later(14 * time.Second)
	cache.wants(t, "/a", stale)
	cache.later(30 * time.Second)
	cache.wants(t, "/a", old)
	cache.later(510 * time.Second)
	cache.wants(t, "/a", gone)
}

func TestExpiredVersionIsNotServed(t *testing.T) {
	cache := newClock(nil)
	cache.read("/a", cache.at.Add(30*time.Second))
	cache.later(29 * time.Second)
	cache.wants(t, "/a", fresh)
	cache.later(time.Second)
	cache.wants(t, "/a", gone)
}

func TestFollowedEntriesStayFreshAndAgeAfterTheStreamEnds(t *testing.T) {
	cache := newClock(nil)
	cache.read("/before", time.Time{})
	cache.later(time.Second)
	cache.follow(false)
	cache.read("/a", time.Time{})
	cache.later(time.Hour)
	cache.wants(t, "/a", fresh)
	cache.wants(t, "/before", gone)
	cache.unfollow()
	cache.later(599 * time.Second)
	cache.wants(t, "/a", old)
	cache.follow(true)
	cache.wants(t, "/a", fresh)
	cache.later(24 * time.Hour)
	cache.wants(t, "/a", stale)
	cache.unfollow()
	cache.later(601 * time.Second)
	cache.wants(t, "/a", gone)
}

func TestGapMakesEarlierEntriesOldAfterItsDelay(t *testing.T) {
	cache := newClock(nil)
	cache.read("/a", time.Time{})
	cache.gap(2 * time.Second)
	cache.later(time.Second)
	cache.wants(t, "/a", fresh)
	cache.read("/b", time.Time{})
	// Another gap does not delay the first one.
	cache.gap(2 * time.Second)
	cache.later(time.Second)
	cache.wants(t, "/a", old)
	cache.wants(t, "/b", old)
	cache.read("/c", time.Time{})
	cache.wants(t, "/c", fresh)
	cache.gap(time.Hour)
	cache.wants(t, "/a", old)
	cache.wants(t, "/c", fresh)
	cache.gap(0)
	cache.wants(t, "/c", old)
}

func TestCacheStaysWithinItsLimits(t *testing.T) {
	for _, limits := range []struct {
		entries, kept int
		bytes         int64
	}{{10, 10, 1 << 20}, {1000, 20, 20 * (entryBytes + 7)}} {
		cache := newClock(func(options *Options) { options.MaxEntries, options.MaxBytes = limits.entries, limits.bytes })
		cache.read("/n000", time.Time{})
		for number := 1; number < 100; number++ {
			cache.wants(t, "/n000", fresh)
			cache.read(fmt.Sprintf("/n%03d", number), time.Time{})
			cache.put(fmt.Sprintf("/none%d", number), nil, cache.at, true)
		}
		if kept := len(cache.values.held); kept > limits.kept || kept < limits.kept-1 {
			t.Errorf("%d values of %d", kept, limits.kept)
		}
		if cache.values.size > limits.bytes || cache.absent.size > limits.bytes/absentParts || len(cache.absent.held) > limits.entries {
			t.Errorf("%d and %d bytes", cache.values.size, cache.absent.size)
		}
		cache.wants(t, "/n000", fresh)
		cache.wants(t, "/n001", gone)
		cache.clear()
		if cache.values.size != 0 || cache.absent.size != 0 {
			t.Error("an empty cache has a size")
		}
	}
}
