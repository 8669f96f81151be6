//! Queues for database access: lookups share a statement, certificates share a transaction.

use std::collections::HashMap;
use std::sync::Arc;

use events::{CertificateIssued, Event, IssuedByAuthority};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use serde_json::json;
use store::series::{Series, SeriesCounts, count_series};
use store::{AuditEvent, Batcher, BatcherOptions, NewEvent, Store, StoreError, Tx, audit_and_emit};

use x509::{Certificate, Fingerprint, NameConstraints};

use super::IssueError;
use crate::tables;
use crate::tables::{Insertion, NewIssued, Source, UsedIdempotencyKey};
use crate::tree::Ca;

/// Maximum number of certificates in one transaction, and of lookups in one statement. A certificate has about 3 KiB, so a batch
/// has less than 1 MiB.
const BATCH_MAX: usize = 256;
/// Capacity of each queue. When a queue is full, callers wait for a slot.
const WAITING_MAX: usize = 4_096;
/// Maximum number of concurrent transactions. While one commits, the next is sent.
const AT_ONCE: usize = 2;
/// Maximum number of CAs with cached name constraints. When it is exceeded, the cache is cleared.
const LIMITS_MAX: usize = 1_000;
/// Maximum number of attempts of a transaction that conflicts with another.
const ATTEMPTS_MAX: usize = 3;

/// Result of the lookups for a request before the signature: whether its key is blocked, and the earlier use of its idempotency
/// key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IssuingState {
    pub(super) blocked: bool,
    pub(super) used: Option<UsedIdempotencyKey>,
}

/// Hashes of the public key and of the idempotency key to look up.
type IssuingLookup = ([u8; 32], Option<[u8; 32]>);

/// The queues for database access.
pub(crate) struct Issuing {
    lookups: Batcher<IssuingLookup, Result<IssuingState, Arc<StoreError>>>,
    rows: Batcher<NewIssued, Result<Insertion, Arc<StoreError>>>,
    /// Name constraints, keyed by the fingerprint of the CA certificate.
    limits: RwLock<HashMap<Fingerprint, Arc<[NameConstraints]>>>,
}

impl Issuing {
    /// Starts both queues. They stop when the last clone is dropped.
    pub(crate) fn start(store: &Store) -> Self {
        let options = BatcherOptions { batch_max: BATCH_MAX, queue_max: WAITING_MAX, at_once: AT_ONCE };
        let reading = store.clone();
        let lookups =
            Batcher::new("authority-look", options, move |lookups| lookup(reading.clone(), lookups).boxed());
        let writing = store.clone();
        let rows =
            Batcher::new("authority-issue", options, move |rows| insert(writing.clone(), rows).boxed());
        Self { lookups, rows, limits: RwLock::default() }
    }

    /// Returns the name constraints of a CA and of all its parents.
    pub(super) fn limits(&self, ca: &Ca) -> Arc<[NameConstraints]> {
        let key = ca.certificate.fingerprint;
        if let Some(known) = self.limits.read().get(&key) {
            return Arc::clone(known);
        }
        let above = ca.chain.iter().chain(&ca.anchor).filter(|der| **der != ca.certificate.der);
        let above =
            above.filter_map(|der| Certificate::parse(der).ok()).filter_map(|above| above.name_constraints);
        let limits: Arc<[NameConstraints]> =
            ca.certificate.name_constraints.clone().into_iter().chain(above).collect();
        let mut all = self.limits.write();
        if all.len() >= LIMITS_MAX {
            all.clear();
        }
        all.insert(key, Arc::clone(&limits));
        limits
    }

    pub(super) async fn lookup(
        &self,
        spki: [u8; 32],
        key: Option<[u8; 32]>,
    ) -> Result<IssuingState, IssueError> {
        let answer = self.lookups.submit((spki, key)).await.map_err(|_| IssueError::Abandoned)?;
        answer.map_err(IssueError::Store)
    }

    pub(super) async fn store(&self, row: NewIssued) -> Result<Insertion, IssueError> {
        let answer = self.rows.submit(row).await.map_err(|_| IssueError::Abandoned)?;
        answer.map_err(IssueError::Store)
    }
}

