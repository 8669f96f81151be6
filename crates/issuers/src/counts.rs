//! Order statistics of issuers, for metrics.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::IssuerError;

/// Maximum number of issuers with separate statistics, above any real configuration.
const ISSUERS_MAX: usize = 1_000;

/// Number of orders by issuer and outcome.
#[derive(Debug, Default)]
pub struct Counts(Mutex<HashMap<String, Tally>>);

/// Order statistics of one issuer: outcomes and total time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Type of the issuer, such as `acme`.
    pub kind: &'static str,
    /// Number of orders by outcome: `issued`, or an error's [`IssuerError::code`].
    pub outcomes: HashMap<&'static str, u64>,
    /// Total time spent on orders, in µs.
    pub busy_us: u64,
}

impl Counts {
    pub(crate) fn add(&self, kind: &'static str, issuer: &str, error: Option<&IssuerError>, took: Duration) {
        let mut tallies = self.0.lock();
        if !tallies.contains_key(issuer) && tallies.len() >= ISSUERS_MAX {
            return;
        }
        let tally = tallies.entry(issuer.to_owned()).or_default();
        tally.kind = kind;
        *tally.outcomes.entry(error.map_or("issued", IssuerError::code)).or_default() += 1;
        tally.busy_us = tally.busy_us.saturating_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the statistics of all issuers, sorted by the issuer's name.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(String, Tally)> {
        let mut all: Vec<_> =
            self.0.lock().iter().map(|(name, tally)| (name.clone(), tally.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}
