//! The cache by name, and how current its entries are.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::Limits;
use crate::transport::jitter;
use crate::{Credential, Name};

/// Maximum number of changes that are remembered. A response is not cached if more changes than this have arrived since its
/// request.
const CHANGES_MAX: usize = 4_096;

/// Maximum random fraction by which the time to live of an entry is shortened. Entries that were read together are therefore not
/// read again at the same time.
const SPREAD: f64 = 0.2;

/// Bytes of an entry in addition to its value.
const ENTRY_BYTES: usize = 512;

/// The cache of missing names may use this fraction (1/4) of the memory limit for values, in addition to that limit. Lookups of
/// missing names therefore evict no value.
const ABSENT_PART: u64 = 4;

/// Time for which an entry is fresh while the stream of changes is unbroken.
const FOLLOWED_FRESH: Duration = Duration::from_secs(24 * 3_600);

/// Time for which an entry stays in memory, unless its space is needed.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A credential; `None` if it does not exist.
pub(crate) type LookupResult = Option<Arc<Credential>>;

/// The age class of a cached entry, the freshest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Age {
    /// Known to be current.
    Fresh,
    /// The value is stale. It is served while it is refreshed.
    Stale,
    /// Served only if the store does not respond.
    Old,
}

struct Entry {
    answer: LookupResult,
    requested_at: Instant,
    fresh_for: Duration,
    /// The time from which the entry is never served.
    ends_at: Option<Instant>,
    renewing: AtomicBool,
    /// Whether the entry was read since its last change.
    used: AtomicBool,
    /// Whether the value may have changed since it was read.
    maybe_stale: AtomicBool,
}

/// Position of a request in the sequence of changes, and its time.
#[derive(Clone, Copy)]
pub(crate) struct RequestPosition {
    at: Instant,
    changes: u64,
}

/// The latest changes, numbered from one.
#[derive(Default)]
struct RecentChanges {
    count: u64,
    /// Changes, oldest first.
    changes: VecDeque<(u64, Name)>,
    /// The number of the last change of each remembered name.
    last: HashMap<Name, u64>,
    /// The number of the newest change that is no longer remembered.
    forgotten: u64,
    /// The number of the last invalidation of all values. Responses to earlier requests are not cached.
    cleared: u64,
    /// The number of the last change that may have affected any name.
    any_name: u64,
}

/// A gap in the stream of changes: from a later time on, values requested before the gap are no longer trusted.
#[derive(Clone, Copy)]
struct StreamGap {
    requested_before: Instant,
    from: Instant,
    /// Values requested before this time are already distrusted, because of earlier gaps.
    distrusted_before: Option<Instant>,
}

/// The period in which the store reports every change of values and of access, on a stream without a gap.
#[derive(Clone, Copy)]
enum Followed {
    No,
    Since(Instant),
    /// The stream started at `since` and ended at `until`.
    Until {
        since: Instant,
        until: Instant,
    },
}

impl Followed {
    /// Returns the last time at which the response to a request at `requested_at` was known to be current.
    fn confirmed(self, requested_at: Instant, now: Instant) -> Instant {
        match self {
            Self::Since(since) if requested_at >= since => now,
            Self::Until { since, until } if requested_at >= since => requested_at.max(until),
            _ => requested_at,
        }
    }
}

/// An entry to store on disk.
pub(crate) struct SavedEntry {
    pub(crate) name: Name,
    pub(crate) answer: LookupResult,
    /// Time since the entry was last known to be current.
    pub(crate) age: Duration,
}

pub(crate) struct Cache {
    values: BoundedMap<Name, Entry>,
    /// Names without a credential.
    absent: BoundedMap<Name, Entry>,
    followed: Mutex<Followed>,
    /// The names of entries, if they are stored on disk.
    saved: Mutex<Option<HashSet<Name>>>,
    /// Number of changes of the entries.
    revision: AtomicU64,
    recent: Mutex<RecentChanges>,
    gap: Mutex<Option<StreamGap>>,
    limits: Limits,
}

