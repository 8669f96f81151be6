//! Table of issuances: one row per issuance, regardless of the number of sources that report it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use coded::coded;
use uuid::Uuid;

use super::handle::Ct;
use db::{
    BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page, reversed,
    storable,
};

/// Maximum issuances judged in one call: each may load a few dozen known certificates of 2 kB.
pub const CT_JUDGED_MAX: usize = 256;

coded! {
    /// Verdict on an issuance: whether it was expected.
    pub enum CtVerdict: "verdict" {
        /// Not decided yet: the matching known certificate is possibly not in the database yet.
        Pending = 0 => "pending",
        /// Expected: known, a renewal, by an allowed issuer, part of the baseline, or confirmed by a person.
        Expected = 1 => "expected",
        /// Unexpected: no known certificate, rule or decision explains the issuance.
        Unasked = 2 => "unexpected",
        /// Unexpected, and a person acknowledged it.
        Acknowledged = 3 => "acknowledged",
    }
}

/// An issuance as reported by a log or a search service.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCtIssuance {
    /// Public identifier for a new issuance.
    pub id: Uuid,
    /// SHA-256 over issuer and serial number.
    pub issuer_serial: [u8; 32],
    /// SHA-256 of the logged tbsCertificate, if known.
    pub tbs: Option<[u8; 32]>,
    /// The issuer's name.
    pub issuer: String,
    /// Serial number in hexadecimal; empty if it cannot be parsed.
    pub serial: String,
    /// Names, case-folded.
    pub names: Vec<String>,
    /// First moment of validity, µs since 1970-01-01 UTC.
    pub not_before_us: i64,
    /// Last moment of validity, µs since 1970-01-01 UTC.
    pub not_after_us: i64,
    /// SHA-256 of the SubjectPublicKeyInfo, if known.
    pub spki_sha256: Option<[u8; 32]>,
    /// SHA-256 of the certificate or precertificate, if known.
    pub sha256: Option<[u8; 32]>,
    /// Log or service that reported the issuance first.
    pub source: String,
    /// Time of logging if known, µs since 1970-01-01 UTC.
    pub logged_at_us: Option<i64>,
    /// Time at which the issuance was found, µs since 1970-01-01 UTC.
    pub found_at_us: i64,
    /// The certificate or precertificate, DER, if available.
    pub der: Option<Vec<u8>>,
    /// The watched domains that the certificate covers.
    pub domains: Vec<String>,
}

/// A stored issuance with its verdict.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtIssuanceRow {
    /// Public identifier.
    pub id: Uuid,
    /// SHA-256 over issuer and serial number.
    pub issuer_serial: [u8; 32],
    /// SHA-256 of the logged tbsCertificate, if known.
    pub tbs: Option<[u8; 32]>,
    /// The issuer's name.
    pub issuer: String,
    /// Serial number in hexadecimal; empty if it cannot be parsed.
    pub serial: String,
    /// Names, case-folded.
    pub names: Vec<String>,
    /// First moment of validity, µs since 1970-01-01 UTC.
    pub not_before_us: i64,
    /// Last moment of validity, µs since 1970-01-01 UTC.
    pub not_after_us: i64,
    /// SHA-256 of the SubjectPublicKeyInfo, if known.
    pub spki_sha256: Option<[u8; 32]>,
    /// SHA-256 of the certificate or precertificate, if known.
    pub sha256: Option<[u8; 32]>,
    /// Log or service that reported the issuance first.
    pub source: String,
    /// Time of logging if known, µs since 1970-01-01 UTC.
    pub logged_at_us: Option<i64>,
    /// Time at which the issuance was found, µs since 1970-01-01 UTC.
    pub found_at_us: i64,
    /// Whether the issuance was expected.
    pub verdict: CtVerdict,
    /// Reason for the verdict, JSON; empty while pending.
    pub reason: String,
}

