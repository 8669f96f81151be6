//! What the scheduler is doing, and what happened in one run.

use store::{AuditFilter, AuditRow, Lease};

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::job::{JobId, JobState};
use crate::tables;
use crate::tables::schedule::{OPEN_COUNTED_MAX, Schedule};

/// Audit rows of a certificate that are read for the events of one run.
const EVENTS_READ_MAX: usize = 1_000;
/// A run's last row may be written a moment after its end, µs.
const EVENTS_MARGIN_US: i64 = 1_000_000;
/// Due runs of an issuer are counted up to here.
const DUE_COUNTED_MAX: i64 = 10_000;

/// What waits for one issuer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DueRuns {
    /// The issuer.
    pub issuer: String,
    /// Runs that are due and not begun, counted to a bound.
    pub count: u64,
    /// When the longest of them was to begin, µs.
    pub oldest_us: Option<i64>,
}

/// What the scheduler is doing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SchedulerStatus {
    /// Runs that are with an issuer or an agent.
    pub running: u64,
    /// Runs that wait for approval.
    pub awaiting_approval: u64,
    /// Runs that wait for an agent's request.
    pub awaiting_csr: u64,
    /// Due runs by issuer.
    pub due: Vec<DueRuns>,
    /// Counts end here: as many means "at least".
    pub counted_to: u64,
    /// The work that one process does for the cluster, and which.
    pub leases: Vec<Lease>,
}

impl Lifecycle {
    /// Work of the scheduler on all nodes.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn scheduler_status(&self) -> Result<SchedulerStatus, DataError> {
        let (store, now) = (&self.inner.store, self.now_us());
        let schedule = Schedule::of(store);
        let mut due = Vec::new();
        for issuer in tables::Jobs::of(store).issuers_due(now).await? {
            let count = tables::Jobs::of(store).due(&issuer, now, DUE_COUNTED_MAX).await?;
            let oldest_us = schedule.oldest_due(&issuer).await?;
            due.push(DueRuns { issuer, count, oldest_us });
        }
        Ok(SchedulerStatus {
            running: schedule.open(JobState::Running).await?,
            awaiting_approval: schedule.open(JobState::AwaitingApproval).await?,
            awaiting_csr: schedule.open(JobState::AwaitingCsr).await?,
            due,
            counted_to: OPEN_COUNTED_MAX.unsigned_abs(),
            leases: store.leases(now).await?,
        })
    }

    /// What the audit log has of a run, the oldest first.
    ///
    /// # Errors
    /// [`DataError::NotFound`]; those of the database.
    #[crate::boxed]
    pub async fn job_events(&self, id: JobId) -> Result<Vec<AuditRow>, DataError> {
        let job = self.job(id).await?;
        let filter = AuditFilter {
            resource: Some(format!("certificate/{}", job.certificate)),
            from_us: Some(job.created_at_us),
            before_us: job.finished_at_us.map(|at| at.saturating_add(EVENTS_MARGIN_US)),
            ..AuditFilter::default()
        };
        let page = self.inner.store.audit_page(&filter, None, EVENTS_READ_MAX).await?;
        let of_run = |row: &AuditRow| {
            let details: serde_json::Value = serde_json::from_str(&row.details).unwrap_or_default();
            details["job"].as_str().and_then(|job| job.parse().ok()) == Some(id.0)
        };
        Ok(page.rows.into_iter().filter(of_run).rev().collect())
    }
}
