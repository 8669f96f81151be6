//! The tick: what is due is begun, what was left behind is taken up, what waits too long is ended.
//!
//! The schedule is the table of runs, so that being due needs no work: the next run of a certificate waits in it with
//! its time. A tick is a constant number of statements, and the work that is due.

mod begin;
mod finish;
mod house;
mod revoke;
mod runner;
mod served;
mod suggest;
mod teams;

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::runs::Planner;

pub(crate) use finish::finisher;

/// Result of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TickReport {
    /// Runs whose lease had ended: queued again.
    pub reaped: u64,
    /// Runs put up for approval before they may begin.
    pub gated: u64,
    /// Approvals that lapsed, and runs that waited too long for a CSR.
    pub lapsed: u64,
    /// Approvals voided because the plan changed.
    pub voided: u64,
    /// Runs begun.
    pub begun: u64,
    /// Runs that ended with success.
    pub done: u64,
    /// Attempts that failed, for good or not.
    pub failed: u64,
    /// Revocations carried out.
    pub revoked: u64,
}

impl Lifecycle {
    pub(crate) async fn planner(&self) -> Result<Planner, DataError> {
        Ok(Planner { set: self.policy_set().await? })
    }

    /// One look at everything, and the work that is due carried out to its end: for tests and for anyone who schedules by
    /// himself. [`Lifecycle::run`] does the same for ever, without waiting for slow issuers between looks.
    ///
    /// # Errors
    /// [`DataError`] of the database; what an issuer does not do is not an error of the tick.
    #[crate::boxed]
    pub async fn tick(&self) -> Result<TickReport, DataError> {
        self.follow_revocations().await?;
        self.verify_served().await?;
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
    /// [`crate::LifecycleOptions::stop_patience`].
    #[crate::boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let tick = self.inner.options.tick;
        tokio::join!(
            Box::pin(self.run_work(&stop)),
            self.every("schedule", tick, &stop, || async {
                self.schedule().await.map(|report| report.gated)
            }),
            self.every("revoke", tick, &stop, || self.revoke_all_due()),
            self.every("served", tick, &stop, || self.verify_served()),
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
        Fut: Future<Output = Result<u64, DataError>>,
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
