//! One batch, inside one transaction, in cached one-row statements.

use rusqlite::{Connection, OptionalExtension, Params, params};

use crate::engine::error::StoreError;
use crate::engine::sqlite::translate;
use crate::inventory::model::{EndpointKey, NewCertificate, NewObservation, Recorded};
use crate::inventory::recording::sqlite_statements as sql;
use crate::inventory::recording::tally::{
    CertificateRef, Current, Ids, NO_CERTIFICATE_US, Tally, chain_sha256, change, reversed, sha256, storable,
    stored_key,
};

/// Stores `batch` and says what it did and which ids it learnt; the ids hold once the transaction is committed.
pub(crate) fn record(
    transaction: &Connection,
    known: &Ids,
    scan_id: i64,
    batch: &[NewObservation],
) -> Result<(Recorded, Ids), StoreError> {
    let mut batch_writer =
        Batch { db: transaction, known, learnt: Ids::default(), tally: Tally::default(), scan_id };
    for observation in batch {
        batch_writer.observation(observation)?;
    }
    batch_writer.counts()?;
    Ok((batch_writer.tally.recorded, batch_writer.learnt))
}

struct Batch<'a> {
    db: &'a Connection,
    known: &'a Ids,
    learnt: Ids,
    tally: Tally,
    scan_id: i64,
}

