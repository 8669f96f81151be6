//! Issued versions, and renewal windows suggested by issuers.

use uuid::Uuid;

use super::handle::Managed;
use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::{EndpointKey, endpoint_key};
use x509::crl::Reason;

/// An issued version to insert. The database sets its row id.
#[derive(Clone, Debug)]
pub struct NewManagedVersion {
    /// Row id of the certificate.
    pub certificate: i64,
    /// Row id of the run that issued the version; each run issues at most one. `None` for a version that was found and claimed.
    pub job: Option<i64>,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Serial number of the leaf, hexadecimal.
    pub serial: String,
    /// SHA-256 of the leaf's SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// End of validity, in µs since 1970.
    pub not_after_us: i64,
    /// Name of the issuer.
    pub issuer: String,
    /// Profile of the certificate when the version was issued.
    pub profile: Option<String>,
    /// Policy of the certificate when the version was issued.
    pub policy: Option<String>,
    /// Id of the private key, if this server stores it.
    pub key: Option<Uuid>,
    /// Concatenated DER certificates, leaf first.
    pub chain: Vec<u8>,
    /// Time of issuance, in µs since 1970.
    pub issued_at_us: i64,
}

/// An issued version of a managed certificate, with chain, key id and revocation.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedVersion {
    /// Row id of the version.
    pub id: i64,
    /// Row id of the certificate.
    pub certificate: i64,
    /// Row id of the run that issued the version.
    pub job: Option<i64>,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Serial number of the leaf, hexadecimal.
    pub serial: String,
    /// SHA-256 of the leaf's SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// End of validity, in µs since 1970.
    pub not_after_us: i64,
    /// Name of the issuer.
    pub issuer: String,
    /// Profile of the certificate when the version was issued. `None` for versions that were stored before Bulla recorded the
    /// profile.
    pub profile: Option<String>,
    /// Policy of the certificate when the version was issued.
    pub policy: Option<String>,
    /// Id of the private key, if this server stores it.
    pub key: Option<Uuid>,
    /// Concatenated DER certificates, leaf first.
    pub chain: Vec<u8>,
    /// Time of issuance, in µs since 1970.
    pub issued_at_us: i64,
    /// Time of revocation, in µs since 1970.
    pub revoked_at_us: Option<i64>,
    /// Reason of the revocation.
    pub revoked_reason: Option<Reason>,
}

/// Renewal window that an issuer suggests for a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedSuggestion {
    /// Row id of the certificate.
    pub certificate: i64,
    /// Time of the next request to the issuer, in µs since 1970.
    pub check_at_us: i64,
    /// Start and end of the window, in µs since 1970; `None` before the first response.
    pub window_us: Option<(i64, i64)>,
    /// URL of a page that explains the suggestion.
    pub explanation: Option<String>,
}

macro_rules! version_columns {
    () => {
        "v.id, v.certificate_id, v.job_id, v.fingerprint, v.serial, v.spki_sha256, v.not_before, v.not_after, v.issuer, \
         v.key_id, v.chain, v.issued_at, v.revoked_at, v.revoked_reason, v.profile, v.policy"
    };
}

pub(super) const VERSIONS: &str = concat!(
    "-- managed_versions\nSELECT ",
    version_columns!(),
    " FROM managed_versions v WHERE v.certificate_id = ?1 AND v.id < ?2 ORDER BY v.id DESC LIMIT ?3"
);

pub(super) const VERSION: &str =
    concat!("-- managed_version\nSELECT ", version_columns!(), " FROM managed_versions v WHERE v.id = ?1");

pub(super) const VERSIONS_BY_FINGERPRINT: &str = concat!(
    "-- managed_version_by_fingerprint\nSELECT ",
    version_columns!(),
    " FROM managed_versions v WHERE v.fingerprint = ?1 ORDER BY v.id LIMIT 1"
);

pub(super) const BY_IDS: BulkStatement = db::bulk! { (id bigint)
    concat!("-- versions_by_ids\nSELECT ", version_columns!(), " FROM managed_versions v WHERE v.id = :id")
};

/// Endpoints where versions were last seen, in index order, oldest version first.
pub(super) const SERVED: &str = "-- managed_served
SELECT v.id, v.fingerprint, v.not_after, e.host, e.port, e.protocol, e.server_name, e.address, e.answering,
       e.last_observed_at, m.chain_id, e.id
FROM managed_versions v
JOIN certificates c ON c.sha256 = v.fingerprint
JOIN chain_members m ON m.certificate_id = c.id AND m.position = 0
JOIN endpoints e ON e.chain_id = m.chain_id
WHERE v.certificate_id = ?1 AND (v.id, m.chain_id, e.id) > (?2, ?3, ?4)
ORDER BY v.id, m.chain_id, e.id LIMIT ?5";

