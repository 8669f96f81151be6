//! Storage of revocations and blocked keys. Certificates are revoked in sets, and the entries of each CRL are read with one query.

pub(crate) mod crls;
mod handle;
pub(crate) mod listings;

pub use crls::{BuiltCrl, CrlRow, CrlState, OcspResponderRow, crl_store, crls_begin, put_ocsp_responder};

pub use listings::{BlockedKey, CrlStatus, ResponderStatus, RevocationEntry, note_crl_failure};
use uuid::Uuid;

use crate::tables::issued::{self, IssuedFilter};
use db::{BulkStatement, Column, Cost, Row, StoreError, Tx, Value};
pub use handle::Revocations;
use x509::crl::Reason;

/// The certificates to revoke.
#[derive(Clone, Debug)]
pub enum RevocationTarget {
    /// One certificate, by its identifier.
    Id(Uuid),
    /// One certificate, by the SHA-256 of its DER.
    Sha256([u8; 32]),
    /// One certificate, by its CA and the content bytes of its serial number.
    Serial(Uuid, Vec<u8>),
    /// All certificates with this public key.
    Key([u8; 32]),
    /// All certificates that match a filter.
    Filter(IssuedFilter),
}

/// The data to store for each revoked certificate.
#[derive(Clone, Debug)]
pub struct RevocationFields {
    /// Identifier of the revocation request.
    pub action: Uuid,
    /// Revocation reason. [`Reason::RemoveFromCrl`] releases certificates from hold.
    pub reason: Reason,
    /// Revocation date in the CRL, in microseconds.
    pub revoked_at_us: i64,
    /// Time in microseconds since when the key is suspected to be compromised.
    pub invalidity_at_us: Option<i64>,
    /// Present time in microseconds. Certificates that have expired are not changed.
    pub now_us: i64,
    /// Actor that requested the revocation.
    pub actor: String,
}

/// Number of certificates that a target matched before the revocation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MatchCounts {
    /// Number of matched certificates, including expired ones.
    pub all: i64,
    /// Number of matched certificates that have expired.
    pub expired: i64,
}

/// A revocation as a CRL entry.
#[derive(Clone, Debug, PartialEq)]
pub struct RevocationRow {
    /// Content bytes of the serial number.
    pub serial: Vec<u8>,
    /// Revocation date in microseconds.
    pub revoked_at_us: i64,
    /// Revocation reason (RFC 5280 section 5.3.1).
    pub reason: Reason,
    /// Time in microseconds since when the key is suspected to be compromised.
    pub invalidity_at_us: Option<i64>,
    /// Time in microseconds at which the revocation was recorded.
    pub recorded_at_us: i64,
}

/// A certificate whose revocation state a request changed.
#[derive(Clone, Debug, PartialEq)]
pub struct RevokedRow {
    /// Public identifier of the certificate.
    pub id: Uuid,
    /// CA that issued the certificate.
    pub ca: Uuid,
    /// Content bytes of the serial number.
    pub serial: Vec<u8>,
}

macro_rules! with_reasons {
    ($text:expr) => {
        db::with_codes!([Reason::{KeyCompromise, CertificateHold, RemoveFromCrl}] $text)
    };
}

/// Inserts or updates the revocations of the target. An existing revocation is changed only as RFC 5280 section 5.3.1 allows: a
/// hold or a released hold may get any reason, and any other reason may only become keyCompromise.
macro_rules! upsert {
    () => {
        "\nON CONFLICT (certificate_id) DO UPDATE
SET reason = excluded.reason, action = excluded.action, actor = excluded.actor, recorded_at = excluded.recorded_at,
    invalidity_at = COALESCE(excluded.invalidity_at, revocations.invalidity_at),
    revoked_at = CASE WHEN revocations.reason = {Reason::RemoveFromCrl}
      THEN excluded.revoked_at ELSE revocations.revoked_at END
WHERE (revocations.reason IN ({Reason::CertificateHold}, {Reason::RemoveFromCrl})
  AND revocations.reason <> excluded.reason)
   OR (excluded.reason = {Reason::KeyCompromise} AND revocations.reason <> {Reason::KeyCompromise})"
    };
}

