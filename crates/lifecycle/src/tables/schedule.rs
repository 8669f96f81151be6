//! Work of the scheduler: open runs by state, and due runs by issuer. Every count has a limit.

use db::StoreError;
use store::states::{Consent, JobKind, JobState};

/// Maximum open runs that are counted for a state. Counting takes a few milliseconds.
pub const OPEN_COUNTED_MAX: i64 = 10_000;

store::handle! {
    /// Waiting runs, by state and by issuer.
    Schedule
}

const OPEN: &str = "-- schedule_open
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = ?1 LIMIT ?2) x";

const OLDEST_DUE: &str = db::with_codes!([JobKind::{Renewal}, JobState::{Queued}, Consent::{Needed}] "-- schedule_oldest_due
SELECT next_attempt_at FROM jobs WHERE issuer = ?1 AND state = {JobState::Queued} AND approval <> {Consent::Needed}
  AND kind <= {JobKind::Renewal} ORDER BY next_attempt_at, id LIMIT 1");

pub(crate) const ALL: &[&str] = &[OPEN, OLDEST_DUE];

impl Schedule<'_> {
    /// Counts the runs in a state, up to [`OPEN_COUNTED_MAX`].
    ///
    /// # Errors
    /// Database errors.
    pub async fn open(self, state: JobState) -> Result<u64, StoreError> {
        let found = self.0.row(OPEN, vec![state.code().into(), OPEN_COUNTED_MAX.into()]).await?;
        found.map_or(Ok(0), |mut row| row.number())
    }

    /// Returns the planned start of the issuer's run that is overdue longest, in µs since 1970.
    ///
    /// # Errors
    /// Database errors.
    pub async fn oldest_due(self, issuer: &str) -> Result<Option<i64>, StoreError> {
        self.0.row(OLDEST_DUE, vec![issuer.into()]).await?.map(|mut row| row.int()).transpose()
    }
}