/// Managed certificates with a version that has one of these fingerprints.
pub(super) const BY_FINGERPRINTS: BulkStatement = db::bulk! { (fingerprint bytea)
    "-- managed_by_fingerprints
SELECT v.fingerprint, v.certificate_id, v.id FROM managed_versions v WHERE v.fingerprint = :fingerprint"
};

pub(super) const INSERT: BulkStatement = db::bulk! {
    (certificate_id bigint, job_id bigint, fingerprint bytea, serial text, spki_sha256 bytea, not_before bigint,
     not_after bigint, issuer text, key_id uuid, chain bytea, issued_at bigint, profile text, policy text)
    "-- versions_insert
INSERT INTO managed_versions (certificate_id, job_id, fingerprint, serial, spki_sha256, not_before, not_after, issuer,
  key_id, chain, issued_at, profile, policy)
VALUES (:certificate_id, :job_id, :fingerprint, :serial, :spki_sha256, :not_before, :not_after, :issuer, :key_id,
  :chain, :issued_at, :profile, :policy) RETURNING id, certificate_id"
};

pub(super) const REVOKE: BulkStatement = db::bulk! { (id bigint, at bigint, reason bigint)
    "-- versions_revoke
UPDATE managed_versions SET revoked_at = :at, revoked_reason = :reason WHERE id = :id AND revoked_at IS NULL
  RETURNING id"
};

pub(super) const SUGGESTIONS_DUE: &str = "-- managed_suggestions_due
SELECT certificate_id, check_at, starts_at, ends_at, explanation FROM managed_suggestions
WHERE check_at <= ?1 ORDER BY check_at, certificate_id LIMIT ?2";

pub(super) const SUGGESTION: &str = "-- managed_suggestion
SELECT certificate_id, check_at, starts_at, ends_at, explanation FROM managed_suggestions WHERE certificate_id = ?1";

pub(super) const SUGGESTIONS_SET: BulkStatement = db::bulk! {
    (certificate_id bigint, check_at bigint, starts_at bigint, ends_at bigint, explanation text)
    "-- managed_suggestions_set
INSERT INTO managed_suggestions (certificate_id, check_at, starts_at, ends_at, explanation) VALUES (:certificate_id,
  :check_at, :starts_at, :ends_at, :explanation)
ON CONFLICT (certificate_id) DO UPDATE SET check_at = excluded.check_at, starts_at = excluded.starts_at,
  ends_at = excluded.ends_at, explanation = excluded.explanation"
};

pub(super) const SUGGESTIONS_OF: BulkStatement = db::bulk! { (id bigint)
    "-- managed_suggestions_of
SELECT certificate_id, check_at, starts_at, ends_at, explanation FROM managed_suggestions WHERE certificate_id = :id"
};

/// Returns the issuers' renewal suggestions for these certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn suggestions_of(
    tx: &mut Tx,
    certificates: Vec<i64>,
) -> Result<Vec<ManagedSuggestion>, StoreError> {
    tx.bulk(&SUGGESTIONS_OF, vec![Column::Int(certificates)]).await?.into_iter().map(suggestion).collect()
}

pub(super) const SUGGESTIONS_DROP: BulkStatement = db::bulk! { (certificate_id bigint)
    "-- managed_suggestions_drop
DELETE FROM managed_suggestions WHERE certificate_id = {any certificate_id}"
};

/// Ids under which the internal CA issued the given leaves.
pub(super) const ISSUED_IDS: BulkStatement = db::bulk! { (sha256 bytea)
    "-- versions_issued_ids
SELECT i.uuid FROM certificates c JOIN issued i ON i.certificate_id = c.id WHERE c.sha256 = :sha256"
};

/// Returns the ids under which the internal CA issued these leaves. Leaves of other issuers are left out.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn issued_ids_of(tx: &mut Tx, fingerprints: &[[u8; 32]]) -> Result<Vec<Uuid>, StoreError> {
    let column = Column::Blob(fingerprints.iter().map(|hash| hash.to_vec()).collect());
    tx.bulk(&ISSUED_IDS, vec![column]).await?.into_iter().map(|mut row| row.uuid()).collect()
}

/// An endpoint where a version was last seen.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedVersion {
    /// Row id of the version.
    pub version: i64,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// End of validity, in µs since 1970.
    pub not_after_us: i64,
    /// Endpoint that presented the version.
    pub endpoint: EndpointKey,
    /// Whether the last probe of the endpoint saw a certificate.
    pub answering: bool,
    /// Time of the last probe, in µs since 1970.
    pub seen_at_us: i64,
}

