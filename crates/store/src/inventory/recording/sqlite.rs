//! Stores a batch in one transaction, with cached one-row statements.

use uuid::Uuid;
use x509::Severity;

use crate::inventory::key::stored_key;
use crate::inventory::model::{EndpointKey, NewCertificate, NewObservation, Recorded};
use crate::inventory::recording::sqlite_statements as sql;
use crate::inventory::recording::tally::{
    CertificateRef, Current, NO_CERTIFICATE_US, RowIdCache, Tally, chain_sha256, change,
};
use crate::inventory::statements::SCAN_ID;
use db::{SqliteTransaction, StoreError, reversed, sha256, storable};

/// Stores `batch`. Returns the counts and the newly known ids, which are valid once the transaction is committed.
pub(super) fn record(
    transaction: &SqliteTransaction<'_>,
    known: &RowIdCache,
    scan: Uuid,
    batch: &[NewObservation],
) -> Result<(Recorded, RowIdCache), StoreError> {
    let found = transaction.find(SCAN_ID, &[&scan.as_bytes()])?;
    let scan_id = found.ok_or(StoreError::UnknownScan(scan))?.int()?;
    let mut batch_writer =
        Batch { db: transaction, known, new_ids: RowIdCache::default(), tally: Tally::default(), scan_id };
    for observation in batch {
        batch_writer.observation(observation)?;
    }
    batch_writer.counts()?;
    Ok((batch_writer.tally.recorded, batch_writer.new_ids))
}

struct Batch<'a> {
    db: &'a SqliteTransaction<'a>,
    known: &'a RowIdCache,
    new_ids: RowIdCache,
    tally: Tally,
    scan_id: i64,
}

