//! Request quotas over sliding windows, and counters for tests.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A request quota: the maximum requests in any second and in any minute.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Quota {
    /// Maximum requests in any second; `None`: no limit.
    pub per_second: Option<u32>,
    /// Maximum requests in any minute; `None`: no limit.
    pub per_minute: Option<u32>,
    /// `Retry-After` of a throttling response in seconds; `None`: no such header.
    pub retry_after: Option<u32>,
}

impl Quota {
    /// Creates a quota of `count` requests per second, without `Retry-After`, like in AWS.
    #[must_use]
    pub const fn per_second(count: u32) -> Self {
        Self { per_second: Some(count), per_minute: None, retry_after: None }
    }
}

/// Counters of one operation of one server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OperationCounts {
    /// Requests within the quota.
    pub taken: u64,
    /// Requests that got a throttling response.
    pub throttled: u64,
    /// Throttled requests that arrived later than a second (or `Retry-After`) after the first throttled one. A client that adapts
    /// to the first throttling response has none.
    pub throttled_later: u64,
    /// Maximum requests in any second.
    pub peak_a_second: u32,
    /// Maximum requests in any minute.
    pub peak_a_minute: u32,
}

#[derive(Default)]
struct Account {
    /// Requests of the last minute, including throttled ones: they count in the peaks.
    seen: VecDeque<(Instant, bool)>,
    first_throttled: Option<Instant>,
    counts: OperationCounts,
}

/// Counters by operation and owner of the quota.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<(&'static str, String), Account>>);

impl Ledger {
    /// Counts a request; `Err` when it exceeds the quota, or when its number is in `throttled`.
    pub(crate) fn enter(
        &self,
        operation: &'static str,
        owner: &str,
        quota: Quota,
        throttled: &[u64],
    ) -> Result<(), Quota> {
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let now = Instant::now();
        let mut accounts = self.0.lock();
        let account = accounts.entry((operation, owner.to_owned())).or_default();
        while account.seen.front().is_some_and(|(at, _)| now.duration_since(*at) >= minute) {
            account.seen.pop_front();
        }
        let taken_within = |span| {
            let recent = account.seen.iter().rev().take_while(|(at, _)| now.duration_since(*at) < span);
            recent.filter(|(_, taken)| *taken).count() as u32
        };
        let number = account.counts.taken + account.counts.throttled + 1;
        let over = throttled.contains(&number)
            || quota.per_second.is_some_and(|most| taken_within(second) >= most)
            || quota.per_minute.is_some_and(|most| taken_within(minute) >= most);
        account.seen.push_back((now, !over));
        let within = |span| {
            account.seen.iter().rev().take_while(|(at, _)| now.duration_since(*at) < span).count() as u32
        };
        let counts = &mut account.counts;
        counts.peak_a_second = counts.peak_a_second.max(within(second));
        counts.peak_a_minute = counts.peak_a_minute.max(within(minute));
        if !over {
            counts.taken += 1;
            return Ok(());
        }
        counts.throttled += 1;
        let first = *account.first_throttled.get_or_insert(now);
        let lesson = quota.retry_after.map_or(second, |seconds| Duration::from_secs(seconds.into()));
        counts.throttled_later += u64::from(now.duration_since(first) > lesson);
        Err(quota)
    }

    pub(crate) fn counts(&self) -> BTreeMap<(&'static str, String), OperationCounts> {
        self.0.lock().iter().map(|(key, account)| (key.clone(), account.counts)).collect()
    }
}
