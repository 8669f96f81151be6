//! Pages of revocations and of blocked keys, and the publication state of each CA.

use uuid::Uuid;

use super::handle::Revocations;
use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, hex, key_or, limit_of, page};
use x509::crl::Reason;

/// A revocation with its certificate, reason and actor, for lists.
#[derive(Clone, Debug, PartialEq)]
pub struct RevocationEntry {
    /// Identifier of the certificate in the table `issued`.
    pub certificate: Uuid,
    /// CA that issued the certificate.
    pub ca: Uuid,
    /// Content bytes of the serial number.
    pub serial: Vec<u8>,
    /// Profile with which the certificate was issued.
    pub profile: String,
    /// Revocation reason; [`Reason::RemoveFromCrl`] after a release from hold.
    pub reason: Reason,
    /// Revocation date in the CRL, in microseconds.
    pub revoked_at_us: i64,
    /// Time in microseconds at which the revocation was recorded.
    pub recorded_at_us: i64,
    /// End of the certificate's validity in microseconds.
    pub not_after_us: i64,
    /// Actor that revoked the certificate.
    pub actor: String,
    /// Identifier of the revocation request.
    pub action: Uuid,
}

/// A public key for which no certificates are issued.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BlockedKey {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// Time in microseconds at which the key was blocked.
    pub blocked_at_us: i64,
    /// Actor that blocked the key.
    pub actor: String,
}

/// The publication state of one CRL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CrlStatus {
    /// CA that issues the CRL.
    pub ca: Uuid,
    /// 0 for the full CRL, -1 for the delta CRL, otherwise the number of the shard.
    pub shard: i64,
    /// Number of the newest CRL; 0 if no CRL was issued yet.
    pub number: i64,
    /// Whether revocations wait for the next CRL.
    pub pending: bool,
    /// Creation time of the newest CRL in microseconds.
    pub this_update_us: i64,
    /// Expiry time of the newest CRL in microseconds.
    pub next_update_us: i64,
    /// Latest time in microseconds at which the next CRL is created.
    pub refresh_at_us: i64,
    /// Number of certificates on the CRL.
    pub entries: i64,
    /// Number of failed attempts since the newest CRL.
    pub failures: i64,
    /// Time of the last failed attempt in microseconds.
    pub failed_at_us: Option<i64>,
    /// Error of the last failed attempt.
    pub last_error: Option<String>,
}

/// The OCSP responder of a CA and its validity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResponderStatus {
    /// CA for which the responder signs.
    pub ca: Uuid,
    /// Start of the responder certificate's validity in microseconds.
    pub not_before_us: i64,
    /// End of the responder certificate's validity in microseconds.
    pub not_after_us: i64,
}

macro_rules! revocation_columns {
    () => {
        "SELECT r.uuid, r.ca, r.serial, i.profile, r.reason, r.revoked_at, r.recorded_at, r.not_after, r.actor, r.action, \
         r.certificate_id FROM revocations r JOIN issued i ON i.certificate_id = r.certificate_id\n"
    };
}

const PAGE: &str = concat!(
    "-- revocations_page\n",
    revocation_columns!(),
    "WHERE (r.recorded_at, r.certificate_id) < (?1, ?2) ORDER BY r.recorded_at DESC, r.certificate_id DESC LIMIT ?3"
);

const PAGE_OF_CA: &str = concat!(
    "-- revocations_page_of_ca\n",
    revocation_columns!(),
    "WHERE r.ca = ?4 AND (r.recorded_at, r.certificate_id) < (?1, ?2) \
     ORDER BY r.recorded_at DESC, r.certificate_id DESC LIMIT ?3"
);

const BLOCKED: &str = "-- blocked_keys_page
SELECT spki_sha256, blocked_at, actor FROM blocked_keys WHERE (blocked_at, spki_sha256) < (?1, ?2)
ORDER BY blocked_at DESC, spki_sha256 DESC LIMIT ?3";

const CRLS: &str = "-- crl_statuses
SELECT ca, shard, number, CASE WHEN changes <> built THEN 1 ELSE 0 END, this_update, next_update, refresh_at, entries,
  failures, failed_at, last_error
FROM crls ORDER BY ca, shard";

const RESPONDERS: &str = "-- ocsp_responder_statuses
SELECT ca, not_before, not_after FROM ocsp_responders ORDER BY ca";

