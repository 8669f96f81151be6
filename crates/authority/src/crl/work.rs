//! Background work for CRLs: creation of due CRLs, revocations by other nodes, and deletion of old idempotency keys.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};
use uuid::Uuid;

use super::document::DELTA;
use super::error::CrlError;
use crate::Authority;
use crate::tables;
use crate::tree::Ca;

/// Delay between a revocation and the CRL that contains it. Revocations within this time share a CRL.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Interval of checks for revocations by other nodes and for due CRLs.
const TICK: Duration = Duration::from_secs(1);
/// Lifetime of the lease for creating CRLs in microseconds. It is longer than the creation takes.
const LEASE_US: i64 = 60_000_000;
const LEASE: &str = "authority-crls";
/// Microseconds for which an idempotency key is stored; longer than any client repeats a request.
const KEY_RETENTION_US: i64 = 30 * 86_400_000_000;
/// Interval of the deletion of old idempotency keys.
const TRIM_INTERVAL: Duration = Duration::from_secs(3_600);
/// Extra time in microseconds by which the search for revocations of other nodes overlaps the previous search, because of clock
/// differences and open transactions.
const FEED_MARGIN_US: i64 = 10_000_000;
/// Number of new revocations above which the whole cache of OCSP responses is cleared.
const FEED_MAX: i64 = 10_000;

/// The result of one round of background work: see [`Authority::tick`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TickReport {
    /// Number of created CRLs; delta CRLs are not counted.
    pub crls: u64,
    /// Number of revocations received from other nodes.
    pub received: u64,
}

