//! What the authority has issued: rows beside those of the inventory, and the keys that make issuing idempotent.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::cursor::{Cursor, Page};
use crate::error::StoreError;
use crate::model::NewCertificate;
use crate::record::{reversed, sha256, storable};
use crate::store::{Cost, Store, limit_of};
use crate::tx::{Bulk, Column, Tx};
use crate::value::{Row, Value};

/// A certificate about to be stored as issued.
#[derive(Clone, Debug)]
pub struct NewIssued {
    /// Its id outside, made by the caller.
    pub id: Uuid,
    /// What the inventory knows of it.
    pub certificate: Arc<NewCertificate>,
    /// Which CA signed it.
    pub ca: Uuid,
    /// The content octets of its serial number.
    pub serial: Vec<u8>,
    /// By which profile; empty for those issued without.
    pub profile: String,
    /// Over which protocol.
    pub source: &'static str,
    /// For whom.
    pub requester: String,
    /// When, µs.
    pub issued_at_us: i64,
    /// The CRL that will tell of it: 0 for the CA's one.
    pub shard: u32,
    /// What makes a repeat of the same request answer the same certificate.
    pub once: Option<Once>,
}

/// An idempotency key and what was asked under it, both hashed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Once {
    /// SHA-256 of the key and its scope.
    pub key_sha256: [u8; 32],
    /// SHA-256 of the request.
    pub request_sha256: [u8; 32],
}

/// What became of one [`NewIssued`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Insertion {
    /// Stored.
    New,
    /// The key was used before: nothing was stored.
    Repeated(UsedKey),
    /// Its public key is blocked: nothing was stored.
    Blocked,
}

/// What a key was used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UsedKey {
    /// The certificate issued then.
    pub id: Uuid,
    /// What was asked then, hashed.
    pub request_sha256: [u8; 32],
}

/// An issued certificate as stored, with its revocation.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuedRow {
    /// Its id outside.
    pub id: Uuid,
    /// Which CA signed it.
    pub ca: Uuid,
    /// The content octets of its serial number.
    pub serial: Vec<u8>,
    /// By which profile.
    pub profile: String,
    /// Over which protocol.
    pub source: String,
    /// For whom.
    pub requester: String,
    /// When it was issued, µs.
    pub issued_at_us: i64,
    /// Its CRL.
    pub shard: i64,
    /// SHA-256 of its DER.
    pub sha256: [u8; 32],
    /// The subject, for people.
    pub subject: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// The key's algorithm.
    pub key_algorithm: String,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// The certificate.
    pub der: Vec<u8>,
    /// Set once it is revoked; reason 8 when it was taken off hold again.
    pub revocation: Option<RevocationFacts>,
}

/// That, when and why a certificate was revoked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RevocationFacts {
    /// The date in the CRL, µs.
    pub revoked_at_us: i64,
    /// RFC 5280 section 5.3.1.
    pub reason: i64,
    /// Since when the key is thought to be compromised, µs.
    pub invalidity_at_us: Option<i64>,
}

/// Which certificates to list; all conditions together.
#[derive(Clone, Debug, Default)]
pub struct IssuedFilter {
    /// Of this CA.
    pub ca: Option<Uuid>,
    /// By this profile.
    pub profile: Option<String>,
    /// For this requester.
    pub requester: Option<String>,
    /// Over this protocol.
    pub source: Option<String>,
    /// With a name that is this one or lies below it.
    pub name_suffix: Option<String>,
    /// Issued at this time or later, µs.
    pub issued_from_us: Option<i64>,
    /// Issued before this time, µs.
    pub issued_before_us: Option<i64>,
    /// Ending at this time or later, µs.
    pub ends_from_us: Option<i64>,
}

const BLOCKED: Bulk = Bulk {
    sqlite: "-- blocked_among
SELECT spki_sha256 FROM blocked_keys WHERE spki_sha256 = ?1",
    postgres: "-- blocked_among
SELECT b.spki_sha256 FROM blocked_keys b WHERE b.spki_sha256 = ANY(?1::bytea[])",
};

