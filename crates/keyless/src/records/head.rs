//! The head of a segment: what its records are held against.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use x509::merkle::{self, Hash};

/// The head of a closed segment. A head is a line of `heads.jsonl`, and names the hash of the line before it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SegmentHead {
    /// Its number; the first segment of a folder is 1.
    pub segment: u64,
    /// Number of records in the segment.
    pub records: u64,
    /// When it was closed, in microseconds since 1970.
    pub closed_us: u64,
    /// The root of the Merkle tree over its records (RFC 6962 section 2.1), in hexadecimal.
    pub root: String,
    /// SHA-256 of the line of the head before it; of nothing for the first.
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

    /// What the next head names as `previous`.
    #[must_use]
    pub fn hash(&self) -> String {
        hash_of(&self.line())
    }

    /// The head's line in the file.
    #[must_use]
    pub fn line(&self) -> String {
        // Numbers and texts: nothing that JSON has no form for.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What the first head names as `previous`.
pub(super) fn none() -> String {
    hash_of("")
}

fn hash_of(line: &str) -> String {
    HEXLOWER.encode(&merkle::sha256(line.as_bytes()))
}