impl Authority {
    /// Runs the background work until `stop` completes. Call it once in each process; any number of processes of a cluster may run
    /// it.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let _live = telemetry::tasks::guard("authority");
        tokio::pin!(stop);
        let mut trim_at = Instant::now() + TRIM_INTERVAL;
        let mut responders_at = Instant::now();
        loop {
            if let Err(error) = self.tick().await {
                warn!(error = &error as &dyn std::error::Error, "periodic work of the CA failed; will retry");
            }
            if Instant::now() >= trim_at {
                trim_at = Instant::now() + TRIM_INTERVAL;
                let before = self.clock().now_us().saturating_sub(KEY_RETENTION_US);
                if let Err(error) = tables::Issued::of(self.store()).delete_idempotency_keys(before).await {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot delete old idempotency keys; will retry"
                    );
                }
            }
            if Instant::now() >= responders_at {
                responders_at = Instant::now() + TRIM_INTERVAL;
                tokio::select! {
                    () = &mut stop => return,
                    () = self.prepare_responders() => {}
                }
            }
            tokio::select! {
                () = &mut stop => return,
                () = self.crls().wakeup.notified() => tokio::time::sleep(DEBOUNCE).await,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    /// Runs one round: reads the revocations of other nodes and, with the lease, creates the due CRLs.
    ///
    /// # Errors
    /// The first error. Unfinished work stays due for the next round.
    #[crate::boxed]
    pub async fn tick(&self) -> Result<TickReport, CrlError> {
        let mut report = TickReport { received: self.receive_revocations().await?, crls: 0 };
        let now_us = self.clock().now_us();
        self.ensure_crl_rows().await?;
        let due = !tables::Revocations::of(self.store()).crls_due(now_us).await?.is_empty();
        if !due || !self.store().lease(LEASE, self.node(), now_us, LEASE_US).await? {
            return Ok(report);
        }
        let made = self.create_due_crls(now_us).await;
        // Release the lease in any case, so that other nodes need not wait for its expiry.
        self.store().release(LEASE, self.node()).await?;
        report.crls = made?;
        debug!(crls = report.crls, "CRLs made");
        Ok(report)
    }

    /// Creates the due CRLs. Reads the list of due CRLs again under the lease, because the previous holder may have created them.
    async fn create_due_crls(&self, now_us: i64) -> Result<u64, CrlError> {
        let (mut crls, mut failed) = (0, None);
        for state in tables::Revocations::of(self.store()).crls_due(now_us).await? {
            match self.make_crl(&state).await {
                Ok(made) => crls += u64::from(made),
                // If the key of one CA is unavailable, the CRLs of other CAs must still be created.
                Err(error) => {
                    warn!(ca = %state.ca, error = &error as &dyn std::error::Error, "cannot sign a new CRL; will retry");
                    self.note_failure(state.ca, state.shard, now_us, &error).await?;
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(crls), Err)
    }

    /// Records that a CRL could not be created, for the publication status.
    async fn note_failure(
        &self,
        ca: Uuid,
        shard: i64,
        now_us: i64,
        error: &CrlError,
    ) -> Result<(), CrlError> {
        let text = error.to_string();
        self.store()
            .write("crl_failed", move |tx| {
                Box::pin(async move { tables::note_crl_failure(tx, ca, shard, now_us, &text).await })
            })
            .await?;
        Ok(())
    }

    /// Creates the first CRL of a CA before the background task does. Returns false if the CA has no such CRL.
    pub(super) async fn make_first_crl(&self, ca: Uuid, shard: i64) -> Result<bool, CrlError> {
        // A delta CRL is created together with its full CRL.
        let shard = if shard == DELTA { 0 } else { shard };
        let known = self.ensure_crl_rows().await?;
        if !known.contains(&(ca, shard))
            && tables::Revocations::of(self.store()).crl_state(ca, shard).await?.is_none()
        {
            return Ok(false);
        }
        let Some(state) = tables::Revocations::of(self.store()).crl_state(ca, shard).await? else {
            return Ok(false);
        };
        Ok(state.number > 0
            || self.make_crl(&state).await?
            || tables::Revocations::of(self.store()).crl_number(ca, shard).await? > Some(0))
    }

    /// Inserts missing rows for the CRLs of all CAs. Returns all CRLs that have a row.
    async fn ensure_crl_rows(&self) -> Result<HashSet<(Uuid, i64)>, CrlError> {
        let shards = i64::from(self.options().crl_shards);
        let cas = self.all_cas().await?;
        // A CA from the credential store has a single CRL, and its certificates contain the URL of this CRL.
        let shards_of = |ca: &Ca| if ca.credential.is_some() { 0 } else { shards };
        let publishing = cas.iter().filter(|ca| ca.publishes());
        let wanted = publishing.flat_map(|ca| (0..=shards_of(ca)).map(|shard| (ca.id, shard)));
        let (missing, mut known) = {
            let progress = self.crls().progress.lock();
            let missing: Vec<(Uuid, i64)> = wanted.filter(|key| !progress.known_crls.contains(key)).collect();
            (missing, progress.known_crls.clone())
        };
        if !missing.is_empty() {
            let new = missing.clone();
            self.store()
                .write("crls_begin", move |tx| Box::pin(async move { tables::crls_begin(tx, &new).await }))
                .await?;
            known.extend(missing.iter().copied());
            self.crls().progress.lock().known_crls.extend(missing);
        }
        Ok(known)
    }

    /// Removes the OCSP responses of certificates that other nodes have revoked from the cache.
    async fn receive_revocations(&self) -> Result<u64, CrlError> {
        let changes = tables::Revocations::of(self.store()).crl_change_counter().await?;
        let now_us = self.clock().now_us();
        let from_us = {
            let mut progress = self.crls().progress.lock();
            if progress.changes == changes && progress.feed_read_at_us > 0 {
                progress.feed_read_at_us = now_us;
                return Ok(0);
            }
            let from_us = progress.feed_read_at_us.saturating_sub(FEED_MARGIN_US);
            (progress.changes, progress.feed_read_at_us) = (changes, now_us);
            from_us
        };
        if from_us <= 0 {
            // Just started: there was no earlier search, so the cache is cleared.
            self.responders().clear_all();
            return Ok(0);
        }
        let rows = tables::Revocations::of(self.store()).since(from_us, FEED_MAX + 1).await?;
        let count = rows.len() as u64;
        self.responders().forget(&rows, if rows.len() as i64 > FEED_MAX { u64::MAX } else { count });
        Ok(count)
    }
}