/// Versions that the internal CA revoked in one call, and that are not marked as revoked yet. Versions on hold (certificateHold)
/// are left out.
pub(super) const REVOKED_BY: &str = db::with_codes!([Reason::{CertificateHold, RemoveFromCrl}] "-- versions_revoked_by
SELECT v.id, v.certificate_id, r.reason, r.actor FROM revocations r JOIN certificates c ON c.id = r.certificate_id
JOIN managed_versions v ON v.fingerprint = c.sha256
WHERE r.action = ?1 AND r.reason NOT IN ({Reason::CertificateHold}, {Reason::RemoveFromCrl}) AND v.revoked_at IS NULL
  AND v.id > ?2 ORDER BY v.id LIMIT ?3");

/// A version that the internal CA revoked.
#[derive(Clone, Debug, PartialEq)]
pub struct RevokedVersion {
    /// Row id of the version.
    pub version: i64,
    /// Row id of the certificate.
    pub certificate: i64,
    /// Reason of the revocation.
    pub reason: Reason,
    /// Actor that requested the revocation.
    pub actor: String,
}

/// Returns versions with row ids above `after` that a revocation at the internal CA covers and that are not marked as revoked yet.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn versions_revoked_by(
    tx: &mut Tx,
    action: Uuid,
    after: i64,
    limit: i64,
) -> Result<Vec<RevokedVersion>, StoreError> {
    let rows = tx.rows(REVOKED_BY, vec![action.into(), after.into(), limit.into()]).await?;
    let read = |mut row: Row| {
        Ok(RevokedVersion {
            version: row.int()?,
            certificate: row.int()?,
            reason: row.coded("revocations.reason")?,
            actor: row.text()?,
        })
    };
    rows.into_iter().map(read).collect()
}

impl Managed<'_> {
    /// Returns the versions of a certificate, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], and other database errors.
    pub async fn versions(
        self,
        certificate: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ManagedVersion>, StoreError> {
        let mut parameters = vec![certificate.into()];
        parameters.extend(key_or(after, "managed-versions", &[Value::Int(i64::MAX)])?);
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, VERSIONS, parameters).await?;
        page(rows, limit, "managed-versions", |row| {
            let version = version_row(row)?;
            let key = vec![version.id.into()];
            Ok((version, key))
        })
    }

    /// Returns a version by row id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn version(self, id: i64) -> Result<Option<ManagedVersion>, StoreError> {
        self.0.row(VERSION, vec![id.into()]).await?.map(version_row).transpose()
    }

    /// Returns the endpoints that presented a version of a certificate when they last responded, oldest version first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], and other database errors.
    pub async fn served(
        self,
        certificate: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ServedVersion>, StoreError> {
        let mut parameters = vec![certificate.into()];
        parameters.extend(key_or(after, "managed-served", &[Value::Int(0), Value::Int(0), Value::Int(0)])?);
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, SERVED, parameters).await?;
        page(rows, limit, "managed-served", |mut row| {
            let served = ServedVersion {
                version: row.int()?,
                fingerprint: row.hash()?,
                not_after_us: row.int()?,
                endpoint: endpoint_key(&mut row)?,
                answering: row.flag()?,
                seen_at_us: row.int()?,
            };
            let key = vec![served.version.into(), row.int()?.into(), row.int()?.into()];
            Ok((served, key))
        })
    }

    /// Returns the version whose leaf has this SHA-256.
    ///
    /// # Errors
    /// Database errors.
    pub async fn version_by_fingerprint(
        self,
        sha256: &[u8; 32],
    ) -> Result<Option<ManagedVersion>, StoreError> {
        self.0.row(VERSIONS_BY_FINGERPRINT, vec![(*sha256).into()]).await?.map(version_row).transpose()
    }

    /// Returns the renewal suggestion of the issuer for a certificate.
    ///
    /// # Errors
    /// Database errors.
    pub async fn suggestion(self, certificate: i64) -> Result<Option<ManagedSuggestion>, StoreError> {
        self.0.row(SUGGESTION, vec![certificate.into()]).await?.map(suggestion).transpose()
    }
}