const KEYS_CLAIM: Bulk = Bulk {
    sqlite: "-- issuance_keys_claim
INSERT INTO issuance_keys (key_sha256, request_sha256, issued_uuid, created_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING RETURNING issued_uuid",
    postgres: "-- issuance_keys_claim
INSERT INTO issuance_keys (key_sha256, request_sha256, issued_uuid, created_at)
SELECT n.* FROM UNNEST(?1::bytea[], ?2::bytea[], ?3::uuid[], ?4::bigint[]) AS n (key, request, id, at) ORDER BY n.key
ON CONFLICT DO NOTHING RETURNING issued_uuid",
};

const KEYS_USED: Bulk = Bulk {
    sqlite: "-- issuance_keys_used
SELECT key_sha256, request_sha256, issued_uuid FROM issuance_keys WHERE key_sha256 = ?1",
    postgres: "-- issuance_keys_used
SELECT key_sha256, request_sha256, issued_uuid FROM issuance_keys WHERE key_sha256 = ANY(?1::bytea[])",
};

const KEY_USED: &str = "-- issuance_key_used
SELECT request_sha256, issued_uuid FROM issuance_keys WHERE key_sha256 = ?1";

/// Lists travel as JSON arrays of hexadecimal texts.
const LOOK_BLOCKED: Bulk = Bulk {
    sqlite: "-- look_blocked
SELECT spki_sha256 FROM blocked_keys WHERE spki_sha256 IN (SELECT unhex(value) FROM json_each(?1))",
    postgres: "-- look_blocked
SELECT spki_sha256 FROM blocked_keys
WHERE spki_sha256 = ANY(ARRAY(SELECT decode(h, 'hex') FROM json_array_elements_text(?1::text::json) AS h))",
};

const LOOK_USED: Bulk = Bulk {
    sqlite: "-- look_used
SELECT key_sha256, request_sha256, issued_uuid FROM issuance_keys
WHERE key_sha256 IN (SELECT unhex(value) FROM json_each(?1))",
    postgres: "-- look_used
SELECT key_sha256, request_sha256, issued_uuid FROM issuance_keys
WHERE key_sha256 = ANY(ARRAY(SELECT decode(h, 'hex') FROM json_array_elements_text(?1::text::json) AS h))",
};

const KEYS_TRIM: &str = "-- issuance_keys_trim
DELETE FROM issuance_keys WHERE created_at < ?1";

/// A row whose issuer is not in `issuers` yet is not stored and not answered.
const CERTIFICATES: Bulk = Bulk {
    sqlite: "-- issued_certificates
INSERT INTO certificates (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits,
                          spki_sha256, first_seen_at, last_seen_at)
SELECT ?1, i.id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10 FROM issuers i WHERE i.name_sha256 = ?2 RETURNING sha256, id",
    postgres: "-- issued_certificates
INSERT INTO certificates (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits,
                          spki_sha256, first_seen_at, last_seen_at)
SELECT n.sha256, i.id, n.subject, n.serial, n.not_before, n.not_after, n.key_algorithm, n.key_bits, n.spki, n.at, n.at
FROM UNNEST(?1::bytea[], ?2::bytea[], ?3::text[], ?4::text[], ?5::bigint[], ?6::bigint[], ?7::text[], ?8::bigint[],
            ?9::bytea[], ?10::bigint[])
     AS n (sha256, issuer, subject, serial, not_before, not_after, key_algorithm, key_bits, spki, at)
JOIN issuers i ON i.name_sha256 = n.issuer ORDER BY n.sha256 RETURNING sha256, id",
};

const ISSUERS: Bulk = Bulk {
    sqlite: "-- issued_issuers
INSERT INTO issuers (name_sha256, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    postgres: "-- issued_issuers
INSERT INTO issuers (name_sha256, name) SELECT n.* FROM UNNEST(?1::bytea[], ?2::text[]) AS n (hash, name)
ORDER BY n.hash ON CONFLICT DO NOTHING",
};

const DERS: Bulk = Bulk {
    sqlite: "-- issued_ders
INSERT INTO certificate_ders (certificate_id, der) VALUES (?1, ?2)",
    postgres: "-- issued_ders
INSERT INTO certificate_ders (certificate_id, der) SELECT * FROM UNNEST(?1::bigint[], ?2::bytea[])",
};

const NAMES: Bulk = Bulk {
    sqlite: "-- issued_names
INSERT INTO certificate_names (certificate_id, position, name, name_reversed) VALUES (?1, ?2, ?3, ?4)",
    postgres: "-- issued_names
INSERT INTO certificate_names (certificate_id, position, name, name_reversed)
SELECT n.id, n.position::int4, n.name, n.reversed
FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::text[], ?4::text[]) AS n (id, position, name, reversed)",
};

const ISSUED: Bulk = Bulk {
    sqlite: "-- issued_insert
INSERT INTO issued (certificate_id, uuid, ca, serial, spki_sha256, profile, source, requester, issued_at, not_after,
                    shard)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    postgres: "-- issued_insert
INSERT INTO issued (certificate_id, uuid, ca, serial, spki_sha256, profile, source, requester, issued_at, not_after,
                    shard)
SELECT * FROM UNNEST(?1::bigint[], ?2::uuid[], ?3::uuid[], ?4::bytea[], ?5::bytea[], ?6::text[], ?7::text[],
                     ?8::text[], ?9::bigint[], ?10::bigint[], ?11::bigint[])",
};

const ISSUERS_COUNT: Bulk = Bulk {
    sqlite: "-- issued_issuers_count
UPDATE issuers SET certificates = certificates + ?2 WHERE name_sha256 = ?1",
    postgres: "-- issued_issuers_count
UPDATE issuers i SET certificates = i.certificates + n.more
FROM UNNEST(?1::bytea[], ?2::bigint[]) AS n (hash, more) WHERE i.name_sha256 = n.hash",
};

const TOTAL: &str = "-- issued_total
INSERT INTO totals (name, value) VALUES ('certificates', ?1)
ON CONFLICT (name) DO UPDATE SET value = totals.value + excluded.value";

macro_rules! columns {
    () => {
        "SELECT i.uuid, i.ca, i.serial, i.profile, i.source, i.requester, i.issued_at, i.shard, c.sha256, c.subject, \
         c.not_before, c.not_after, c.key_algorithm, c.spki_sha256, d.der, r.revoked_at, r.reason, r.invalidity_at, \
         i.certificate_id\n\
         FROM issued i JOIN certificates c ON c.id = i.certificate_id \
         JOIN certificate_ders d ON d.certificate_id = i.certificate_id \
         LEFT JOIN revocations r ON r.certificate_id = i.certificate_id\n"
    };
}

const BY_ID: &str = concat!("-- issued_by_id\n", columns!(), "WHERE i.uuid = ?1");
const BY_SERIAL: &str = concat!("-- issued_by_serial\n", columns!(), "WHERE i.serial = ?1 AND i.ca = ?2");
const BY_SHA256: &str = concat!("-- issued_by_sha256\n", columns!(), "WHERE c.sha256 = ?1");

/// For OCSP: nothing but the status.
const STATUS: &str = "-- issued_status
SELECT r.revoked_at, r.reason, r.invalidity_at
FROM issued i LEFT JOIN revocations r ON r.certificate_id = i.certificate_id WHERE i.serial = ?1 AND i.ca = ?2";

pub(crate) const ALL: &[&str] = &[KEY_USED, KEYS_TRIM, TOTAL, BY_ID, BY_SERIAL, BY_SHA256, STATUS];
pub(crate) const BULKS: &[&Bulk] =
    &[&BLOCKED, &KEYS_CLAIM, &KEYS_USED, &CERTIFICATES, &ISSUERS, &DERS, &NAMES, &ISSUED, &ISSUERS_COUNT];

/// Stores certificates as issued and in the inventory: a constant number of statements on PostgreSQL. Answers what
/// became of each, in order. Their serial numbers and DER are new.
///
/// # Errors
/// Those of the database.
pub async fn insert_issued(tx: &mut Tx, rows: &[NewIssued]) -> Result<Vec<Insertion>, StoreError> {
    let blocked = blocked_among(tx, rows).await?;
    let mut fates: Vec<Insertion> = rows
        .iter()
        .map(|row| match blocked.contains(&row.certificate.spki_sha256) {
            true => Insertion::Blocked,
            false => Insertion::New,
        })
        .collect();
    claim_keys(tx, rows, &mut fates).await?;
    let new: Vec<&NewIssued> =
        rows.iter().zip(&fates).filter(|(_, fate)| **fate == Insertion::New).map(|(row, _)| row).collect();
    if new.is_empty() {
        return Ok(fates);
    }
    let ids = insert_certificates(tx, &new).await?;
    insert_contents(tx, &new, &ids).await?;
    count(tx, &new).await?;
    Ok(fates)
}

async fn blocked_among(tx: &mut Tx, rows: &[NewIssued]) -> Result<HashSet<[u8; 32]>, StoreError> {
    let keys = rows.iter().map(|row| row.certificate.spki_sha256.to_vec()).collect();
    tx.bulk(&BLOCKED, vec![Column::Blob(keys)]).await?.into_iter().map(|mut row| row.hash()).collect()
}

/// Rows whose key somebody else has used, before or at the same time, are repeats.
async fn claim_keys(tx: &mut Tx, rows: &[NewIssued], fates: &mut [Insertion]) -> Result<(), StoreError> {
    let keyed: Vec<(usize, &NewIssued, Once)> = rows
        .iter()
        .enumerate()
        .filter(|(place, _)| fates[*place] == Insertion::New)
        .filter_map(|(place, row)| row.once.map(|once| (place, row, once)))
        .collect();
    if keyed.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Blob(keyed.iter().map(|(_, _, once)| once.key_sha256.to_vec()).collect()),
        Column::Blob(keyed.iter().map(|(_, _, once)| once.request_sha256.to_vec()).collect()),
        Column::Uuid(keyed.iter().map(|(_, row, _)| row.id).collect()),
        Column::Int(keyed.iter().map(|(_, row, _)| row.issued_at_us).collect()),
    ];
    let claimed = tx.bulk(&KEYS_CLAIM, columns).await?;
    let claimed: HashSet<Uuid> = claimed.into_iter().map(|mut row| row.uuid()).collect::<Result<_, _>>()?;
    let lost: Vec<&(usize, &NewIssued, Once)> =
        keyed.iter().filter(|(_, row, _)| !claimed.contains(&row.id)).collect();
    let keys = Column::Blob(lost.iter().map(|(_, _, once)| once.key_sha256.to_vec()).collect());
    let mut used = HashMap::with_capacity(lost.len());
    for mut row in tx.bulk(&KEYS_USED, vec![keys]).await? {
        used.insert(row.hash()?, UsedKey { request_sha256: row.hash()?, id: row.uuid()? });
    }
    for (place, _, once) in lost {
        let before = used.get(&once.key_sha256).copied();
        fates[*place] =
            Insertion::Repeated(before.ok_or_else(|| {
                StoreError::Corrupt("an idempotency key is taken and not there".to_owned())
            })?);
    }
    Ok(())
}