/// Filter for listing issuances by watched domain, verdict and time of discovery.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CtFilter {
    /// Only issuances for this watched domain.
    pub domain: Option<String>,
    /// Only issuances with this verdict.
    pub verdict: Option<CtVerdict>,
    /// Only issuances found at this time or later, µs since 1970-01-01 UTC.
    pub found_from_us: Option<i64>,
}

/// A known certificate that has one of the requested names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtKnownRow {
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// Whether the CA of this installation issued the certificate.
    pub issued: bool,
    /// Whether the certificate is a version of a managed certificate.
    pub managed: bool,
}

macro_rules! columns {
    () => {
        "i.uuid, i.issuer_serial, i.tbs, i.issuer, i.serial, i.names, i.not_before, i.not_after, i.spki_sha256, \
         i.sha256, i.source, i.logged_at, i.found_at, i.verdict, i.reason, i.id"
    };
}

pub(super) const ISSUANCE: &str =
    concat!("-- ct_issuance\nSELECT ", columns!(), " FROM ct_issuances i WHERE i.uuid = ?1");
pub(super) const ISSUANCE_DER: &str = "-- ct_issuance_der
SELECT d.der FROM ct_issuances i JOIN ct_issuance_ders d ON d.issuance_id = i.id WHERE i.uuid = ?1";
pub(super) const DOMAINS_OF: &str = "-- ct_issuance_domains
SELECT d.domain FROM ct_issuances i JOIN ct_issuance_domains d ON d.issuance_id = i.id WHERE i.uuid = ?1
ORDER BY d.domain";
/// Returns each issuance with the alphabetically first of its watched domains. Domains that are no longer watched do not count.
pub(super) const JUDGEABLE: &str = concat!(
    "-- ct_issuances_judgeable\nSELECT ",
    columns!(),
    ", (SELECT min(d.name) FROM ct_issuance_domains l JOIN ct_domains d ON d.name = l.domain WHERE l.issuance_id = i.id)
FROM ct_issuances i WHERE i.verdict = ?1 AND i.found_at >= ?2 AND i.found_at <= ?3 AND i.id > ?4 ORDER BY i.id LIMIT ?5"
);

/// Lock of writers. Two writers that report the same issuance concurrently must see each other's rows, or the issuance would get
/// two rows.
pub(super) const LOCK: &str = "-- ct_issuances_lock
SELECT pg_advisory_xact_lock(?1)";
/// Key of the lock: "ct" in ASCII. It differs from the lock keys of the schema.
const LOCK_KEY: i64 = 0x6374;

macro_rules! with_verdicts {
    ($text:expr) => {
        db::with_codes!([CtVerdict::{Pending, Expected, Unasked, Acknowledged}] $text)
    };
}

/// Adds the `tbs` hash to issuances that were reported without this hash.
pub(super) const LEARN_TBS: BulkStatement = BulkStatement {
    sqlite: "-- ct_issuances_learn_tbs
UPDATE ct_issuances SET tbs = ?2, spki_sha256 = COALESCE(spki_sha256, ?3), sha256 = COALESCE(sha256, ?4)
WHERE issuer_serial = ?1 AND tbs = x'' AND NOT EXISTS (SELECT 1 FROM ct_issuances o WHERE o.tbs = ?2)",
    postgres: "-- ct_issuances_learn_tbs
UPDATE ct_issuances i
SET tbs = n.tbs, spki_sha256 = COALESCE(i.spki_sha256, n.spki), sha256 = COALESCE(i.sha256, n.sha256)
FROM (SELECT DISTINCT ON (u.issuer_serial) u.* FROM UNNEST(?1::bytea[], ?2::bytea[], ?3::bytea[], ?4::bytea[])
      AS u (issuer_serial, tbs, spki, sha256) ORDER BY u.issuer_serial) AS n
WHERE i.issuer_serial = n.issuer_serial AND i.tbs = ''::bytea
  AND NOT EXISTS (SELECT 1 FROM ct_issuances o WHERE o.tbs = n.tbs)",
};

