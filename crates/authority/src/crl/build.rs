//! Creation of CRLs.

use std::time::{Duration, Instant};

use keys::Signer;
use uuid::Uuid;
use x509::crl::{CrlSpec, Revoked, Scope, tbs_crl};
use x509::{SerialNumber, UnixTime, build};

use super::document::{DELTA, SKEW_SECONDS};
use super::error::CrlError;
use crate::Authority;
use crate::ca_keys::{CaKey, SigningPurpose};
use crate::figures::Counters;
use crate::tables;
use crate::tables::{BuiltCrl, CrlRow, CrlState, RevocationRow};
use crate::tree::{Ca, CaError, Urls};

/// Timeout of a signature with the CA key.
const SIGN_TIMEOUT: Duration = Duration::from_secs(30);

/// Overlap of a delta CRL with its base in microseconds: the delta also lists revocations recorded up to this time before its base.
/// A node sets the recorded time before the transaction commits, and clocks differ between nodes.
const DELTA_MARGIN_US: i64 = 600_000_000;

/// Number of entries up to which a delta CRL counts as small, about 25 KiB.
const DELTA_ENTRIES_MIN: usize = 500;

/// Dates and number of the CRLs that are created together.
#[derive(Clone, Copy, Debug)]
struct CrlMetadata {
    number: i64,
    this_update: UnixTime,
    next_update: UnixTime,
    refresh_at_us: i64,
}

/// The kind of CRL and the certificates that it covers.
#[derive(Clone, Copy, Debug, Default)]
struct CrlScope<'a> {
    base: Option<i64>,
    shard_url: Option<&'a str>,
    freshest: Option<&'a str>,
}

impl CrlMetadata {
    /// Ensures that thisUpdate is not before the newest entry. Otherwise a CRL backdated by [`SKEW_SECONDS`] could contain a
    /// revocation later than its thisUpdate (RFC 5280 sections 5.1.2.4 to 5.1.2.6).
    fn raise_this_update<'a>(&mut self, entries: impl Iterator<Item = &'a RevocationRow>) {
        let newest = entries.map(|row| row.revoked_at_us.div_euclid(1_000_000)).max();
        self.this_update = self.this_update.max(UnixTime(newest.unwrap_or(i64::MIN)));
    }
}