macro_rules! insert {
    () => {
        "INSERT INTO revocations (certificate_id, uuid, ca, shard, serial, reason, revoked_at, invalidity_at, not_after, \
         recorded_at, actor, action)\n"
    };
}

const BY_IDS: BulkStatement = BulkStatement {
    sqlite: with_reasons!(concat!(
        "-- revoke_ids\n",
        insert!(),
        "SELECT i.certificate_id, i.uuid, i.ca, i.shard, i.serial, ?2, ?3, ?4, i.not_after, ?5, ?6, ?7
FROM issued i WHERE i.uuid = ?1 AND i.not_after >= ?5",
        upsert!(),
        " RETURNING certificate_id"
    )),
    postgres: with_reasons!(concat!(
        "-- revoke_ids\n",
        insert!(),
        "SELECT i.certificate_id, i.uuid, i.ca, i.shard, i.serial, n.reason, n.revoked_at, n.invalidity_at, i.not_after, \
         n.now, n.actor, n.action
FROM (SELECT DISTINCT ON (id) * FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::bigint[], \
         ?6::text[], ?7::uuid[])
     AS u (id, reason, revoked_at, invalidity_at, now, actor, action)) AS n
JOIN issued i ON i.uuid = n.id AND i.not_after >= n.now ORDER BY i.certificate_id",
        upsert!(),
        " RETURNING certificate_id"
    )),
};