pub(super) const INSERT: BulkStatement = db::bulk! {
    (uuid uuid, issuer_serial bytea, tbs bytea, issuer text, serial text, names text, not_before bigint,
     not_after bigint, spki bytea, sha256 bytea, source text, logged bigint, found bigint)
    with_verdicts!("-- ct_issuances_insert
INSERT INTO ct_issuances (uuid, issuer_serial, tbs, issuer, serial, names, not_before, not_after, spki_sha256, sha256,
                          source, logged_at, found_at, verdict, reason)
SELECT :uuid, :issuer_serial, :tbs, :issuer, :serial, :names, :not_before, :not_after, :spki, :sha256, :source,
  :logged, :found, {CtVerdict::Pending}, ''
WHERE NOT EXISTS (SELECT 1 FROM ct_issuances o WHERE o.issuer_serial = :issuer_serial
                  AND (o.tbs = :tbs OR :tbs = {x''|''::bytea}))
  AND NOT EXISTS (SELECT 1 FROM ct_issuances o WHERE o.tbs = :tbs AND :tbs <> {x''|''::bytea})
ON CONFLICT DO NOTHING RETURNING uuid")
};

/// Finds the row of each issuance by its hashes. ?3 is returned unchanged.
pub(super) const FIND: BulkStatement = BulkStatement {
    sqlite: "-- ct_issuances_find
SELECT ?3, id, uuid FROM (
    SELECT id, uuid FROM ct_issuances WHERE issuer_serial = ?1 AND (tbs = ?2 OR ?2 = x'')
    UNION ALL SELECT id, uuid FROM ct_issuances WHERE tbs = ?2 AND ?2 <> x'') LIMIT 1",
    postgres: "-- ct_issuances_find
SELECT n.place, f.id, f.uuid FROM UNNEST(?1::bytea[], ?2::bytea[], ?3::bigint[]) AS n (issuer_serial, tbs, place)
JOIN LATERAL (
    SELECT o.id, o.uuid FROM ct_issuances o
    WHERE o.issuer_serial = n.issuer_serial AND (o.tbs = n.tbs OR n.tbs = ''::bytea)
    UNION ALL SELECT o.id, o.uuid FROM ct_issuances o WHERE o.tbs = n.tbs AND n.tbs <> ''::bytea LIMIT 1) f ON true",
};

pub(super) const LINK: BulkStatement = db::bulk! { (domain text, id bigint)
    "-- ct_issuances_link
INSERT INTO ct_issuance_domains (domain, issuance_id) VALUES (:domain, :id){| ORDER BY :domain COLLATE \"C\", :id}
  ON CONFLICT DO NOTHING"
};

pub(super) const NAMES: BulkStatement = db::bulk! { (name text, id bigint)
    "-- ct_issuances_names
INSERT INTO ct_issuance_names (name_reversed, issuance_id) VALUES (:name, :id){| ORDER BY :name COLLATE \"C\", :id}
  ON CONFLICT DO NOTHING"
};

pub(super) const DERS: BulkStatement = db::bulk! { (id bigint, der bytea)
    "-- ct_issuances_ders
INSERT INTO ct_issuance_ders (issuance_id, der) VALUES (:id, :der){| ORDER BY :id} ON CONFLICT DO NOTHING"
};

/// Stores verdicts. A decided issuance keeps its verdict, with two exceptions: an unexpected one may become expected or
/// acknowledged, and an acknowledged one may become expected.
pub(super) const JUDGE: BulkStatement = db::bulk! { (uuid uuid, verdict bigint, reason text)
    with_verdicts!("-- ct_issuances_judge
UPDATE ct_issuances SET verdict = :verdict, reason = :reason
WHERE uuid = :uuid AND (verdict = {CtVerdict::Pending}
  OR (verdict >= {CtVerdict::Unasked} AND :verdict = {CtVerdict::Expected})
  OR (verdict = {CtVerdict::Unasked} AND :verdict = {CtVerdict::Acknowledged})) RETURNING uuid")
};

macro_rules! known {
    ($from:literal) => {
        concat!(
            "SELECT d.der,
       CAST(CASE WHEN EXISTS (SELECT 1 FROM issued i WHERE i.certificate_id = c.id) THEN 1 ELSE 0 END AS BIGINT),
       CAST(CASE WHEN EXISTS (SELECT 1 FROM managed_versions v WHERE v.fingerprint = c.sha256) THEN 1 ELSE 0 END AS BIGINT)
FROM ",
            $from,
            " n JOIN certificates c ON c.id = n.certificate_id JOIN certificate_ders d ON d.certificate_id = c.id
WHERE c.not_after >= "
        )
    };
}

/// Certificates in the inventory with a name that equals one of these reversed names. Limited to the newest 64 for each name, so
/// that the cost stays bounded for a name on every certificate of a large installation.
pub(super) const KNOWN: BulkStatement = BulkStatement {
    sqlite: concat!(
        "-- ct_known\n",
        known!(
            "(SELECT certificate_id FROM certificate_names WHERE name_reversed = ?1 ORDER BY certificate_id DESC LIMIT 64)"
        ),
        "?2"
    ),
    postgres: concat!(
        "-- ct_known\n",
        known!(
            "(SELECT DISTINCT f.certificate_id, u.ended FROM UNNEST(?1::text[], ?2::bigint[]) AS u (name, ended)
      JOIN LATERAL (SELECT certificate_id FROM certificate_names WHERE name_reversed = u.name
                    ORDER BY certificate_id DESC LIMIT 64) f ON true)"
        ),
        "n.ended"
    ),
};

/// Versions of managed certificates with a name that equals one of these reversed names, for the newest 64 certificates of each
/// name. The versions are in the database before any scan finds the certificate.
pub(super) const MANAGED: BulkStatement = BulkStatement {
    sqlite: "-- ct_managed
SELECT v.chain FROM (SELECT certificate_id FROM managed_names WHERE name_reversed = ?1
                     ORDER BY certificate_id DESC LIMIT 64) n
JOIN managed_versions v ON v.certificate_id = n.certificate_id WHERE v.not_after >= ?2",
    postgres: "-- ct_managed
SELECT v.chain FROM (SELECT DISTINCT f.certificate_id, u.ended FROM UNNEST(?1::text[], ?2::bigint[]) AS u (name, ended)
      JOIN LATERAL (SELECT certificate_id FROM managed_names WHERE name_reversed = u.name
                    ORDER BY certificate_id DESC LIMIT 64) f ON true) n
JOIN managed_versions v ON v.certificate_id = n.certificate_id WHERE v.not_after >= n.ended",
};

/// Expected issuances with a name that equals one of these reversed names, out of the newest 64 issuances for each name.
pub(super) const EXPECTED: BulkStatement = BulkStatement {
    sqlite: with_verdicts!(concat!(
        "-- ct_expected\nSELECT ",
        columns!(),
        " FROM (SELECT issuance_id FROM ct_issuance_names WHERE name_reversed = ?1 ORDER BY issuance_id DESC LIMIT 64) n
JOIN ct_issuances i ON i.id = n.issuance_id WHERE i.verdict = {CtVerdict::Expected} AND i.not_after >= ?2"
    )),
    postgres: with_verdicts!(concat!(
        "-- ct_expected\nSELECT ",
        columns!(),
        " FROM (SELECT DISTINCT f.issuance_id, u.ended FROM UNNEST(?1::text[], ?2::bigint[]) AS u (name, ended)
      JOIN LATERAL (SELECT issuance_id FROM ct_issuance_names WHERE name_reversed = u.name
                    ORDER BY issuance_id DESC LIMIT 64) f ON true) n
JOIN ct_issuances i ON i.id = n.issuance_id WHERE i.verdict = {CtVerdict::Expected} AND i.not_after >= n.ended"
    )),
};

/// Deletes the certificates of expired issuances, by the index on the expiry.
pub(super) const TRIM_DERS: &str = "-- ct_issuances_trim_ders
DELETE FROM ct_issuance_ders WHERE issuance_id IN
    (SELECT id FROM ct_issuances WHERE not_after < ?1 ORDER BY not_after, id LIMIT ?2)";
pub(super) const TRIM_DOMAINS: &str = "-- ct_issuances_trim_domains
DELETE FROM ct_issuance_domains WHERE issuance_id IN
    (SELECT id FROM ct_issuances WHERE not_after < ?1 ORDER BY not_after, id LIMIT ?2)";
pub(super) const TRIM_NAMES: &str = "-- ct_issuances_trim_names
DELETE FROM ct_issuance_names WHERE issuance_id IN
    (SELECT id FROM ct_issuances WHERE not_after < ?1 ORDER BY not_after, id LIMIT ?2)";
pub(super) const TRIM: &str = "-- ct_issuances_trim
DELETE FROM ct_issuances WHERE id IN
    (SELECT id FROM ct_issuances WHERE not_after < ?1 ORDER BY not_after, id LIMIT ?2)";

/// Builds a listing, newest first. ?1 is the row below which the page begins, ?2 the limit.
fn list(filter: &CtFilter) -> (String, Vec<Value>) {
    let mut values = Vec::new();
    let mut place = |value: Value| {
        values.push(value);
        format!("?{}", values.len() + 2)
    };
    let (from, mut conditions, id) = match &filter.domain {
        Some(domain) => {
            let condition = format!("l.domain = {} AND l.issuance_id < ?1", place(domain.as_str().into()));
            let from = "ct_issuance_domains l JOIN ct_issuances i ON i.id = l.issuance_id";
            (from, condition, "l.issuance_id")
        }
        None => ("ct_issuances i", "i.id < ?1".to_owned(), "i.id"),
    };
    if let Some(verdict) = filter.verdict {
        conditions.push_str(&format!(" AND i.verdict = {}", place(verdict.code().into())));
    }
    if let Some(from) = filter.found_from_us {
        conditions.push_str(&format!(" AND i.found_at >= {}", place(from.into())));
    }
    let columns = columns!();
    let text = format!(
        "-- ct_issuances\nSELECT {columns} FROM {from} WHERE {conditions} ORDER BY {id} DESC LIMIT ?2"
    );
    (text, values)
}

pub(super) fn composed() -> Vec<String> {
    let mut all = Vec::new();
    for domain in [None, Some("x".to_owned())] {
        for verdict in [None, Some(CtVerdict::Unasked)] {
            for found_from_us in [None, Some(1)] {
                all.push(list(&CtFilter { domain: domain.clone(), verdict, found_from_us }).0);
            }
        }
    }
    all
}

/// Stores issuances as pending; returns the ids of new ones. Known issuances get missing domains and hashes. At most seven
/// statements on PostgreSQL.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn record_ct_issuances(tx: &mut Tx, found: Vec<NewCtIssuance>) -> Result<Vec<Uuid>, StoreError> {
    let found = merged(found);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    if tx.is_postgres() {
        tx.execute(LOCK, vec![LOCK_KEY.into()]).await?;
    }
    let hashed: Vec<&NewCtIssuance> = found.iter().filter(|one| one.tbs.is_some()).collect();
    let columns = vec![
        Column::Blob(hashed.iter().map(|one| one.issuer_serial.to_vec()).collect()),
        Column::Blob(hashed.iter().map(|one| tbs_bytes(one)).collect()),
        Column::MaybeBlob(hashed.iter().map(|one| one.spki_sha256.map(Vec::from)).collect()),
        Column::MaybeBlob(hashed.iter().map(|one| one.sha256.map(Vec::from)).collect()),
    ];
    tx.bulk(&LEARN_TBS, columns).await?;
    let new = tx.bulk(&INSERT, rows_of(&found)).await?;
    let new: Vec<Uuid> = new.into_iter().map(|mut row| row.uuid()).collect::<Result<_, _>>()?;
    link(tx, &found).await?;
    Ok(new)
}

/// Adds domains, names and certificates to rows that are already inserted.
async fn link(tx: &mut Tx, found: &[NewCtIssuance]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Blob(found.iter().map(|one| one.issuer_serial.to_vec()).collect()),
        Column::Blob(found.iter().map(tbs_bytes).collect()),
        Column::Int((0..found.len() as i64).collect()),
    ];
    let (mut domains, mut linked) = (Vec::new(), Vec::new());
    let (mut names, mut named) = (Vec::new(), Vec::new());
    let mut ders: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
    for mut row in tx.bulk(&FIND, columns).await? {
        let (place, id): (usize, i64) = (row.number()?, row.int()?);
        let Some(one) = found.get(place) else { continue };
        for domain in &one.domains {
            domains.push(domain.clone());
            linked.push(id);
        }
        for name in &one.names {
            names.push(reversed(name));
            named.push(id);
        }
        if let Some(der) = &one.der {
            ders.insert(id, der.clone());
        }
    }
    tx.bulk(&LINK, vec![Column::Text(domains), Column::Int(linked)]).await?;
    tx.bulk(&NAMES, vec![Column::Text(names), Column::Int(named)]).await?;
    let (ids, ders) = ders.into_iter().unzip();
    tx.bulk(&DERS, vec![Column::Int(ids), Column::Blob(ders)]).await.map(drop)
}

