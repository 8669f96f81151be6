//! Notices: which conditions of endpoints were reported, so that a watch reports each beginning and end once.

use std::net::IpAddr;

use events::ProbeOutcome;
use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Row, StoreError, Tx, limit_of};
use store::{EndpointKey, Scans, address, endpoint_key};

store::handle! {
    /// Table of the notices about endpoints.
    EndpointNotices
}

/// The last notice about an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EndpointNotice {
    /// Database row number of the certificate.
    pub leaf: i64,
    /// Database row number of the certificate's issuer.
    pub issuer: i64,
    /// Database row number of the chain; 0 when the endpoint sent the certificate without a chain.
    pub chain: i64,
    /// Bit set of the reported conditions; the caller defines the bits.
    pub conditions: i64,
    /// Whether the certificate's expiry is monitored.
    pub expiry: bool,
}

/// An endpoint that responded in a scan, and its last notice.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenEndpoint {
    /// Database row number of the endpoint. Pages are in the order of this number.
    pub row: i64,
    /// Key of the endpoint: host, port, protocol, server name and address.
    pub endpoint: EndpointKey,
    /// Whether this scan is the first that observed the endpoint.
    pub new: bool,
    /// Time of the observation, µs since 1970-01-01 UTC.
    pub at_us: i64,
    /// IP address to which the scan connected.
    pub address: Option<IpAddr>,
    /// Findings of the scan about the endpoint, as JSON.
    pub findings: String,
    /// The observed certificate.
    pub leaf: SeenLeaf,
    /// The last notice about the endpoint.
    pub sent: Option<EndpointNotice>,
}

/// A certificate that an endpoint showed.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenLeaf {
    /// Database row number of the certificate.
    pub row: i64,
    /// SHA-256 of the certificate.
    pub sha256: [u8; 32],
    /// Subject of the certificate.
    pub subject: String,
    /// First subject alternative name.
    pub name: Option<String>,
    /// Database row number of the issuer.
    pub issuer: i64,
    /// Name of the issuer.
    pub issuer_name: String,
    /// Start of validity, µs since 1970-01-01 UTC.
    pub not_before_us: i64,
    /// End of validity, µs since 1970-01-01 UTC.
    pub not_after_us: i64,
    /// Database row number of the chain; 0 when the endpoint sent the certificate without a chain.
    pub chain: i64,
    /// The issuer in the chain that expires first, among those that were valid when the leaf's validity began.
    pub above: Option<SeenIssuer>,
    /// Whether the certificate is a version of a managed certificate.
    pub managed: bool,
    /// Time when the managed certificate got a later version than this one, µs since 1970-01-01 UTC.
    pub replaced_at_us: Option<i64>,
    /// Whether the CA of this installation issued the certificate.
    pub issued: bool,
    /// Whether the certificate is dismissed at the time `now_us` of the query.
    pub dismissed: bool,
}

/// An issuer certificate in the chain that an endpoint showed.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenIssuer {
    /// Subject of the certificate.
    pub subject: String,
    /// Start of validity, µs since 1970-01-01 UTC.
    pub not_before_us: i64,
    /// End of validity, µs since 1970-01-01 UTC.
    pub not_after_us: i64,
}

/// An endpoint that did not respond in a scan, and about which a watch has a notice.
#[derive(Clone, Debug, PartialEq)]
pub struct SilentEndpoint {
    /// Database row number of the endpoint. Pages are in the order of this number.
    pub row: i64,
    /// Key of the endpoint: host, port, protocol, server name and address.
    pub endpoint: EndpointKey,
    /// Time of the observation, µs since 1970-01-01 UTC.
    pub at_us: i64,
    /// Outcome of the probe that got no response.
    pub outcome: ProbeOutcome,
    /// SHA-256 of the certificate that the endpoint showed last.
    pub sha256: [u8; 32],
    /// First name in the certificate, or its subject.
    pub name: String,
    /// Name of the issuer.
    pub issuer_name: String,
    /// The last notice about the endpoint.
    pub sent: EndpointNotice,
}

