//! Inserts issued certificates into all tables in one step.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::{IdempotencyHashes, Insertion, NewIssued, UsedIdempotencyKey};
use db::{BulkStatement, Column, StoreError, Tx, reversed, sha256, storable};

const BLOCKED: BulkStatement = db::bulk! { (spki_sha256 bytea)
    "-- blocked_among
SELECT spki_sha256 FROM blocked_keys WHERE spki_sha256 = {any spki_sha256}"
};

const KEYS_CLAIM: BulkStatement = db::bulk! { (key bytea, request bytea, id uuid, at bigint)
    "-- issuance_keys_claim
INSERT INTO issuance_keys (key_sha256, request_sha256, issued_uuid, created_at) VALUES (:key, :request, :id,
  :at){| ORDER BY :key}
ON CONFLICT DO NOTHING RETURNING issued_uuid"
};

const KEYS_USED: BulkStatement = db::bulk! { (key_sha256 bytea)
    "-- issuance_keys_used
SELECT key_sha256, request_sha256, issued_uuid FROM issuance_keys WHERE key_sha256 = {any key_sha256}"
};

/// Inserts certificates. A row whose issuer is not yet in `issuers` is neither stored nor returned.
const CERTIFICATE: &str = "-- issued_certificate
INSERT INTO certificates (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits,
                          spki_sha256, first_seen_at, last_seen_at)
SELECT ?1, i.id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10 FROM issuers i WHERE i.name_sha256 = ?2 RETURNING sha256, id";

/// Inserts certificates into four tables: `certificates`, `certificate_ders`, `certificate_names` and `issued`. The names of a
/// certificate are one text with separators. Like [`CERTIFICATE`], it skips rows without an issuer.
const WHOLE: &str = "-- issued_whole
WITH n AS (
    SELECT * FROM UNNEST(?1::bytea[], ?2::bytea[], ?3::text[], ?4::text[], ?5::bigint[], ?6::bigint[], ?7::text[],
                         ?8::bigint[], ?9::bytea[], ?10::bigint[], ?11::bytea[], ?12::text[], ?13::text[], ?14::uuid[],
                         ?15::uuid[], ?16::bytea[], ?17::text[], ?18::text[], ?19::text[], ?20::bigint[])
         AS u (sha256, issuer, subject, serial_text, not_before, not_after, key_algorithm, key_bits, spki, at, der, names,
               backwards, uuid, ca, serial, profile, source, requester, shard)
), c AS (
    INSERT INTO certificates (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits,
                              spki_sha256, first_seen_at, last_seen_at)
    SELECT n.sha256, i.id, n.subject, n.serial_text, n.not_before, n.not_after, n.key_algorithm, n.key_bits, n.spki, n.at,
           n.at
    FROM n JOIN issuers i ON i.name_sha256 = n.issuer ORDER BY n.sha256 RETURNING sha256, id
), k AS MATERIALIZED (
    SELECT c.id, n.* FROM c JOIN n ON n.sha256 = c.sha256
), d AS (
    INSERT INTO certificate_ders (certificate_id, der) SELECT k.id, k.der FROM k
), m AS (
    INSERT INTO certificate_names (certificate_id, position, name, name_reversed)
    SELECT k.id, (x.place - 1)::int4, x.name, x.backwards
    FROM k, UNNEST(string_to_array(k.names, E'\\x1f'), string_to_array(k.backwards, E'\\x1f')) WITH ORDINALITY
         AS x (name, backwards, place)
), s AS (
    INSERT INTO issued (certificate_id, uuid, ca, serial, spki_sha256, profile, source, requester, issued_at, not_after,
                        shard)
    SELECT k.id, k.uuid, k.ca, k.serial, k.spki, k.profile, k.source, k.requester, k.at, k.not_after, k.shard FROM k
)
SELECT c.sha256, c.id FROM c";

/// Does nothing: with PostgreSQL, [`WHOLE`] inserts the rows of all tables in one statement.
const WITHIN_WHOLE: &str = "-- within_whole
SELECT 1";

const CERTIFICATES: BulkStatement = BulkStatement { sqlite: CERTIFICATE, postgres: WHOLE };
const DERS: BulkStatement = BulkStatement { sqlite: DER, postgres: WITHIN_WHOLE };
const NAMES: BulkStatement = BulkStatement { sqlite: NAME, postgres: WITHIN_WHOLE };
const ISSUED: BulkStatement = BulkStatement { sqlite: ISSUED_ROW, postgres: WITHIN_WHOLE };