/// Merges entries about the same issuance, because a statement does not see the rows that it inserts.
fn merged(found: Vec<NewCtIssuance>) -> Vec<NewCtIssuance> {
    let hashed: HashSet<[u8; 32]> =
        found.iter().filter(|one| one.tbs.is_some()).map(|one| one.issuer_serial).collect();
    let mut indices: HashMap<[u8; 32], usize> = HashMap::new();
    let mut out: Vec<NewCtIssuance> = Vec::new();
    // Issuances with a `tbs` hash come first, so that reports without a hash can be merged into them.
    let (with, without): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.tbs.is_some());
    let mut first_of: HashMap<[u8; 32], usize> = HashMap::new();
    for one in with.into_iter().chain(without) {
        let known = match one.tbs {
            Some(tbs) => *indices.entry(tbs).or_insert(out.len()),
            None if hashed.contains(&one.issuer_serial) => {
                first_of.get(&one.issuer_serial).copied().unwrap_or(out.len())
            }
            None => *indices.entry(one.issuer_serial).or_insert(out.len()),
        };
        match out.get_mut(known) {
            Some(same) => {
                let more: Vec<String> =
                    one.domains.into_iter().filter(|domain| !same.domains.contains(domain)).collect();
                same.domains.extend(more);
            }
            None => {
                first_of.entry(one.issuer_serial).or_insert(out.len());
                out.push(one);
            }
        }
    }
    out
}

