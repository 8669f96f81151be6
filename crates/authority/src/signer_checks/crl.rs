//! Checks of CRLs: a later CRL must never undo a revocation of an earlier one.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
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

/// Maximum difference in seconds between the clocks of a server and of the signer.
const CLOCK_SECONDS: i64 = 600;

/// Contents of the newest CRL of one kind: the full CRL or a shard.
#[derive(Debug, Default)]
struct KnownCrl {
    number: Vec<u8>,
    /// Certificates that are revoked permanently, that is, not on hold.
    revoked: HashSet<SerialNumber>,
}

impl KnownCrl {
    fn of(crl: &Crl) -> Self {
        let lasting = crl.entries().filter(|entry| entry.reason != Some(Reason::CertificateHold));
        Self {
            number: number_of(crl).unwrap_or_default(),
            revoked: lasting.map(|entry| entry.serial).collect(),
        }
    }
}

/// The newest CRLs, by CA and kind. Only one CRL at a time is checked and signed.
#[derive(Debug, Default)]
pub(super) struct KnownCrls {
    all: Mutex<HashMap<(Uuid, i64), Arc<KnownCrl>>>,
    /// Directory of the newest CRLs; `None` to store them only in memory.
    folder: Option<PathBuf>,
}

/// A CRL that passed the checks. It becomes the newest one after it is signed.
pub(super) struct CheckedCrl<'a> {
    all: MutexGuard<'a, HashMap<(Uuid, i64), Arc<KnownCrl>>>,
    key: (Uuid, i64),
    known: Option<KnownCrl>,
    path: Option<PathBuf>,
}

impl CheckedCrl<'_> {
    /// Stores the signed CRL as the newest one, before its signature is returned.
    pub(super) async fn signed(mut self, tbs: &[u8], signature: &[u8], ca: &Ca) -> Result<(), Refusal> {
        let Some(known) = self.known.take() else { return Ok(()) };
        if let Some(path) = self.path.take() {
            let der = build::signed(tbs, &ca.signer.algorithm(), signature);
            let stored = tokio::task::spawn_blocking(move || write_crl(&path, &der)).await;
            let stored = stored.map_err(std::io::Error::other).and_then(|stored| stored);
            stored.map_err(|error| Refusal::NotStored(error.to_string()))?;
        }
        self.all.insert(self.key, Arc::new(known));
        Ok(())
    }
}

/// Writes the file atomically and syncs it to disk.
fn write_crl(path: &Path, der: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(der)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
}

impl KnownCrls {
    pub(super) fn with_folder(folder: Option<PathBuf>) -> Self {
        Self { all: Mutex::default(), folder }
    }

    fn path(&self, ca: Uuid, shard: i64) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(format!("{ca}-{shard}.crl")))
    }

    pub(super) async fn check(
        &self,
        authority: &Authority,
        ca: &Ca,
        shard: i64,
        tbs: &[u8],
    ) -> Result<CheckedCrl<'_>, Refusal> {
        let crl = read(authority, ca, shard, tbs)?;
        let mut all = self.all.lock().await;
        // A delta CRL adds to the full CRL.
        let full = shard.max(0);
        let known = match all.get(&(ca.id, full)) {
            Some(known) => Arc::clone(known),
            None => {
                let known = Arc::new(newest(authority, ca, full, self.path(ca.id, full)).await?);
                all.insert((ca.id, full), Arc::clone(&known));
                known
            }
        };
        if shard == DELTA {
            check_delta(&crl, &known)?;
            return Ok(CheckedCrl { all, key: (ca.id, full), known: None, path: None });
        }
        // The same number is allowed again: if a signed CRL is lost before it is stored, the server reuses its number.
        if is_greater_number(&known.number, &number_of(&crl)?) {
            return Err(Refusal::Crl("its number is below the number of the newest CRL".to_owned()));
        }
        check_entries(authority, ca, &crl, &known).await?;
        let path = self.path(ca.id, full);
        Ok(CheckedCrl { all, key: (ca.id, full), known: Some(KnownCrl::of(&crl)), path })
    }
}

/// Returns the newer of two CRLs: the one in the database and the one in the signer's directory. Only CRLs signed by the CA count,
/// so that an intruder in the database cannot forge one.
async fn newest(
    authority: &Authority,
    ca: &Ca,
    shard: i64,
    path: Option<PathBuf>,
) -> Result<KnownCrl, Refusal> {
    let row = tables::Revocations::of(authority.store()).crl(ca.id, shard).await?;
    let stored = match path {
        Some(path) => match tokio::fs::read(&path).await {
            Ok(der) => Some(der),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Refusal::NotStored(error.to_string())),
        },
        None => None,
    };
    let mut newest = KnownCrl::default();
    for der in row.map(|row| row.der).into_iter().chain(stored) {
        let crl = Crl::parse(&der).ok();
        let verified = crl.filter(|crl| crl.signed_by(&ca.certificate.public_key).is_ok());
        if let Some(known) = verified
            .as_ref()
            .map(KnownCrl::of)
            .filter(|known| !is_greater_number(&newest.number, &known.number))
        {
            newest = known;
        }
    }
    Ok(newest)
}

