//! Stores a batch in one transaction. The number of statements does not depend on the batch size.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use crate::inventory::key::stored_key;
use crate::inventory::model::{ChangeKind, EndpointKey, NewCertificate, NewObservation, Recorded};
use crate::inventory::recording::postgres_statements as write;
use crate::inventory::recording::tally::{CertificateRef, Current, Tally, chain_sha256, change};
use crate::inventory::statements::SCAN_ID;
use db::postgres::Parameter;
use db::{Row, StoreError, Tx, reversed, sha256, storable};

type Hash = [u8; 32];

pub(super) async fn record(
    tx: &mut Tx,
    scan: Uuid,
    batch: &[NewObservation],
) -> Result<Recorded, StoreError> {
    let found = tx.query(SCAN_ID, &[&scan]).await?.into_iter().next();
    let scan_id = found.ok_or(StoreError::UnknownScan(scan))?.int()?;
    let mut tally = Tally::default();
    let mut rows = distinct(batch, &mut tally);
    find_endpoints(tx, scan_id, &mut rows).await?;
    remove_observed_rows(tx, scan_id, &mut rows, &mut tally).await?;
    if !rows.is_empty() {
        let certificates = store_certificates(tx, &rows, &mut tally).await?;
        let chains = store_chains(tx, &rows, &certificates).await?;
        for row in &mut rows {
            row.leaf = row.seen.chain.first().and_then(|leaf| certificates.get(&leaf.sha256)).copied();
            row.chain = row.chain_sha256.and_then(|hash| chains.get(&hash)).copied();
            row.change = change(row.current.as_ref(), row.seen, row.leaf.map(|leaf| leaf.id));
            tally.observed(row.current.as_ref(), row.seen, row.leaf, row.change);
        }
        insert_observations(tx, scan_id, &rows).await?;
        update_endpoints(tx, scan_id, &rows).await?;
    }
    store_counts(tx, scan_id, &tally).await?;
    Ok(tally.recorded)
}

/// An observation to store, with the state of its endpoint.
struct Incoming<'b> {
    seen: &'b NewObservation,
    key: EndpointKey,
    chain_sha256: Option<Hash>,
    endpoint: i64,
    /// The endpoint's row before the batch. `None` for a new endpoint.
    current: Option<Current>,
    leaf: Option<CertificateRef>,
    chain: Option<i64>,
    change: Option<ChangeKind>,
}

/// Returns the first observation of each endpoint.
fn distinct<'b>(batch: &'b [NewObservation], tally: &mut Tally) -> Vec<Incoming<'b>> {
    let mut unique = HashSet::with_capacity(batch.len());
    let mut rows = Vec::with_capacity(batch.len());
    for seen in batch {
        let key = stored_key(&seen.endpoint);
        if !unique.insert(key.clone()) {
            tally.duplicate();
            continue;
        }
        let chain_sha256 = (!seen.chain.is_empty()).then(|| chain_sha256(&seen.chain));
        rows.push(Incoming {
            seen,
            key,
            chain_sha256,
            endpoint: 0,
            current: None,
            leaf: None,
            chain: None,
            change: None,
        });
    }
    rows
}

/// Endpoint keys as columns.
#[derive(Default)]
struct Keys<'k> {
    hosts: Vec<&'k str>,
    ports: Vec<i32>,
    protocols: Vec<&'k str>,
    server_names: Vec<&'k str>,
    addresses: Vec<&'k str>,
}

impl<'k> FromIterator<&'k EndpointKey> for Keys<'k> {
    fn from_iter<I: IntoIterator<Item = &'k EndpointKey>>(keys: I) -> Self {
        let mut columns = Self::default();
        for key in keys {
            columns.hosts.push(&key.host);
            columns.ports.push(key.port.into());
            columns.protocols.push(&key.protocol);
            columns.server_names.push(&key.server_name);
            columns.addresses.push(&key.address);
        }
        columns
    }
}

impl Keys<'_> {
    fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![&self.hosts, &self.ports, &self.protocols, &self.server_names, &self.addresses]
    }
}

