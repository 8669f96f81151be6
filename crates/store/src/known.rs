//! Certificates that no scan has seen and this installation did not issue, such as the certificates of imported CAs.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::inventory::model::NewCertificate;
use db::{BulkStatement, Column, StoreError, Tx, reversed, sha256, storable};

const KNOWN: BulkStatement = db::bulk! { (sha256 bytea)
    "-- known_among
SELECT sha256 FROM certificates WHERE sha256 = {any sha256}"
};

const ISSUERS: BulkStatement = db::bulk! { (hash bytea, name text)
    "-- known_issuers
INSERT INTO issuers (name_sha256, name) VALUES (:hash, :name){| ORDER BY :hash} ON CONFLICT DO NOTHING"
};

const CERTIFICATES: BulkStatement = db::bulk! {
    (sha256 bytea, issuer bytea, subject text, serial text, not_before bigint, not_after bigint,
     key_algorithm text, key_bits bigint, spki bytea, at bigint)
    "-- known_certificates
INSERT INTO certificates (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits,
                          spki_sha256, first_seen_at, last_seen_at)
SELECT :sha256, i.id, :subject, :serial, :not_before, :not_after, :key_algorithm, :key_bits, :spki, :at, :at FROM
  issuers i WHERE i.name_sha256 = :issuer{| ORDER BY :sha256}
ON CONFLICT DO NOTHING RETURNING sha256, id"
};

const DERS: BulkStatement = db::bulk! { (certificate_id bigint, der bytea)
    "-- known_ders
INSERT INTO certificate_ders (certificate_id, der) VALUES (:certificate_id, :der)"
};

const NAMES: BulkStatement = db::bulk! { (id bigint, position bigint, name text, reversed text)
    "-- known_names
INSERT INTO certificate_names (certificate_id, position, name, name_reversed) VALUES (:id, :position, :name, :reversed)"
};

const ISSUERS_COUNT: BulkStatement = db::bulk! { (hash bytea, more bigint)
    "-- known_issuers_count
UPDATE issuers SET certificates = certificates + :more WHERE name_sha256 = :hash"
};

const TOTAL: &str = "-- known_total
INSERT INTO totals (name, value) VALUES ('certificates', ?1)
ON CONFLICT (name) DO UPDATE SET value = totals.value + excluded.value";

pub(crate) const ALL: &[&str] = &[TOTAL];
pub(crate) const BULKS: &[&BulkStatement] = &[&KNOWN, &ISSUERS, &CERTIFICATES, &DERS, &NAMES, &ISSUERS_COUNT];

/// Adds missing certificates to the inventory. At most seven statements on PostgreSQL.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_known_certificates(
    tx: &mut Tx,
    certificates: &[NewCertificate],
    at_us: i64,
) -> Result<(), StoreError> {
    let hashes = certificates.iter().map(|c| c.sha256.to_vec()).collect();
    let known = tx.bulk(&KNOWN, vec![Column::Blob(hashes)]).await?;
    let mut known: HashSet<[u8; 32]> =
        known.into_iter().map(|mut row| row.hash()).collect::<Result<_, _>>()?;
    let new: Vec<&NewCertificate> = certificates.iter().filter(|c| known.insert(c.sha256)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let issuers: BTreeMap<[u8; 32], String> =
        new.iter().map(|c| (issuer_hash(c), storable(&c.issuer).into_owned())).collect();
    let (hashes, names) = issuers.into_iter().map(|(hash, name)| (hash.to_vec(), name)).unzip();
    tx.bulk(&ISSUERS, vec![Column::Blob(hashes), Column::Text(names)]).await?;
    let ids = insert_facts(tx, &new, at_us).await?;
    // If another transaction stored a certificate first, that transaction also stores the certificate's other data.
    let stored: Vec<(&NewCertificate, i64)> =
        new.iter().filter_map(|c| ids.get(&c.sha256).map(|id| (*c, *id))).collect();
    insert_contents(tx, &stored).await?;
    count(tx, &stored).await
}

async fn insert_facts(
    tx: &mut Tx,
    new: &[&NewCertificate],
    at_us: i64,
) -> Result<HashMap<[u8; 32], i64>, StoreError> {
    let columns = vec![
        Column::Blob(new.iter().map(|c| c.sha256.to_vec()).collect()),
        Column::Blob(new.iter().map(|c| issuer_hash(c).to_vec()).collect()),
        Column::Text(new.iter().map(|c| storable(&c.subject).into_owned()).collect()),
        Column::Text(new.iter().map(|c| c.serial.clone()).collect()),
        Column::Int(new.iter().map(|c| c.not_before_us).collect()),
        Column::Int(new.iter().map(|c| c.not_after_us).collect()),
        Column::Text(new.iter().map(|c| c.key_algorithm.clone()).collect()),
        Column::Int(new.iter().map(|c| c.key_bits.into()).collect()),
        Column::Blob(new.iter().map(|c| c.spki_sha256.to_vec()).collect()),
        Column::Int(vec![at_us; new.len()]),
    ];
    let rows = tx.bulk(&CERTIFICATES, columns).await?;
    rows.into_iter().map(|mut row| Ok((row.hash()?, row.int()?))).collect()
}

async fn insert_contents(tx: &mut Tx, stored: &[(&NewCertificate, i64)]) -> Result<(), StoreError> {
    let ids = stored.iter().map(|(_, id)| *id).collect();
    let ders = stored.iter().map(|(c, _)| c.der.to_vec()).collect();
    tx.bulk(&DERS, vec![Column::Int(ids), Column::Blob(ders)]).await?;
    let (mut owners, mut positions): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut names, mut backwards): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (certificate, id) in stored {
        for (name, position) in certificate.names.iter().zip(0..) {
            owners.push(*id);
            positions.push(position);
            names.push(storable(name).into_owned());
            backwards.push(reversed(name));
        }
    }
    let columns =
        vec![Column::Int(owners), Column::Int(positions), Column::Text(names), Column::Text(backwards)];
    tx.bulk(&NAMES, columns).await.map(drop)
}

async fn count(tx: &mut Tx, stored: &[(&NewCertificate, i64)]) -> Result<(), StoreError> {
    let mut issuers: BTreeMap<[u8; 32], i64> = BTreeMap::new();
    for (certificate, _) in stored {
        *issuers.entry(issuer_hash(certificate)).or_default() += 1;
    }
    let (hashes, counts) = issuers.into_iter().map(|(hash, count)| (hash.to_vec(), count)).unzip();
    tx.bulk(&ISSUERS_COUNT, vec![Column::Blob(hashes), Column::Int(counts)]).await?;
    tx.execute(TOTAL, vec![(stored.len() as i64).into()]).await.map(drop)
}

fn issuer_hash(certificate: &NewCertificate) -> [u8; 32] {
    sha256(storable(&certificate.issuer).as_bytes())
}