impl Batch<'_> {
    fn observation(&mut self, seen: &NewObservation) -> Result<(), StoreError> {
        let key = stored_key(&seen.endpoint);
        let current = self.current(&key)?;
        if let Some(current) = &current
            && self.db.find(sql::OBSERVED_ALREADY, &[&self.scan_id, &current.id])?.is_some()
        {
            self.tally.duplicate();
            return Ok(());
        }
        let leaf = self.insert_chain_certificates(seen)?;
        let chain = if seen.chain.is_empty() { None } else { Some(self.chain(seen)?) };
        let change = change(current.as_ref(), seen, leaf.map(|leaf| leaf.id));
        let endpoint = self.endpoint(&key, current.as_ref(), seen, leaf, chain, change.is_some())?;
        let before = current.as_ref().filter(|_| change.is_some());
        self.db.run(
            sql::OBSERVATION_INSERT,
            &[
                &self.scan_id,
                &endpoint,
                &seen.observed_at_us,
                &seen.outcome.name(),
                &seen.answered,
                &seen.address.map(|address| address.to_string()),
                &seen.tls_version,
                &seen.cipher_suite,
                &leaf.map(|leaf| leaf.id),
                &chain,
                &storable(&seen.trust),
                &seen.severity.map(Severity::code),
                &storable(&seen.findings),
                &storable(&seen.detail),
                &change.map_or(0, |kind| kind.code()),
                &before.and_then(|before| before.leaf),
                &before.map(|before| before.outcome.name()),
            ],
        )?;
        self.tally.observed(current.as_ref(), seen, leaf, change);
        Ok(())
    }

    fn current(&self, key: &EndpointKey) -> Result<Option<Current>, StoreError> {
        let found = self.db.find(
            sql::ENDPOINT_STATE,
            &[&key.host, &key.port, &key.protocol, &key.server_name, &key.address],
        )?;
        let Some(mut row) = found else { return Ok(None) };
        Ok(Some(Current {
            id: row.int()?,
            answering: row.flag()?,
            outcome: row.named("endpoints.outcome")?,
            severity: row.maybe_coded("endpoints.severity")?,
            leaf: row.maybe_int()?,
            issuer: row.maybe_int()?,
            last_observed_at: row.int()?,
        }))
    }

    fn endpoint(
        &self,
        key: &EndpointKey,
        current: Option<&Current>,
        seen: &NewObservation,
        leaf: Option<CertificateRef>,
        chain: Option<i64>,
        changed: bool,
    ) -> Result<i64, StoreError> {
        let at = seen.observed_at_us;
        let answered_at = seen.answered.then_some(at);
        let outcome = seen.outcome.name();
        let not_after = seen.chain.first().map_or(NO_CERTIFICATE_US, |leaf| leaf.not_after_us);
        let leaf_id = leaf.map(|leaf| leaf.id);
        let issuer = leaf.map(|leaf| leaf.issuer);
        let Some(current) = current else {
            return self.db.insert(
                sql::ENDPOINT_INSERT,
                &[
                    &key.host,
                    &key.port,
                    &key.protocol,
                    &key.server_name,
                    &key.address,
                    &at,
                    &answered_at,
                    &self.scan_id,
                    &outcome,
                    &seen.answered,
                    &seen.severity.map(Severity::code),
                    &leaf_id,
                    &issuer,
                    &not_after,
                    &chain,
                ],
            );
        };
        if at >= current.last_observed_at {
            let changed_at = changed.then_some(at);
            self.db.run(
                sql::ENDPOINT_OBSERVED,
                &[
                    &current.id,
                    &at,
                    &answered_at,
                    &changed_at,
                    &self.scan_id,
                    &outcome,
                    &seen.answered,
                    &seen.severity.map(Severity::code),
                ],
            )?;
            if chain.is_some() {
                self.db.run(sql::ENDPOINT_LEAF, &[&current.id, &leaf_id, &issuer, &not_after, &chain])?;
            }
        }
        Ok(current.id)
    }

    /// Inserts new certificates of the chain. Returns the leaf.
    fn insert_chain_certificates(
        &mut self,
        seen: &NewObservation,
    ) -> Result<Option<CertificateRef>, StoreError> {
        let mut leaf = None;
        for certificate in &seen.chain {
            let stored = self.certificate(certificate, seen.observed_at_us)?;
            self.tally.certificate_seen(stored.id, seen.observed_at_us);
            leaf = leaf.or(Some(stored));
        }
        Ok(leaf)
    }

    fn known_certificate(&self, sha256: &[u8; 32]) -> Option<CertificateRef> {
        self.new_ids.certificates.get(sha256).or_else(|| self.known.certificates.get(sha256)).copied()
    }

    fn certificate(&mut self, new: &NewCertificate, seen_at: i64) -> Result<CertificateRef, StoreError> {
        if let Some(known) = self.known_certificate(&new.sha256) {
            return Ok(known);
        }
        let found = self.db.find(sql::CERTIFICATE_ID, &[&new.sha256])?;
        let stored = match found {
            Some(mut row) => CertificateRef { id: row.int()?, issuer: row.int()? },
            None => self.new_certificate(new, seen_at)?,
        };
        self.new_ids.certificates.insert(new.sha256, stored);
        Ok(stored)
    }

    fn new_certificate(&mut self, new: &NewCertificate, seen_at: i64) -> Result<CertificateRef, StoreError> {
        let issuer = self.issuer(&storable(&new.issuer))?;
        let id = self.db.insert(
            sql::CERTIFICATE_INSERT,
            &[
                &new.sha256,
                &issuer,
                &storable(&new.subject),
                &storable(&new.serial),
                &new.not_before_us,
                &new.not_after_us,
                &storable(&new.key_algorithm),
                &new.key_bits,
                &new.spki_sha256,
                &seen_at,
            ],
        )?;
        self.db.run(sql::CERTIFICATE_DER_INSERT, &[&id, &&new.der[..]])?;
        for (position, name) in new.names.iter().enumerate() {
            let position = position as i64;
            self.db.run(sql::CERTIFICATE_NAME_INSERT, &[&id, &position, &storable(name), &reversed(name)])?;
        }
        self.tally.count_new_certificate(issuer);
        Ok(CertificateRef { id, issuer })
    }

    fn issuer(&mut self, name: &str) -> Result<i64, StoreError> {
        let hash = sha256(name.as_bytes());
        if let Some(id) = self.new_ids.issuers.get(&hash).or_else(|| self.known.issuers.get(&hash)) {
            return Ok(*id);
        }
        let id = match self.db.find(sql::ISSUER_ID, &[&hash])? {
            Some(mut row) => row.int()?,
            None => self.db.insert(sql::ISSUER_INSERT, &[&hash, &name])?,
        };
        self.new_ids.issuers.insert(hash, id);
        Ok(id)
    }

    fn chain(&mut self, seen: &NewObservation) -> Result<i64, StoreError> {
        let hash = chain_sha256(&seen.chain);
        if let Some(id) = self.new_ids.chains.get(&hash).or_else(|| self.known.chains.get(&hash)) {
            return Ok(*id);
        }
        let id = match self.db.find(sql::CHAIN_ID, &[&hash])? {
            Some(mut row) => row.int()?,
            None => self.new_chain(seen, hash)?,
        };
        self.new_ids.chains.insert(hash, id);
        Ok(id)
    }

    fn new_chain(&mut self, seen: &NewObservation, hash: [u8; 32]) -> Result<i64, StoreError> {
        let id = self.db.insert(sql::CHAIN_INSERT, &[&hash])?;
        for (position, certificate) in seen.chain.iter().enumerate() {
            let member = self.certificate(certificate, seen.observed_at_us)?;
            self.db.run(sql::CHAIN_MEMBER_INSERT, &[&id, &(position as i64), &member.id])?;
        }
        Ok(id)
    }

    fn counts(&self) -> Result<(), StoreError> {
        for (id, (first, last)) in &self.tally.seen {
            self.db.run(sql::CERTIFICATE_SEEN, &[&id, &first, &last])?;
        }
        for (id, (certificates, endpoints)) in &self.tally.issuers {
            if (*certificates, *endpoints) != (0, 0) {
                self.db.run(sql::ISSUER_COUNTS, &[&id, &certificates, &endpoints])?;
            }
        }
        for (name, by) in self.tally.totals() {
            self.db.run(sql::TOTAL_ADD, &[&name, &by])?;
        }
        let Recorded { inserted, new_certificates, changed, .. } = self.tally.recorded;
        self.db.run(
            sql::SCAN_COUNTS,
            &[
                &self.scan_id,
                &(inserted as i64),
                &self.tally.answered,
                &(changed as i64),
                &(new_certificates as i64),
            ],
        )
    }
}
