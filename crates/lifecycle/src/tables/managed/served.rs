//! What is verified as served of certificates: where agents put versions in place, and where scans saw them.

use uuid::Uuid;

use super::row::{ManagedRow, managed_columns, managed_row};
use db::{Bulk, Column, Row, StoreError, Tx};
use store::states::{DeploymentState, ManagedState};

/// A version of a certificate at a target, as the newest report about the target says.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployedVersion {
    /// The certificate's row.
    pub certificate: i64,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity of the leaf, µs.
    pub not_after_us: i64,
    /// DER, one certificate after the other, leaf first.
    pub chain: Vec<u8>,
    /// Whether it is the certificate's newest version.
    pub newest: bool,
    /// When the agent reported it, µs.
    pub at_us: i64,
}

/// A version of a certificate in one chain, as scans saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedVersion {
    /// The certificate's row.
    pub certificate: i64,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// The earliest end in the chain, µs; certificates that had ended when the leaf began do not count.
    pub not_after_us: i64,
    /// When an endpoint last answered with it, µs.
    pub at_us: i64,
    /// Whether a watch scans the endpoint again.
    pub watched: bool,
}

/// The newest report about a target says what is there: the version put in place, or what its endpoint showed after a
/// failure.
pub(super) const DEPLOYED: Bulk = db::bulk! { (certificate_id bigint, target uuid)
    db::with_codes!([DeploymentState::{Deployed, Unchanged}] "-- managed_deployed
SELECT v.certificate_id, v.fingerprint, v.not_before, v.not_after, v.chain,
  CASE WHEN v.id = m.version_id THEN 1 ELSE 0 END, d.updated_at
FROM deployments d JOIN managed_certificates m ON m.id = :certificate_id AND m.uuid = d.certificate
JOIN managed_versions v ON v.fingerprint = COALESCE(d.served, d.fingerprint) AND v.certificate_id = m.id
WHERE d.id = (SELECT x.id FROM deployments x WHERE x.target = :target AND (x.served IS NOT NULL
  OR x.state IN ({DeploymentState::Deployed}, {DeploymentState::Unchanged})) ORDER BY x.id DESC LIMIT 1)")
};

/// Endpoints with a port: what lies in files and clouds is kept, not served.
pub(super) const OBSERVED: Bulk = db::bulk! { (certificate_id bigint)
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

/// Certificates whose versions began or ceased to be seen somewhere since a time.
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

/// Versions at targets, by certificate's row and target; targets of which nothing is known are left out.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn deployed_versions(
    tx: &mut Tx,
    places: &[(i64, Uuid)],
) -> Result<Vec<DeployedVersion>, StoreError> {
    let columns = vec![
        Column::Int(places.iter().map(|place| place.0).collect()),
        Column::Uuid(places.iter().map(|place| place.1).collect()),
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

/// Versions that endpoints showed when they last answered.
///
/// # Errors
/// Those of the database.
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

/// Certificates whose newest version is late at its targets, the latest first, at most `limit`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn late_deployments(tx: &mut Tx, now_us: i64, limit: i64) -> Result<Vec<ManagedRow>, StoreError> {
    rows(tx, LATE, now_us, limit).await
}

/// Certificates that are not archived, in the order of their rows, those after `after`, at most `limit`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn managed_after(tx: &mut Tx, after: i64, limit: i64) -> Result<Vec<ManagedRow>, StoreError> {
    rows(tx, AFTER, after, limit).await
}

/// Rows of certificates of which scans have seen something else since `from_us`, at most `limit`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn observed_changed(tx: &mut Tx, from_us: i64, limit: i64) -> Result<Vec<i64>, StoreError> {
    let rows = tx.rows(CHANGED, vec![from_us.into(), limit.into()]).await?;
    rows.into_iter().map(|mut row| row.int()).collect()
}

async fn rows(tx: &mut Tx, text: &str, first: i64, limit: i64) -> Result<Vec<ManagedRow>, StoreError> {
    let rows = tx.rows(text, vec![first.into(), limit.into()]).await?;
    rows.into_iter().map(|mut row| managed_row(&mut row)).collect()
}