const HOLDS_LIFT_IDS: BulkStatement = BulkStatement {
    sqlite: with_reasons!("-- holds_lift_ids
UPDATE revocations SET reason = {Reason::RemoveFromCrl}, action = ?2, actor = ?3, recorded_at = ?4
WHERE uuid = ?1 AND reason = {Reason::CertificateHold}
AND certificate_id = (SELECT i.certificate_id FROM issued i WHERE i.uuid = ?1) RETURNING certificate_id"),
    postgres: with_reasons!("-- holds_lift_ids
UPDATE revocations r SET reason = {Reason::RemoveFromCrl}, action = n.action, actor = n.actor, recorded_at = n.now
FROM UNNEST(?1::uuid[], ?2::uuid[], ?3::text[], ?4::bigint[]) AS n (id, action, actor, now)
JOIN issued i ON i.uuid = n.id WHERE r.certificate_id = i.certificate_id
  AND r.reason = {Reason::CertificateHold} RETURNING r.certificate_id"),
};

const IDS_MATCHED: BulkStatement = db::bulk! { (uuid uuid)
    "-- revoke_ids_matched
SELECT not_after FROM issued WHERE uuid = {any uuid}"
};

/// Marks every CRL that a revocation affects: the full CRL and the shards of the certificates.
const MARK: &str = "-- crls_mark
INSERT INTO crls (ca, shard, changes, built, number, this_update, next_update, refresh_at, entries)
SELECT DISTINCT x.ca, x.shard, 1, 0, 0, 0, 0, 0, 0 FROM (
    SELECT ca, shard FROM revocations WHERE action = ?1
    UNION SELECT ca, CAST(0 AS BIGINT) FROM revocations WHERE action = ?1
) AS x WHERE TRUE ORDER BY x.ca, x.shard
ON CONFLICT (ca, shard) DO UPDATE SET changes = crls.changes + 1";

const OF_ACTION: &str = "-- revocations_of_action
SELECT uuid, ca, serial FROM revocations WHERE action = ?1 ORDER BY certificate_id LIMIT ?2";

const SINCE: &str = "-- revocations_since
SELECT uuid, ca, serial FROM revocations WHERE recorded_at >= ?1 ORDER BY recorded_at LIMIT ?2";

const KEY_BLOCK: &str = "-- key_block
INSERT INTO blocked_keys (spki_sha256, blocked_at, actor) VALUES (?1, ?2, ?3) ON CONFLICT (spki_sha256) DO NOTHING";

/// Waits for transactions that have already checked for blocked keys and may still store a certificate with this key. Later
/// transactions see the block.
const KEYS_LOCK: &str = "-- keys_lock
LOCK TABLE blocked_keys IN ACCESS EXCLUSIVE MODE";

const KEY_BLOCKED: &str = "-- key_blocked
SELECT 1 FROM blocked_keys WHERE spki_sha256 = ?1";

pub(crate) const ALL: &[&str] = &[MARK, OF_ACTION, SINCE, KEY_BLOCK, KEY_BLOCKED];
pub(crate) const POSTGRES: &[&str] = &[KEYS_LOCK];
pub(crate) const BULKS: &[&BulkStatement] = &[&BY_IDS, &HOLDS_LIFT_IDS, &IDS_MATCHED];

/// Returns the SQL condition of a target on `issued i`, and its parameters, numbered from `first`.
fn target_condition(target: &RevocationTarget, first: usize) -> (String, Vec<Value>) {
    let one = |text: &str, value: Value| (text.replace("{}", &format!("?{first}")), vec![value]);
    match target {
        RevocationTarget::Id(id) => one("i.uuid = {}", (*id).into()),
        RevocationTarget::Sha256(sha256) => {
            one("i.certificate_id = (SELECT c.id FROM certificates c WHERE c.sha256 = {})", (*sha256).into())
        }
        RevocationTarget::Serial(ca, serial) => (
            format!("i.serial = ?{first} AND i.ca = ?{}", first + 1),
            vec![serial.clone().into(), (*ca).into()],
        ),
        RevocationTarget::Key(spki) => one("i.spki_sha256 = {}", (*spki).into()),
        RevocationTarget::Filter(filter) => {
            let (conditions, parameters) = issued::conditions(filter, first);
            (if conditions.is_empty() { "TRUE".to_owned() } else { conditions.join(" AND ") }, parameters)
        }
    }
}

fn revoke_statement(target: &RevocationTarget) -> (String, Vec<Value>) {
    let (condition, parameters) = target_condition(target, 7);
    let statement = format!(
        "-- revoke\n{}SELECT i.certificate_id, i.uuid, i.ca, i.shard, i.serial, CAST(?1 AS BIGINT), CAST(?2 AS BIGINT), \
         CAST(?3 AS BIGINT), i.not_after, CAST(?4 AS BIGINT), CAST(?5 AS TEXT), ?6\n\
         FROM issued i WHERE i.not_after >= ?4 AND {condition} ORDER BY i.certificate_id{}",
        insert!(),
        with_reasons!(upsert!())
    );
    (statement, parameters)
}

fn lift_statement(target: &RevocationTarget) -> (String, Vec<Value>) {
    let (condition, parameters) = target_condition(target, 4);
    let statement = format!(
        "-- holds_lift\nUPDATE revocations SET reason = {}, action = ?1, actor = ?2, recorded_at = ?3\n\
         WHERE reason = {} AND certificate_id IN (SELECT i.certificate_id FROM issued i WHERE {condition})",
        Reason::RemoveFromCrl.code(),
        Reason::CertificateHold.code()
    );
    (statement, parameters)
}

fn matched_statement(target: &RevocationTarget) -> (String, Vec<Value>) {
    let (condition, parameters) = target_condition(target, 2);
    let statement = format!(
        "-- revoke_matched\nSELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN i.not_after < ?1 THEN 1 ELSE 0 END), 0) AS BIGINT) \
         FROM issued i WHERE {condition}"
    );
    (statement, parameters)
}

/// Revokes the certificates of `target` or releases them from hold, in two statements. Returns the number of changed certificates.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn revoke(
    tx: &mut Tx,
    target: &RevocationTarget,
    mark: &RevocationFields,
) -> Result<(MatchCounts, u64), StoreError> {
    let (statement, own) = matched_statement(target);
    let mut parameters = vec![mark.now_us.into()];
    parameters.extend(own);
    let found = tx.row(&statement, parameters).await?;
    let matched =
        found.map(|mut row| Ok::<_, StoreError>(MatchCounts { all: row.int()?, expired: row.int()? }));
    let matched = matched.transpose()?.unwrap_or_default();
    if matched.all == matched.expired {
        return Ok((matched, 0));
    }
    let (statement, mut parameters, own) = if mark.reason == Reason::RemoveFromCrl {
        let (statement, own) = lift_statement(target);
        (statement, vec![mark.action.into(), mark.actor.as_str().into(), mark.now_us.into()], own)
    } else {
        let (statement, own) = revoke_statement(target);
        (statement, mark_values(mark), own)
    };
    parameters.extend(own);
    let changed = tx.execute(&statement, parameters).await?;
    if changed > 0 {
        tx.execute(MARK, vec![mark.action.into()]).await?;
    }
    Ok((matched, changed))
}

fn mark_values(mark: &RevocationFields) -> Vec<Value> {
    vec![
        mark.reason.code().into(),
        mark.revoked_at_us.into(),
        mark.invalidity_at_us.into(),
        mark.now_us.into(),
        mark.actor.as_str().into(),
        mark.action.into(),
    ]
}

/// Revokes like [`revoke`], for a list of identifiers.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn revoke_ids(
    tx: &mut Tx,
    ids: &[Uuid],
    mark: &RevocationFields,
) -> Result<(MatchCounts, u64), StoreError> {
    let mut matched = MatchCounts::default();
    for mut row in tx.bulk(&IDS_MATCHED, vec![Column::Uuid(ids.to_vec())]).await? {
        matched.all += 1;
        matched.expired += i64::from(row.int()? < mark.now_us);
    }
    let count = ids.len();
    let actors = Column::Text(vec![mark.actor.clone(); count]);
    let (actions, now) = (Column::Uuid(vec![mark.action; count]), Column::Int(vec![mark.now_us; count]));
    let ids = Column::Uuid(ids.to_vec());
    let changed = if mark.reason == Reason::RemoveFromCrl {
        tx.bulk(&HOLDS_LIFT_IDS, vec![ids, actions, actors, now]).await?
    } else {
        let columns = vec![
            ids,
            Column::Int(vec![mark.reason.code(); count]),
            Column::Int(vec![mark.revoked_at_us; count]),
            Column::MaybeInt(vec![mark.invalidity_at_us; count]),
            now,
            actors,
            actions,
        ];
        tx.bulk(&BY_IDS, columns).await?
    };
    let changed = changed.len() as u64;
    if changed > 0 {
        tx.execute(MARK, vec![mark.action.into()]).await?;
    }
    Ok((matched, changed))
}