impl Batch<'_> {
    fn run(&self, statement: &'static str, parameters: impl Params) -> Result<(), StoreError> {
        let run = || self.db.prepare_cached(statement)?.execute(parameters);
        run().map(drop).map_err(|error| translate(statement, error))
    }

    fn insert(&self, statement: &'static str, parameters: impl Params) -> Result<i64, StoreError> {
        self.run(statement, parameters)?;
        Ok(self.db.last_insert_rowid())
    }

    fn find<T>(
        &self,
        statement: &'static str,
        parameters: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let find = || self.db.prepare_cached(statement)?.query_row(parameters, read).optional();
        find().map_err(|error| translate(statement, error))
    }

    fn observation(&mut self, seen: &NewObservation) -> Result<(), StoreError> {
        let key = stored_key(&seen.endpoint);
        let current = self.current(&key)?;
        if let Some(current) = &current
            && self.find(sql::OBSERVED_ALREADY, params![self.scan_id, current.id], |_| Ok(()))?.is_some()
        {
            self.tally.duplicate();
            return Ok(());
        }
        let leaf = self.chain_members(seen)?;
        let chain = if seen.chain.is_empty() { None } else { Some(self.chain(seen)?) };
        let change = change(current.as_ref(), seen, leaf.map(|leaf| leaf.id));
        let endpoint = self.endpoint(&key, current.as_ref(), seen, leaf, chain, change.is_some())?;
        let before = current.as_ref().filter(|_| change.is_some());
        self.run(
            sql::OBSERVATION_INSERT,
            params![
                self.scan_id,
                endpoint,
                seen.observed_at_us,
                storable(&seen.outcome),
                seen.answered,
                seen.address.map(|address| address.to_string()),
                seen.tls_version,
                seen.cipher_suite,
                leaf.map(|leaf| leaf.id),
                chain,
                storable(&seen.trust),
                seen.severity,
                storable(&seen.findings),
                storable(&seen.detail),
                change.map_or(0, |kind| kind.code()),
                before.and_then(|before| before.leaf),
                before.map(|before| before.outcome.as_str()),
            ],
        )?;
        self.tally.observed(current.as_ref(), seen, leaf, change);
        Ok(())
    }

    fn current(&self, key: &EndpointKey) -> Result<Option<Current>, StoreError> {
        self.find(
            sql::ENDPOINT_STATE,
            params![key.host, key.port, key.protocol, key.server_name, key.address],
            |row| {
                Ok(Current {
                    id: row.get(0)?,
                    answering: row.get(1)?,
                    outcome: row.get(2)?,
                    severity: row.get(3)?,
                    leaf: row.get(4)?,
                    issuer: row.get(5)?,
                    last_observed_at: row.get(6)?,
                })
            },
        )
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
        let outcome = storable(&seen.outcome);
        let not_after = seen.chain.first().map_or(NO_CERTIFICATE_US, |leaf| leaf.not_after_us);
        let leaf_id = leaf.map(|leaf| leaf.id);
        let issuer = leaf.map(|leaf| leaf.issuer);
        let Some(current) = current else {
            return self.insert(
                sql::ENDPOINT_INSERT,
                params![
                    key.host,
                    key.port,
                    key.protocol,
                    key.server_name,
                    key.address,
                    at,
                    answered_at,
                    self.scan_id,
                    outcome,
                    seen.answered,
                    seen.severity,
                    leaf_id,
                    issuer,
                    not_after,
                    chain,
                ],
            );
        };
        if at >= current.last_observed_at {
            let changed_at = changed.then_some(at);
            self.run(
                sql::ENDPOINT_OBSERVED,
                params![
                    current.id,
                    at,
                    answered_at,
                    changed_at,
                    self.scan_id,
                    outcome,
                    seen.answered,
                    seen.severity
                ],
            )?;
            if chain.is_some() {
                self.run(sql::ENDPOINT_LEAF, params![current.id, leaf_id, issuer, not_after, chain])?;
            }
        }
        Ok(current.id)
    }

    /// Stores the chain's certificates where new; returns the leaf.
    fn chain_members(&mut self, seen: &NewObservation) -> Result<Option<CertificateRef>, StoreError> {
        let mut leaf = None;
        for certificate in &seen.chain {
            let stored = self.certificate(certificate, seen.observed_at_us)?;
            self.tally.certificate_seen(stored.id, seen.observed_at_us);
            leaf = leaf.or(Some(stored));
        }
        Ok(leaf)
    }

    fn known_certificate(&self, sha256: &[u8; 32]) -> Option<CertificateRef> {
        self.learnt.certificates.get(sha256).or_else(|| self.known.certificates.get(sha256)).copied()
    }

    fn certificate(&mut self, new: &NewCertificate, seen_at: i64) -> Result<CertificateRef, StoreError> {
        if let Some(known) = self.known_certificate(&new.sha256) {
            return Ok(known);
        }
        let found = self.find(sql::CERTIFICATE_ID, params![new.sha256], |row| {
            Ok(CertificateRef { id: row.get(0)?, issuer: row.get(1)? })
        })?;
        let stored = match found {
            Some(found) => found,
            None => self.new_certificate(new, seen_at)?,
        };
        self.learnt.certificates.insert(new.sha256, stored);
        Ok(stored)
    }

    fn new_certificate(&mut self, new: &NewCertificate, seen_at: i64) -> Result<CertificateRef, StoreError> {
        let issuer = self.issuer(&storable(&new.issuer))?;
        let id = self.insert(
            sql::CERTIFICATE_INSERT,
            params![
                new.sha256,
                issuer,
                storable(&new.subject),
                storable(&new.serial),
                new.not_before_us,
                new.not_after_us,
                storable(&new.key_algorithm),
                new.key_bits,
                new.spki_sha256,
                seen_at,
            ],
        )?;
        self.run(sql::CERTIFICATE_DER_INSERT, params![id, &new.der[..]])?;
        for (position, name) in new.names.iter().enumerate() {
            let position = position as i64;
            self.run(sql::CERTIFICATE_NAME_INSERT, params![id, position, storable(name), reversed(name)])?;
        }
        self.tally.certificate_stored(issuer);
        Ok(CertificateRef { id, issuer })
    }

    fn issuer(&mut self, name: &str) -> Result<i64, StoreError> {
        let hash = sha256(name.as_bytes());
        if let Some(id) = self.learnt.issuers.get(&hash).or_else(|| self.known.issuers.get(&hash)) {
            return Ok(*id);
        }
        let id = match self.find(sql::ISSUER_ID, params![hash], |row| row.get(0))? {
            Some(id) => id,
            None => self.insert(sql::ISSUER_INSERT, params![hash, name])?,
        };
        self.learnt.issuers.insert(hash, id);
        Ok(id)
    }

    fn chain(&mut self, seen: &NewObservation) -> Result<i64, StoreError> {
        let hash = chain_sha256(&seen.chain);
        if let Some(id) = self.learnt.chains.get(&hash).or_else(|| self.known.chains.get(&hash)) {
            return Ok(*id);
        }
        let id = match self.find(sql::CHAIN_ID, params![hash], |row| row.get(0))? {
            Some(id) => id,
            None => self.new_chain(seen, hash)?,
        };
        self.learnt.chains.insert(hash, id);
        Ok(id)
    }

    fn new_chain(&mut self, seen: &NewObservation, hash: [u8; 32]) -> Result<i64, StoreError> {
        let id = self.insert(sql::CHAIN_INSERT, params![hash])?;
        for (position, certificate) in seen.chain.iter().enumerate() {
            let member = self.certificate(certificate, seen.observed_at_us)?;
            self.run(sql::CHAIN_MEMBER_INSERT, params![id, position as i64, member.id])?;
        }
        Ok(id)
    }

    fn counts(&self) -> Result<(), StoreError> {
        for (id, (first, last)) in &self.tally.seen {
            self.run(sql::CERTIFICATE_SEEN, params![id, first, last])?;
        }
        for (id, (certificates, endpoints)) in &self.tally.issuers {
            if (*certificates, *endpoints) != (0, 0) {
                self.run(sql::ISSUER_COUNTS, params![id, certificates, endpoints])?;
            }
        }
        for (name, by) in self.tally.totals() {
            self.run(sql::TOTAL_ADD, params![name, by])?;
        }
        let Recorded { inserted, new_certificates, changed, .. } = self.tally.recorded;
        self.run(
            sql::SCAN_COUNTS,
            params![
                self.scan_id,
                inserted as i64,
                self.tally.answered,
                changed as i64,
                new_certificates as i64
            ],
        )
    }
}