fn issuer_hash(row: &NewIssued) -> [u8; 32] {
    sha256(storable(&row.certificate.issuer).as_bytes())
}

async fn insert_certificates(tx: &mut Tx, new: &[&NewIssued]) -> Result<HashMap<[u8; 32], i64>, StoreError> {
    let mut ids = HashMap::with_capacity(new.len());
    insert_facts(tx, new, &mut ids).await?;
    if ids.len() == new.len() {
        return Ok(ids);
    }
    let missing: Vec<&NewIssued> =
        new.iter().filter(|row| !ids.contains_key(&row.certificate.sha256)).copied().collect();
    let issuers: HashMap<[u8; 32], String> = missing
        .iter()
        .map(|row| (issuer_hash(row), storable(&row.certificate.issuer).into_owned()))
        .collect();
    let (hashes, names) = issuers.into_iter().map(|(hash, name)| (hash.to_vec(), name)).unzip();
    tx.bulk(&ISSUERS, vec![Column::Blob(hashes), Column::Text(names)]).await?;
    insert_facts(tx, &missing, &mut ids).await?;
    if ids.len() == new.len() {
        Ok(ids)
    } else {
        Err(StoreError::Corrupt("a certificate just stored is not there".to_owned()))
    }
}

async fn insert_facts(
    tx: &mut Tx,
    new: &[&NewIssued],
    ids: &mut HashMap<[u8; 32], i64>,
) -> Result<(), StoreError> {
    let all = || new.iter().map(|row| &row.certificate);
    let columns = vec![
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
    ];
    for mut row in tx.bulk(&CERTIFICATES, columns).await? {
        ids.insert(row.hash()?, row.int()?);
    }
    Ok(())
}

