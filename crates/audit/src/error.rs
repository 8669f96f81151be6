//! Errors of the audit log.

use audit_proof::segment::SegmentError;
use authority::keystore::KeyStoreError;
use keys::{OpenError, SignError};
use store::StoreError;

/// Reason why an operation on the audit log failed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The audit key cannot be decrypted.
    #[error("the audit key cannot be used: {0}")]
    Key(#[from] KeyStoreError),
    /// Signing with the audit key failed.
    #[error("signing with the audit key failed: {0}")]
    Sign(#[from] SignError),
    /// Other nodes signed heads first, at every attempt.
    #[error("other nodes are signing heads of the audit log at the same time: try again")]
    Crowded,
    /// The segment does not exist.
    #[error("the audit log has no segment {0}")]
    NoSegment(u64),
    /// The retention policy deleted the segment's lines.
    #[error("the lines of segment {0} are pruned: only its head is kept")]
    Pruned(u64),
    /// The line does not exist.
    #[error("segment {segment} has no line {line}")]
    NoLine {
        /// Number of the segment, from 1.
        segment: u64,
        /// Index of the line, from 0.
        line: u64,
    },
    /// The data key of a segment cannot be decrypted.
    #[error("the key of segment {segment} cannot be decrypted: {error}")]
    Sealed {
        /// Number of the segment, from 1.
        segment: u64,
        /// The error of the decryption.
        error: OpenError,
    },
    /// The cryptographic library failed to encrypt a segment.
    #[error("the cryptographic library failed to encrypt an audit segment")]
    Encryption,
    /// A stored body or document is corrupt.
    #[error("{0}: the database was altered or damaged")]
    Damaged(String),
    /// The events cannot be sealed into a segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}
