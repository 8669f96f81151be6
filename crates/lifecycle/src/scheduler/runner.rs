//! Execution of runs: each run is a task, claimed when a slot is free. Runs that end together share a transaction.

use std::collections::HashMap;
use std::time::Duration;

use issuers::{IssuerError, IssuerKind};
use store::time_limits::BACKOFF_MAX_US;
use telemetry::spans::{Kind, Span, part, within};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::begin::ReadyRun;
use super::{TickReport, jittered};
use crate::error::DataError;
use crate::finished::FinishedAttempt;
use crate::handle::Lifecycle;
use crate::job::id_of;
use crate::runs::LEASE_US;
use crate::spans;
use crate::tables;

/// Maximum pause that an issuer can request before further orders, in µs. The limit also applies if the clock is set back.
const ISSUER_PAUSE_MAX_US: i64 = BACKOFF_MAX_US;

/// Tasks of runs, with the result to report if a task panics.
struct RunningTasks {
    tasks: JoinSet<FinishedAttempt>,
    ready: HashMap<Id, ReadyRun>,
}

/// Slot of a run, released when dropped.
struct Slot {
    lifecycle: Lifecycle,
    issuer: String,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(busy) = self.lifecycle.inner.busy.lock().get_mut(&self.issuer) {
            busy.running = busy.running.saturating_sub(1);
        }
    }
}

impl Lifecycle {
    /// Starts due runs and waits for them, until no more runs can start.
    pub(super) async fn work(&self) -> Result<TickReport, DataError> {
        let mut report = TickReport::default();
        let mut running = RunningTasks { tasks: JoinSet::new(), ready: HashMap::new() };
        loop {
            let claimed = self.fill(&mut running).await?;
            report.begun += claimed;
            if claimed == 0 {
                return Ok(report);
            }
            let mut ending: JoinSet<()> = JoinSet::new();
            while let Some(finished) = next(&mut running).await {
                let good = finished.outcome.is_ok();
                report.done += u64::from(good);
                report.failed += u64::from(!good);
                let this = self.clone();
                // Results are stored while other runs are still in progress.
                ending.spawn(async move { this.end(finished).await });
            }
            while ending.join_next().await.is_some() {}
        }
    }