async fn lookup(store: Store, lookups: Vec<IssuingLookup>) -> Vec<Result<IssuingState, Arc<StoreError>>> {
    let spkis: Vec<[u8; 32]> = lookups.iter().map(|(spki, _)| *spki).collect();
    let keys: Vec<[u8; 32]> = lookups.iter().filter_map(|(_, key)| *key).collect();
    match tables::Issued::of(&store).blocked_and_used_keys(&spkis, &keys).await {
        Ok((blocked, used)) => lookups
            .iter()
            .map(|(spki, key)| {
                let used = key.and_then(|key| used.get(&key).copied());
                Ok(IssuingState { blocked: blocked.contains(spki), used })
            })
            .collect(),
        Err(error) => fail_all(error, lookups.len()),
    }
}

async fn insert(store: Store, rows: Vec<NewIssued>) -> Vec<Result<Insertion, Arc<StoreError>>> {
    let rows: Arc<[NewIssued]> = rows.into();
    let mut left = ATTEMPTS_MAX;
    loop {
        left -= 1;
        let shared = Arc::clone(&rows);
        let stored = store.write("issue", move |tx| insert_all(tx, shared)).await;
        match stored {
            Ok(insertions) => return insertions.into_iter().map(Ok).collect(),
            // The database rolled the transaction back, so nothing is stored.
            Err(StoreError::Busy { .. }) if left > 0 => {}
            Err(error) => return fail_all(error, rows.len()),
        }
    }
}

fn fail_all<T>(error: StoreError, count: usize) -> Vec<Result<T, Arc<StoreError>>> {
    let error = Arc::new(error);
    (0..count).map(|_| Err(Arc::clone(&error))).collect()
}

fn insert_all(tx: &mut Tx, rows: Arc<[NewIssued]>) -> BoxFuture<'_, Result<Vec<Insertion>, StoreError>> {
    Box::pin(async move { record(tx, &rows).await })
}

/// Stores issued certificates within a transaction of the caller: the rows, and for new ones the audit and outbox events.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn record(tx: &mut Tx, rows: &[NewIssued]) -> Result<Vec<Insertion>, StoreError> {
    let insertions = tables::insert_issued(tx, rows).await?;
    let new = || {
        rows.iter()
            .zip(&insertions)
            .filter(|(_, insertion)| **insertion == Insertion::New)
            .map(|(row, _)| row)
    };
    let events: Vec<NewEvent> = new().map(issued_event).collect();
    let mut counts = SeriesCounts::default();
    // Managed certificates are counted as versions instead.
    counts.add(Series::Issued, None, new().filter(|row| row.source != Source::Lifecycle).count() as u64);
    if let Some(at_us) = new().map(|row| row.issued_at_us).max() {
        count_series(tx, &counts, at_us).await?;
    }
    audit_and_emit(tx, new().map(audited).collect(), &events).await?;
    Ok(insertions)
}

fn audited(row: &NewIssued) -> AuditEvent {
    let certificate = &row.certificate;
    AuditEvent {
        at_us: row.issued_at_us,
        actor: row.requester.clone(),
        action: "certificate.issue",
        resource: format!("certificate/{}", row.id),
        details: json!({
            "ca": row.ca,
            "profile": row.profile,
            "source": row.source,
            "serial": certificate.serial,
            "sha256": Fingerprint::from_bytes(certificate.sha256),
            "names": certificate.names,
        }),
    }
}

fn issued_event(row: &NewIssued) -> NewEvent {
    let issued = CertificateIssued::ByAuthority(IssuedByAuthority {
        ca: row.ca,
        profile: row.profile.clone(),
        source: row.source.to_string(),
        requester: row.requester.clone(),
        sha256: Fingerprint::from_bytes(row.certificate.sha256),
        not_after: row.certificate.not_after_us,
    });
    let subject = format!("certificate/{}", row.id);
    store::new_event(row.issued_at_us, subject, &Event::CertificateIssued(issued))
}
