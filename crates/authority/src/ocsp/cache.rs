//! OCSP responses and responders in memory.

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

/// Responders kept ready, one a CA.
const RESPONDERS_MAX: u64 = 1_000;

/// An OCSPResponse as it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct OcspAnswer {
    /// The response, DER.
    pub der: Bytes,
    /// What may be kept by caches, and for how long.
    pub freshness: Option<Freshness>,
}

/// Dates of an answer without a nonce.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Freshness {
    /// As of when it is right.
    pub this_update: UnixTime,
    /// When a new one is made.
    pub refresh_at: UnixTime,
    /// Time of the next update.
    pub next_update: UnixTime,
}

/// Which answer: the count of times that all were forgotten, the CA, the hash of the request, the serial number.
type Key = (u64, Uuid, OcspHash, SerialNumber);

/// Answers and responders in memory.
pub(crate) struct Responders {
    pub(super) answers: Cache<Key, OcspAnswer, OcspError>,
    pub(super) responders: Cache<Uuid, Arc<Responder>, OcspError>,
    pub(super) forgotten: AtomicU64,
}

impl Responders {
    pub(crate) fn new(octets_max: u64) -> Self {
        let weigh = |_: &Key, outcome: &Result<OcspAnswer, OcspError>| match outcome {
            Ok(answer) => u32::try_from(answer.der.len() + 256).unwrap_or(u32::MAX),
            Err(_) => 256,
        };
        Self {
            answers: Cache::with_weight(octets_max, weigh),
            responders: Cache::with_entries(RESPONDERS_MAX),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Forgets the answers about these certificates; all answers when there are more than are listed.
    pub(crate) fn forget(&self, rows: &[RevokedRow], count: u64) {
        if count > rows.len() as u64 {
            return self.forget_all();
        }
        let round = self.forgotten.load(Ordering::Acquire);
        for row in rows {
            for hash in [OcspHash::Sha1, OcspHash::Sha256] {
                self.answers.invalidate(&(round, row.ca, hash, SerialNumber::from_content(&row.serial)));
            }
        }
    }

    /// How often answers came from memory.
    pub(crate) fn answered(&self) -> flight::Counts {
        self.answers.counts()
    }

    pub(crate) fn forget_all(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn key(&self, ca: Uuid, id: &CertificateId) -> Key {
        (self.forgotten.load(Ordering::Acquire), ca, id.hash, id.serial.clone())
    }
}