/// An endpoint with a notice of a watch, which the watch no longer scans or whose source reports it as gone.
#[derive(Clone, Debug, PartialEq)]
pub struct UnseenEndpoint {
    /// Database row number of the endpoint. Pages are in the order of this number.
    pub row: i64,
    /// Key of the endpoint: host, port, protocol, server name and address.
    pub endpoint: EndpointKey,
    /// The last notice about the endpoint.
    pub sent: EndpointNotice,
}

const SEEN: &str = "-- told_seen
SELECT o.endpoint_id, e.host, e.port, e.protocol, e.server_name, e.address, o.change_kind, o.observed_at, o.address,
       o.findings, c.id, c.sha256, c.subject,
       (SELECT n.name FROM certificate_names n WHERE n.certificate_id = c.id ORDER BY n.position LIMIT 1),
       c.issuer_id, i.name, c.not_before, c.not_after, o.chain_id, a.subject, a.not_before, a.not_after,
       (SELECT 1 FROM managed_versions v WHERE v.fingerprint = c.sha256 LIMIT 1),
       (SELECT n.issued_at FROM managed_versions v JOIN managed_certificates g ON g.id = v.certificate_id
        JOIN managed_versions n ON n.id = g.version_id
        WHERE v.fingerprint = c.sha256 AND n.id > v.id ORDER BY v.id LIMIT 1),
       (SELECT 1 FROM issued s WHERE s.certificate_id = c.id),
       (SELECT 1 FROM dismissals d WHERE d.fingerprint = c.sha256 AND (d.until IS NULL OR d.until > ?3)),
       t.leaf_id, t.issuer_id, t.chain_id, t.conditions, t.expiry
FROM observations o
JOIN endpoints e ON e.id = o.endpoint_id
JOIN certificates c ON c.id = o.leaf_id
JOIN issuers i ON i.id = c.issuer_id
LEFT JOIN endpoints_told t ON t.endpoint_id = o.endpoint_id
LEFT JOIN certificates a ON a.id = (SELECT x.id FROM chain_members n JOIN certificates x ON x.id = n.certificate_id
  WHERE n.chain_id = o.chain_id AND n.position > 0 AND x.not_after > c.not_before ORDER BY x.not_after, x.id LIMIT 1)
WHERE o.scan_id = ?1 AND o.endpoint_id > ?2 ORDER BY o.endpoint_id LIMIT ?4";

const UNSEEN: &str = "-- told_unseen
SELECT t.endpoint_id, e.host, e.port, e.protocol, e.server_name, e.address, t.leaf_id, t.issuer_id, t.chain_id,
       t.conditions, t.expiry
FROM endpoints_told t JOIN endpoints e ON e.id = t.endpoint_id
WHERE t.watch = ?1 AND t.endpoint_id > ?2
  AND NOT EXISTS (SELECT 1 FROM observations o WHERE o.scan_id = ?3 AND o.endpoint_id = t.endpoint_id
                  AND o.outcome <> 'gone')
ORDER BY t.endpoint_id LIMIT ?4";

const SILENT: &str = "-- told_silent
SELECT t.endpoint_id, e.host, e.port, e.protocol, e.server_name, e.address, o.observed_at, o.outcome, c.sha256,
       COALESCE((SELECT n.name FROM certificate_names n WHERE n.certificate_id = c.id ORDER BY n.position LIMIT 1),
         c.subject), i.name, t.leaf_id, t.issuer_id, t.chain_id, t.conditions, t.expiry
FROM endpoints_told t JOIN endpoints e ON e.id = t.endpoint_id
JOIN observations o ON o.scan_id = ?3 AND o.endpoint_id = t.endpoint_id
JOIN certificates c ON c.id = t.leaf_id JOIN issuers i ON i.id = c.issuer_id
WHERE t.watch = ?1 AND t.endpoint_id > ?2 AND NOT o.answered AND o.outcome <> 'gone' AND e.port > 0
  AND NOT EXISTS (SELECT 1 FROM dismissals d WHERE d.fingerprint = c.sha256 AND (d.until IS NULL OR d.until > ?4))
ORDER BY t.endpoint_id LIMIT ?5";

