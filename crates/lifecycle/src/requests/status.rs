//! Status of the scheduler, and the events of a run.

use store::{AuditFilter, AuditRow, Lease};

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::job::{JobId, JobState};
use crate::requests::read::DUE_COUNTED_MAX;
use crate::tables;
use crate::tables::schedule::{OPEN_COUNTED_MAX, Schedule};

/// Maximum audit rows of a certificate that are read to find the events of one run.
const EVENTS_READ_MAX: usize = 1_000;
/// Time after the end of a run within which its last audit row may be written, in µs.
const EVENTS_MARGIN_US: i64 = 1_000_000;

/// Due runs of one issuer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DueRuns {
    /// Name of the issuer.
    pub issuer: String,
    /// Number of runs that are due and have not started, at most [`SchedulerStatus::counted_to`].
    pub count: u64,
    /// Planned start of the run that is overdue longest, in µs since 1970.
    pub oldest_us: Option<i64>,
}

/// Status of the scheduler over all nodes: counts of runs, and leases.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SchedulerStatus {
    /// Runs in progress at an issuer or an agent.
    pub running: u64,
    /// Runs that wait for approval.
    pub awaiting_approval: u64,
    /// Runs that wait for the CSR of an agent.
    pub awaiting_csr: u64,
    /// Due runs by issuer.
    pub due: Vec<DueRuns>,
    /// Maximum value of the counters. A counter with this value means "at least".
    pub counted_to: u64,
    /// Leases of the tasks that one process carries out for the whole cluster.
    pub leases: Vec<Lease>,
}

impl Lifecycle {
    /// Returns the status of the scheduler, for all nodes.
    ///
    /// # Errors
    /// Database errors.
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

    /// Returns the audit rows of a run, oldest first.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
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
