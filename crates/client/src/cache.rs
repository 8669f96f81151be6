//! What is remembered, name by name, and how far it is believed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::Limits;
use crate::transport::jitter;
use crate::{Credential, Name};

/// Changes that are remembered for answers still on their way; an answer that more have overtaken is not kept.
const CHANGES_MAX: usize = 4_096;

/// Of a time to live a random part less, so that what was read together is not read anew together.
const SPREAD: f64 = 0.2;

/// Octets that an entry takes beside its value.
const ENTRY_OCTETS: usize = 512;

/// A credential, or that there is none.
pub(crate) type Answer = Option<Arc<Credential>>;

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
    answer: Answer,
    asked_at: Instant,
    fresh_for: Duration,
    /// From when on it is answered in no case.
    ends_at: Option<Instant>,
    renewing: AtomicBool,
    /// Whether anybody has asked for it since it was last changed.
    used: AtomicBool,
}

/// When an answer's question was asked.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    at: Instant,
    changes: u64,
}

/// The latest changes, numbered.
#[derive(Default)]
struct Recent {
    count: u64,
    names: VecDeque<Name>,
}

/// A gap: what was asked before is not believed from a time on.
#[derive(Clone, Copy)]
struct Gap {
    asked_before: Instant,
    from: Instant,
}

pub(crate) struct Cache {
    values: moka::sync::Cache<Name, Arc<Entry>>,
    recent: Mutex<Recent>,
    gap: Mutex<Option<Gap>>,
    limits: Limits,
}

impl Cache {
    pub(crate) fn new(limits: Limits) -> Self {
        // Every entry weighs so much that neither bound is passed.
        let least = (limits.octets_max / limits.entries_max.max(1)).max(1);
        let weigh = move |name: &Name, entry: &Arc<Entry>| {
            let value = entry.answer.as_ref().map_or(0, |credential| credential.octets());
            let octets = (value + name.as_str().len() + ENTRY_OCTETS) as u64;
            u32::try_from(octets.max(least)).unwrap_or(u32::MAX)
        };
        let values = moka::sync::Cache::builder()
            .max_capacity(limits.octets_max)
            .weigher(weigh)
            .time_to_live(limits.lifetime)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self { values, recent: Mutex::default(), gap: Mutex::new(None), limits }
    }

    /// The first of these names that is there, as far as all up to it are remembered; and how far that is believed.
    pub(crate) fn first(&self, names: &[Name]) -> Option<(Answer, Age)> {
        let mut age = Age::Fresh;
        for name in names {
            let entry = self.values.get(name)?;
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
        let gap = *self.gap.lock();
        if gap.is_some_and(|gap| entry.asked_at <= gap.asked_before && now >= gap.from) {
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
        let entry = names.first().and_then(|name| self.values.get(name));
        entry.is_some_and(|entry| !entry.renewing.swap(true, Ordering::Relaxed))
    }

    /// It came to nothing: the next who asks may try.
    pub(crate) fn end_renewing(&self, names: &[Name]) {
        if let Some(entry) = names.first().and_then(|name| self.values.get(name)) {
            entry.renewing.store(false, Ordering::Relaxed);
        }
    }

    /// Before a question.
    pub(crate) fn mark(&self) -> Mark {
        Mark { at: Instant::now(), changes: self.recent.lock().count }
    }

    /// Remembers an answer, unless it has changed since its question was asked.
    pub(crate) fn put(&self, name: Name, answer: Answer, mark: Mark) {
        let ttl = if answer.is_some() { self.limits.ttl } else { self.limits.negative_ttl };
        let ends_in = answer.as_ref().and_then(|credential| credential.ends_in());
        let entry = Entry {
            ends_at: ends_in.and_then(|left| Instant::now().checked_add(left)),
            answer,
            asked_at: mark.at,
            fresh_for: jitter(ttl, SPREAD),
            renewing: AtomicBool::new(false),
            used: AtomicBool::new(true),
        };
        // Under the lock: a change comes before, and is seen, or after, and takes the entry away.
        let recent = self.recent.lock();
        if !recent.changed_since(&name, mark.changes) {
            self.values.insert(name, Arc::new(entry));
        }
    }

    /// It has changed. Whether somebody has asked for it since its last change, and is likely to ask again.
    pub(crate) fn forget(&self, name: Name) -> bool {
        let mut recent = self.recent.lock();
        let used = self.values.remove(&name).is_some_and(|entry| entry.used.load(Ordering::Relaxed));
        recent.count += 1;
        recent.names.push_back(name);
        if recent.names.len() > CHANGES_MAX {
            recent.names.pop_front();
        }
        used
    }

    /// It was read because it had changed: nobody has asked for it yet.
    pub(crate) fn unused(&self, name: &Name) {
        if let Some(entry) = self.values.get(name) {
            entry.used.store(false, Ordering::Relaxed);
        }
    }

    /// Anything may have changed until now: from a time on all of it is asked for anew before it is answered.
    pub(crate) fn distrust(&self, after: Duration) {
        let now = Instant::now();
        let mut gap = self.gap.lock();
        let from = match *gap {
            Some(earlier) if earlier.from > now => earlier.from.min(now + after),
            _ => now + after,
        };
        *gap = Some(Gap { asked_before: now, from });
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
    fn changed_since(&self, name: &Name, count: u64) -> bool {
        let since = usize::try_from(self.count - count).unwrap_or(usize::MAX);
        since > self.names.len() || self.names.iter().rev().take(since).any(|changed| changed == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn some(text: &str) -> Answer {
        let document = json!({ "name": text, "value": "v", "id": "1" });
        Some(Arc::new(Credential::of(document).unwrap()))
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
        let document = json!({ "name": "/a", "value": "v", "expires_at": end.to_string() });
        cache.put(name("/a"), Some(Arc::new(Credential::of(document).unwrap())), cache.mark());
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
        cache.put(name("/a"), some("/a"), cache.mark());
        assert_eq!(cache.first(&[name("/a")]).unwrap().1, Age::Fresh);
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
