//! Cache of OCSP responses and responders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flight::Cache;
use uuid::Uuid;
use x509::ocsp::{CertificateId, OcspHash};
use x509::{SerialNumber, UnixTime};

use super::error::OcspError;
use super::responder::Responder;
use crate::tables::RevokedRow;

/// Maximum number of cached responders, one for each CA.
const RESPONDERS_MAX: u64 = 1_000;

/// An encoded OCSP response, with its dates for HTTP caches.
#[derive(Clone, Debug, PartialEq)]
pub struct OcspAnswer {
    /// The OCSPResponse in DER.
    pub der: Bytes,
    /// Dates for HTTP caches; `None` if the response must not be cached.
    pub freshness: Option<Freshness>,
}

/// Dates for HTTP caches, of an OCSP response without a nonce.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Freshness {
    /// Time at which the status was known to be correct (thisUpdate).
    pub this_update: UnixTime,
    /// Time at which a new response is signed.
    pub refresh_at: UnixTime,
    /// Time by which newer information is available (nextUpdate).
    pub next_update: UnixTime,
}

/// Cache key: the number of times the whole cache was cleared, the CA, the hash algorithm of the request, and the serial number.
type Key = (u64, Uuid, OcspHash, SerialNumber);

/// Cache of OCSP responses and responders.
pub(crate) struct Responders {
    pub(super) answers: Cache<Key, OcspAnswer, OcspError>,
    pub(super) responders: Cache<Uuid, Arc<Responder>, OcspError>,
    pub(super) invalidations: AtomicU64,
}

impl Responders {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let weigh = |_: &Key, outcome: &Result<OcspAnswer, OcspError>| match outcome {
            Ok(answer) => u32::try_from(answer.der.len() + 256).unwrap_or(u32::MAX),
            Err(_) => 256,
        };
        Self {
            answers: Cache::with_weight_max(bytes_max, weigh),
            responders: Cache::with_entries_max(RESPONDERS_MAX),
            invalidations: AtomicU64::new(0),
        }
    }

    /// Removes the responses for these certificates from the cache. If `count` exceeds the number of listed rows, the whole cache
    /// is cleared.
    pub(crate) fn forget(&self, rows: &[RevokedRow], count: u64) {
        if count > rows.len() as u64 {
            return self.clear_all();
        }
        let round = self.invalidations.load(Ordering::Acquire);
        for row in rows {
            for hash in [OcspHash::Sha1, OcspHash::Sha256] {
                self.answers.invalidate(&(round, row.ca, hash, SerialNumber::from_content(&row.serial)));
            }
        }
    }

    /// Returns the counters of the response cache.
    pub(crate) fn answered(&self) -> flight::Counts {
        self.answers.counts()
    }

    pub(crate) fn clear_all(&self) {
        self.invalidations.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn key(&self, ca: Uuid, id: &CertificateId) -> Key {
        (self.invalidations.load(Ordering::Acquire), ca, id.hash, id.serial.clone())
    }
}
