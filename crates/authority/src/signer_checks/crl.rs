//! CRLs: a later one never takes back what an earlier one said.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;
use x509::crl::{Crl, Reason};
use x509::{Certificate, SerialNumber, UnixTime, build};

use super::refusal::Refusal;
use crate::Authority;
use crate::crl::{DELTA, SKEW_SECONDS};
use crate::tables;
use crate::tree::{Ca, Urls};

/// How far a clock of a server may be from the signer's, seconds.
const CLOCK_SECONDS: i64 = 600;

/// What the newest CRL of a kind says.
#[derive(Debug, Default)]
struct Known {
    number: Vec<u8>,
    /// Certificates revoked for good.
    revoked: HashSet<SerialNumber>,
}

impl Known {
    fn of(crl: &Crl) -> Self {
        let lasting = crl.entries().filter(|entry| entry.reason != Some(Reason::CertificateHold));
        Self {
            number: number_of(crl).unwrap_or_default(),
            revoked: lasting.map(|entry| entry.serial).collect(),
        }
    }
}

/// The newest CRLs, by CA and kind. One CRL is checked and signed at a time.
#[derive(Debug, Default)]
pub(super) struct KnownCrls(Mutex<HashMap<(Uuid, i64), Arc<Known>>>);

/// A CRL that may be signed. What it says counts once it is signed.
pub(super) struct CheckedCrl<'a> {
    all: MutexGuard<'a, HashMap<(Uuid, i64), Arc<Known>>>,
    key: (Uuid, i64),
    known: Option<Known>,
}

impl CheckedCrl<'_> {
    /// The CRL is signed.
    pub(super) fn signed(mut self) {
        if let Some(known) = self.known.take() {
            self.all.insert(self.key, Arc::new(known));
        }
    }
}

impl KnownCrls {
    pub(super) async fn check(
        &self,
        authority: &Authority,
        ca: &Ca,
        shard: i64,
        tbs: &[u8],
    ) -> Result<CheckedCrl<'_>, Refusal> {
        let crl = read(authority, ca, shard, tbs)?;
        let mut all = self.0.lock().await;
        // A delta adds to the full CRL.
        let full = shard.max(0);
        let known = match all.get(&(ca.id, full)) {
            Some(known) => Arc::clone(known),
            None => {
                let known = Arc::new(stored(authority, ca, full).await?);
                all.insert((ca.id, full), Arc::clone(&known));
                known
            }
        };
        if shard == DELTA {
            check_delta(&crl, &known)?;
            return Ok(CheckedCrl { all, key: (ca.id, full), known: None });
        }
        if !is_above(&number_of(&crl)?, &known.number) {
            return Err(Refusal::Crl("its number is not above that of the newest one".to_owned()));
        }
        check_entries(authority, ca, &crl, &known).await?;
        Ok(CheckedCrl { all, key: (ca.id, full), known: Some(Known::of(&crl)) })
    }
}

/// The newest stored CRL. Only one that the CA signed counts: whoever writes the database cannot make up another.
async fn stored(authority: &Authority, ca: &Ca, shard: i64) -> Result<Known, Refusal> {
    let row = tables::Revocations::of(authority.store()).crl(ca.id, shard).await?;
    let crl = row.and_then(|row| Crl::parse(&row.der).ok());
    let genuine = crl.filter(|crl| crl.signed_by(&ca.certificate.public_key).is_ok());
    Ok(genuine.as_ref().map(Known::of).unwrap_or_default())
}

fn read(authority: &Authority, ca: &Ca, shard: i64, tbs: &[u8]) -> Result<Crl, Refusal> {
    let refuse = |reason: &str| Err(Refusal::Crl(reason.to_owned()));
    if !ca.publishes() {
        return refuse("the CA is retired");
    }
    let der = build::signed(tbs, &ca.signer.algorithm(), &[0; 64]);
    let crl = Crl::parse(&der).map_err(|error| Refusal::Crl(error.to_string()))?;
    if crl.tbs() != tbs || !crl.unknown_critical.is_empty() || crl.indirect || crl.some_reasons {
        return refuse("it is not a plain CRL");
    }
    if crl.issuer.der != ca.certificate.subject.der || crl.authority_key_id != Some(ca.key_identifier()) {
        return refuse("its issuer is another");
    }
    let urls = Urls::new(&authority.options().base_url, ca.id);
    let shard_url = u32::try_from(shard).ok().filter(|shard| *shard > 0).map(|shard| urls.crl_shard(shard));
    if !crl.distribution_points.iter().eq(shard_url.iter()) || crl.unnamed_distribution_point {
        return refuse("it is of another distribution point");
    }
    if crl.base.is_some() != (shard == DELTA) {
        return refuse("it is a delta where a full CRL is due, or the reverse");
    }
    let now = UnixTime(authority.clock().now_seconds());
    let life = i64::try_from(authority.options().crl_lifetime.as_secs()).unwrap_or(i64::MAX);
    let latest = now.plus(life).plus(CLOCK_SECONDS);
    let off = now.since(crl.this_update).saturating_sub(SKEW_SECONDS).abs();
    match crl.next_update {
        Some(next) if next <= latest && off <= CLOCK_SECONDS => Ok(crl),
        _ => refuse("its dates are not those of a CRL made now"),
    }
}

/// A delta may lift holds only.
fn check_delta(crl: &Crl, known: &Known) -> Result<(), Refusal> {
    if number_of(crl)? != known.number {
        return Err(Refusal::Crl("the delta has another number than the newest full CRL".to_owned()));
    }
    let lifted = crl
        .entries()
        .find(|entry| entry.reason == Some(Reason::RemoveFromCrl) && known.revoked.contains(&entry.serial));
    match lifted {
        None => Ok(()),
        Some(entry) => Err(Refusal::Crl(format!("it takes back the revocation of {}", entry.serial))),
    }
}

/// What was revoked stays on the CRL until its certificate has expired (RFC 5280 section 3.3).
async fn check_entries(authority: &Authority, ca: &Ca, crl: &Crl, known: &Known) -> Result<(), Refusal> {
    let now = Known::of(crl);
    for serial in known.revoked.difference(&now.revoked) {
        if !has_expired(authority, ca, serial).await? {
            return Err(Refusal::Crl(format!("it takes back the revocation of {serial}")));
        }
    }
    Ok(())
}

/// Judged by the certificate itself, which only the CA can have signed, not by columns of the database.
async fn has_expired(authority: &Authority, ca: &Ca, serial: &SerialNumber) -> Result<bool, Refusal> {
    let row = tables::Issued::of(authority.store()).by_serial(ca.id, serial.content()).await?;
    let Some(certificate) = row.and_then(|row| Certificate::parse(&row.der).ok()) else { return Ok(false) };
    let genuine = certificate.serial == *serial && certificate.signed_by(&ca.certificate.public_key).is_ok();
    Ok(genuine && certificate.not_after < UnixTime(authority.clock().now_seconds()))
}

fn number_of(crl: &Crl) -> Result<Vec<u8>, Refusal> {
    let number = crl.number.as_ref().ok_or_else(|| Refusal::Crl("it has no number".to_owned()))?;
    let start = number.content().iter().position(|byte| *byte != 0).unwrap_or(number.content().len());
    Ok(number.content()[start..].to_vec())
}

/// Numbers without leading zeros, big-endian.
fn is_above(new: &[u8], old: &[u8]) -> bool {
    (new.len(), new) > (old.len(), old)
}
