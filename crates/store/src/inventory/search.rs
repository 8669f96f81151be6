//! Search for endpoints by the beginning of their host.

use crate::inventory::handle::Inventory;
use events::ProbeOutcome;

use db::{Cost, StoreError};

/// An endpoint whose host begins with the search text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundEndpoint {
    /// Host name, address or file path.
    pub host: String,
    /// Port; 0 for files.
    pub port: u16,
    /// Outcome of the last probe.
    pub outcome: ProbeOutcome,
    /// End of validity of the endpoint's leaf, µs. The largest integer when no leaf is known.
    pub leaf_not_after_us: i64,
}

const HOSTS: &str = "-- endpoints_search
SELECT host, port, outcome, leaf_not_after FROM endpoints WHERE host >= ?1 AND host < ?2 ORDER BY host, port LIMIT ?3";

pub(crate) const ALL: &[&str] = &[HOSTS];

impl Inventory<'_> {
    /// Returns endpoints whose host begins with this text, at most `limit`. Uses one index lookup.
    ///
    /// # Errors
    /// Database errors.
    pub async fn search(self, text: &str, limit: usize) -> Result<Vec<FoundEndpoint>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters = vec![text.into(), format!("{text}\u{10ffff}").into(), limit.into()];
        let rows = self.0.rows(Cost::Point, HOSTS, parameters).await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(FoundEndpoint {
                    host: row.text()?,
                    port: row.number()?,
                    outcome: row.named("endpoints.outcome")?,
                    leaf_not_after_us: row.int()?,
                })
            })
            .collect()
    }
}