fn tbs_bytes(one: &NewCtIssuance) -> Vec<u8> {
    one.tbs.map(Vec::from).unwrap_or_default()
}

fn rows_of(found: &[NewCtIssuance]) -> Vec<Column> {
    let text = |of: fn(&NewCtIssuance) -> &str| {
        Column::Text(found.iter().map(|one| storable(of(one)).into_owned()).collect())
    };
    let names = |one: &NewCtIssuance| {
        let names: Vec<_> = one.names.iter().map(|name| storable(name)).collect();
        serde_json::Value::from(names.iter().map(AsRef::as_ref).collect::<Vec<&str>>()).to_string()
    };
    vec![
        Column::Uuid(found.iter().map(|one| one.id).collect()),
        Column::Blob(found.iter().map(|one| one.issuer_serial.to_vec()).collect()),
        Column::Blob(found.iter().map(tbs_bytes).collect()),
        text(|one| &one.issuer),
        text(|one| &one.serial),
        Column::Text(found.iter().map(names).collect()),
        Column::Int(found.iter().map(|one| one.not_before_us).collect()),
        Column::Int(found.iter().map(|one| one.not_after_us).collect()),
        Column::MaybeBlob(found.iter().map(|one| one.spki_sha256.map(Vec::from)).collect()),
        Column::MaybeBlob(found.iter().map(|one| one.sha256.map(Vec::from)).collect()),
        text(|one| &one.source),
        Column::MaybeInt(found.iter().map(|one| one.logged_at_us).collect()),
        Column::Int(found.iter().map(|one| one.found_at_us).collect()),
    ]
}