impl Cache {
    pub(crate) fn new(limits: Limits) -> Self {
        // Each entry has a minimum weight, so that both limits hold.
        let least = (limits.bytes_max / limits.entries_max.max(1)).max(1);
        let weigh = move |name: &Name, entry: &Entry| {
            let value = entry.answer.as_ref().map_or(0, |credential| credential.bytes());
            let bytes = (value + name.as_str().len() + ENTRY_BYTES) as u64;
            u32::try_from(bytes.max(least)).unwrap_or(u32::MAX)
        };
        let map = |bytes: u64| {
            let map = BoundedMap::builder(bytes).weigher(weigh).time_to_live(limits.lifetime.max(RETENTION));
            map.eviction(Eviction::LeastRecent).build()
        };
        Self {
            values: map(limits.bytes_max),
            absent: map(limits.bytes_max / ABSENT_PART),
            followed: Mutex::new(Followed::No),
            saved: Mutex::new(None),
            revision: AtomicU64::new(0),
            recent: Mutex::default(),
            gap: Mutex::new(None),
            limits,
        }
    }

    fn entry(&self, name: &Name) -> Option<Arc<Entry>> {
        self.values.get_shared(name).or_else(|| self.absent.get_shared(name))
    }

    /// Records that the store reports every change from now on. `resumed`: the store also reports the changes since the previous
    /// stream ended.
    pub(crate) fn begin_following(&self, resumed: bool) {
        let mut followed = self.followed.lock();
        let since = match *followed {
            Followed::Since(since) | Followed::Until { since, .. } if resumed => since,
            _ => Instant::now(),
        };
        *followed = Followed::Since(since);
    }

    /// Records that the stream of changes has ended.
    pub(crate) fn end_following(&self) {
        let mut followed = self.followed.lock();
        if let Followed::Since(since) = *followed {
            *followed = Followed::Until { since, until: Instant::now() };
        }
    }

    /// Returns whether the store reports every change.
    pub(crate) fn is_followed(&self) -> bool {
        matches!(*self.followed.lock(), Followed::Since(_))
    }

    /// Returns the first of these names that exists, and the age class of the result. Returns `None` if the cache has no usable
    /// entry for a name before it.
    pub(crate) fn first(&self, names: &[Name]) -> Option<(LookupResult, Age)> {
        let mut age = Age::Fresh;
        for name in names {
            let entry = self.entry(name)?;
            age = age.max(self.age(&entry)?);
            entry.used.store(true, Ordering::Relaxed);
            if entry.answer.is_some() {
                return Some((entry.answer.clone(), age));
            }
        }
        Some((None, age))
    }

    fn age(&self, entry: &Entry) -> Option<Age> {
        let now = Instant::now();
        let followed = *self.followed.lock();
        let since_confirmed = now.saturating_duration_since(followed.confirmed(entry.requested_at, now));
        if since_confirmed > self.limits.lifetime || entry.ends_at.is_some_and(|end| now >= end) {
            return None;
        }
        if entry.maybe_stale.load(Ordering::Relaxed) {
            return Some(Age::Old);
        }
        let gap = *self.gap.lock();
        if gap.is_some_and(|gap| gap.invalid_before(now).is_some_and(|before| entry.requested_at <= before)) {
            return Some(Age::Old);
        }
        let is_new = now.saturating_duration_since(entry.requested_at) < FOLLOWED_FRESH;
        let age = if since_confirmed < entry.fresh_for && (is_new || since_confirmed > Duration::ZERO) {
            Age::Fresh
        } else if since_confirmed < entry.fresh_for + self.limits.revalidate {
            Age::Stale
        } else {
            Age::Old
        };
        Some(age)
    }

    /// Returns whether the caller must refresh the entry: true for the first caller, and false for further callers until its
    /// refresh has ended.
    pub(crate) fn begin_refresh(&self, names: &[Name]) -> bool {
        let entry = names.first().and_then(|name| self.entry(name));
        entry.is_some_and(|entry| !entry.renewing.swap(true, Ordering::Relaxed))
    }