/// Inserts missing endpoints, locks all of them, and reads their current state.
async fn find_endpoints(tx: &mut Tx, scan_id: i64, rows: &mut [Incoming<'_>]) -> Result<(), StoreError> {
    let keys: Keys<'_> = rows.iter().map(|row| &row.key).collect();
    let missing = tx.query(write::ENDPOINTS_MISSING, &keys.parameters()).await?;
    let missing: Vec<usize> =
        missing.into_iter().map(|mut row| row_index(&mut row, rows.len())).collect::<Result<_, _>>()?;
    let mut made = HashSet::new();
    if !missing.is_empty() {
        let new: Keys<'_> = missing.iter().map(|row_index| &rows[*row_index].key).collect();
        let times: Vec<i64> = missing.iter().map(|row_index| rows[*row_index].seen.observed_at_us).collect();
        let mut parameters = new.parameters();
        parameters.extend([&times as Parameter<'_>, &scan_id]);
        let inserted = tx.query(write::ENDPOINTS_INSERT, &parameters).await?;
        made = inserted.into_iter().map(|mut row| row.int()).collect::<Result<_, _>>()?;
    }
    let locked = tx.query(write::ENDPOINTS_LOCK, &keys.parameters()).await?;
    if locked.len() != rows.len() {
        return Err(StoreError::Corrupt(format!("{} endpoints for {} keys", locked.len(), rows.len())));
    }
    for mut found in locked {
        let row_index = row_index(&mut found, rows.len())?;
        let row = &mut rows[row_index];
        row.endpoint = found.int()?;
        row.current = if made.contains(&row.endpoint) {
            None
        } else {
            Some(Current {
                id: row.endpoint,
                answering: found.flag()?,
                outcome: found.named("endpoints.outcome")?,
                severity: found.maybe_coded("endpoints.severity")?,
                leaf: found.maybe_int()?,
                issuer: found.maybe_int()?,
                last_observed_at: found.int()?,
            })
        };
    }
    Ok(())
}

/// Reads a 1-based position from the next column. Returns it as a 0-based index below `len`.
fn row_index(row: &mut Row, len: usize) -> Result<usize, StoreError> {
    let row_index = usize::try_from(row.int()? - 1).ok().filter(|row_index| *row_index < len);
    row_index.ok_or_else(|| StoreError::Corrupt("a place out of range".to_owned()))
}

async fn remove_observed_rows(
    tx: &mut Tx,
    scan_id: i64,
    rows: &mut Vec<Incoming<'_>>,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let known: Vec<i64> = rows.iter().filter(|row| row.current.is_some()).map(|row| row.endpoint).collect();
    if known.is_empty() {
        return Ok(());
    }
    let observed = tx.query(write::OBSERVED_ALREADY, &[&scan_id, &known]).await?;
    let observed: HashSet<i64> = observed.into_iter().map(|mut row| row.int()).collect::<Result<_, _>>()?;
    rows.retain(|row| {
        let fresh = !observed.contains(&row.endpoint);
        if !fresh {
            tally.duplicate();
        }
        fresh
    });
    Ok(())
}

/// Certificates of the batch, with the time at which the batch first saw each.
type FirstSeen<'b> = BTreeMap<Hash, (&'b NewCertificate, i64)>;

async fn store_certificates(
    tx: &mut Tx,
    rows: &[Incoming<'_>],
    tally: &mut Tally,
) -> Result<HashMap<Hash, CertificateRef>, StoreError> {
    let mut unique: FirstSeen<'_> = BTreeMap::new();
    for row in rows {
        for certificate in &row.seen.chain {
            let first = unique.entry(certificate.sha256).or_insert((certificate, row.seen.observed_at_us));
            first.1 = first.1.min(row.seen.observed_at_us);
        }
    }
    let mut known = HashMap::with_capacity(unique.len());
    find_certificates(tx, unique.keys(), &mut known).await?;
    let missing: FirstSeen<'_> = unique.into_iter().filter(|(hash, _)| !known.contains_key(hash)).collect();
    if !missing.is_empty() {
        let made = insert_certificates(tx, &missing).await?;
        for stored in made.values() {
            tally.count_new_certificate(stored.issuer);
        }
        insert_contents(tx, &missing, &made).await?;
        known.extend(made);
        // Certificates that another writer stored concurrently.
        let concurrent: Vec<&Hash> = missing.keys().filter(|hash| !known.contains_key(*hash)).collect();
        find_certificates(tx, concurrent.into_iter(), &mut known).await?;
    }
    for row in rows {
        for certificate in &row.seen.chain {
            let stored = known.get(&certificate.sha256).ok_or_else(|| {
                StoreError::Corrupt("a certificate that was just stored is missing".to_owned())
            })?;
            tally.certificate_seen(stored.id, row.seen.observed_at_us);
        }
    }
    Ok(known)
}

async fn find_certificates(
    tx: &mut Tx,
    hashes: impl Iterator<Item = &Hash>,
    known: &mut HashMap<Hash, CertificateRef>,
) -> Result<(), StoreError> {
    let hashes: Vec<&[u8]> = hashes.map(<[u8; 32]>::as_slice).collect();
    if hashes.is_empty() {
        return Ok(());
    }
    for mut row in tx.query(write::CERTIFICATES_FIND, &[&hashes]).await? {
        known.insert(row.hash()?, CertificateRef { id: row.int()?, issuer: row.int()? });
    }
    Ok(())
}

async fn insert_certificates(
    tx: &mut Tx,
    missing: &FirstSeen<'_>,
) -> Result<HashMap<Hash, CertificateRef>, StoreError> {
    let issuers = store_issuers(tx, missing).await?;
    let new = || missing.values().map(|(certificate, _)| *certificate);
    let hashes: Vec<&[u8]> = new().map(|c| c.sha256.as_slice()).collect();
    let issuer_ids: Vec<Option<i64>> =
        new().map(|c| issuers.get(&sha256(storable(&c.issuer).as_bytes())).copied()).collect();
    let subjects: Vec<Cow<'_, str>> = new().map(|c| storable(&c.subject)).collect();
    let serials: Vec<Cow<'_, str>> = new().map(|c| storable(&c.serial)).collect();
    let not_before: Vec<i64> = new().map(|c| c.not_before_us).collect();
    let not_after: Vec<i64> = new().map(|c| c.not_after_us).collect();
    let algorithms: Vec<Cow<'_, str>> = new().map(|c| storable(&c.key_algorithm)).collect();
    let bits: Vec<i64> = new().map(|c| c.key_bits.into()).collect();
    let keys: Vec<&[u8]> = new().map(|c| c.spki_sha256.as_slice()).collect();
    let seen: Vec<i64> = missing.values().map(|(_, at)| *at).collect();
    let parameters: [Parameter<'_>; 10] = [
        &hashes,
        &issuer_ids,
        &subjects,
        &serials,
        &not_before,
        &not_after,
        &algorithms,
        &bits,
        &keys,
        &seen,
    ];
    let mut made = HashMap::with_capacity(missing.len());
    for mut row in tx.query(write::CERTIFICATES_INSERT, &parameters).await? {
        made.insert(row.hash()?, CertificateRef { id: row.int()?, issuer: row.int()? });
    }
    Ok(made)
}

async fn store_issuers(tx: &mut Tx, missing: &FirstSeen<'_>) -> Result<HashMap<Hash, i64>, StoreError> {
    let names: BTreeMap<Hash, Cow<'_, str>> = missing
        .values()
        .map(|(certificate, _)| {
            let name = storable(&certificate.issuer);
            (sha256(name.as_bytes()), name)
        })
        .collect();
    let mut known = HashMap::with_capacity(names.len());
    // The second attempt finds the rows that this or another writer has just inserted.
    for attempt in 0..2 {
        let wanted: Vec<&[u8]> =
            names.keys().filter(|hash| !known.contains_key(*hash)).map(|h| &h[..]).collect();
        if wanted.is_empty() {
            break;
        }
        for mut row in tx.query(write::ISSUERS_FIND, &[&wanted]).await? {
            known.insert(row.hash()?, row.int()?);
        }
        let missing: Vec<(&Hash, &Cow<'_, str>)> =
            names.iter().filter(|(hash, _)| !known.contains_key(*hash)).collect();
        if attempt == 0 && !missing.is_empty() {
            let hashes: Vec<&[u8]> = missing.iter().map(|(hash, _)| &hash[..]).collect();
            let texts: Vec<&str> = missing.iter().map(|(_, name)| name.as_ref()).collect();
            tx.query(write::ISSUERS_INSERT, &[&hashes, &texts]).await?;
        }
    }
    Ok(known)
}

/// Inserts the DER and the names of the new certificates.
async fn insert_contents(
    tx: &mut Tx,
    missing: &FirstSeen<'_>,
    made: &HashMap<Hash, CertificateRef>,
) -> Result<(), StoreError> {
    let (mut ids, mut ders): (Vec<i64>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    let (mut owners, mut positions): (Vec<i64>, Vec<i32>) = (Vec::new(), Vec::new());
    let (mut names, mut backwards): (Vec<Cow<'_, str>>, Vec<String>) = (Vec::new(), Vec::new());
    for (hash, (certificate, _)) in missing {
        let Some(stored) = made.get(hash) else { continue };
        ids.push(stored.id);
        ders.push(&certificate.der);
        for (position, name) in certificate.names.iter().enumerate() {
            owners.push(stored.id);
            positions.push(i32::try_from(position).unwrap_or(i32::MAX));
            names.push(storable(name));
            backwards.push(reversed(name));
        }
    }
    tx.query(write::CERTIFICATE_DERS_INSERT, &[&ids, &ders]).await?;
    tx.query(write::CERTIFICATE_NAMES_INSERT, &[&owners, &positions, &names, &backwards]).await.map(drop)
}

async fn store_chains(
    tx: &mut Tx,
    rows: &[Incoming<'_>],
    certificates: &HashMap<Hash, CertificateRef>,
) -> Result<HashMap<Hash, i64>, StoreError> {
    let unique: BTreeMap<Hash, &NewObservation> =
        rows.iter().filter_map(|row| row.chain_sha256.map(|hash| (hash, row.seen))).collect();
    let mut known: HashMap<Hash, i64> = HashMap::with_capacity(unique.len());
    find_chains(tx, unique.keys().map(|hash| &hash[..]).collect(), &mut known).await?;
    let missing: Vec<&[u8]> =
        unique.keys().filter(|hash| !known.contains_key(*hash)).map(|h| &h[..]).collect();
    if missing.is_empty() {
        return Ok(known);
    }
    let (mut chains, mut positions, mut members): (Vec<i64>, Vec<i32>, Vec<i64>) = Default::default();
    for mut row in tx.query(write::CHAINS_INSERT, &[&missing]).await? {
        let (hash, id) = (row.hash()?, row.int()?);
        known.insert(hash, id);
        let Some(seen) = unique.get(&hash) else { continue };
        for (position, certificate) in seen.chain.iter().enumerate() {
            let Some(member) = certificates.get(&certificate.sha256) else { continue };
            chains.push(id);
            positions.push(i32::try_from(position).unwrap_or(i32::MAX));
            members.push(member.id);
        }
    }
    tx.query(write::CHAIN_MEMBERS_INSERT, &[&chains, &positions, &members]).await?;
    let concurrent: Vec<&[u8]> =
        unique.keys().filter(|hash| !known.contains_key(*hash)).map(|h| &h[..]).collect();
    find_chains(tx, concurrent, &mut known).await?;
    Ok(known)
}

async fn find_chains(
    tx: &mut Tx,
    hashes: Vec<&[u8]>,
    known: &mut HashMap<Hash, i64>,
) -> Result<(), StoreError> {
    if !hashes.is_empty() {
        for mut row in tx.query(write::CHAINS_FIND, &[&hashes]).await? {
            known.insert(row.hash()?, row.int()?);
        }
    }
    Ok(())
}

async fn insert_observations(tx: &mut Tx, scan_id: i64, rows: &[Incoming<'_>]) -> Result<(), StoreError> {
    let seen = || rows.iter().map(|row| row.seen);
    let before = || rows.iter().map(|row| row.current.as_ref().filter(|_| row.change.is_some()));
    let endpoints: Vec<i64> = rows.iter().map(|row| row.endpoint).collect();
    let times: Vec<i64> = seen().map(|seen| seen.observed_at_us).collect();
    let outcomes: Vec<&str> = seen().map(|seen| seen.outcome.name()).collect();
    let answered: Vec<bool> = seen().map(|seen| seen.answered).collect();
    let addresses: Vec<Option<String>> =
        seen().map(|seen| seen.address.map(|address| address.to_string())).collect();
    let versions: Vec<Option<i32>> = seen().map(|seen| seen.tls_version.map(i32::from)).collect();
    let suites: Vec<Option<i32>> = seen().map(|seen| seen.cipher_suite.map(i32::from)).collect();
    let leaves: Vec<Option<i64>> = rows.iter().map(|row| row.leaf.map(|leaf| leaf.id)).collect();
    let chains: Vec<Option<i64>> = rows.iter().map(|row| row.chain).collect();
    let trusts: Vec<Cow<'_, str>> = seen().map(|seen| storable(&seen.trust)).collect();
    let severities: Vec<Option<i16>> =
        seen().map(|seen| seen.severity.map(|severity| severity as i16)).collect();
    let findings: Vec<Cow<'_, str>> = seen().map(|seen| storable(&seen.findings)).collect();
    let details: Vec<Cow<'_, str>> = seen().map(|seen| storable(&seen.detail)).collect();
    let kinds: Vec<i16> = rows.iter().map(|row| row.change.map_or(0, |kind| kind.code() as i16)).collect();
    let leaves_before: Vec<Option<i64>> =
        before().map(|before| before.and_then(|before| before.leaf)).collect();
    let outcomes_before: Vec<Option<&str>> =
        before().map(|before| before.map(|b| b.outcome.name())).collect();
    let parameters: [Parameter<'_>; 17] = [
        &scan_id,
        &endpoints,
        &times,
        &outcomes,
        &answered,
        &addresses,
        &versions,
        &suites,
        &leaves,
        &chains,
        &trusts,
        &severities,
        &findings,
        &details,
        &kinds,
        &leaves_before,
        &outcomes_before,
    ];
    tx.query(write::OBSERVATIONS_INSERT, &parameters).await.map(drop)
}

/// Updates the current state of endpoints, unless the observation is older than that state.
async fn update_endpoints(tx: &mut Tx, scan_id: i64, rows: &[Incoming<'_>]) -> Result<(), StoreError> {
    let moved: Vec<&Incoming<'_>> = rows
        .iter()
        .filter(|row| {
            row.current.as_ref().is_none_or(|current| row.seen.observed_at_us >= current.last_observed_at)
        })
        .collect();
    if moved.is_empty() {
        return Ok(());
    }
    let at = |row: &Incoming<'_>| row.seen.observed_at_us;
    let ids: Vec<i64> = moved.iter().map(|row| row.endpoint).collect();
    let times: Vec<i64> = moved.iter().map(|row| at(row)).collect();
    let answered: Vec<Option<i64>> = moved.iter().map(|row| row.seen.answered.then_some(at(row))).collect();
    let changed: Vec<Option<i64>> = moved.iter().map(|row| row.change.map(|_| at(row))).collect();
    let outcomes: Vec<&str> = moved.iter().map(|row| row.seen.outcome.name()).collect();
    let severities: Vec<Option<i16>> =
        moved.iter().map(|row| row.seen.severity.map(|severity| severity as i16)).collect();
    let leaves: Vec<Option<i64>> = moved.iter().map(|row| row.leaf.map(|leaf| leaf.id)).collect();
    let issuers: Vec<Option<i64>> = moved.iter().map(|row| row.leaf.map(|leaf| leaf.issuer)).collect();
    let not_after: Vec<Option<i64>> =
        moved.iter().map(|row| row.seen.chain.first().map(|leaf| leaf.not_after_us)).collect();
    let chains: Vec<Option<i64>> = moved.iter().map(|row| row.chain).collect();
    let parameters: [Parameter<'_>; 11] = [
        &scan_id,
        &ids,
        &times,
        &answered,
        &changed,
        &outcomes,
        &severities,
        &leaves,
        &issuers,
        &not_after,
        &chains,
    ];
    tx.query(write::ENDPOINTS_OBSERVED, &parameters).await.map(drop)
}

async fn store_counts(tx: &mut Tx, scan_id: i64, tally: &Tally) -> Result<(), StoreError> {
    if tally.recorded.inserted == 0 {
        return Ok(());
    }
    if !tally.seen.is_empty() {
        let ids: Vec<i64> = tally.seen.keys().copied().collect();
        let (first, last): (Vec<i64>, Vec<i64>) = tally.seen.values().copied().unzip();
        tx.query(write::CERTIFICATES_SEEN, &[&ids, &first, &last]).await?;
    }
    let moved = || tally.issuers.iter().filter(|(_, by)| **by != (0, 0));
    if moved().next().is_some() {
        let ids: Vec<i64> = moved().map(|(id, _)| *id).collect();
        let (certificates, endpoints): (Vec<i64>, Vec<i64>) = moved().map(|(_, by)| *by).unzip();
        tx.query(write::ISSUERS_COUNT, &[&ids, &certificates, &endpoints]).await?;
    }
    let (names, by): (Vec<String>, Vec<i64>) = tally.totals().into_iter().unzip();
    tx.query(write::TOTALS_ADD, &[&names, &by]).await?;
    let Recorded { inserted, new_certificates, changed, .. } = tally.recorded;
    let counts = [inserted, changed, new_certificates].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    tx.query(write::SCAN_COUNTS, &[&scan_id, &counts[0], &tally.answered, &counts[1], &counts[2]])
        .await
        .map(drop)
}
