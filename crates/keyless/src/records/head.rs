//! The head of a segment, which authenticates its records.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use x509::merkle::{self, Hash};

/// The head of a closed segment, stored as a line of `heads.jsonl`. It contains the hash of the previous line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SegmentHead {
    /// Number of the segment; the first one is 1.
    pub segment: u64,
    /// Number of records in the segment.
    pub records: u64,
    /// Time of closing, in microseconds since 1970-01-01 UTC.
    pub closed_us: u64,
    /// Root of the Merkle tree over the records (RFC 6962 section 2.1), in hexadecimal.
    pub root: String,
    /// SHA-256 of the previous head's line; of empty input for the first head.
    pub previous: String,
}

impl SegmentHead {
    pub(super) fn new(number: u64, leaves: &[Hash], closed_us: u64, previous: &str) -> Self {
        Self {
            segment: number,
            records: leaves.len() as u64,
            closed_us,
            root: HEXLOWER.encode(&merkle::root_of(leaves)),
            previous: previous.to_owned(),
        }
    }

    /// Returns the value of `previous` in the next head.
    #[must_use]
    pub fn hash(&self) -> String {
        hash_of(&self.line())
    }

    /// Returns the head's line in the file.
    #[must_use]
    pub fn line(&self) -> String {
        // Numbers and strings always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns the value of `previous` in the first head.
pub(super) fn none() -> String {
    hash_of("")
}

fn hash_of(line: &str) -> String {
    HEXLOWER.encode(&merkle::sha256(line.as_bytes()))
}