    /// Starts due runs until `stop`, like [`Lifecycle::work`], but without waiting for slow runs.
    pub(super) async fn run_work(&self, stop: &CancellationToken) {
        let _live = telemetry::tasks::guard("lifecycle-work");
        let mut running = RunningTasks { tasks: JoinSet::new(), ready: HashMap::new() };
        let mut heartbeat = tokio::time::interval(Duration::from_micros(LEASE_US as u64 / 3));
        let mut ending: JoinSet<()> = JoinSet::new();
        loop {
            let watch = self.inner.figures.start("work", self.now_us());
            let filled = self.fill(&mut running).await;
            if let Err(error) = &filled {
                warn!(error = error as &dyn std::error::Error, "cannot start runs");
            }
            self.inner.figures.end("work", watch, &filled.map(|_| 0));
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.inner.wake.notified() => {}
                () = tokio::time::sleep(jittered(self.inner.options.tick)) => {}
                _ = heartbeat.tick() => self.renew_leases().await,
                Some(()) = async { ending.join_next().await.map(drop) } => {}
                Some(finished) = next(&mut running) => {
                    let mut all = vec![finished];
                    // Releases the slots of all runs that have ended.
                    while let Some(ended) = running.tasks.try_join_next_with_id() {
                        all.extend(settled(&mut running, ended));
                    }
                    for finished in all {
                        let good = finished.outcome.is_ok();
                        self.inner.figures.add("work", u64::from(good), u64::from(!good));
                        let this = self.clone();
                        // Results are stored while the loop continues.
                        ending.spawn(async move { this.end(finished).await });
                    }
                }
            }
        }
        let last = async {
            while let Some(finished) = next(&mut running).await {
                self.end(finished).await;
            }
            while ending.join_next().await.is_some() {}
        };
        if tokio::time::timeout(self.inner.options.stop_grace, last).await.is_err() {
            running.tasks.shutdown().await;
        }
    }

    /// Releases all claimed runs at shutdown, so that other processes need not wait for the leases to expire.
    pub(super) async fn release_claimed_runs(&self) {
        match tables::Jobs::of(&self.inner.store).release_claimed_runs(self.inner.node, self.now_us()).await {
            Ok(0) => {}
            Ok(runs) => debug!(runs, "released runs in progress to other nodes"),
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot release runs in progress; other nodes take them \
                 over when their leases expire"
                );
            }
        }
    }

    async fn renew_leases(&self) {
        let until = self.now_us() + LEASE_US;
        let jobs = self.inner.at_work.jobs();
        if let Err(error) =
            tables::Jobs::of(&self.inner.store).extend_leases(self.inner.node, jobs, until).await
        {
            warn!(error = &error as &dyn std::error::Error, "cannot renew the leases of runs");
        }
    }

    /// Starts due runs in the free slots. Returns the number of claimed runs.
    async fn fill(&self, running: &mut RunningTasks) -> Result<u64, DataError> {
        let now_us = self.now_us();
        let due = tables::Jobs::of(&self.inner.store).issuers_due(now_us).await?;
        self.inner.figures.due("work", due.len() as u64);
        let mut wanted = Vec::new();
        let mut room = self.inner.options.runs_max.saturating_sub(running.tasks.len());
        for issuer in due {
            let concurrency = self.inner.issuers.concurrency(&issuer).await;
            let busy = self.inner.busy.lock().get(&issuer).copied().unwrap_or_default();
            let rest = busy.paused_until_us - now_us;
            if (1..=ISSUER_PAUSE_MAX_US).contains(&rest) {
                continue;
            }
            let free = concurrency.saturating_sub(busy.running).min(room);
            if free > 0 {
                room -= free;
                wanted.push((issuer, free as i64));
            }
        }
        if wanted.is_empty() {
            return Ok(0);
        }
        let (claimed, ready) = self.claim_and_begin(wanted).await?;
        for one in ready {
            self.spawn(running, one);
        }
        Ok(claimed as u64)
    }

    fn spawn(&self, running: &mut RunningTasks, ready: ReadyRun) {
        self.inner.busy.lock().entry(ready.job.issuer.clone()).or_default().running += 1;
        let slot = Slot { lifecycle: self.clone(), issuer: ready.job.issuer.clone() };
        let one = ready.clone();
        let task = running.tasks.spawn(async move {
            let _live = telemetry::tasks::guard("lifecycle-run");
            slot.lifecycle.place_order(one).await
        });
        running.ready.insert(task.id(), ready);
    }

    /// Sends the order to the issuer, with the order timeout.
    async fn place_order(&self, ready: ReadyRun) -> FinishedAttempt {
        let ReadyRun { job, certificate, order, facts, at_work } = ready;
        let deadline = order.deadline;
        let issuance = async {
            let issuance = async {
                let issuer = self.inner.issuers.issuer(&job.issuer).await?;
                let suggests = issuer.kind() == IssuerKind::Acme;
                issuer.issue(&order).await.map(|delivered| (delivered, suggests))
            };
            let outcome = tokio::time::timeout_at(deadline.into(), issuance).await;
            outcome.unwrap_or(Err(IssuerError::TimedOut { stage: "waiting for the issuer" }))
        };
        let named = |span: Span| span.with("bulla.issuer", &job.issuer);
        let order_span = part("order", Kind::Client, named, issuance);
        let outcome = within(Some(spans::run(certificate, id_of(&job))), order_span).await;
        let (outcome, suggests) = match outcome {
            Ok((delivered, suggests)) => (Ok(delivered), suggests),
            Err(error) => (Err(error), false),
        };
        FinishedAttempt { job, facts, profile: order.certificate_profile, outcome, suggests, at_work }
    }

    async fn end(&self, finished: FinishedAttempt) {
        let rest = match &finished.outcome {
            Err(IssuerError::Deferred { retry_after, .. }) => Some(*retry_after),
            Err(IssuerError::RateLimited { retry_after, .. }) => *retry_after,
            _ => None,
        };
        if let Some(rest) = rest {
            let rest_us = i64::try_from(rest.as_micros()).unwrap_or(i64::MAX).min(ISSUER_PAUSE_MAX_US);
            let mut busy = self.inner.busy.lock();
            busy.entry(finished.job.issuer.clone()).or_default().paused_until_us = self.now_us() + rest_us;
        }
        if let Err(error) = &finished.outcome {
            debug!(job = %finished.id(), issuer = finished.job.issuer, %error, "an attempt of a run failed");
        }
        if self.inner.finishing.submit(finished).await.is_err() {
            warn!("the result of a run was not stored; the run is repeated when its lease expires");
        }
    }
}

/// Waits for the next run to end. `None` if no run is in progress.
async fn next(running: &mut RunningTasks) -> Option<FinishedAttempt> {
    let ended = running.tasks.join_next_with_id().await?;
    settled(running, ended)
}

/// Returns the result of a task. A task that panicked is a failed attempt.
fn settled(
    running: &mut RunningTasks,
    ended: Result<(Id, FinishedAttempt), JoinError>,
) -> Option<FinishedAttempt> {
    match ended {
        Ok((id, finished)) => {
            running.ready.remove(&id);
            Some(finished)
        }
        Err(error) => {
            let ready = running.ready.remove(&error.id())?;
            warn!(job = %id_of(&ready.job), "a run was aborted: {error}");
            let outcome = Err(IssuerError::Unavailable {
                reason: "the run was aborted: see the server's log".to_owned(),
                retry_after: None,
            });
            let ReadyRun { job, facts, at_work, .. } = ready;
            Some(FinishedAttempt { job, facts, profile: None, outcome, suggests: false, at_work })
        }
    }
}