async fn insert_contents(
    tx: &mut Tx,
    new: &[&NewIssued],
    ids: &HashMap<[u8; 32], i64>,
) -> Result<(), StoreError> {
    let keys: Vec<i64> =
        new.iter().map(|row| ids.get(&row.certificate.sha256).copied().unwrap_or_default()).collect();
    let ders = new.iter().map(|row| row.certificate.der.to_vec()).collect();
    tx.bulk(&DERS, vec![Column::Int(keys.clone()), Column::Blob(ders)]).await?;
    let (mut owners, mut positions): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut names, mut backwards): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (row, id) in new.iter().zip(&keys) {
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
    let columns = vec![
        Column::Int(keys),
        Column::Uuid(new.iter().map(|row| row.id).collect()),
        Column::Uuid(new.iter().map(|row| row.ca).collect()),
        Column::Blob(new.iter().map(|row| row.serial.clone()).collect()),
        Column::Blob(new.iter().map(|row| row.certificate.spki_sha256.to_vec()).collect()),
        Column::Text(new.iter().map(|row| row.profile.clone()).collect()),
        Column::Text(new.iter().map(|row| row.source.to_owned()).collect()),
        Column::Text(new.iter().map(|row| storable(&row.requester).into_owned()).collect()),
        Column::Int(new.iter().map(|row| row.issued_at_us).collect()),
        Column::Int(new.iter().map(|row| row.certificate.not_after_us).collect()),
        Column::Int(new.iter().map(|row| row.shard.into()).collect()),
    ];
    tx.bulk(&ISSUED, columns).await.map(drop)
}