    /// Ends a failed refresh, so that the next caller may try again.
    pub(crate) fn end_refresh(&self, names: &[Name]) {
        if let Some(entry) = names.first().and_then(|name| self.entry(name)) {
            entry.renewing.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the current position in the sequence of changes. Call this before sending a request.
    pub(crate) fn mark(&self) -> RequestPosition {
        RequestPosition { at: Instant::now(), changes: self.recent.lock().count }
    }

    /// Returns a number that changes whenever one of these names changes, or all values are invalidated. Because old changes are
    /// forgotten, changes of other names may also alter the number, about once in `CHANGES_MAX` changes.
    pub(crate) fn last_change(&self, names: &[Name]) -> u64 {
        let recent = self.recent.lock();
        let last = names.iter().filter_map(|name| recent.last.get(name)).max();
        let forgotten = recent.forgotten.next_multiple_of(CHANGES_MAX as u64);
        last.copied().unwrap_or(0).max(forgotten).max(recent.any_name)
    }

    /// Caches a response, unless the name has changed since the request.
    pub(crate) fn put(&self, name: Name, answer: LookupResult, mark: RequestPosition) {
        let ttl = if answer.is_some() { self.limits.ttl } else { self.limits.negative_ttl };
        let ends_in = answer.as_ref().and_then(|credential| credential.ends_in());
        let entry = Entry {
            ends_at: ends_in.and_then(|left| Instant::now().checked_add(left)),
            answer,
            requested_at: mark.at,
            fresh_for: jitter(ttl, SPREAD),
            renewing: AtomicBool::new(false),
            used: AtomicBool::new(true),
            maybe_stale: AtomicBool::new(false),
        };
        // Hold the lock during the insert. A change before the insert is visible here; a change after the insert removes the entry
        // or marks it as doubtful.
        let recent = self.recent.lock();
        if !recent.changed_since(&name, mark.changes) {
            self.insert(name, entry);
        }
    }

    fn insert(&self, name: Name, entry: Entry) {
        if let Some(saved) = &mut *self.saved.lock() {
            saved.insert(name.clone());
        }
        self.revision.fetch_add(1, Ordering::Relaxed);
        let (map, other) = match entry.answer {
            Some(_) => (&self.values, &self.absent),
            None => (&self.absent, &self.values),
        };
        other.invalidate(&name);
        map.insert(name, entry);
    }

    /// Invalidates all cached values, because the access of this client may have changed.
    pub(crate) fn clear(&self) {
        let mut recent = self.recent.lock();
        recent.count += 1;
        (recent.any_name, recent.cleared) = (recent.count, recent.count);
        self.values.invalidate_all();
        self.absent.invalidate_all();
        if let Some(saved) = &mut *self.saved.lock() {
            saved.clear();
        }
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a number that changes whenever the entries change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Begins to record the names of entries that are stored from now on, for [`Self::entries_to_save`].
    pub(crate) fn begin_saving(&self) {
        self.saved.lock().get_or_insert_default();
    }

    /// Returns the entries that may still be served.
    pub(crate) fn entries_to_save(&self) -> Vec<SavedEntry> {
        let (now, followed) = (Instant::now(), *self.followed.lock());
        let mut saved = self.saved.lock();
        let Some(names) = &mut *saved else { return Vec::new() };
        let mut all = Vec::new();
        names.retain(|name| {
            let Some(entry) = self.entry(name) else { return false };
            let age = now.saturating_duration_since(followed.confirmed(entry.requested_at, now));
            if age > self.limits.lifetime {
                return false;
            }
            all.push(SavedEntry { name: name.clone(), answer: entry.answer.clone(), age });
            true
        });
        all
    }

    /// Restores an entry from disk. It is read again as soon as the store responds.
    pub(crate) fn restore(&self, entry: SavedEntry) {
        let Some(requested_at) = Instant::now().checked_sub(entry.age) else { return };
        let ends_in = entry.answer.as_ref().and_then(|credential| credential.ends_in());
        let restored = Entry {
            ends_at: ends_in.and_then(|left| Instant::now().checked_add(left)),
            answer: entry.answer,
            requested_at,
            fresh_for: Duration::ZERO,
            renewing: AtomicBool::new(false),
            used: AtomicBool::new(true),
            maybe_stale: AtomicBool::new(true),
        };
        self.insert(entry.name, restored);
    }

    /// Removes a changed entry. Returns whether it was read since its last change, so that it will likely be read again.
    pub(crate) fn forget(&self, name: Name) -> bool {
        let mut recent = self.recent.lock();
        let entry = self.values.remove(&name).or_else(|| self.absent.remove(&name));
        let used = entry.is_some_and(|entry| entry.used.load(Ordering::Relaxed));
        self.revision.fetch_add(1, Ordering::Relaxed);
        recent.changed(name);
        used
    }

    /// Marks an entry as possibly stale: it is read again, and still served while the store is unavailable.
    pub(crate) fn doubt(&self, name: Name) {
        let mut recent = self.recent.lock();
        if let Some(entry) = self.entry(&name) {
            entry.maybe_stale.store(true, Ordering::Relaxed);
        }
        recent.changed(name);
    }

    /// Marks an entry as unread, after a change has refreshed it.
    pub(crate) fn mark_unread(&self, name: &Name) {
        if let Some(entry) = self.entry(name) {
            entry.used.store(false, Ordering::Relaxed);
        }
    }

    /// Records that any value may have changed until now. After the delay `after`, values read before this call are no longer
    /// served from the cache.
    pub(crate) fn invalidate_all_after(&self, after: Duration) {
        let now = Instant::now();
        let mut recent = self.recent.lock();
        recent.count += 1;
        recent.any_name = recent.count;
        drop(recent);
        let mut gap = self.gap.lock();
        let from = match *gap {
            Some(earlier) if earlier.from > now => earlier.from.min(now + after),
            _ => now + after,
        };
        let distrusted_before = gap.and_then(|earlier| earlier.invalid_before(now));
        *gap = Some(StreamGap { requested_before: now, from, distrusted_before });
    }

    /// Removes expired entries.
    pub(crate) fn remove_expired(&self) {
        self.values.run_pending_tasks();
        self.absent.run_pending_tasks();
    }

    #[cfg(test)]
    fn entries(&self) -> u64 {
        self.remove_expired();
        self.values.entry_count() + self.absent.entry_count()
    }
}

impl RecentChanges {
    fn changed(&mut self, name: Name) {
        self.count += 1;
        self.changes.push_back((self.count, name.clone()));
        self.last.insert(name, self.count);
        if self.changes.len() > CHANGES_MAX
            && let Some((number, name)) = self.changes.pop_front()
        {
            self.forgotten = number;
            if self.last.get(&name) == Some(&number) {
                self.last.remove(&name);
            }
        }
    }

    fn changed_since(&self, name: &Name, count: u64) -> bool {
        self.forgotten.max(self.cleared) > count || self.last.get(name).is_some_and(|number| *number > count)
    }
}

impl StreamGap {
    /// Returns a time: values that were requested before this time are invalid at `now`. `None` if no value is invalid.
    fn invalid_before(&self, now: Instant) -> Option<Instant> {
        if now >= self.from { Some(self.requested_before) } else { self.distrusted_before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::fixture::credential;
    use serde_json::json;

    fn limits() -> Limits {
        Limits {
            ttl: Duration::from_secs(60),
            negative_ttl: Duration::from_secs(10),
            revalidate: Duration::from_secs(30),
            lifetime: Duration::from_secs(600),
            ..Limits::default()
        }
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn some(text: &str) -> LookupResult {
        Some(Arc::new(credential(text, json!("v"), None)))
    }

    async fn later(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn cached_value_becomes_stale_then_old_then_expires() {
        let cache = Cache::new(limits());
        let names = [name("/a")];
        let age = || cache.first(&names).map(|(_, age)| age);
        assert_eq!(age(), None);
        cache.put(name("/a"), some("/a"), cache.mark());
        assert_eq!(age(), Some(Age::Fresh));
        later(47).await;
        assert_eq!(age(), Some(Age::Fresh), "a fifth less at most");
        later(14).await;
        assert_eq!(age(), Some(Age::Stale));
        later(30).await;
        assert_eq!(age(), Some(Age::Old));
        later(510).await;
        assert_eq!(age(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_credential_is_never_returned() {
        let cache = Cache::new(limits());
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(30);
        let ends = credential("/a", json!("v"), Some(end.to_string()));
        cache.put(name("/a"), Some(Arc::new(ends)), cache.mark());
        assert!(cache.first(&[name("/a")]).is_some());
        later(31).await;
        assert!(cache.first(&[name("/a")]).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn first_existing_name_is_returned_once_earlier_names_are_known() {
        let cache = Cache::new(limits());
        let names = [name("/p/x"), name("/x")];
        cache.put(name("/x"), some("/x"), cache.mark());
        assert!(cache.first(&names).is_none(), "the first is not known");
        cache.put(name("/p/x"), None, cache.mark());
        let (answer, age) = cache.first(&names).unwrap();
        assert_eq!((answer.unwrap().name(), age), ("/x", Age::Fresh));
        later(11).await;
        assert_eq!(
            cache.first(&names).unwrap().1,
            Age::Stale,
            "that there is none is believed for less long"
        );
        assert!(cache.first(&names[..1]).unwrap().0.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn followed_entries_stay_fresh_and_age_after_following_ends() {
        let cache = Cache::new(limits());
        cache.put(name("/before"), some("/before"), cache.mark());
        later(1).await;
        cache.begin_following(false);
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.put(name("/none"), None, cache.mark());
        let age = |text: &str| cache.first(&[name(text)]).map(|(_, age)| age);
        later(3_600).await;
        assert_eq!((age("/a"), age("/none")), (Some(Age::Fresh), Some(Age::Fresh)));
        assert_eq!(age("/before"), None, "read before changes were followed");
        cache.end_following();
        later(599).await;
        assert_eq!((age("/a"), age("/none")), (Some(Age::Old), Some(Age::Old)));
        cache.begin_following(true);
        assert_eq!(age("/a"), Some(Age::Fresh), "nothing was missed");
        cache.end_following();
        later(601).await;
        assert_eq!(age("/a"), None);
        cache.begin_following(true);
        later(24 * 3_600).await;
        assert_ne!(age("/a"), Some(Age::Fresh), "once a day it is read again all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn access_change_clears_the_cache_and_discards_pending_responses() {
        let cache = Cache::new(limits());
        let mark = cache.mark();
        cache.put(name("/a"), some("/a"), mark);
        cache.put(name("/none"), None, mark);
        cache.clear();
        assert!(cache.first(&[name("/a")]).is_none() && cache.first(&[name("/none")]).is_none());
        cache.put(name("/a"), some("/a"), mark);
        assert!(cache.first(&[name("/a")]).is_none(), "asked for before");
        cache.put(name("/a"), some("/a"), cache.mark());
        assert!(cache.first(&[name("/a")]).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn missing_names_do_not_evict_values() {
        let cache = Cache::new(Limits { bytes_max: 64 << 10, ..limits() });
        cache.put(name("/a"), some("/a"), cache.mark());
        for number in 0..10_000 {
            cache.put(name(&format!("/none{number}")), None, cache.mark());
        }
        assert!(cache.first(&[name("/a")]).is_some() && cache.entries() < 100);
    }

    #[tokio::test(start_paused = true)]
    async fn restored_entry_keeps_the_rest_of_its_lifetime() {
        let cache = Cache::new(limits());
        cache.begin_saving();
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.put(name("/none"), None, cache.mark());
        later(100).await;
        let saved = cache.entries_to_save();
        assert_eq!(saved.len(), 2);
        let other = Cache::new(limits());
        for entry in saved {
            assert_eq!(entry.age, Duration::from_secs(100));
            other.restore(entry);
        }
        assert_eq!(other.first(&[name("/a")]).unwrap().1, Age::Old, "the store is asked where it answers");
        assert!(other.first(&[name("/none")]).unwrap().0.is_none());
        later(501).await;
        assert!(other.first(&[name("/a")]).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn response_older_than_a_change_is_not_cached() {
        let cache = Cache::new(limits());
        let mark = cache.mark();
        cache.forget(name("/a"));
        cache.put(name("/a"), some("/a"), mark);
        cache.put(name("/b"), some("/b"), mark);
        assert!(cache.first(&[name("/a")]).is_none() && cache.first(&[name("/b")]).is_some());
        for number in 0..=CHANGES_MAX {
            cache.forget(name(&format!("/n{number}")));
        }
        cache.put(name("/c"), some("/c"), mark);
        assert!(cache.first(&[name("/c")]).is_none(), "more changes than are remembered");
        cache.put(name("/c"), some("/c"), cache.mark());
        assert!(cache.first(&[name("/c")]).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn doubted_value_is_old_until_read_again_or_expired() {
        let cache = Cache::new(limits());
        let mark = cache.mark();
        cache.put(name("/a"), some("/a"), mark);
        cache.doubt(name("/a"));
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Old);
        cache.put(name("/a"), some("/a"), mark);
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Old, "asked for before it was doubted");
        cache.put(name("/a"), some("/a"), cache.mark());
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Fresh);
        cache.doubt(name("/a"));
        later(601).await;
        assert!(cache.first(&[name("/a")]).is_none(), "its lifetime is over");
    }

    #[tokio::test(start_paused = true)]
    async fn value_changed_repeatedly_without_reads_is_refetched_once() {
        let cache = Cache::new(limits());
        assert!(!cache.forget(name("/a")), "never asked for");
        cache.put(name("/a"), some("/a"), cache.mark());
        assert!(cache.forget(name("/a")));
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.mark_unread(&name("/a"));
        assert!(!cache.forget(name("/a")), "nobody has asked since");
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.mark_unread(&name("/a"));
        assert!(cache.first(&[name("/a")]).is_some());
        assert!(cache.forget(name("/a")));
    }

    #[tokio::test(start_paused = true)]
    async fn event_gap_makes_every_cached_value_old_after_the_delay() {
        let cache = Cache::new(limits());
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.invalidate_all_after(Duration::from_secs(2));
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Fresh, "not yet");
        later(1).await;
        // A second gap does not delay the invalidation that the first gap has scheduled.
        cache.invalidate_all_after(Duration::from_secs(2));
        later(1).await;
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Old);
        cache.put(name("/b"), some("/b"), cache.mark());
        assert_eq!(cache.first(&[name("/b")]).unwrap().1, Age::Fresh);
        later(1).await;
        // The next gap does not restore trust in distrusted values.
        cache.invalidate_all_after(Duration::from_secs(2));
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Old);
        assert_eq!(cache.first(&[name("/b")]).unwrap().1, Age::Fresh, "not yet");
        later(2).await;
        assert_eq!(cache.first(&[name("/b")]).unwrap().1, Age::Old);
    }

    #[tokio::test(start_paused = true)]
    async fn change_number_of_a_list_ignores_changes_of_other_names() {
        let cache = Cache::new(limits());
        let list = [name("/a"), name("/b")];
        let first = cache.last_change(&list);
        cache.forget(name("/c"));
        assert_eq!(cache.last_change(&list), first, "another's");
        cache.forget(name("/b"));
        let second = cache.last_change(&list);
        assert!(second > first);
        cache.invalidate_all_after(Duration::ZERO);
        let third = cache.last_change(&list);
        assert!(third > second, "anything may have changed");
        for _ in 0..=CHANGES_MAX {
            cache.forget(name("/c"));
        }
        let fourth = cache.last_change(&list);
        assert!(fourth > third, "more changes than are remembered");
        cache.forget(name("/c"));
        assert_eq!(cache.last_change(&list), fourth, "another's");
        assert!(cache.recent.lock().last.len() <= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_after_an_invalidation_of_all_values_advance_the_change_number() {
        let (cache, list) = (Cache::new(limits()), [name("/a")]);
        let before = cache.mark();
        cache.clear();
        let first = cache.last_change(&list);
        cache.forget(name("/a"));
        assert!(cache.last_change(&list) > first);
        cache.put(name("/b"), None, before);
        assert!(cache.entry(&name("/b")).is_none(), "requested before the invalidation");
        cache.put(name("/b"), None, cache.mark());
        assert!(cache.entry(&name("/b")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn change_number_advances_even_when_the_change_is_evicted() {
        let many = CHANGES_MAX as u64;
        // Values around each multiple of `CHANGES_MAX`, without and with an earlier change.
        for others in [0, 1, many - 2, many - 1, many, many + 1, 2 * many - 1, 2 * many] {
            for earlier in [0, 1] {
                let (cache, list) = (Cache::new(limits()), [name("/a")]);
                let change = |text, count| {
                    for _ in 0..count {
                        cache.forget(name(text));
                    }
                };
                change("/c", others);
                change("/a", earlier);
                let first = cache.last_change(&list);
                change("/a", 1);
                change("/c", many);
                assert!(!cache.recent.lock().last.contains_key(&list[0]), "it is forgotten");
                assert!(cache.last_change(&list) > first, "after {others} and {earlier}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cache_stays_within_entry_and_byte_limits() {
        for (entries_max, bytes_max, capacity) in [(10, 1 << 20, 10), (1_000, 20 * 660, 20)] {
            let cache = Cache::new(Limits { entries_max, bytes_max, ..limits() });
            for number in 0..200 {
                let at = format!("/n{number}");
                cache.put(name(&at), some(&at), cache.mark());
            }
            let entries = cache.entries();
            assert!(entries <= capacity && entries * 2 > capacity, "{entries} of {capacity}");
        }
    }
}
