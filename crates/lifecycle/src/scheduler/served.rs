//! Updates the served versions, and notifies about late deployments.

use events::{CertificateDeploymentLate, Event};
use futures_util::FutureExt;
use store::{StoreError, Tx};

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::runs::CHUNK;
use crate::served::Verified;
use crate::tables::managed::{
    ManagedRow, certificates_changed_since, late_deployments, managed_after, managed_by_ids,
};
use crate::transition::event_certificate;

/// Number of certificates that the sweep checks in one tick, in addition to certificates with changes seen by scans. 100,000
/// certificates take 40 minutes, at a few milliseconds a tick.
const SWEEP: i64 = 200;
/// Maximum age in µs of the changes that are read. Scan results are stored within seconds. Older changes are found by the sweep
/// over all certificates.
const LOOK_BACK_US: i64 = 120_000_000;

impl Lifecycle {
    /// Stores which versions agents and scans verified as served. Checks certificates with changes seen by scans since the last
    /// call, and the next certificates of the sweep. Returns the number of changed certificates. Part of [`Lifecycle::run`].
    ///
    /// # Errors
    /// [`DataError`] of the database; the next call repeats the work.
    #[crate::boxed]
    pub async fn verify_served(&self) -> Result<u64, DataError> {
        let now_us = self.now_us();
        let (after, from_us) = *self.inner.served_cursor.lock();
        let (after, changed) = attempt(&self.inner.store, "served_verify", move || {
            transaction(move |tx| async move { verify(tx, after, from_us, now_us).await }.boxed())
        })
        .await?;
        *self.inner.served_cursor.lock() = (after, now_us - LOOK_BACK_US);
        Ok(changed)
    }

    /// Sends a notification about each certificate whose newest version is overdue at a target, once for each version.
    pub(super) async fn notify_late_deployments(&self) -> Result<u64, DataError> {
        let now_us = self.now_us();
        loop {
            let notified = attempt(&self.inner.store, "deployments_late", move || {
                transaction(move |tx| async move { notify_late(tx, now_us).await }.boxed())
            })
            .await?;
            if notified < CHUNK {
                return Ok(notified as u64);
            }
        }
    }
}

/// Checks a batch of certificates in one transaction. Returns the start of the next batch, and the number of changed certificates.
async fn verify(tx: &mut Tx, after: i64, from_us: i64, now_us: i64) -> Result<(i64, u64), StoreError> {
    let mut rows = managed_after(tx, after, SWEEP).await?;
    let next = rows.last().filter(|_| rows.len() as i64 == SWEEP).map_or(0, |row| row.id);
    let mut changed = certificates_changed_since(tx, from_us, CHUNK as i64).await?;
    changed.retain(|id| rows.iter().all(|row| row.id != *id));
    if !changed.is_empty() {
        rows.extend(managed_by_ids(tx, changed).await?);
    }
    if rows.is_empty() {
        return Ok((0, 0));
    }
    let verified = Verified::of(tx, &rows.iter().collect::<Vec<&ManagedRow>>()).await?;
    let mut ledger = Ledger::new(now_us, "system:scheduler");
    let mut changed = 0;
    for row in rows {
        let mut entry = Entry::new(row);
        verified.note(&mut ledger, &mut entry);
        changed += u64::from(entry.is_changed());
        ledger.put(entry);
    }
    if changed > 0 {
        ledger.write(tx).await?;
    }
    Ok((next, changed))
}

async fn notify_late(tx: &mut Tx, now_us: i64) -> Result<usize, StoreError> {
    let rows = late_deployments(tx, now_us, CHUNK as i64).await?;
    let count = rows.len();
    if count == 0 {
        return Ok(0);
    }
    let mut ledger = Ledger::new(now_us, "system:scheduler");
    for row in rows {
        let late = CertificateDeploymentLate {
            certificate: event_certificate(&row),
            since_us: row.undeployed_since_us.unwrap_or(now_us),
            error: row.last_error.clone(),
        };
        let mut entry = Entry::new(row);
        entry.row.undeployed_late_at_us = None;
        ledger.announce(&entry.row, &Event::CertificateDeploymentLate(late));
        ledger.put(entry);
    }
    ledger.write(tx).await?;
    Ok(count)
}