fn read(authority: &Authority, ca: &Ca, shard: i64, tbs: &[u8]) -> Result<Crl, Refusal> {
    let refuse = |reason: &str| Err(Refusal::Crl(reason.to_owned()));
    if !ca.publishes() {
        return refuse("the CA is retired");
    }
    let der = build::signed(tbs, &ca.signer.algorithm(), &[0; 64]);
    let crl = Crl::parse(&der).map_err(|error| Refusal::Crl(error.to_string()))?;
    if crl.tbs() != tbs || !crl.unknown_critical.is_empty() || crl.indirect || crl.some_reasons {
        return refuse(
            "the CRL has an unsupported form (indirect, limited to some reasons, or with unknown critical extensions)",
        );
    }
    if crl.issuer.der != ca.certificate.subject.der || crl.authority_key_id != Some(ca.key_identifier()) {
        return refuse("the issuer is another CA");
    }
    let urls = Urls::new(&authority.options().base_url, ca.id);
    let shard_url = u32::try_from(shard).ok().filter(|shard| *shard > 0).map(|shard| urls.crl_shard(shard));
    if !crl.distribution_points.iter().eq(shard_url.iter()) || crl.unnamed_distribution_point {
        return refuse("the CRL is for another distribution point");
    }
    if crl.base.is_some() != (shard == DELTA) {
        return refuse("expected a full CRL but got a delta CRL, or the reverse");
    }
    let now = UnixTime(authority.clock().now_seconds());
    let life = i64::try_from(authority.options().crl_lifetime.as_secs()).unwrap_or(i64::MAX);
    let latest = now.plus(life).plus(CLOCK_SECONDS);
    let off = now.since(crl.this_update).saturating_sub(SKEW_SECONDS).abs();
    match crl.next_update {
        Some(next) if next <= latest && off <= CLOCK_SECONDS => Ok(crl),
        _ => refuse("thisUpdate or nextUpdate does not fit a CRL signed now"),
    }
}

/// Checks a delta CRL. It may release holds, but must not remove any other revocation.
fn check_delta(crl: &Crl, known: &KnownCrl) -> Result<(), Refusal> {
    if number_of(crl)? != known.number {
        return Err(Refusal::Crl(
            "the base number of the delta CRL is not the number of the newest full CRL".to_owned(),
        ));
    }
    let lifted = crl
        .entries()
        .find(|entry| entry.reason == Some(Reason::RemoveFromCrl) && known.revoked.contains(&entry.serial));
    match lifted {
        None => Ok(()),
        Some(entry) => Err(Refusal::Crl(format!("the CRL removes the revocation of {}", entry.serial))),
    }
}

/// Checks that revoked certificates stay on the CRL until they have expired (RFC 5280 section 3.3).
async fn check_entries(authority: &Authority, ca: &Ca, crl: &Crl, known: &KnownCrl) -> Result<(), Refusal> {
    let now = KnownCrl::of(crl);
    for serial in known.revoked.difference(&now.revoked) {
        if !has_expired(authority, ca, serial).await? {
            return Err(Refusal::Crl(format!("the CRL removes the revocation of {serial}")));
        }
    }
    Ok(())
}

/// Returns whether a certificate has expired. Reads the date from the signed certificate and not from the columns of the database,
/// which an intruder can change.
async fn has_expired(authority: &Authority, ca: &Ca, serial: &SerialNumber) -> Result<bool, Refusal> {
    let row = tables::Issued::of(authority.store()).by_serial(ca.id, serial.content()).await?;
    let Some(certificate) = row.and_then(|row| Certificate::parse(&row.der).ok()) else { return Ok(false) };
    let verified = certificate.serial == *serial && certificate.signed_by(&ca.certificate.public_key).is_ok();
    Ok(verified && certificate.not_after < UnixTime(authority.clock().now_seconds()))
}

fn number_of(crl: &Crl) -> Result<Vec<u8>, Refusal> {
    let number = crl.number.as_ref().ok_or_else(|| Refusal::Crl("the CRL has no number".to_owned()))?;
    let start = number.content().iter().position(|byte| *byte != 0).unwrap_or(number.content().len());
    Ok(number.content()[start..].to_vec())
}

/// Compares CRL numbers (big-endian, without leading zeros).
fn is_greater_number(new: &[u8], old: &[u8]) -> bool {
    (new.len(), new) > (old.len(), old)
}