/// Inserts versions. Returns the row ids of each version and its certificate. A second version of the same run is a database error.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_versions(tx: &mut Tx, new: &[NewManagedVersion]) -> Result<Vec<(i64, i64)>, StoreError> {
    let columns = vec![
        Column::Int(new.iter().map(|one| one.certificate).collect()),
        Column::MaybeInt(new.iter().map(|one| one.job).collect()),
        Column::Blob(new.iter().map(|one| one.fingerprint.to_vec()).collect()),
        Column::Text(new.iter().map(|one| one.serial.clone()).collect()),
        Column::Blob(new.iter().map(|one| one.spki_sha256.to_vec()).collect()),
        Column::Int(new.iter().map(|one| one.not_before_us).collect()),
        Column::Int(new.iter().map(|one| one.not_after_us).collect()),
        Column::Text(new.iter().map(|one| one.issuer.clone()).collect()),
        Column::MaybeUuid(new.iter().map(|one| one.key).collect()),
        Column::Blob(new.iter().map(|one| one.chain.clone()).collect()),
        Column::Int(new.iter().map(|one| one.issued_at_us).collect()),
        Column::MaybeText(new.iter().map(|one| one.profile.clone()).collect()),
        Column::MaybeText(new.iter().map(|one| one.policy.clone()).collect()),
    ];
    tx.bulk(&INSERT, columns).await?.into_iter().map(|mut row| Ok((row.int()?, row.int()?))).collect()
}

/// Returns versions by row id, in no particular order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn versions_of(tx: &mut Tx, ids: Vec<i64>) -> Result<Vec<ManagedVersion>, StoreError> {
    tx.bulk(&BY_IDS, vec![Column::Int(ids)]).await?.into_iter().map(version_row).collect()
}

/// Returns which of these leaves are managed: fingerprint, row id of the certificate, row id of the version.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn managed_by_version_fingerprints(
    tx: &mut Tx,
    fingerprints: &[[u8; 32]],
) -> Result<Vec<([u8; 32], i64, i64)>, StoreError> {
    let column = Column::Blob(fingerprints.iter().map(|hash| hash.to_vec()).collect());
    let rows = tx.bulk(&BY_FINGERPRINTS, vec![column]).await?;
    rows.into_iter().map(|mut row| Ok((row.hash()?, row.int()?, row.int()?))).collect()
}

/// Marks versions as revoked. Versions that are already marked are neither changed nor returned.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn revoke_versions(
    tx: &mut Tx,
    ids: &[i64],
    at_us: i64,
    reason: Reason,
) -> Result<Vec<i64>, StoreError> {
    let columns = vec![
        Column::Int(ids.to_vec()),
        Column::Int(vec![at_us; ids.len()]),
        Column::Int(vec![reason.code(); ids.len()]),
    ];
    tx.bulk(&REVOKE, columns).await?.into_iter().map(|mut row| row.int()).collect()
}

/// Returns suggestions whose next request is due at `now_us`, longest overdue first.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn due_suggestions(
    tx: &mut Tx,
    now_us: i64,
    limit: i64,
) -> Result<Vec<ManagedSuggestion>, StoreError> {
    tx.rows(SUGGESTIONS_DUE, vec![now_us.into(), limit.into()]).await?.into_iter().map(suggestion).collect()
}

/// Stores renewal suggestions, and replaces earlier suggestions for the same certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_suggestions(tx: &mut Tx, all: &[ManagedSuggestion]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Int(all.iter().map(|one| one.certificate).collect()),
        Column::Int(all.iter().map(|one| one.check_at_us).collect()),
        Column::MaybeInt(all.iter().map(|one| one.window_us.map(|window| window.0)).collect()),
        Column::MaybeInt(all.iter().map(|one| one.window_us.map(|window| window.1)).collect()),
        Column::MaybeText(all.iter().map(|one| one.explanation.clone()).collect()),
    ];
    tx.bulk(&SUGGESTIONS_SET, columns).await.map(drop)
}

/// Deletes suggestions, because the certificate has a new version or its issuer makes no suggestion.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn drop_suggestions(tx: &mut Tx, certificates: Vec<i64>) -> Result<(), StoreError> {
    tx.bulk(&SUGGESTIONS_DROP, vec![Column::Int(certificates)]).await.map(drop)
}

fn version_row(mut row: Row) -> Result<ManagedVersion, StoreError> {
    Ok(ManagedVersion {
        id: row.int()?,
        certificate: row.int()?,
        job: row.maybe_int()?,
        fingerprint: row.hash()?,
        serial: row.text()?,
        spki_sha256: row.hash()?,
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        issuer: row.text()?,
        key: row.maybe_uuid()?,
        chain: row.blob()?,
        issued_at_us: row.int()?,
        revoked_at_us: row.maybe_int()?,
        revoked_reason: row.maybe_coded("managed_versions.revoked_reason")?,
        profile: row.maybe_text()?,
        policy: row.maybe_text()?,
    })
}

fn suggestion(mut row: Row) -> Result<ManagedSuggestion, StoreError> {
    let (certificate, check_at_us) = (row.int()?, row.int()?);
    let (start, end) = (row.maybe_int()?, row.maybe_int()?);
    Ok(ManagedSuggestion {
        certificate,
        check_at_us,
        window_us: start.zip(end),
        explanation: row.maybe_text()?,
    })
}