/// Last, as every issuing transaction moves these rows: they are locked for as short as can be.
async fn count(tx: &mut Tx, new: &[&NewIssued]) -> Result<(), StoreError> {
    let mut issuers: std::collections::BTreeMap<[u8; 32], i64> = std::collections::BTreeMap::new();
    for row in new {
        *issuers.entry(issuer_hash(row)).or_default() += 1;
    }
    let (hashes, counts) = issuers.into_iter().map(|(hash, count)| (hash.to_vec(), count)).unzip();
    tx.bulk(&ISSUERS_COUNT, vec![Column::Blob(hashes), Column::Int(counts)]).await?;
    tx.execute(TOTAL, vec![(new.len() as i64).into()]).await.map(drop)
}

impl Store {
    /// Which of these public keys are blocked, and which of these idempotency keys were used: two statements, whatever
    /// the number; what came after it is seen by [`insert_issued`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issuing_look(
        &self,
        spkis: &[[u8; 32]],
        keys: &[[u8; 32]],
    ) -> Result<(HashSet<[u8; 32]>, HashMap<[u8; 32], UsedKey>), StoreError> {
        let (mut blocked, mut used) = (HashSet::new(), HashMap::new());
        for mut row in self.look(&LOOK_BLOCKED, spkis).await? {
            blocked.insert(row.hash()?);
        }
        for mut row in self.look(&LOOK_USED, keys).await? {
            used.insert(row.hash()?, UsedKey { request_sha256: row.hash()?, id: row.uuid()? });
        }
        Ok((blocked, used))
    }

    async fn look(&self, statement: &Bulk, hashes: &[[u8; 32]]) -> Result<Vec<Row>, StoreError> {
        if hashes.is_empty() {
            return Ok(Vec::new());
        }
        let list: Vec<String> = hashes.iter().map(|hash| crate::record::hex(hash)).collect();
        let text = if self.is_postgres() { statement.postgres } else { statement.sqlite };
        self.rows(Cost::Point, text, vec![serde_json::Value::from(list).to_string().into()]).await
    }

    /// An issued certificate by its id.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issued_by_id(&self, id: Uuid) -> Result<Option<IssuedRow>, StoreError> {
        self.row(BY_ID, vec![id.into()]).await?.map(row_of).transpose()
    }

    /// An issued certificate by its CA and the content octets of its serial number.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issued_by_serial(&self, ca: Uuid, serial: &[u8]) -> Result<Option<IssuedRow>, StoreError> {
        self.row(BY_SERIAL, vec![serial.into(), ca.into()]).await?.map(row_of).transpose()
    }

    /// An issued certificate by its SHA-256.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issued_by_sha256(&self, sha256: &[u8; 32]) -> Result<Option<IssuedRow>, StoreError> {
        self.row(BY_SHA256, vec![(*sha256).into()]).await?.map(row_of).transpose()
    }

    /// Whether a serial number is revoked: `None` when this CA never issued it, `Some(None)` when it is good.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issued_status(
        &self,
        ca: Uuid,
        serial: &[u8],
    ) -> Result<Option<Option<RevocationFacts>>, StoreError> {
        let found = self.row(STATUS, vec![serial.into(), ca.into()]).await?;
        found.map(|mut row| facts_of(&mut row)).transpose()
    }

    /// What an idempotency key was used for.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issuance_key(&self, key_sha256: &[u8; 32]) -> Result<Option<UsedKey>, StoreError> {
        let found = self.row(KEY_USED, vec![(*key_sha256).into()]).await?;
        found.map(|mut row| Ok(UsedKey { request_sha256: row.hash()?, id: row.uuid()? })).transpose()
    }

    /// Forgets idempotency keys used before `before_us`; says how many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issuance_keys_trim(&self, before_us: i64) -> Result<u64, StoreError> {
        self.execute(KEYS_TRIM, vec![before_us.into()]).await
    }

    /// A page of issued certificates, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn issued_page(
        &self,
        filter: &IssuedFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<IssuedRow>, StoreError> {
        let key = after.map(|cursor| cursor.key("issued", &[Value::Int(0), Value::Int(0)])).transpose()?;
        let (limit, asked) = limit_of(limit);
        let (statement, parameters) = page(filter, key, asked);
        let mut found = self.rows(Cost::Walk, &statement, parameters).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let (mut rows, mut last) = (Vec::with_capacity(found.len()), 0);
        for mut row in found {
            let read = take_row(&mut row)?;
            last = row.int()?;
            rows.push(read);
        }
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row: &IssuedRow| Cursor::new("issued", &[row.issued_at_us.into(), last.into()]));
        Ok(Page { rows, next })
    }
}

