//! The scheduler tick: starts due runs, takes over abandoned runs, and ends waits whose deadline has passed.
//!
//! The table of runs is the schedule: the next run of a certificate is stored with its start time. Apart from the due runs, a tick
//! therefore needs only a constant number of statements.

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

pub(crate) use finish::new_finish_batcher;

/// Counts of the actions of one scheduler tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TickReport {
    /// Runs queued again because their lease expired.
    pub reaped: u64,
    /// Runs for which an approval was requested.
    pub gated: u64,
    /// Number of waits that ended: expired approvals, and runs that waited too long for the CSR or the report of an agent.
    pub lapsed: u64,
    /// Approvals voided because the plan changed.
    pub voided: u64,
    /// Runs started.
    pub begun: u64,
    /// Runs that succeeded.
    pub done: u64,
    /// Failed attempts, with or without a retry to follow.
    pub failed: u64,
    /// Revocations carried out.
    pub revoked: u64,
}

impl Lifecycle {
    pub(crate) async fn planner(&self) -> Result<Planner, DataError> {
        Ok(Planner { set: self.policy_set().await? })
    }

    /// Runs one tick, and completes all due work: for tests, and for callers with their own schedule. [`Lifecycle::run`] ticks
    /// continuously, and does not wait for slow issuers between ticks.
    ///
    /// # Errors
    /// [`DataError`] of the database. A failure of an issuer is not an error of the tick.
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

    /// Runs the scheduler until `stop` is cancelled: starts due runs and does housekeeping. Every process of a cluster may run the
    /// scheduler: runs are claimed, and cluster-wide tasks need a lease. After `stop`, the scheduler releases runs that have not
    /// ended within [`crate::LifecycleOptions::stop_grace`].
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
            self.every("suggestions", tick * 6, &stop, || self.request_suggestions()),
            self.every("policies", tick * 720, &stop, || self.judge_all()),
            Box::pin(self.judge_on_policy_change(&stop)),
            self.every("trim", tick * 720, &stop, || self.trim()),
        );
        self.release_claimed_runs().await;
    }

    /// Checks all certificates against the policies whenever this process changed the policies.
    async fn judge_on_policy_change(&self, stop: &CancellationToken) {
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

    /// Repeats a cluster-wide task under its lease. The interval has jitter, so that loops that started together do not stay
    /// synchronised.
    async fn every<F, Fut>(&self, name: &'static str, period: Duration, stop: &CancellationToken, duty: F)
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<u64, DataError>>,
    {
        let _live = telemetry::tasks::guard("lifecycle-loop");
        let lease = format!("lifecycle/{name}");
        // The lease lasts three periods, so that a single missed run does not move the lease to another process.
        let for_us = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).saturating_mul(3);
        loop {
            let leased = self.inner.store.lease(&lease, self.inner.node, self.now_us(), for_us).await;
            match leased {
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
                            "a periodic task of the scheduler failed"
                        );
                    }
                    self.inner.figures.end(name, watch, &outcome);
                }
                Ok(false) => {}
                Err(error) => {
                    warn!(
                        duty = name,
                        error = &error as &dyn std::error::Error,
                        "cannot get the scheduler lease: the database is unavailable"
                    );
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(jittered(period)) => {}
            }
        }
        // Lets another process take over immediately.
        let _ = self.inner.store.release(&lease, self.inner.node).await;
    }
}

/// Returns a random duration between 90 % and 110 % of the period.
pub(crate) fn jittered(period: Duration) -> Duration {
    let random = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
    period.mul_f64(0.9 + 0.2 * random)
}