/// Stores verdicts. A pending issuance accepts any verdict, an unexpected one `expected` or `acknowledged`, and an acknowledged one
/// `expected`; other verdicts are ignored. Returns the ids of the changed issuances.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn judge_ct_issuances(
    tx: &mut Tx,
    verdicts: Vec<(Uuid, CtVerdict, String)>,
) -> Result<Vec<Uuid>, StoreError> {
    let columns = vec![
        Column::Uuid(verdicts.iter().map(|(id, _, _)| *id).collect()),
        Column::Int(verdicts.iter().map(|(_, verdict, _)| verdict.code()).collect()),
        Column::Text(verdicts.iter().map(|(_, _, reason)| storable(reason).into_owned()).collect()),
    ];
    tx.bulk(&JUDGE, columns).await?.into_iter().map(|mut row| row.uuid()).collect()
}

/// Returns known certificates with these names (issued by the CA of this installation, managed, or in the inventory) that did not
/// expire before `ended_us`. For each name, at most the newest 64 of the inventory and the newest 64 managed certificates. Two
/// statements on PostgreSQL.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn ct_known(tx: &mut Tx, names: &[String], ended_us: i64) -> Result<Vec<CtKnownRow>, StoreError> {
    let mut keys: Vec<String> = names.iter().map(|name| reversed(name)).collect();
    keys.sort_unstable();
    keys.dedup();
    let columns = || vec![Column::Text(keys.clone()), Column::Int(vec![ended_us; keys.len()])];
    let mut known = Vec::new();
    for mut row in tx.bulk(&KNOWN, columns()).await? {
        known.push(CtKnownRow { der: row.blob()?, issued: row.flag()?, managed: row.flag()? });
    }
    for mut row in tx.bulk(&MANAGED, columns()).await? {
        known.push(CtKnownRow { der: row.blob()?, issued: false, managed: true });
    }
    known.sort_unstable_by(|a, b| a.der.cmp(&b.der));
    known.dedup();
    Ok(known)
}

