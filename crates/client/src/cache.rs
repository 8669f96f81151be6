//! What is remembered, name by name, and how far it is believed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::Limits;
use crate::transport::jitter;
use crate::{Credential, Name};

/// Changes that are remembered for answers still on their way; an answer that more have overtaken is not kept.
const CHANGES_MAX: usize = 4_096;

/// Of a time to live a random part less, so that what was read together is not read anew together.
const SPREAD: f64 = 0.2;

/// Octets that an entry takes beside its value.
const ENTRY_OCTETS: usize = 512;

/// A credential, or that there is none.
pub(crate) type LookupResult = Option<Arc<Credential>>;

/// How far what is remembered is believed, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Age {
    /// True.
    Fresh,
    /// Answered once more, while it is made anew.
    Stale,
    /// Answered where the store does not answer.
    Old,
}

struct Entry {
    answer: LookupResult,
    asked_at: Instant,
    fresh_for: Duration,
    /// From when on it is answered in no case.
    ends_at: Option<Instant>,
    renewing: AtomicBool,
    /// Whether anybody has asked for it since it was last changed.
    used: AtomicBool,
    /// Whether it may have changed since.
    doubted: AtomicBool,
}

/// When an answer's question was asked.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    at: Instant,
    changes: u64,
}

/// The latest changes, numbered from one.
#[derive(Default)]
struct Recent {
    count: u64,
    /// The oldest first.
    changes: VecDeque<(u64, Name)>,
    /// The last change of each of these.
    last: HashMap<Name, u64>,
    /// The last that is remembered no more.
    forgotten: u64,
    /// The last after which any name may have changed.
    any: u64,
}

/// Gaps: what was asked before is not believed from a time on.
#[derive(Clone, Copy)]
struct Gap {
    asked_before: Instant,
    from: Instant,
    /// What was asked before this is believed no more, by gaps whose time had come.
    settled: Option<Instant>,
}

pub(crate) struct Cache {
    values: BoundedMap<Name, Entry>,
    recent: Mutex<Recent>,
    gap: Mutex<Option<Gap>>,
    limits: Limits,
}

impl Cache {
    pub(crate) fn new(limits: Limits) -> Self {
        // Every entry weighs so much that neither bound is passed.
        let least = (limits.octets_max / limits.entries_max.max(1)).max(1);
        let weigh = move |name: &Name, entry: &Entry| {
            let value = entry.answer.as_ref().map_or(0, |credential| credential.octets());
            let octets = (value + name.as_str().len() + ENTRY_OCTETS) as u64;
            u32::try_from(octets.max(least)).unwrap_or(u32::MAX)
        };
        let values = BoundedMap::builder(limits.octets_max)
            .weigher(weigh)
            .time_to_live(limits.lifetime)
            .eviction(Eviction::LeastRecent)
            .build();
        Self { values, recent: Mutex::default(), gap: Mutex::new(None), limits }
    }

    /// The first of these names that is there, as far as all up to it are remembered; and how far that is believed.
    pub(crate) fn first(&self, names: &[Name]) -> Option<(LookupResult, Age)> {
        let mut age = Age::Fresh;
        for name in names {
            let entry = self.values.get_shared(name)?;
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
        let gone = now.saturating_duration_since(entry.asked_at);
        if gone > self.limits.lifetime || entry.ends_at.is_some_and(|end| now >= end) {
            return None;
        }
        if entry.doubted.load(Ordering::Relaxed) {
            return Some(Age::Old);
        }
        let gap = *self.gap.lock();
        if gap.is_some_and(|gap| gap.distrusted(now).is_some_and(|before| entry.asked_at <= before)) {
            return Some(Age::Old);
        }
        let age = if gone < entry.fresh_for {
            Age::Fresh
        } else if gone < entry.fresh_for + self.limits.revalidate {
            Age::Stale
        } else {
            Age::Old
        };
        Some(age)
    }

    /// Whether it is for this caller to make it anew: for the first who asks until it is done.
    pub(crate) fn begin_renewing(&self, names: &[Name]) -> bool {
        let entry = names.first().and_then(|name| self.values.get_shared(name));
        entry.is_some_and(|entry| !entry.renewing.swap(true, Ordering::Relaxed))
    }

    /// It came to nothing: the next who asks may try.
    pub(crate) fn end_renewing(&self, names: &[Name]) {
        if let Some(entry) = names.first().and_then(|name| self.values.get_shared(name)) {
            entry.renewing.store(false, Ordering::Relaxed);
        }
    }

    /// Before a question.
    pub(crate) fn mark(&self) -> Mark {
        Mark { at: Instant::now(), changes: self.recent.lock().count }
    }

    /// The number of the last change of any of these names, as far as changes are remembered. What is forgotten counts in
    /// whole multiples of what is remembered, rounded up: changes of other names rarely move it, and after a change of these
    /// it is another than before, even once that is forgotten, for then a multiple has been passed.
    pub(crate) fn last_change(&self, names: &[Name]) -> u64 {
        let recent = self.recent.lock();
        let last = names.iter().filter_map(|name| recent.last.get(name)).max();
        let forgotten = recent.forgotten.next_multiple_of(CHANGES_MAX as u64);
        last.copied().unwrap_or(0).max(forgotten).max(recent.any)
    }

    /// Remembers an answer, unless it has changed since its question was asked.
    pub(crate) fn put(&self, name: Name, answer: LookupResult, mark: Mark) {
        let ttl = if answer.is_some() { self.limits.ttl } else { self.limits.negative_ttl };
        let ends_in = answer.as_ref().and_then(|credential| credential.ends_in());
        let entry = Entry {
            ends_at: ends_in.and_then(|left| Instant::now().checked_add(left)),
            answer,
            asked_at: mark.at,
            fresh_for: jitter(ttl, SPREAD),
            renewing: AtomicBool::new(false),
            used: AtomicBool::new(true),
            doubted: AtomicBool::new(false),
        };
        // Under the lock: a change comes before, and is seen, or after, and takes the entry away or doubts it.
        let recent = self.recent.lock();
        if !recent.changed_since(&name, mark.changes) {
            self.values.insert(name, entry);
        }
    }

    /// It has changed. Whether somebody has asked for it since its last change, and is likely to ask again.
    pub(crate) fn forget(&self, name: Name) -> bool {
        let mut recent = self.recent.lock();
        let used = self.values.remove(&name).is_some_and(|entry| entry.used.load(Ordering::Relaxed));
        recent.changed(name);
        used
    }

    /// It may have changed: it is asked for anew, and answered where nobody can be asked.
    pub(crate) fn doubt(&self, name: Name) {
        let mut recent = self.recent.lock();
        if let Some(entry) = self.values.get_shared(&name) {
            entry.doubted.store(true, Ordering::Relaxed);
        }
        recent.changed(name);
    }

    /// It was read because it had changed: nobody has asked for it yet.
    pub(crate) fn unused(&self, name: &Name) {
        if let Some(entry) = self.values.get_shared(name) {
            entry.used.store(false, Ordering::Relaxed);
        }
    }

    /// Anything may have changed until now: from a time on all of it is asked for anew before it is answered.
    pub(crate) fn distrust(&self, after: Duration) {
        let now = Instant::now();
        let mut recent = self.recent.lock();
        recent.count += 1;
        recent.any = recent.count;
        drop(recent);
        let mut gap = self.gap.lock();
        let from = match *gap {
            Some(earlier) if earlier.from > now => earlier.from.min(now + after),
            _ => now + after,
        };
        let settled = gap.and_then(|earlier| earlier.distrusted(now));
        *gap = Some(Gap { asked_before: now, from, settled });
    }

    /// Lets go of what has ended.
    pub(crate) fn tidy(&self) {
        self.values.run_pending_tasks();
    }

    #[cfg(test)]
    fn entries(&self) -> u64 {
        self.tidy();
        self.values.entry_count()
    }
}

impl Recent {
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
        self.forgotten > count || self.last.get(name).is_some_and(|number| *number > count)
    }
}