/// Returns the certificates that a revocation request changed, at most `limit`.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn revoked_by_request(
    tx: &mut Tx,
    action: Uuid,
    limit: i64,
) -> Result<Vec<RevokedRow>, StoreError> {
    tx.rows(OF_ACTION, vec![action.into(), limit.into()]).await?.into_iter().map(revoked_row).collect()
}

/// Blocks a public key. After the commit, no certificate is issued for this key. Returns false if it was already blocked.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn block_spki(
    tx: &mut Tx,
    spki_sha256: [u8; 32],
    now_us: i64,
    actor: &str,
) -> Result<bool, StoreError> {
    if tx.is_postgres() {
        tx.execute(KEYS_LOCK, Vec::new()).await?;
    }
    Ok(tx.execute(KEY_BLOCK, vec![spki_sha256.into(), now_us.into(), actor.into()]).await? > 0)
}

fn revoked_row(mut row: Row) -> Result<RevokedRow, StoreError> {
    Ok(RevokedRow { id: row.uuid()?, ca: row.uuid()?, serial: row.blob()? })
}

impl Revocations<'_> {
    /// Returns whether this public key is blocked.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn is_spki_blocked(self, spki_sha256: &[u8; 32]) -> Result<bool, StoreError> {
        Ok(self.0.row(KEY_BLOCKED, vec![(*spki_sha256).into()]).await?.is_some())
    }

    /// Returns the certificates that were revoked or released from hold at or after this time, at most `limit`, oldest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn since(self, from_us: i64, limit: i64) -> Result<Vec<RevokedRow>, StoreError> {
        let found = self.0.rows(Cost::Walk, SINCE, vec![from_us.into(), limit.into()]).await?;
        found.into_iter().map(revoked_row).collect()
    }
}

/// Returns each statement with all conditions, for the test that prepares all statements.
pub(crate) fn composed() -> Vec<String> {
    let targets = [
        RevocationTarget::Id(Uuid::nil()),
        RevocationTarget::Sha256([0; 32]),
        RevocationTarget::Serial(Uuid::nil(), Vec::new()),
        RevocationTarget::Key([0; 32]),
        RevocationTarget::Filter(issued::full_filter()),
        RevocationTarget::Filter(IssuedFilter::default()),
    ];
    let forms = targets.iter().flat_map(|target| {
        [revoke_statement(target).0, lift_statement(target).0, matched_statement(target).0]
    });
    forms.collect()
}