impl Authority {
    /// Creates and stores the CRL that `state` describes; for a full CRL also its delta CRL. Returns false if another node stored
    /// the CRL first, or if the CA no longer signs anything.
    pub(crate) async fn make_crl(&self, state: &CrlState) -> Result<bool, CrlError> {
        let ca = match self.ca_by_id(state.ca).await {
            Ok(ca) if ca.publishes() => ca,
            Ok(_) | Err(CaError::Unknown(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let now_us = self.clock().now_us();
        let mut metadata = self.metadata(state, &ca, now_us);
        let urls = Urls::new(&self.options().base_url, ca.id);
        let (shard_url, delta_url) =
            (urls.crl_shard(u32::try_from(state.shard).unwrap_or(0)), urls.delta_crl());
        let about = match state.shard {
            0 => {
                CrlScope { freshest: self.options().delta_crls.then_some(&delta_url), ..CrlScope::default() }
            }
            _ => CrlScope { shard_url: Some(&shard_url), ..CrlScope::default() },
        };
        let entries = tables::Revocations::of(self.store())
            .crl_entries(ca.id, state.shard, self.expired_cutoff_us(now_us))
            .await?;
        let delta = match state.shard == 0 && self.options().delta_crls {
            true => Some(self.delta_entries(&ca, metadata, now_us, &entries).await?),
            false => None,
        };
        let all_entries = entries.iter().chain(delta.iter().flat_map(|(_, entries)| entries));
        metadata.raise_this_update(all_entries);
        let signing = |shard| self.signing(CaKey::Of(&ca), SigningPurpose::Crl { shard });
        let whole = sign(&ca, &signing(state.shard), metadata, about, entries).await?;
        let built = |shard, crl| BuiltCrl {
            ca: ca.id,
            shard,
            built: state.changes,
            refresh_at_us: metadata.refresh_at_us,
            crl,
        };
        let mut made = vec![built(state.shard, whole)];
        if let Some((base, entries)) = delta {
            let about = CrlScope { base: Some(base), ..CrlScope::default() };
            made.push(built(DELTA, sign(&ca, &signing(DELTA), metadata, about, entries).await?));
        }
        let keys: Vec<(Uuid, i64)> = made.iter().map(|crl| (crl.ca, crl.shard)).collect();
        let stored = self.store_crls(made, state.number).await?;
        for (ca, shard) in keys {
            self.crls().forget(ca, shard);
        }
        Counters::add(&self.counters().crls, u64::from(stored));
        Ok(stored)
    }

    /// Returns the number of the base CRL and the entries of the delta CRL. The base is the oldest full CRL that is still valid, so
    /// that the delta serves all clients. A delta with more than 500 entries, and with more than half as many entries as the full
    /// CRL, is not useful. An empty delta replaces it, with the new full CRL as its base.
    async fn delta_entries(
        &self,
        ca: &Ca,
        metadata: CrlMetadata,
        now_us: i64,
        full: &[RevocationRow],
    ) -> Result<(i64, Vec<RevocationRow>), CrlError> {
        let Some((base, from_us)) =
            tables::Revocations::of(self.store()).oldest_valid_base_crl(ca.id, now_us).await?
        else {
            return Ok((metadata.number, Vec::new()));
        };
        let from_us = from_us.saturating_sub(DELTA_MARGIN_US);
        let is_new = |row: &&RevocationRow| row.recorded_at_us >= from_us;
        let count = full.iter().filter(is_new).count();
        if count > DELTA_ENTRIES_MIN && count > full.len() / 2 {
            return Ok((metadata.number, Vec::new()));
        }
        let mut entries = tables::Revocations::of(self.store())
            .crl_holds_released_since(ca.id, self.expired_cutoff_us(now_us), from_us)
            .await?;
        entries.extend(full.iter().filter(is_new).cloned());
        Ok((base, entries))
    }

    async fn store_crls(&self, made: Vec<BuiltCrl>, before: i64) -> Result<bool, CrlError> {
        let stored = self.store().write("crl", move |tx| {
            Box::pin(async move {
                let mut made = made.iter();
                let Some(whole) = made.next() else { return Ok(false) };
                if !tables::crl_store(tx, whole, Some(before)).await? {
                    return Ok(false);
                }
                for delta in made {
                    // The number of the full CRL was just checked, and the delta has the same number.
                    tables::crl_store(tx, delta, None).await?;
                }
                Ok(true)
            })
        });
        Ok(stored.await?)
    }

    fn metadata(&self, state: &CrlState, ca: &Ca, now_us: i64) -> CrlMetadata {
        let now = UnixTime(now_us.div_euclid(1_000_000));
        let life = i64::try_from(self.options().crl_lifetime.as_secs()).unwrap_or(i64::MAX);
        let before = UnixTime(state.this_update_us.div_euclid(1_000_000));
        let this_update = now.plus(-SKEW_SECONDS).max(ca.certificate.not_before).max(before.min(now));
        // The CRL of an expired CA does not become due by time. Only a further revocation creates a new one.
        let ended = ca.certificate.not_after <= now;
        let end = if ended { i64::MAX } else { ca.certificate.not_after.0 };
        let next_update = UnixTime(now.plus(life).0.min(end));
        let refresh_at = now.plus((next_update.since(now) / 2).max(1)).0.saturating_mul(1_000_000);
        CrlMetadata {
            number: state.number + 1,
            this_update,
            next_update,
            refresh_at_us: if ended { i64::MAX } else { refresh_at },
        }
    }

    /// Returns the cut-off time: certificates that expired before it are omitted from CRLs. An expired certificate stays listed for
    /// the lifetime of one CRL. So at least one CRL that is issued after the expiry contains it (RFC 5280 section 3.3).
    fn expired_cutoff_us(&self, now_us: i64) -> i64 {
        let life = i64::try_from(self.options().crl_lifetime.as_micros()).unwrap_or(i64::MAX);
        now_us.saturating_sub(life)
    }
}

async fn sign(
    ca: &Ca,
    signer: &dyn Signer,
    metadata: CrlMetadata,
    about: CrlScope<'_>,
    entries: Vec<RevocationRow>,
) -> Result<CrlRow, CrlError> {
    let count = entries.len() as i64;
    let entries: Vec<Revoked> = entries.into_iter().map(entry).collect();
    let number = |n: i64| u64::try_from(n).unwrap_or_default();
    let key_id = ca.key_identifier();
    let spec = CrlSpec {
        signature: signer.algorithm(),
        issuer: &ca.certificate.subject.der,
        this_update: metadata.this_update,
        next_update: metadata.next_update,
        number: number(metadata.number),
        authority_key_id: &key_id,
        base: about.base.map(number),
        distribution_point: about.shard_url,
        scope: Scope::All,
        freshest: about.freshest,
    };
    let tbs = tbs_crl(&spec, &entries);
    let signature = signer.sign(&tbs, Instant::now() + SIGN_TIMEOUT).await?;
    Ok(CrlRow {
        number: metadata.number,
        this_update_us: metadata.this_update.0.saturating_mul(1_000_000),
        next_update_us: metadata.next_update.0.saturating_mul(1_000_000),
        entries: count,
        base: about.base,
        der: build::signed(&tbs, &spec.signature, &signature),
    })
}

fn entry(row: RevocationRow) -> Revoked {
    let seconds = |us: i64| UnixTime(us.div_euclid(1_000_000));
    Revoked {
        serial: SerialNumber::from_content(&row.serial),
        at: seconds(row.revoked_at_us),
        reason: Some(row.reason),
        invalidity_date: row.invalidity_at_us.map(seconds),
    }
}
