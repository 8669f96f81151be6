//! Signed heads: the last position and hash of every chain, signed by a key of the server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::audit::{SegmentHead, SignedHead};
use audit_proof::event::genesis;
use audit_proof::head::{self, FORMAT};
use audit_proof::point::ChainPoint;
use audit_proof::segment;
use authority::keystore::NewKey;
use data_encoding::BASE64;
use futures_util::FutureExt;
use jiff::Timestamp;
use keys::{KeyRef, KeyType};
use serde_json::json;
use store::{AuditEvent, StoreError, Tx};
use uuid::Uuid;
use x509::Fingerprint;

use crate::error::AuditError;
use crate::log::AuditLog;
use crate::tables::{self, AuditKeyRow, Heads, Segments};

/// Timeout of a signature. The key may be in a hardware security module.
const SIGN_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of attempts when other nodes sign a head first.
const ATTEMPTS: usize = 5;
/// Number of signed heads read at a time: 1.5 KB each with sixteen chains.
pub(crate) const HEADS_PAGE: usize = 1_000;

/// The signing key and the id of the log.
pub(crate) struct AuditKey {
    pub(crate) server: Uuid,
    pub(crate) signer: KeyRef,
}

impl AuditLog {
    /// Returns the UUID of the log, and the public key that signs its heads (a DER SubjectPublicKeyInfo). The first call generates
    /// the key.
    ///
    /// # Errors
    /// [`AuditError`]
    #[crate::boxed]
    pub async fn public_key(&self) -> Result<(Uuid, Vec<u8>), AuditError> {
        let key = self.key().await?;
        Ok((key.server, key.signer.spki().to_vec()))
    }

    /// Signs a head now, even if no head is due.
    ///
    /// # Errors
    /// [`AuditError`]
    #[crate::boxed]
    pub async fn sign(&self) -> Result<SignedHead, AuditError> {
        for _ in 0..ATTEMPTS {
            let before = self.newest_head().await?;
            if let Some(head) = self.sign_next_head(before).await? {
                return Ok(head);
            }
        }
        Err(AuditError::Crowded)
    }

    /// Signs a head when the newest one is old enough and the log has grown since.
    ///
    /// # Errors
    /// [`AuditError`]
    #[crate::boxed]
    pub async fn sign_due(&self) -> Result<Option<SignedHead>, AuditError> {
        let before = self.newest_head().await?;
        if let Some(before) = &before {
            let every_us = i64::try_from(self.parts.options.head_every.as_micros()).unwrap_or(i64::MAX);
            let signed_us = before.at.parse::<Timestamp>().map_or(0, Timestamp::as_microsecond);
            // A head with a future time comes from a wrong clock. It must not block new heads.
            let now_us = self.parts.clock.now_us();
            let is_recent =
                (now_us.saturating_sub(every_us)..now_us.saturating_add(every_us)).contains(&signed_us);
            if is_recent || before.heads == self.chain_heads().await? {
                return Ok(None);
            }
        }
        self.sign_next_head(before).await
    }

    /// Returns signed heads after a number, in order, at most a thousand.
    ///
    /// # Errors
    /// [`AuditError`]
    #[crate::boxed]
    pub async fn heads_after(&self, sequence: u64) -> Result<Vec<SignedHead>, AuditError> {
        let after = i64::try_from(sequence).unwrap_or(i64::MAX);
        let rows = Heads::of(&self.parts.store).after(after, HEADS_PAGE).await?;
        rows.iter().map(|(number, document)| read(*number, document)).collect()
    }

    pub(crate) async fn newest_head(&self) -> Result<Option<SignedHead>, AuditError> {
        let newest = Heads::of(&self.parts.store).newest().await?;
        newest.map(|(number, document)| read(number, &document)).transpose()
    }

    /// Returns the last point (position and hash) of every chain that has events, as text.
    async fn chain_heads(&self) -> Result<Vec<String>, AuditError> {
        let heads = self.parts.store.audit_heads().await?;
        let point = |head: &store::AuditHead| {
            let hash = Fingerprint::from_bytes(head.hash);
            ChainPoint { shard: head.shard, sequence: head.sequence, hash }.to_string()
        };
        Ok(heads.iter().filter(|head| head.sequence > 0).map(point).collect())
    }

