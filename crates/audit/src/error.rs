//! Errors of the audit log.

use audit_proof::segment::SegmentError;
use authority::keystore::KeyStoreError;
use keys::{OpenError, SignError};
use store::StoreError;

/// Why the audit log was not signed, sealed or read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The audit key cannot be opened.
    #[error("the audit key: {0}")]
    Key(#[from] KeyStoreError),
    /// The audit key did not sign.
    #[error("the audit key did not sign: {0}")]
    Sign(#[from] SignError),
    /// Other nodes signed a head each time.
    #[error("other nodes sign heads at the same time: try again")]
    Crowded,
    /// The segment does not exist.
    #[error("there is no segment {0}")]
    NoSegment(u64),
    /// Its lines were deleted by the retention policy.
    #[error("the lines of segment {0} are pruned: its head alone is kept")]
    Pruned(u64),
    /// The line does not exist.
    #[error("segment {segment} has no line {line}")]
    NoLine {
        /// The segment.
        segment: u64,
        /// The line, from 0.
        line: u64,
    },
    /// The data key of a segment does not open.
    #[error("the key of segment {segment}: {error}")]
    Sealed {
        /// The segment.
        segment: u64,
        /// Why.
        error: OpenError,
    },
    /// The body, or a document, is not what was stored.
    #[error("{0}: the database was altered or damaged")]
    Damaged(String),
    /// Events do not become a segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}
