//! Retention of observations: removes old scans and their observations, except those that [`store::Pruning`] keeps.
//!
//! In a cluster one node at a time does the work. Transactions are small, and the pause after each is longer than the
//! transaction, so that scans and other writers proceed.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Clock, DAY_US, PruneMode, Pruned, Pruning, Scans, Store, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Interval between two passes that remove old observations.
const PASS_EVERY: Duration = Duration::from_secs(3_600);
/// Interval of attempts to take the lease, and of repetitions after an error.
const RETRY_EVERY: Duration = Duration::from_secs(60);
/// Duration of the lease, µs.
const LEASE_US: i64 = 120_000_000;
/// Interval of extending the lease during a pass.
const EXTEND_EVERY: Duration = Duration::from_secs(30);
const LEASE: &str = "inventory-retention";

/// Pause after a step, as a multiple of the step's duration. During the pause, other processes that poll for SQLite's lock can take
/// the lock.
const PAUSE_FACTOR: u32 = 2;
/// Minimum pause after a step.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Maximum pause after a step.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Removes observations of scans that ended before `before_us`, until all are removed or `limit` has passed.
///
/// # Errors
/// Database errors. Earlier steps of the pass stay.
#[crate::boxed]
pub async fn prune(
    store: &Store,
    before_us: i64,
    now_us: i64,
    mode: PruneMode,
    limit: Option<Duration>,
) -> Result<Pruned, StoreError> {
    let began = Instant::now();
    let mut pruning = Scans::of(store).pruning(before_us, now_us, mode).await?;
    while limit.is_none_or(|limit| began.elapsed() < limit) {
        let Some(took) = pruning.step().await? else { break };
        if mode == PruneMode::Remove {
            tokio::time::sleep(pause_after(took)).await;
        }
    }
    Ok(pruning.done())
}

fn pause_after(step: Duration) -> Duration {
    (step * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Background task of a server that removes old observations.
pub struct Retention {
    store: Store,
    clock: Clock,
    days: u32,
    node: Uuid,
}

impl Retention {
    /// Creates the retention. Observations stay for `days` days after the end of their scan.
    #[must_use]
    pub fn new(store: Store, clock: Clock, days: u32) -> Self {
        Self { store, clock, days, node: Uuid::now_v7() }
    }

    /// Removes old observations once an hour until `stop`, while this node has the lease.
    pub async fn run(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("inventory-retention");
        loop {
            let pause = match self.round(&stop).await {
                Ok(true) => PASS_EVERY,
                Ok(false) => RETRY_EVERY,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "old observations could not be pruned yet"
                    );
                    RETRY_EVERY
                }
            };
            if paused(pause, &stop).await {
                return;
            }
        }
    }

    /// Runs a pass if no other node does. Returns whether it is complete.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn round(&self, stop: &CancellationToken) -> Result<bool, StoreError> {
        if !self.extend().await? {
            return Ok(false);
        }
        let ended = self.pass(stop).await;
        // Another node can take over immediately.
        self.store.release(LEASE, self.node).await?;
        ended
    }

    async fn extend(&self) -> Result<bool, StoreError> {
        self.store.lease(LEASE, self.node, self.clock.now_us(), LEASE_US).await
    }

    async fn pass(&self, stop: &CancellationToken) -> Result<bool, StoreError> {
        let now_us = self.clock.now_us();
        let before_us = now_us.saturating_sub(i64::from(self.days).saturating_mul(DAY_US));
        let mut pruning = Scans::of(&self.store).pruning(before_us, now_us, PruneMode::Remove).await?;
        let began = Instant::now();
        let ended = self.steps(&mut pruning, stop).await;
        let done = pruning.done();
        if done.observations > 0 || done.scans_removed > 0 {
            self.record(done, before_us, began.elapsed()).await?;
        }
        ended
    }

    async fn steps(&self, pruning: &mut Pruning, stop: &CancellationToken) -> Result<bool, StoreError> {
        let mut extended = Instant::now();
        while let Some(took) = pruning.step().await? {
            if paused(pause_after(took), stop).await {
                return Ok(false);
            }
            if extended.elapsed() > EXTEND_EVERY {
                extended = Instant::now();
                if !self.extend().await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Logs a pass and records it in the audit log.
    async fn record(&self, done: Pruned, before_us: i64, took: Duration) -> Result<(), StoreError> {
        let longest_ms = u64::try_from(done.longest.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(
            observations = done.observations,
            scans = done.scans,
            scans_removed = done.scans_removed,
            kept = done.kept,
            seconds = took.as_secs(),
            longest_transaction_ms = longest_ms,
            "old observations were pruned"
        );
        let event = AuditEvent {
            at_us: self.clock.now_us(),
            actor: "system:inventory".to_owned(),
            action: "inventory.prune",
            resource: "inventory/observations".to_owned(),
            details: json!({
                "observations": done.observations,
                "scans": done.scans,
                "scans_removed": done.scans_removed,
                "ended_before": jiff::Timestamp::from_microsecond(before_us).map(|at| at.to_string()).unwrap_or_default(),
            }),
        };
        let recorded = self
            .store
            .write("inventory_prune", move |tx| async move { store::audit(tx, vec![event]).await }.boxed());
        recorded.await
    }
}

/// Waits for `pause`. Returns true if `stop` was cancelled during the wait.
async fn paused(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(pause) => false,
    }
}
