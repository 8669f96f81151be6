//! The tick: what is due is begun, what was left behind is taken up, what waits too long is ended.
//!
//! The schedule is the table of runs, so that being due needs no work: the next run of a certificate waits in it with
//! its time. A tick is a constant number of statements, and the work that is due.

mod begin;
mod figures;
mod finish;
mod house;
mod revoke;
mod runner;
mod suggest;

use std::sync::Arc;
use std::time::Duration;

use store::jobs::NewJob;
use store::managed::{ManagedRow, NEVER_ISSUED_US};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(crate) use begin::asks_for;
pub use figures::{Figures, LoopFigures};
pub(crate) use finish::{Finished, backoff, deployment, finisher, target_of};
pub(crate) use revoke::{Held, reason};

use crate::job::{Consent, JobKind};
use crate::lifecycle::{Ledger, Lifecycle, LifecycleError, RUN_PATIENCE_US};
use crate::managed::ManagedCertificate;
use crate::policy::PolicySet;
use crate::renewal::next_open;

/// After a failed or refused run the next one comes after a tenth of the life that is left, between these, µs.
const RETRY_MIN_US: i64 = 3_600_000_000;
const RETRY_MAX_US: i64 = 86_400_000_000;

/// The first pause after an attempt that may heal, doubled up to the last, µs.
pub(crate) const BACKOFF_MIN_US: i64 = 30_000_000;
pub(crate) const BACKOFF_MAX_US: i64 = 3_600_000_000;

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TickReport {
    /// Runs whose lease had ended: queued again.
    pub reaped: u64,
    /// Runs put up for approval before they may begin.
    pub gated: u64,
    /// Approvals that lapsed, and runs that waited too long for a CSR.
    pub lapsed: u64,
    /// Runs begun.
    pub begun: u64,
    /// Runs that ended with success.
    pub done: u64,
    /// Attempts that failed, for good or not.
    pub failed: u64,
    /// Revocations carried out.
    pub revoked: u64,
}

/// What is needed to plan the next run within a transaction.
#[derive(Clone)]
pub(crate) struct Planner {
    set: Arc<PolicySet>,
}

impl Planner {
    /// When to try again after a run that came to nothing; `None` when that is people's business.
    fn retry_at(&self, row: &ManagedRow, now_us: i64) -> Option<i64> {
        let certificate = ManagedCertificate::from_row(row).ok()?;
        let rule = self.set.renewal_rule(&certificate, None);
        if !rule.auto_renew {
            return None;
        }
        let left = if row.not_after_us == NEVER_ISSUED_US { 0 } else { row.not_after_us - now_us };
        let at = now_us + (left / 10).clamp(RETRY_MIN_US, RETRY_MAX_US);
        let open = next_open(&rule.windows, at).filter(|open| *open < row.not_after_us);
        Some(open.unwrap_or(at))
    }
}

/// Queues the run after one that came to nothing.
pub(crate) fn replan(ledger: &mut Ledger, planner: &Planner, row: &ManagedRow) {
    let now_us = ledger.at_us();
    if let Some(at_us) = planner.retry_at(row, now_us) {
        ledger.queue(planned(row, at_us, "retry", Consent::NotNeeded, now_us));
    }
}

/// A run whose time is to come.
pub(crate) fn planned(row: &ManagedRow, at_us: i64, reason: &str, consent: Consent, now_us: i64) -> NewJob {
    let kind = if row.fingerprint.is_some() { JobKind::Renewal } else { JobKind::Issuance };
    NewJob {
        certificate: row.id,
        kind: kind.code(),
        approval: consent.code(),
        issuer: row.issuer.clone(),
        agent: row.agent,
        version: None,
        reason: reason.to_owned(),
        requested_by: "system:renewal".to_owned(),
        next_attempt_at_us: at_us,
        deadline_at_us: at_us.saturating_add(RUN_PATIENCE_US),
        detail: None,
        created_at_us: now_us,
    }
}

impl Lifecycle {
    pub(crate) async fn planner(&self) -> Result<Planner, LifecycleError> {
        Ok(Planner { set: self.policy_set().await? })
    }

    /// One look at everything, and the work that is due carried out to its end: for tests and for whoever schedules by
    /// himself. [`Lifecycle::run`] does the same for ever, without waiting for slow issuers between looks.
    ///
    /// # Errors
    /// [`LifecycleError`] of the database; what an issuer does not do is not an error of the tick.
    pub async fn tick(&self) -> Result<TickReport, LifecycleError> {
        self.follow_revocations().await?;
        let mut report = self.schedule().await?;
        report.revoked = self.revoke_all_due().await?;
        let worked = self.work().await?;
        report.begun = worked.begun;
        report.done = worked.done;
        report.failed = worked.failed;
        Ok(report)
    }

    /// The scheduler: begins what is due and keeps house, until `stop`. Every process may run it: what a cluster does
    /// once is done under leases, and runs are claimed. Stopped, it lets go of what has not ended within
    /// [`crate::lifecycle::LifecycleOptions::stop_patience`].
    pub async fn run(&self, stop: CancellationToken) {
        let tick = self.inner.options.tick;
        tokio::join!(
            Box::pin(self.run_work(&stop)),
            self.every("schedule", tick, &stop, || async {
                self.schedule().await.map(|report| report.gated)
            }),
            self.every("revoke", tick, &stop, || self.revoke_all_due()),
            self.every("revocations", tick, &stop, || self.follow_revocations()),
            self.every("suggestions", tick * 6, &stop, || self.ask_suggestions()),
            self.every("policies", tick * 720, &stop, || self.judge_all()),
            Box::pin(self.judge_when_asked(&stop)),
            self.every("trim", tick * 720, &stop, || self.trim()),
        );
        self.let_go().await;
    }

    /// Holds everything against the policies whenever they changed here.
    async fn judge_when_asked(&self, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.inner.judge.notified() => {}
            }
            let watch = self.inner.figures.start("policies", self.now_us());
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.judge_all() => outcome,
            };
            self.inner.figures.end("policies", watch, &outcome);
        }
    }

    /// Repeats a duty of the cluster under its lease, each time a little later or sooner so that loops that began
    /// together do not stay together.
    async fn every<F, Fut>(&self, name: &'static str, period: Duration, stop: &CancellationToken, duty: F)
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<u64, LifecycleError>>,
    {
        let _live = telemetry::tasks::guard("lifecycle-loop");
        let lease = format!("lifecycle/{name}");
        // Three periods: one missed look is no reason for another to take over.
        let for_us = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).saturating_mul(3);
        loop {
            let held = self.inner.store.lease(&lease, self.inner.node, self.now_us(), for_us).await;
            match held {
                Ok(true) => {
                    let watch = self.inner.figures.start(name, self.now_us());
                    let outcome = tokio::select! {
                        () = stop.cancelled() => break,
                        outcome = Box::pin(duty()) => outcome,
                    };
                    if let Err(error) = &outcome {
                        warn!(
                            duty = name,
                            error = error as &dyn std::error::Error,
                            "a duty of the scheduler failed"
                        );
                    }
                    self.inner.figures.end(name, watch, &outcome);
                }
                Ok(false) => {}
                Err(error) => {
                    warn!(
                        duty = name,
                        error = &error as &dyn std::error::Error,
                        "no lease: the database is away"
                    );
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(jittered(period)) => {}
            }
        }
        // Another takes over at once.
        let _ = self.inner.store.release(&lease, self.inner.node).await;
    }
}

/// Between nine tenths and eleven tenths.
pub(crate) fn jittered(period: Duration) -> Duration {
    let random = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
    period.mul_f64(0.9 + 0.2 * random)
}
