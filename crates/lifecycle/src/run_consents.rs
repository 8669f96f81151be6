//! Approvals of runs, for a signer process.

use std::fmt;

use authority::plan::IssuancePlan;
use authority::signer_checks::{ApprovedPlan, Consents};
use futures_util::future::{BoxFuture, FutureExt};
use store::{Store, StoreError};
use uuid::Uuid;

use crate::job::JobId;
use crate::tables::approvals::Approvals;

/// Reads the approvals of runs from the database.
#[derive(Clone)]
pub struct RunConsents {
    store: Store,
}

impl RunConsents {
    /// Creates a handle over this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    async fn approved(&self, run: &str) -> Result<Option<ApprovedPlan>, StoreError> {
        let Ok(run) = Uuid::parse_str(run) else { return Ok(None) };
        let row = Approvals::of(&self.store).given_for(JobId(run).row()).await?;
        let Some(row) = row else { return Ok(None) };
        let (Some(text), Some(sha256), Some(decided_by)) = (row.plan, row.plan_sha256, row.decided_by) else {
            return Ok(None);
        };
        let plan: IssuancePlan = serde_json::from_str(&text)
            .map_err(|error| StoreError::Corrupt(format!("approvals.plan: {error}")))?;
        Ok(Some(ApprovedPlan { plan, sha256, decided_by, barred: row.barred }))
    }
}

impl Consents for RunConsents {
    fn of_run<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<Option<ApprovedPlan>, StoreError>> {
        self.approved(run).boxed()
    }
}

impl fmt::Debug for RunConsents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunConsents")
    }
}
