//! Versions verified as served: deployed by agents, and seen by scans.

use uuid::Uuid;

use super::row::{ManagedRow, managed_columns, managed_row};
use db::{BulkStatement, Column, Row, StoreError, Tx};
use store::states::{DeploymentState, ManagedState};

/// Version of a certificate at a target, according to the newest report about the target.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployedVersion {
    /// Row id of the certificate.
    pub certificate: i64,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// End of validity of the leaf, in µs since 1970.
    pub not_after_us: i64,
    /// Concatenated DER certificates, leaf first.
    pub chain: Vec<u8>,
    /// Whether this is the certificate's newest version.
    pub newest: bool,
    /// Time of the agent's report, in µs since 1970.
    pub at_us: i64,
}

/// A version of a certificate, and the chain with which scans saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedVersion {
    /// Row id of the certificate.
    pub certificate: i64,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// Earliest end of validity in the chain, in µs since 1970. Certificates that expired before the leaf became valid are
    /// ignored.
    pub not_after_us: i64,
    /// Time when an endpoint last presented this chain, in µs since 1970.
    pub at_us: i64,
    /// Whether a watch scans the endpoint regularly.
    pub watched: bool,
}

/// The version at each target, according to the newest report: the deployed version, or the version that the target's endpoint
/// presented after a failure.
pub(super) const DEPLOYED: BulkStatement = db::bulk! { (certificate_id bigint, target uuid)
    db::with_codes!([DeploymentState::{Deployed, Unchanged}] "-- managed_deployed
SELECT v.certificate_id, v.fingerprint, v.not_before, v.not_after, v.chain,
  CASE WHEN v.id = m.version_id THEN 1 ELSE 0 END, d.updated_at
FROM deployments d JOIN managed_certificates m ON m.id = :certificate_id AND m.uuid = d.certificate
JOIN managed_versions v ON v.fingerprint = COALESCE(d.served, d.fingerprint) AND v.certificate_id = m.id
WHERE d.id = (SELECT x.id FROM deployments x WHERE x.target = :target AND (x.served IS NOT NULL
  OR x.state IN ({DeploymentState::Deployed}, {DeploymentState::Unchanged})) ORDER BY x.id DESC LIMIT 1)")
};

/// Versions that endpoints with a port presented. Certificates in files and clouds are left out, because they are stored, not
/// served.
pub(super) const OBSERVED: BulkStatement = db::bulk! { (certificate_id bigint)
    "-- managed_observed
SELECT v.certificate_id, v.fingerprint, v.not_before, MAX(e.last_answered_at),
  MAX(CASE WHEN t.endpoint_id IS NULL THEN 0 ELSE 1 END),
  (SELECT MIN(x.not_after) FROM chain_members n JOIN certificates x ON x.id = n.certificate_id
   WHERE n.chain_id = e.chain_id AND x.not_after > v.not_before)
FROM managed_versions v JOIN certificates c ON c.sha256 = v.fingerprint
JOIN chain_members m ON m.certificate_id = c.id AND m.position = 0 JOIN endpoints e ON e.chain_id = m.chain_id
LEFT JOIN endpoints_told t ON t.endpoint_id = e.id
WHERE v.certificate_id = :certificate_id AND e.port > 0 AND e.last_answered_at IS NOT NULL
GROUP BY v.id, v.certificate_id, v.fingerprint, v.not_before, e.chain_id, (t.endpoint_id IS NULL)"
};

pub(super) const LATE: &str = concat!(
    "-- managed_undeployed_late\nSELECT ",
    managed_columns!(),
    " FROM managed_certificates m WHERE m.undeployed_late_at <= ?1 ORDER BY m.undeployed_late_at LIMIT ?2"
);

/// Certificates with a version that appeared at or disappeared from an endpoint since a given time.
pub(super) const CHANGED: &str = "-- managed_observed_changed
SELECT DISTINCT v.certificate_id FROM observations o
JOIN certificates c ON c.id IN (o.leaf_id, o.previous_leaf_id)
JOIN managed_versions v ON v.fingerprint = c.sha256
WHERE o.observed_at >= ?1 AND o.change_kind <> 0 LIMIT ?2";

pub(super) const AFTER: &str = db::with_codes!([ManagedState::{Archived}] concat!(
    "-- managed_after\nSELECT ",
    managed_columns!(),
    " FROM managed_certificates m WHERE m.id > ?1 AND m.state <> {ManagedState::Archived} ORDER BY m.id LIMIT ?2"
));

/// Returns the versions at targets, by certificate row and target. Targets without a report are left out.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn deployed_versions(
    tx: &mut Tx,
    pairs: &[(i64, Uuid)],
) -> Result<Vec<DeployedVersion>, StoreError> {
    let columns = vec![
        Column::Int(pairs.iter().map(|pair| pair.0).collect()),
        Column::Uuid(pairs.iter().map(|pair| pair.1).collect()),
    ];
    let read = |mut row: Row| {
        Ok(DeployedVersion {
            certificate: row.int()?,
            fingerprint: row.hash()?,
            not_before_us: row.int()?,
            not_after_us: row.int()?,
            chain: row.blob()?,
            newest: row.flag()?,
            at_us: row.int()?,
        })
    };
    tx.bulk(&DEPLOYED, columns).await?.into_iter().map(read).collect()
}

/// Returns the versions that endpoints presented when they last responded.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn observed_versions(
    tx: &mut Tx,
    certificates: Vec<i64>,
) -> Result<Vec<ObservedVersion>, StoreError> {
    let read = |mut row: Row| {
        let (certificate, fingerprint, not_before_us) = (row.int()?, row.hash()?, row.int()?);
        let (at_us, watched) = (row.int()?, row.flag()?);
        let not_after_us = row.maybe_int()?.unwrap_or(not_before_us);
        Ok(ObservedVersion { certificate, fingerprint, not_before_us, not_after_us, at_us, watched })
    };
    tx.bulk(&OBSERVED, vec![Column::Int(certificates)]).await?.into_iter().map(read).collect()
}

/// Returns at most `limit` certificates whose newest version is overdue at a target, longest overdue first.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn late_deployments(tx: &mut Tx, now_us: i64, limit: i64) -> Result<Vec<ManagedRow>, StoreError> {
    rows(tx, LATE, now_us, limit).await
}

/// Returns at most `limit` certificates after row `after` that are not archived, in row order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn managed_after(tx: &mut Tx, after: i64, limit: i64) -> Result<Vec<ManagedRow>, StoreError> {
    rows(tx, AFTER, after, limit).await
}

/// Returns at most `limit` row ids of certificates for which scans saw a change since `from_us`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn certificates_changed_since(
    tx: &mut Tx,
    from_us: i64,
    limit: i64,
) -> Result<Vec<i64>, StoreError> {
    let rows = tx.rows(CHANGED, vec![from_us.into(), limit.into()]).await?;
    rows.into_iter().map(|mut row| row.int()).collect()
}

async fn rows(tx: &mut Tx, text: &str, first: i64, limit: i64) -> Result<Vec<ManagedRow>, StoreError> {
    let rows = tx.rows(text, vec![first.into(), limit.into()]).await?;
    rows.into_iter().map(|mut row| managed_row(&mut row)).collect()
}