const NOTICES_PUT: BulkStatement = db::bulk! {
    (endpoint_id bigint, watch uuid, leaf_id bigint, issuer_id bigint, chain_id bigint, conditions bigint,
     expiry bigint)
    "-- tell
INSERT INTO endpoints_told (endpoint_id, watch, leaf_id, issuer_id, chain_id, conditions, expiry)
VALUES (:endpoint_id, :watch, :leaf_id, :issuer_id, :chain_id, :conditions, :expiry)
ON CONFLICT (endpoint_id) DO UPDATE SET watch = excluded.watch, leaf_id = excluded.leaf_id,
  issuer_id = excluded.issuer_id, chain_id = excluded.chain_id, conditions = excluded.conditions,
  expiry = excluded.expiry"
};

const NOTICES_DELETE: BulkStatement = db::bulk! { (endpoint_id bigint)
    "-- untell
DELETE FROM endpoints_told WHERE endpoint_id = {any endpoint_id}"
};

const UNSERVED: BulkStatement = db::bulk! { (id bigint)
    "-- unserved
SELECT c.sha256 FROM certificates c WHERE c.id = :id
  AND NOT EXISTS (SELECT 1 FROM endpoints_told t WHERE t.leaf_id = c.id AND t.expiry = 1)"
};

pub(crate) const ALL: &[&str] = &[SEEN, UNSEEN, SILENT];
pub(crate) const BULKS: &[&BulkStatement] = &[&NOTICES_PUT, &NOTICES_DELETE, &UNSERVED];

/// Stores the notices of `watch` about endpoints. `sent` has each notice that was sent with the row number of its endpoint.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_notices(tx: &mut Tx, watch: Uuid, sent: &[(i64, EndpointNotice)]) -> Result<(), StoreError> {
    let ints = |of: fn(&EndpointNotice) -> i64| Column::Int(sent.iter().map(|(_, sent)| of(sent)).collect());
    let columns = vec![
        Column::Int(sent.iter().map(|(endpoint, _)| *endpoint).collect()),
        Column::Uuid(vec![watch; sent.len()]),
        ints(|sent| sent.leaf),
        ints(|sent| sent.issuer),
        ints(|sent| sent.chain),
        ints(|sent| sent.conditions),
        ints(|sent| sent.expiry.into()),
    ];
    tx.bulk(&NOTICES_PUT, columns).await.map(drop)
}

/// Deletes the notices about endpoints, which are given by row number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_notices(tx: &mut Tx, endpoints: Vec<i64>) -> Result<(), StoreError> {
    tx.bulk(&NOTICES_DELETE, vec![Column::Int(endpoints)]).await.map(drop)
}

/// Returns the subset of these certificates (by row) that no endpoint with monitored expiry shows any longer.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn unserved(tx: &mut Tx, leaves: Vec<i64>) -> Result<Vec<[u8; 32]>, StoreError> {
    tx.bulk(&UNSERVED, vec![Column::Int(leaves)]).await?.into_iter().map(|mut row| row.hash()).collect()
}

