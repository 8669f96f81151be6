//! What the scheduler has before it: open runs by state, and what is due by issuer. Every count ends at a bound.

use db::StoreError;
use store::states::{Consent, JobKind, JobState};

/// Open runs of a state are counted up to here: some milliseconds.
pub const OPEN_COUNTED_MAX: i64 = 10_000;

store::handle! {
    /// Runs that wait, by state and by issuer.
    Schedule
}

const OPEN: &str = "-- schedule_open
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = ?1 LIMIT ?2) x";

const OLDEST_DUE: &str = db::with_codes!([JobKind::{Renewal}, JobState::{Queued}, Consent::{Needed}] "-- schedule_oldest_due
SELECT next_attempt_at FROM jobs WHERE issuer = ?1 AND state = {JobState::Queued} AND approval <> {Consent::Needed}
  AND kind <= {JobKind::Renewal} ORDER BY next_attempt_at, id LIMIT 1");

pub(crate) const ALL: &[&str] = &[OPEN, OLDEST_DUE];

impl Schedule<'_> {
    /// Runs in a state, counted up to [`OPEN_COUNTED_MAX`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn open(self, state: JobState) -> Result<u64, StoreError> {
        let found = self.0.row(OPEN, vec![state.code().into(), OPEN_COUNTED_MAX.into()]).await?;
        found.map_or(Ok(0), |mut row| row.number())
    }

    /// When the run of an issuer that has waited longest was to begin, µs.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn oldest_due(self, issuer: &str) -> Result<Option<i64>, StoreError> {
        self.0.row(OLDEST_DUE, vec![issuer.into()]).await?.map(|mut row| row.int()).transpose()
    }
}
