//! What the resolver has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) answers: AtomicU64,
    pub(crate) silent: AtomicU64,
    pub(crate) strays: AtomicU64,
    pub(crate) truncated: AtomicU64,
    pub(crate) prefetches: AtomicU64,
}

/// What the resolver has done since it was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Packets sent, repetitions included.
    pub queries_sent: u64,
    /// Answers received over UDP that belonged to a question.
    pub answers: u64,
    /// Questions that an upstream never answered.
    pub timeouts: u64,
    /// Packets that answered no question: late, repeated, or forged.
    pub strays: u64,
    /// Answers fetched over TCP because they were too long.
    pub truncated: u64,
    /// Names asked for again before their answer ended.
    pub prefetches: u64,
    /// Answered from memory.
    pub hits: u64,
    /// Names that were not in the cache.
    pub misses: u64,
    /// Waited for a look-up that another had begun.
    pub joined: u64,
}

impl Counters {
    pub(crate) fn counts(&self, cache: flight::Counts) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            queries_sent: read(&self.sent),
            answers: read(&self.answers),
            timeouts: read(&self.silent),
            strays: read(&self.strays),
            truncated: read(&self.truncated),
            prefetches: read(&self.prefetches),
            hits: cache.hits,
            misses: cache.misses,
            joined: cache.joined,
        }
    }
}
