//! Who asked how often: quotas over sliding windows, and the counts that tests read.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Most requests within any window.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Quota {
    /// Within any second; `None`: no such quota.
    pub per_second: Option<u32>,
    /// Within any minute.
    pub per_minute: Option<u32>,
    /// What a throttling answer says in `Retry-After`, seconds; `None`: nothing.
    pub retry_after: Option<u32>,
}

impl Quota {
    /// So many a second, without a word on when to come back: AWS.
    #[must_use]
    pub const fn per_second(count: u32) -> Self {
        Self { per_second: Some(count), per_minute: None, retry_after: None }
    }
}

/// What one operation of one server met.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OperationCounts {
    /// Requests that were within the quota.
    pub taken: u64,
    /// Refused calls.
    pub throttled: u64,
    /// Throttled ones that came later than a second (or what `Retry-After` asked for) after the first: anyone who learns
    /// from the first answer has none.
    pub throttled_later: u64,
    /// Most within any second.
    pub peak_a_second: u32,
    /// Most within any minute.
    pub peak_a_minute: u32,
}

#[derive(Default)]
struct Account {
    /// Requests of the last minute, throttled ones included: they count in the peaks.
    seen: VecDeque<(Instant, bool)>,
    first_throttled: Option<Instant>,
    counts: OperationCounts,
}

/// By (operation, whose quota).
#[derive(Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<(&'static str, String), Account>>);

impl Ledger {
    /// Counts a request; `Err` when it is over the quota.
    pub(crate) fn enter(&self, operation: &'static str, whose: &str, quota: Quota) -> Result<(), Quota> {
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let now = Instant::now();
        let mut accounts = self.0.lock();
        let account = accounts.entry((operation, whose.to_owned())).or_default();
        while account.seen.front().is_some_and(|(at, _)| now.duration_since(*at) >= minute) {
            account.seen.pop_front();
        }
        let taken_within = |span| {
            let recent = account.seen.iter().rev().take_while(|(at, _)| now.duration_since(*at) < span);
            recent.filter(|(_, taken)| *taken).count() as u32
        };
        let over = quota.per_second.is_some_and(|most| taken_within(second) >= most)
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