fn row_of(mut row: Row) -> Result<IssuedRow, StoreError> {
    take_row(&mut row)
}

fn take_row(row: &mut Row) -> Result<IssuedRow, StoreError> {
    Ok(IssuedRow {
        id: row.uuid()?,
        ca: row.uuid()?,
        serial: row.blob()?,
        profile: row.text()?,
        source: row.text()?,
        requester: row.text()?,
        issued_at_us: row.int()?,
        shard: row.int()?,
        sha256: row.hash()?,
        subject: row.text()?,
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        key_algorithm: row.text()?,
        spki_sha256: row.hash()?,
        der: row.blob()?,
        revocation: facts_of(row)?,
    })
}

fn facts_of(row: &mut Row) -> Result<Option<RevocationFacts>, StoreError> {
    let (revoked_at, reason, invalidity_at_us) = (row.maybe_int()?, row.maybe_int()?, row.maybe_int()?);
    Ok(revoked_at.zip(reason).map(|(revoked_at_us, reason)| RevocationFacts {
        revoked_at_us,
        reason,
        invalidity_at_us,
    }))
}

/// The conditions of a filter on `issued i`, as text and parameters; parameters are counted from `first`.
pub(crate) fn conditions(filter: &IssuedFilter, first: usize) -> (Vec<String>, Vec<Value>) {
    let (mut conditions, mut parameters): (Vec<String>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut add = |condition: &str, value: Value| {
        parameters.push(value);
        conditions.push(condition.replace("{}", &format!("?{}", first + parameters.len() - 1)));
    };
    if let Some(ca) = filter.ca {
        add("i.ca = {}", ca.into());
    }
    let texts = [
        ("i.profile = {}", &filter.profile),
        ("i.requester = {}", &filter.requester),
        ("i.source = {}", &filter.source),
    ];
    for (condition, text) in texts {
        if let Some(text) = text {
            add(condition, text.as_str().into());
        }
    }
    let times = [
        ("i.issued_at >= {}", filter.issued_from_us),
        ("i.issued_at < {}", filter.issued_before_us),
        ("i.not_after >= {}", filter.ends_from_us),
    ];
    for (condition, time) in times {
        if let Some(time) = time {
            add(condition, time.into());
        }
    }
    if let Some(suffix) = &filter.name_suffix {
        // The name itself, and what begins with its letters backwards and a dot: '/' follows '.'.
        let name = reversed(suffix.trim_start_matches('.'));
        parameters.extend([name.as_str().into(), format!("{name}.").into(), format!("{name}/").into()]);
        let at = first + parameters.len() - 3;
        conditions.push(format!(
            "i.certificate_id IN (SELECT n.certificate_id FROM certificate_names n WHERE n.name_reversed = ?{at} \
             UNION SELECT n.certificate_id FROM certificate_names n WHERE n.name_reversed >= ?{} \
             AND n.name_reversed < ?{})",
            at + 1,
            at + 2
        ));
    }
    (conditions, parameters)
}

/// A page and its parameters, holding only the conditions asked for.
fn page(filter: &IssuedFilter, after: Option<Vec<Value>>, limit: i64) -> (String, Vec<Value>) {
    let (mut conditions, mut parameters) = conditions(filter, 1);
    if let Some(key) = after {
        let first = parameters.len() + 1;
        conditions.push(format!("(i.issued_at, i.certificate_id) < (?{first}, ?{})", first + 1));
        parameters.extend(key);
    }
    parameters.push(limit.into());
    let condition =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}\n", conditions.join(" AND ")) };
    let statement = format!(
        "-- issued_page\n{}{condition}ORDER BY i.issued_at DESC, i.certificate_id DESC LIMIT ?{}",
        columns!(),
        parameters.len()
    );
    (statement, parameters)
}

/// A filter with every condition, for the tests that prepare statements.
pub(crate) fn full_filter() -> IssuedFilter {
    let some = || Some("a".to_owned());
    IssuedFilter {
        ca: Some(Uuid::nil()),
        profile: some(),
        requester: some(),
        source: some(),
        name_suffix: some(),
        issued_from_us: Some(0),
        issued_before_us: Some(0),
        ends_from_us: Some(0),
    }
}

/// The page in its least and its fullest form, for the test that prepares all statements.
pub(crate) fn composed() -> Vec<String> {
    vec![page(&IssuedFilter::default(), None, 1).0, page(&full_filter(), Some(vec![0.into(), 0.into()]), 1).0]
}