    /// Signs the head after `before`, the newest known head. `None` when another node has signed it.
    ///
    /// The chains are read after `before`, so that no chain is shorter in a head than in the previous one.
    async fn sign_next_head(&self, before: Option<SignedHead>) -> Result<Option<SignedHead>, AuditError> {
        let key = self.key().await?;
        let newest = Segments::of(&self.parts.store).newest().await?;
        let now_us = self.parts.clock.now_us();
        let mut signed = SignedHead {
            format: FORMAT.to_owned(),
            server: key.server.to_string(),
            sequence: before.as_ref().map_or(1, |head| head.sequence + 1),
            at: Timestamp::from_microsecond(now_us).map(|at| at.to_string()).unwrap_or_default(),
            previous: before.as_ref().map_or_else(genesis, head::hash).to_string(),
            heads: self.chain_heads().await?,
            segments: newest.as_ref().map_or(0, |row| row.number.unsigned_abs()),
            segment: newest.map_or_else(genesis, |row| Fingerprint::of(row.head.as_bytes())).to_string(),
            key: BASE64.encode(key.signer.spki()),
            signature: String::new(),
        };
        let text = head::signed_text(&signed);
        let signature = key.signer.sign(text.as_bytes(), Instant::now() + SIGN_LIMIT).await?;
        signed.signature = BASE64.encode(&signature);
        let (sequence, document) = (signed.sequence.cast_signed(), head::line(&signed));
        let stored = self.parts.store.write("audit_head", move |tx| {
            async move { tables::insert_head(tx, sequence, now_us, document).await }.boxed()
        });
        Ok(stored.await?.then_some(signed))
    }

    /// Signs the head of a segment.
    pub(crate) async fn sign_segment(&self, head: SegmentHead) -> Result<SegmentHead, AuditError> {
        let key = self.key().await?;
        let head = SegmentHead { key: BASE64.encode(key.signer.spki()), ..head };
        let text = segment::signed_text(&head);
        let signature = key.signer.sign(text.as_bytes(), Instant::now() + SIGN_LIMIT).await?;
        Ok(SegmentHead { signature: BASE64.encode(&signature), ..head })
    }

    pub(crate) async fn key(&self) -> Result<AuditKey, AuditError> {
        let row = match Heads::of(&self.parts.store).key().await? {
            Some(row) => row,
            None => self.make_key().await?,
        };
        Ok(AuditKey { server: row.server, signer: self.parts.keystore.signer(row.key).await? })
    }

    /// Generates the audit key. If several nodes try concurrently, one succeeds.
    async fn make_key(&self) -> Result<AuditKeyRow, AuditError> {
        let made = self.parts.keystore.prepare(KeyType::Ed25519, "audit log").await?;
        let row = AuditKeyRow {
            key: made.row.id,
            server: Uuid::now_v7(),
            created_at_us: self.parts.clock.now_us(),
        };
        let stored = self
            .parts
            .store
            .write("audit_key", move |tx| async move { store_key(tx, made, row).await }.boxed());
        match stored.await {
            Ok(()) => Ok(row),
            Err(StoreError::Stale(_)) => {
                let row = Heads::of(&self.parts.store).key().await?;
                row.ok_or_else(|| AuditError::Damaged("the audit key is missing".to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Stores the key and registers it as the audit key, in one transaction.
async fn store_key(tx: &mut Tx, made: NewKey, row: AuditKeyRow) -> Result<(), StoreError> {
    store::insert_key(tx, &made.row).await?;
    if !tables::insert_key(tx, row).await? {
        return Err(StoreError::Stale("another node created the audit key".to_owned()));
    }
    let event = AuditEvent {
        at_us: row.created_at_us,
        actor: "system:audit".to_owned(),
        action: "key.generate",
        resource: format!("key/{}", row.key),
        details: json!({
            "key_type": made.row.key_type,
            "label": made.row.label,
            "spki_sha256": Fingerprint::from_bytes(made.row.spki_sha256).to_string(),
        }),
    };
    store::audit(tx, vec![event]).await
}

pub(crate) fn read(number: i64, document: &str) -> Result<SignedHead, AuditError> {
    serde_json::from_str(document)
        .map_err(|error| AuditError::Damaged(format!("signed head {number} cannot be parsed: {error}")))
}

/// Returns the hashes in signed heads, by chain number and position.
pub(crate) fn chain_points<'h>(
    heads: impl IntoIterator<Item = &'h SignedHead>,
) -> Result<BTreeMap<(i64, i64), Fingerprint>, AuditError> {
    let mut points = BTreeMap::new();
    for text in heads.into_iter().flat_map(|head| &head.heads) {
        let point: ChainPoint = text
            .parse()
            .map_err(|error| AuditError::Damaged(format!("a signed head is invalid: {error}")))?;
        points.insert((point.shard, point.sequence), point.hash);
    }
    Ok(points)
}
