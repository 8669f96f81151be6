//! Reads the approvals of runs, for a signer process.

use std::fmt;

use authority::plan::IssuancePlan;
use authority::signer_checks::{ApprovalSource, ApprovedPlan};
use futures_util::future::{BoxFuture, FutureExt};
use store::{Store, StoreError};
use uuid::Uuid;

use crate::job::JobId;
use crate::tables::approvals::Approvals;

/// The approvals of runs, read from the database.
#[derive(Clone)]
pub struct RunApprovals {
    store: Store,
}

impl RunApprovals {
    /// Creates a handle over this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    async fn approved(&self, run: &str) -> Result<Option<ApprovedPlan>, StoreError> {
        let Ok(run) = Uuid::parse_str(run) else { return Ok(None) };
        let row = Approvals::of(&self.store).granted_approval_of(JobId(run).row()).await?;
        let Some(row) = row else { return Ok(None) };
        let (Some(text), Some(sha256), Some(decided_by)) = (row.plan, row.plan_sha256, row.decided_by) else {
            return Ok(None);
        };
        let plan: IssuancePlan = serde_json::from_str(&text)
            .map_err(|error| StoreError::Corrupt(format!("approvals.plan: {error}")))?;
        Ok(Some(ApprovedPlan { plan, sha256, decided_by, barred: row.barred }))
    }
}

impl ApprovalSource for RunApprovals {
    fn of_run<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<Option<ApprovedPlan>, StoreError>> {
        self.approved(run).boxed()
    }
}

impl fmt::Debug for RunApprovals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunApprovals")
    }
}