impl EndpointNotices<'_> {
    /// Returns at most `limit` endpoints after row `after` that responded in `scan`, with their notices. Fewer than `limit` mean
    /// the last page. `now_us` decides whether dismissals have ended.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`]; database errors.
    pub async fn seen_endpoints(
        self,
        scan: Uuid,
        after: i64,
        now_us: i64,
        limit: usize,
    ) -> Result<Vec<SeenEndpoint>, StoreError> {
        let parameters = vec![
            Scans::of(self.0).row_id(scan).await?.into(),
            after.into(),
            now_us.into(),
            (limit_of(limit).0 as i64).into(),
        ];
        self.0.rows(Cost::Walk, SEEN, parameters).await?.into_iter().map(seen).collect()
    }

    /// Returns at most `limit` endpoints after row `after` that have a notice of `watch` and did not respond in `scan`. Fewer
    /// than `limit` mean the last page. `now_us` decides whether dismissals have ended.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`]; database errors.
    pub async fn silent_endpoints(
        self,
        watch: Uuid,
        scan: Uuid,
        after: i64,
        now_us: i64,
        limit: usize,
    ) -> Result<Vec<SilentEndpoint>, StoreError> {
        let scan = Scans::of(self.0).row_id(scan).await?;
        let limit = limit_of(limit).0 as i64;
        let parameters = vec![watch.into(), after.into(), scan.into(), now_us.into(), limit.into()];
        self.0.rows(Cost::Walk, SILENT, parameters).await?.into_iter().map(silent).collect()
    }

    /// Returns at most `limit` endpoints after row `after` that have a notice of `watch` and that `scan` did not include. Without
    /// a scan, returns all endpoints with a notice. Fewer than `limit` mean the last page.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`]; database errors.
    pub async fn unseen_endpoints(
        self,
        watch: Uuid,
        scan: Option<Uuid>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<UnseenEndpoint>, StoreError> {
        // Row numbers of scans start at 1.
        let scan = match scan {
            Some(scan) => Scans::of(self.0).row_id(scan).await?,
            None => 0,
        };
        let parameters = vec![watch.into(), after.into(), scan.into(), (limit_of(limit).0 as i64).into()];
        let rows = self.0.rows(Cost::Walk, UNSEEN, parameters).await?;
        let unseen = |mut row: Row| {
            let number = row.int()?;
            let endpoint = endpoint_key(&mut row)?;
            let sent = read_notice(&mut row)?
                .ok_or_else(|| StoreError::Corrupt("no notification is stored for an endpoint".to_owned()))?;
            Ok(UnseenEndpoint { row: number, endpoint, sent })
        };
        rows.into_iter().map(unseen).collect()
    }
}

fn silent(mut row: Row) -> Result<SilentEndpoint, StoreError> {
    let number = row.int()?;
    let endpoint = endpoint_key(&mut row)?;
    let (at_us, outcome, sha256) = (row.int()?, row.named("observations.outcome")?, row.hash()?);
    let (name, issuer_name) = (row.text()?, row.text()?);
    let sent = read_notice(&mut row)?
        .ok_or_else(|| StoreError::Corrupt("no notification is stored for an endpoint".to_owned()))?;
    Ok(SilentEndpoint { row: number, endpoint, at_us, outcome, sha256, name, issuer_name, sent })
}

fn above(row: &mut Row) -> Result<Option<SeenIssuer>, StoreError> {
    let (subject, not_before, not_after) = (row.maybe_text()?, row.maybe_int()?, row.maybe_int()?);
    Ok(subject.zip(not_before.zip(not_after)).map(|(subject, (not_before_us, not_after_us))| SeenIssuer {
        subject,
        not_before_us,
        not_after_us,
    }))
}

fn seen(mut row: Row) -> Result<SeenEndpoint, StoreError> {
    let number = row.int()?;
    let endpoint = endpoint_key(&mut row)?;
    let new = row.int()? == store::ChangeKind::New.code();
    let (at_us, address) = (row.int()?, address(row.maybe_text()?)?);
    let findings = row.text()?;
    let leaf = SeenLeaf {
        row: row.int()?,
        sha256: row.hash()?,
        subject: row.text()?,
        name: row.maybe_text()?,
        issuer: row.int()?,
        issuer_name: row.text()?,
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        chain: row.maybe_int()?.unwrap_or(0),
        above: above(&mut row)?,
        managed: row.maybe_int()?.is_some(),
        replaced_at_us: row.maybe_int()?,
        issued: row.maybe_int()?.is_some(),
        dismissed: row.maybe_int()?.is_some(),
    };
    Ok(SeenEndpoint {
        row: number,
        endpoint,
        new,
        at_us,
        address,
        findings,
        leaf,
        sent: read_notice(&mut row)?,
    })
}

fn read_notice(row: &mut Row) -> Result<Option<EndpointNotice>, StoreError> {
    let leaf = row.maybe_int()?;
    let (issuer, chain) = (row.maybe_int()?, row.maybe_int()?);
    let (conditions, expiry) = (row.maybe_int()?, row.maybe_int()?);
    Ok(match (leaf, issuer, chain, conditions, expiry) {
        (Some(leaf), Some(issuer), Some(chain), Some(conditions), Some(expiry)) => {
            Some(EndpointNotice { leaf, issuer, chain, conditions, expiry: expiry != 0 })
        }
        _ => None,
    })
}