/// Separator of names in one text. No name contains it.
const SEPARATOR: char = '\u{1f}';

const ISSUERS: BulkStatement = db::bulk! { (hash bytea, name text)
    "-- issued_issuers
INSERT INTO issuers (name_sha256, name) VALUES (:hash, :name){| ORDER BY :hash} ON CONFLICT DO NOTHING"
};

const DER: &str = "-- issued_der
INSERT INTO certificate_ders (certificate_id, der) VALUES (?1, ?2)";

const NAME: &str = "-- issued_name
INSERT INTO certificate_names (certificate_id, position, name, name_reversed) VALUES (?1, ?2, ?3, ?4)";

const ISSUED_ROW: &str = "-- issued_insert
INSERT INTO issued (certificate_id, uuid, ca, serial, spki_sha256, profile, source, requester, issued_at, not_after,
                    shard)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Updates the counters of the inventory, which every issuing transaction changes. ?2 is the number of certificates of each issuer.
const COUNTS: BulkStatement = BulkStatement {
    sqlite: "-- issued_counts
UPDATE issuers SET certificates = certificates + ?2 WHERE name_sha256 = ?1",
    postgres: "-- issued_counts
WITH n AS (
    SELECT * FROM UNNEST(?1::bytea[], ?2::bigint[]) AS u (hash, more)
), i AS (
    UPDATE issuers i SET certificates = i.certificates + n.more FROM n WHERE i.name_sha256 = n.hash
)
INSERT INTO totals (name, value) SELECT 'certificates', CAST(SUM(n.more) AS BIGINT) FROM n
ON CONFLICT (name) DO UPDATE SET value = totals.value + excluded.value",
};

const TOTAL: &str = "-- issued_total
INSERT INTO totals (name, value) VALUES ('certificates', ?1)
ON CONFLICT (name) DO UPDATE SET value = totals.value + excluded.value";

pub(crate) const ALL: &[&str] = &[TOTAL];
pub(crate) const BULKS: &[&BulkStatement] =
    &[&BLOCKED, &KEYS_CLAIM, &KEYS_USED, &CERTIFICATES, &ISSUERS, &DERS, &NAMES, &ISSUED, &COUNTS];

/// Stores certificates in the tables of issued certificates and of the inventory, in a constant number of statements on PostgreSQL.
/// Returns the result for each row, in order. Serial numbers and DER must be new.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn insert_issued(tx: &mut Tx, rows: &[NewIssued]) -> Result<Vec<Insertion>, StoreError> {
    let blocked = blocked_keys(tx, rows).await?;
    let mut insertions: Vec<Insertion> = rows
        .iter()
        .map(|row| match blocked.contains(&row.certificate.spki_sha256) {
            true => Insertion::Blocked,
            false => Insertion::New,
        })
        .collect();
    claim_idempotency_keys(tx, rows, &mut insertions).await?;
    let new: Vec<&NewIssued> = rows
        .iter()
        .zip(&insertions)
        .filter(|(_, insertion)| **insertion == Insertion::New)
        .map(|(row, _)| row)
        .collect();
    if new.is_empty() {
        return Ok(insertions);
    }
    insert_certificates(tx, &new).await?;
    count(tx, &new).await?;
    Ok(insertions)
}

async fn blocked_keys(tx: &mut Tx, rows: &[NewIssued]) -> Result<HashSet<[u8; 32]>, StoreError> {
    let keys = rows.iter().map(|row| row.certificate.spki_sha256.to_vec()).collect();
    tx.bulk(&BLOCKED, vec![Column::Blob(keys)]).await?.into_iter().map(|mut row| row.hash()).collect()
}