impl Gap {
    /// What was asked no later than this is believed no more.
    fn distrusted(&self, now: Instant) -> Option<Instant> {
        if now >= self.from { Some(self.asked_before) } else { self.settled }
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
    async fn what_is_remembered_ages_in_steps() {
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
    async fn what_ends_is_answered_in_no_case_past_its_end() {
        let cache = Cache::new(limits());
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(30);
        let ends = credential("/a", json!("v"), Some(end.to_string()));
        cache.put(name("/a"), Some(Arc::new(ends)), cache.mark());
        assert!(cache.first(&[name("/a")]).is_some());
        later(31).await;
        assert!(cache.first(&[name("/a")]).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_is_there_is_answered_once_all_before_are_known() {
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
    async fn an_answer_that_a_change_overtook_is_not_kept() {
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
    async fn what_is_doubted_is_believed_until_it_is_read_anew() {
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
    async fn what_changes_again_and_again_unasked_for_is_read_once() {
        let cache = Cache::new(limits());
        assert!(!cache.forget(name("/a")), "never asked for");
        cache.put(name("/a"), some("/a"), cache.mark());
        assert!(cache.forget(name("/a")));
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.unused(&name("/a"));
        assert!(!cache.forget(name("/a")), "nobody has asked since");
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.unused(&name("/a"));
        assert!(cache.first(&[name("/a")]).is_some());
        assert!(cache.forget(name("/a")));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_gap_all_is_asked_for_once() {
        let cache = Cache::new(limits());
        cache.put(name("/a"), some("/a"), cache.mark());
        cache.distrust(Duration::from_secs(2));
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Fresh, "not yet");
        later(1).await;
        // Another gap does not put the first one off.
        cache.distrust(Duration::from_secs(2));
        later(1).await;
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Old);
        cache.put(name("/b"), some("/b"), cache.mark());
        assert_eq!(cache.first(&[name("/b")]).unwrap().1, Age::Fresh);
        later(1).await;
        // Nor does the next make anybody believe again what was believed no more.
        cache.distrust(Duration::from_secs(2));
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Old);
        assert_eq!(cache.first(&[name("/b")]).unwrap().1, Age::Fresh, "not yet");
        later(2).await;
        assert_eq!(cache.first(&[name("/b")]).unwrap().1, Age::Old);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_change_of_a_list_has_a_number_of_its_own() {
        let cache = Cache::new(limits());
        let list = [name("/a"), name("/b")];
        let first = cache.last_change(&list);
        cache.forget(name("/c"));
        assert_eq!(cache.last_change(&list), first, "another's");
        cache.forget(name("/b"));
        let second = cache.last_change(&list);
        assert!(second > first);
        cache.distrust(Duration::ZERO);
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
    async fn a_change_that_is_forgotten_has_moved_the_number() {
        let many = CHANGES_MAX as u64;
        // Beside each multiple of as many as are remembered; without and with a change that came before.
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
    async fn neither_entries_nor_octets_pass_their_bounds() {
        for (entries_max, octets_max, kept) in [(10, 1 << 20, 10), (1_000, 20 * 660, 20)] {
            let cache = Cache::new(Limits { entries_max, octets_max, ..limits() });
            for number in 0..200 {
                let at = format!("/n{number}");
                cache.put(name(&at), some(&at), cache.mark());
            }
            let entries = cache.entries();
            assert!(entries <= kept && entries * 2 > kept, "{entries} of {kept}");
        }
    }
}
