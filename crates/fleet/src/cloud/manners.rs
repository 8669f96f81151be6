//! How a simulated cloud behaves.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::ledger::Quota;

/// How a simulated cloud behaves.
#[derive(Clone, Debug)]
pub struct Manners {
    /// From a request to its answer, drawn evenly.
    pub latency: RangeInclusive<Duration>,
    /// Most items of a page, whatever is asked for.
    pub page_max: usize,
    /// Quotas in place of the documented ones, by operation.
    pub quotas: Vec<(&'static str, Quota)>,
    /// Decides the delays.
    pub seed: u64,
}

impl Default for Manners {
    fn default() -> Self {
        Self { latency: Duration::ZERO..=Duration::ZERO, page_max: 1_000, quotas: Vec::new(), seed: 1 }
    }
}
