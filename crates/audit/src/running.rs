//! Background tasks. In a cluster, one node signs and sends heads, and one applies the retention policy.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::AuditError;
use crate::log::AuditLog;
use crate::retention::Step;

/// Interval of checks for a head that is due and for witnesses that lack a head.
const HEADS_TICK: Duration = Duration::from_secs(10);
/// Interval of checks for events to seal when there is no other work.
const RETENTION_TICK: Duration = Duration::from_secs(60);
/// Pause between two retention steps, so that other writers can proceed.
const STEP_PAUSE: Duration = Duration::from_millis(500);
/// Pause after a broken chain was found and all other work is done.
const BROKEN_PAUSE: Duration = Duration::from_secs(3_600);
/// Duration of the lease in µs: longer than a step takes.
const LEASE_US: i64 = 300_000_000;

impl AuditLog {
    /// Signs heads, sends them to witnesses, and applies the retention policy, until `stop` is cancelled. Only one node of a
    /// cluster does the work at a time.
    #[crate::boxed]
    pub async fn run(self, stop: CancellationToken) {
        let heads = self.clone().run_head_signing(stop.clone());
        futures_util::future::join(heads, self.run_retention(stop)).await;
    }

    async fn run_head_signing(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("audit-heads");
        let (node, store) = (Uuid::now_v7(), &self.parts.store);
        loop {
            match store.lease("audit-heads", node, self.parts.clock.now_us(), LEASE_US).await {
                Ok(true) => {
                    if let Err(error) = self.sign_due().await {
                        tracing::warn!(%error, "the head of the audit log could not be signed");
                    }
                    if let Err(error) = self.send_to_witnesses().await {
                        tracing::warn!(%error, "signed heads of the audit log could not be sent to witnesses");
                    }
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the lease of the audit log could not be acquired"),
            }
            if paused(HEADS_TICK, &stop).await {
                // Release the lease, so that another node takes over immediately.
                let _ = store.release("audit-heads", node).await;
                return;
            }
        }
    }

    async fn run_retention(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("audit-retention");
        let (node, store) = (Uuid::now_v7(), &self.parts.store);
        loop {
            let pause = match store.lease("audit-retention", node, self.parts.clock.now_us(), LEASE_US).await
            {
                Ok(true) => self.run_retention_step().await,
                Ok(false) => RETENTION_TICK,
                Err(error) => {
                    tracing::warn!(%error, "the lease of the audit log could not be acquired");
                    RETENTION_TICK
                }
            };
            if paused(pause, &stop).await {
                let _ = store.release("audit-retention", node).await;
                return;
            }
        }
    }

    /// Runs one retention step. Returns the pause before the next step.
    async fn run_retention_step(&self) -> Duration {
        match self.retain().await {
            Ok(Step::Nothing) => RETENTION_TICK,
            Ok(_) => STEP_PAUSE,
            Err(error) => {
                tracing::warn!(%error, "the retention policy of the audit log could not be applied");
                if matches!(error, AuditError::Segment(_)) { BROKEN_PAUSE } else { RETENTION_TICK }
            }
        }
    }
}

/// Waits for `pause`. Returns true if `stop` was cancelled meanwhile.
async fn paused(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(pause) => false,
    }
}