/// Claims the idempotency keys of the rows. A row whose key was used earlier or concurrently is marked as a repeat.
async fn claim_idempotency_keys(
    tx: &mut Tx,
    rows: &[NewIssued],
    insertions: &mut [Insertion],
) -> Result<(), StoreError> {
    let keyed: Vec<(usize, &NewIssued, IdempotencyHashes)> = rows
        .iter()
        .enumerate()
        .filter(|(index, _)| insertions[*index] == Insertion::New)
        .filter_map(|(index, row)| row.idempotency.map(|idempotency| (index, row, idempotency)))
        .collect();
    if keyed.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Blob(keyed.iter().map(|(_, _, idempotency)| idempotency.key_sha256.to_vec()).collect()),
        Column::Blob(keyed.iter().map(|(_, _, idempotency)| idempotency.request_sha256.to_vec()).collect()),
        Column::Uuid(keyed.iter().map(|(_, row, _)| row.id).collect()),
        Column::Int(keyed.iter().map(|(_, row, _)| row.issued_at_us).collect()),
    ];
    let claimed = tx.bulk(&KEYS_CLAIM, columns).await?;
    let claimed: HashSet<Uuid> = claimed.into_iter().map(|mut row| row.uuid()).collect::<Result<_, _>>()?;
    let lost: Vec<&(usize, &NewIssued, IdempotencyHashes)> =
        keyed.iter().filter(|(_, row, _)| !claimed.contains(&row.id)).collect();
    let keys = Column::Blob(lost.iter().map(|(_, _, idempotency)| idempotency.key_sha256.to_vec()).collect());
    let mut used = HashMap::with_capacity(lost.len());
    for mut row in tx.bulk(&KEYS_USED, vec![keys]).await? {
        used.insert(row.hash()?, UsedIdempotencyKey { request_sha256: row.hash()?, id: row.uuid()? });
    }
    for (index, _, idempotency) in lost {
        let before = used.get(&idempotency.key_sha256).copied();
        insertions[*index] = Insertion::Repeated(before.ok_or_else(|| {
            StoreError::Corrupt("an idempotency key exists but its record is missing".to_owned())
        })?);
    }
    Ok(())
}

fn issuer_hash(row: &NewIssued) -> [u8; 32] {
    sha256(storable(&row.certificate.issuer).as_bytes())
}

async fn insert_certificates(tx: &mut Tx, new: &[&NewIssued]) -> Result<(), StoreError> {
    let stored = insert_with_known_issuer(tx, new).await?;
    if stored.len() == new.len() {
        return Ok(());
    }
    let missing: Vec<&NewIssued> =
        new.iter().filter(|row| !stored.contains(&row.certificate.sha256)).copied().collect();
    let issuers: HashMap<[u8; 32], String> = missing
        .iter()
        .map(|row| (issuer_hash(row), storable(&row.certificate.issuer).into_owned()))
        .collect();
    let (hashes, names) = issuers.into_iter().map(|(hash, name)| (hash.to_vec(), name)).unzip();
    tx.bulk(&ISSUERS, vec![Column::Blob(hashes), Column::Text(names)]).await?;
    if insert_with_known_issuer(tx, &missing).await?.len() == missing.len() {
        Ok(())
    } else {
        Err(StoreError::Corrupt("a certificate is missing right after it was stored".to_owned()))
    }
}

/// Inserts all data of the rows whose issuer is known. Returns the SHA-256 hashes of the inserted certificates.
async fn insert_with_known_issuer(tx: &mut Tx, new: &[&NewIssued]) -> Result<HashSet<[u8; 32]>, StoreError> {
    let mut columns = facts(new);
    let whole = tx.is_postgres();
    if whole {
        columns.extend([
            Column::Blob(new.iter().map(|row| row.certificate.der.to_vec()).collect()),
            Column::Text(new.iter().map(|row| joined(row, |name| storable(name).into_owned())).collect()),
            Column::Text(new.iter().map(|row| joined(row, reversed)).collect()),
        ]);
        columns.extend(origin(new));
        columns.push(Column::Int(new.iter().map(|row| row.shard.into()).collect()));
    }
    let mut ids = HashMap::with_capacity(new.len());
    for mut row in tx.bulk(&CERTIFICATES, columns).await? {
        ids.insert(row.hash()?, row.int()?);
    }
    if !whole {
        insert_contents(tx, new, &ids).await?;
    }
    Ok(ids.into_keys().collect())
}

/// Returns all names of a row, transformed by `form` and joined with the separator.
fn joined(row: &NewIssued, form: impl Fn(&str) -> String) -> String {
    let names: Vec<String> =
        row.certificate.names.iter().map(|name| form(&name.replace(SEPARATOR, "\u{fffd}"))).collect();
    names.join("\u{1f}")
}

