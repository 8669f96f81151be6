//! Behavior of a simulated cloud.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::ledger::Quota;

/// Delays, page sizes, quotas and throttling of a simulated cloud.
#[derive(Clone, Debug)]
pub struct CloudBehavior {
    /// Delay of each response, uniformly distributed.
    pub latency: RangeInclusive<Duration>,
    /// Maximum items on a page, whatever the client requests.
    pub page_max: usize,
    /// Quotas that replace the documented ones, by operation.
    pub quotas: Vec<(&'static str, Quota)>,
    /// Calls that are throttled whatever the rate: the operation, and the number of the call, from 1.
    pub throttled_calls: Vec<(&'static str, u64)>,
    /// Seed of the random delays.
    pub seed: u64,
}

impl Default for CloudBehavior {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO..=Duration::ZERO,
            page_max: 1_000,
            quotas: Vec::new(),
            throttled_calls: Vec::new(),
            seed: 1,
        }
    }
}