const FAILED: &str = "-- crl_failed
UPDATE crls SET failures = failures + 1, failed_at = ?3, last_error = ?4 WHERE ca = ?1 AND shard = ?2";

pub(crate) const ALL: &[&str] = &[PAGE, PAGE_OF_CA, BLOCKED, CRLS, RESPONDERS, FAILED];

/// Maximum length of a stored error in characters.
const ERROR_CHARS_MAX: usize = 1_000;

/// Records that a CRL could not be created.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn note_crl_failure(
    tx: &mut Tx,
    ca: Uuid,
    shard: i64,
    at_us: i64,
    error: &str,
) -> Result<(), StoreError> {
    let error: String = error.chars().filter(|letter| *letter != '\0').take(ERROR_CHARS_MAX).collect();
    tx.execute(FAILED, vec![ca.into(), shard.into(), at_us.into(), error.into()]).await.map(drop)
}

impl Revocations<'_> {
    /// Returns a page of revocations of one CA or of all, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    pub async fn page(
        self,
        ca: Option<Uuid>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<RevocationEntry>, StoreError> {
        let first = [Value::Int(i64::MAX), Value::Int(i64::MAX)];
        let mut parameters = key_or(after, "revocations", &first)?;
        let (limit, rows) = limit_of(limit);
        parameters.push(rows.into());
        let statement = match ca {
            None => PAGE,
            Some(ca) => {
                parameters.push(ca.into());
                PAGE_OF_CA
            }
        };
        let found = self.0.rows(Cost::Walk, statement, parameters).await?;
        page(found, limit, "revocations", |mut row| {
            let entry = entry_of(&mut row)?;
            let key = vec![entry.recorded_at_us.into(), row.int()?.into()];
            Ok((entry, key))
        })
    }

    /// Returns a page of blocked keys, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    pub async fn blocked_keys_page(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<BlockedKey>, StoreError> {
        // A cursor cannot contain bytes, so the hash is hexadecimal text.
        let first = [Value::Int(i64::MAX), Value::Text("00".repeat(32))];
        let mut parameters = key_or(after, "blocked-keys", &first)?;
        let Some(Value::Text(digits)) = parameters.pop() else { return Err(StoreError::BadCursor) };
        let hash: x509::SpkiHash = digits.parse().map_err(|_| StoreError::BadCursor)?;
        let (limit, rows) = limit_of(limit);
        parameters.extend([Value::from(*hash.as_bytes()), rows.into()]);
        let found = self.0.rows(Cost::Walk, BLOCKED, parameters).await?;
        page(found, limit, "blocked-keys", |mut row| {
            let key = BlockedKey { spki_sha256: row.hash()?, blocked_at_us: row.int()?, actor: row.text()? };
            let position = vec![key.blocked_at_us.into(), hex(&key.spki_sha256).into()];
            Ok((key, position))
        })
    }

    /// Returns the state of every CRL, including delta CRLs.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl_statuses(self) -> Result<Vec<CrlStatus>, StoreError> {
        let rows = self.0.rows(Cost::Walk, CRLS, Vec::new()).await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(CrlStatus {
                    ca: row.uuid()?,
                    shard: row.int()?,
                    number: row.int()?,
                    pending: row.flag()?,
                    this_update_us: row.int()?,
                    next_update_us: row.int()?,
                    refresh_at_us: row.int()?,
                    entries: row.int()?,
                    failures: row.int()?,
                    failed_at_us: row.maybe_int()?,
                    last_error: row.maybe_text()?,
                })
            })
            .collect()
    }

    /// Returns the OCSP responders of all CAs.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn responder_statuses(self) -> Result<Vec<ResponderStatus>, StoreError> {
        let rows = self.0.rows(Cost::Walk, RESPONDERS, Vec::new()).await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(ResponderStatus { ca: row.uuid()?, not_before_us: row.int()?, not_after_us: row.int()? })
            })
            .collect()
    }
}

fn entry_of(row: &mut Row) -> Result<RevocationEntry, StoreError> {
    Ok(RevocationEntry {
        certificate: row.uuid()?,
        ca: row.uuid()?,
        serial: row.blob()?,
        profile: row.text()?,
        reason: row.coded("revocations.reason")?,
        revoked_at_us: row.int()?,
        recorded_at_us: row.int()?,
        not_after_us: row.int()?,
        actor: row.text()?,
        action: row.uuid()?,
    })
}