/// Returns expected issuances with these names that did not expire before `ended_us`, out of the 64 most recently found per name.
/// One statement on PostgreSQL.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn ct_expected(
    tx: &mut Tx,
    names: &[String],
    ended_us: i64,
) -> Result<Vec<CtIssuanceRow>, StoreError> {
    let mut keys: Vec<String> = names.iter().map(|name| reversed(name)).collect();
    keys.sort_unstable();
    keys.dedup();
    let ended = Column::Int(vec![ended_us; keys.len()]);
    let rows = tx.bulk(&EXPECTED, vec![Column::Text(keys), ended]).await?;
    let mut found: Vec<CtIssuanceRow> =
        rows.into_iter().map(|mut row| issuance_of(&mut row)).collect::<Result<_, _>>()?;
    found.sort_unstable_by_key(|one| one.id);
    found.dedup_by_key(|one| one.id);
    Ok(found)
}

/// Returns an issuance, in the caller's transaction.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn ct_issuance(tx: &mut Tx, id: Uuid) -> Result<Option<CtIssuanceRow>, StoreError> {
    tx.row(ISSUANCE, vec![id.into()]).await?.map(|mut row| issuance_of(&mut row)).transpose()
}

impl Ct<'_> {
    /// Returns an issuance by its id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn issuance(self, id: Uuid) -> Result<Option<CtIssuanceRow>, StoreError> {
        self.0.row(ISSUANCE, vec![id.into()]).await?.map(|mut row| issuance_of(&mut row)).transpose()
    }

    /// Returns the certificate or precertificate of an issuance, if stored.
    ///
    /// # Errors
    /// Database errors.
    pub async fn issuance_der(self, id: Uuid) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.row(ISSUANCE_DER, vec![id.into()]).await?.map(|mut row| row.blob()).transpose()
    }

    /// Returns the domains that an issuance covers and that were watched when it was found.
    ///
    /// # Errors
    /// Database errors.
    pub async fn issuance_domains(self, id: Uuid) -> Result<Vec<String>, StoreError> {
        let rows = self.0.rows(Cost::Point, DOMAINS_OF, vec![id.into()]).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// Returns a page of issuances, the most recently found first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn issuances(
        self,
        filter: &CtFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtIssuanceRow>, StoreError> {
        let mut parameters = key_or(after, "ct-issuances", &[Value::Int(i64::MAX)])?;
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let (statement, values) = list(filter);
        parameters.extend(values);
        let rows = self.0.rows(Cost::Walk, &statement, parameters).await?;
        page(rows, limit, "ct-issuances", |mut row| {
            let issuance = issuance_of(&mut row)?;
            Ok((issuance, vec![row.int()?.into()]))
        })
    }

    /// Returns issuances with this verdict that were found within `found_us`, oldest first, at most [`CT_JUDGED_MAX`] per page.
    /// Each has the watched domain whose rule applies; `None` when none of its domains is watched any longer.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn judgeable_issuances(
        self,
        verdict: CtVerdict,
        found_us: RangeInclusive<i64>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<(CtIssuanceRow, Option<String>)>, StoreError> {
        let mut parameters =
            vec![verdict.code().into(), (*found_us.start()).into(), (*found_us.end()).into()];
        parameters.extend(key_or(after, "ct-judgeable", &[Value::Int(0)])?);
        let (limit, fetch_limit) = limit_of(limit.min(CT_JUDGED_MAX));
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, JUDGEABLE, parameters).await?;
        page(rows, limit, "ct-judgeable", |mut row| {
            let issuance = issuance_of(&mut row)?;
            let key = vec![row.int()?.into()];
            Ok(((issuance, row.maybe_text()?), key))
        })
    }

    /// Deletes at most `limit` issuances that expired before `before_us`; returns their number.
    ///
    /// # Errors
    /// Database errors.
    pub async fn issuances_trim(self, before_us: i64, limit: usize) -> Result<u64, StoreError> {
        let limit = limit_of(limit).0 as i64;
        self.0
            .write("ct_issuances_trim", move |tx| {
                Box::pin(async move {
                    for statement in [TRIM_DERS, TRIM_DOMAINS, TRIM_NAMES] {
                        tx.execute(statement, vec![before_us.into(), limit.into()]).await?;
                    }
                    tx.execute(TRIM, vec![before_us.into(), limit.into()]).await
                })
            })
            .await
    }
}

fn issuance_of(row: &mut Row) -> Result<CtIssuanceRow, StoreError> {
    Ok(CtIssuanceRow {
        id: row.uuid()?,
        issuer_serial: row.hash()?,
        tbs: {
            let tbs = row.blob()?;
            <[u8; 32]>::try_from(tbs).ok()
        },
        issuer: row.text()?,
        serial: row.text()?,
        names: {
            let names = row.text()?;
            serde_json::from_str(&names).map_err(|_| StoreError::Corrupt(format!("names {names:?}")))?
        },
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        spki_sha256: row.maybe_hash()?,
        sha256: row.maybe_hash()?,
        source: row.text()?,
        logged_at_us: row.maybe_int()?,
        found_at_us: row.int()?,
        verdict: row.coded("ct_issuances.verdict")?,
        reason: row.text()?,
    })
}