/// Returns the columns of the table `certificates`.
fn facts(new: &[&NewIssued]) -> Vec<Column> {
    let all = || new.iter().map(|row| &row.certificate);
    vec![
        Column::Blob(all().map(|c| c.sha256.to_vec()).collect()),
        Column::Blob(new.iter().map(|row| issuer_hash(row).to_vec()).collect()),
        Column::Text(all().map(|c| storable(&c.subject).into_owned()).collect()),
        Column::Text(all().map(|c| c.serial.clone()).collect()),
        Column::Int(all().map(|c| c.not_before_us).collect()),
        Column::Int(all().map(|c| c.not_after_us).collect()),
        Column::Text(all().map(|c| c.key_algorithm.clone()).collect()),
        Column::Int(all().map(|c| c.key_bits.into()).collect()),
        Column::Blob(all().map(|c| c.spki_sha256.to_vec()).collect()),
        Column::Int(new.iter().map(|row| row.issued_at_us).collect()),
    ]
}

/// Returns the columns of issuer and requester.
fn origin(new: &[&NewIssued]) -> [Column; 6] {
    [
        Column::Uuid(new.iter().map(|row| row.id).collect()),
        Column::Uuid(new.iter().map(|row| row.ca).collect()),
        Column::Blob(new.iter().map(|row| row.serial.clone()).collect()),
        Column::Text(new.iter().map(|row| row.profile.clone()).collect()),
        Column::Text(new.iter().map(|row| row.source.to_string()).collect()),
        Column::Text(new.iter().map(|row| storable(&row.requester).into_owned()).collect()),
    ]
}

/// Inserts the DER, the names and the issuing data of the stored certificates, on SQLite.
async fn insert_contents(
    tx: &mut Tx,
    new: &[&NewIssued],
    ids: &HashMap<[u8; 32], i64>,
) -> Result<(), StoreError> {
    let stored: Vec<(&NewIssued, i64)> =
        new.iter().filter_map(|row| ids.get(&row.certificate.sha256).map(|id| (*row, *id))).collect();
    let keys = || Column::Int(stored.iter().map(|(_, id)| *id).collect());
    let ders = stored.iter().map(|(row, _)| row.certificate.der.to_vec()).collect();
    tx.bulk(&DERS, vec![keys(), Column::Blob(ders)]).await?;
    let (mut owners, mut positions): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut names, mut backwards): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (row, id) in &stored {
        for (name, position) in row.certificate.names.iter().zip(0..) {
            owners.push(*id);
            positions.push(position);
            names.push(storable(name).into_owned());
            backwards.push(reversed(name));
        }
    }
    let columns =
        vec![Column::Int(owners), Column::Int(positions), Column::Text(names), Column::Text(backwards)];
    tx.bulk(&NAMES, columns).await?;
    let rows: Vec<&NewIssued> = stored.iter().map(|(row, _)| *row).collect();
    let [uuids, cas, serials, profiles, sources, requesters] = origin(&rows);
    let columns = vec![
        keys(),
        uuids,
        cas,
        serials,
        Column::Blob(rows.iter().map(|row| row.certificate.spki_sha256.to_vec()).collect()),
        profiles,
        sources,
        requesters,
        Column::Int(rows.iter().map(|row| row.issued_at_us).collect()),
        Column::Int(rows.iter().map(|row| row.certificate.not_after_us).collect()),
        Column::Int(rows.iter().map(|row| row.shard.into()).collect()),
    ];
    tx.bulk(&ISSUED, columns).await.map(drop)
}

/// Updates the counters. This is the last step, because every issuing transaction locks these rows.
async fn count(tx: &mut Tx, new: &[&NewIssued]) -> Result<(), StoreError> {
    let mut issuers: BTreeMap<[u8; 32], i64> = BTreeMap::new();
    for row in new {
        *issuers.entry(issuer_hash(row)).or_default() += 1;
    }
    let (hashes, counts) = issuers.into_iter().map(|(hash, count)| (hash.to_vec(), count)).unzip();
    tx.bulk(&COUNTS, vec![Column::Blob(hashes), Column::Int(counts)]).await?;
    if !tx.is_postgres() {
        tx.execute(TOTAL, vec![(new.len() as i64).into()]).await?;
    }
    Ok(())
}
