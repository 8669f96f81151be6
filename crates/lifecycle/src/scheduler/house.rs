//! Housekeeping: requeues runs with expired leases, opens required approvals, ends overdue waits, and deletes old runs.

use std::collections::HashMap;

use futures_util::FutureExt;
use store::time_limits::BACKOFF_MAX_US;
use store::{StoreError, Tx};

use super::TickReport;
use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::job::{Consent, JobState};
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::plan::ApprovalFacts;
use crate::runs::{CHUNK, LEASE_US};
use crate::tables;
use crate::tables::jobs::{jobs_due_for_approval, reap_jobs, unstick_jobs};
use crate::tables::managed::{ManagedRow, managed_by_ids};
use crate::transition::{Transition, run_from_job};

/// Retention of ended runs, in µs: three months.
const HISTORY_US: i64 = 92 * 86_400_000_000;
/// Maximum runs deleted in one statement.
const TRIM_MAX: i64 = 5_000;

impl Lifecycle {
    /// Runs the first part of a tick: makes runs claimable, and ends runs that waited too long. Runs a constant number of
    /// statements for each `CHUNK` of runs that need approval.
    ///
    /// # Errors
    /// [`DataError`] of the database.
    #[crate::boxed]
    pub async fn schedule(&self) -> Result<TickReport, DataError> {
        let now_us = self.now_us();
        let set_back = {
            let mut last = self.inner.last_tick_us.lock();
            let set_back = now_us < *last;
            *last = now_us;
            set_back
        };
        let reap = transaction(move |tx| {
            async move {
                if set_back {
                    unstick_jobs(tx, now_us, now_us + 2 * BACKOFF_MAX_US).await?;
                }
                reap_jobs(tx, now_us, now_us + 2 * LEASE_US).await
            }
            .boxed()
        });
        let mut report = TickReport {
            reaped: self.inner.store.write("jobs_reap", reap).await?,
            gated: self.open_due_approvals().await?,
            ..TickReport::default()
        };
        report.lapsed = self.expire_approvals().await? + self.end_overdue().await?;
        report.voided = self.void_changed_approvals().await?;
        self.notify_late_deployments().await?;
        if report.reaped > 0 {
            self.inner.wake.notify_one();
        }
        Ok(report)
    }

    /// Opens approvals for due runs that need one.
    async fn open_due_approvals(&self) -> Result<u64, DataError> {
        let now_us = self.now_us();
        let mut gated = 0;
        loop {
            let opened = attempt(&self.inner.store, "jobs_gate", move || {
                transaction(move |tx| open_approvals_chunk(tx, now_us).boxed())
            })
            .await?;
            gated += opened as u64;
            if opened < CHUNK {
                return Ok(gated);
            }
        }
    }

    /// Deletes runs that ended longer ago than the retention time.
    pub(super) async fn trim(&self) -> Result<u64, DataError> {
        let before = self.now_us() - HISTORY_US;
        let mut forgotten = 0;
        for state in [JobState::Done, JobState::Failed, JobState::Cancelled] {
            loop {
                let some = tables::Jobs::of(&self.inner.store).trim(state, before, TRIM_MAX).await?;
                forgotten += some;
                if some < TRIM_MAX as u64 {
                    break;
                }
            }
        }
        Ok(forgotten)
    }
}

async fn open_approvals_chunk(tx: &mut Tx, now_us: i64) -> Result<usize, StoreError> {
    let jobs = jobs_due_for_approval(tx, now_us, CHUNK as i64).await?;
    let count = jobs.len();
    let rows: HashMap<i64, ManagedRow> = managed_by_ids(tx, jobs.iter().map(|job| job.certificate).collect())
        .await?
        .into_iter()
        .map(|row| (row.id, row))
        .collect();
    let facts = ApprovalFacts::of(tx, &rows.values().collect::<Vec<_>>(), now_us).await?;
    let mut ledger = Ledger::new(now_us, "system:renewal");
    for job in jobs {
        let Some(row) = rows.get(&job.certificate) else {
            ledger.end(job, JobState::Cancelled, Some("the certificate no longer exists".to_owned()));
            continue;
        };
        let mut entry = Entry::new(row.clone());
        match ledger.step(&mut entry, Transition::ApprovalNeeded(run_from_job(&job))) {
            Ok(_) => {
                ledger.request_approval(facts.approval(
                    &job,
                    row,
                    "the profile or a policy requires approval",
                    now_us,
                )?);
                let mut to = job.clone();
                to.state = JobState::AwaitingApproval;
                to.approval = Consent::Needed;
                to.deadline_at_us = i64::MAX;
                ledger.change(job, to);
                ledger.put(entry);
            }
            Err(error) => ledger.end(job, JobState::Cancelled, Some(error.to_string())),
        }
    }
    ledger.write(tx).await?;
    Ok(count)
}
