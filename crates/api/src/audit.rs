//! API types of the audit log: events, signed heads, sealed segments and proofs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event of the audit log, with its position in a hash chain.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuditView {
    /// Time of the event, RFC 3339.
    pub at: String,
    /// Actor that performed the action.
    #[cfg_attr(feature = "schemas", schema(example = "user:alice"))]
    pub actor: String,
    /// The action, such as `profile.put`.
    #[cfg_attr(feature = "schemas", schema(example = "certificate.revoke"))]
    pub action: String,
    /// Resource of the action, such as `certificate/UUID`.
    pub resource: String,
    /// Further details of the event.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub details: Value,
    /// Number of the chain that contains the event.
    pub shard: i64,
    /// Position in the chain, from 1.
    pub sequence: i64,
    /// SHA-256 of the preceding hash and the fields of this event, hexadecimal.
    pub hash: String,
}

/// Result of verifying every chain of the audit log.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct VerificationView {
    /// Whether every chain is intact.
    pub good: bool,
    /// Number of events whose hash was recomputed.
    pub events: u64,
    /// Number of chains that were verified.
    pub chains: u64,
    /// Description of the first fault of each broken chain.
    pub faults: Vec<String>,
    /// Last event of each chain, as `shard:sequence:hash`. Store this value elsewhere to detect a truncated chain.
    pub heads: Vec<String>,
    /// Number of sealed segments that were verified.
    #[serde(default)]
    pub segments: u64,
    /// Number of signed heads that were verified.
    #[serde(default)]
    pub signed_heads: u64,
    /// Descriptions of the parts of the audit log that could not be verified.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The ends of all chains of the audit log at one time, signed with the audit key. The signature covers the head as JSON on one
/// line, with the members in this order and without `signature`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SignedHead {
    /// The constant `bulla-audit-head-1`.
    pub format: String,
    /// UUID of the audit log.
    pub server: String,
    /// Number of the signed head, from 1.
    pub sequence: u64,
    /// Time of the signature, RFC 3339.
    pub at: String,
    /// SHA-256 of the preceding signed head as JSON on one line; zeros for the first head.
    pub previous: String,
    /// Last event of each chain, as `shard:sequence:hash`. Chains without events are omitted.
    pub heads: Vec<String>,
    /// Number of the newest sealed segment; 0 if there is no segment.
    pub segments: u64,
    /// SHA-256 of the head of the newest sealed segment; zeros if there is no segment.
    pub segment: String,
    /// Public key that verifies the signature: SubjectPublicKeyInfo, DER, base64.
    pub key: String,
    /// The signature, base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
}

/// The key that signs heads of the audit log.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuditKeyView {
    /// UUID of the audit log.
    pub server: String,
    /// SHA-256 of the SubjectPublicKeyInfo, in hexadecimal.
    pub sha256: String,
    /// The public key that verifies signed heads, PEM.
    pub public_key_pem: String,
}

/// The head of a sealed segment of the audit log, which contains the events `first` to `last` of one chain.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SegmentHead {
    /// The constant `bulla-audit-segment-1`.
    pub format: String,
    /// Number of the segment, from 1.
    pub segment: u64,
    /// Number of the chain.
    pub shard: i64,
    /// Position of the first event in the chain.
    pub first: i64,
    /// Position of the last event in the chain.
    pub last: i64,
    /// Number of lines. It is less than the number of events if several reads were combined into one line.
    pub lines: u64,
    /// Time of the earliest event in the segment, RFC 3339.
    pub from: String,
    /// Time of the latest event in the segment, RFC 3339.
    pub to: String,
    /// Hash of the event before the first one; zeros if there is none.
    pub before: String,
    /// Hash of the last event.
    pub after: String,
    /// Root of the Merkle tree over the lines (RFC 6962 section 2.1).
    pub root: String,
    /// SHA-256 of the head of the preceding segment, as JSON on one line; zeros for the first segment.
    pub previous: String,
    /// Public key that verifies the signature: SubjectPublicKeyInfo, DER, base64.
    pub key: String,
    /// Signature, base64. It covers the head as JSON on one line, with the members in this order and without `signature`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
}

/// A sealed segment in a list.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SegmentView {
    /// Signed head of the segment.
    pub head: SegmentHead,
    /// Size in bytes of the lines in the database, compressed and encrypted; 0 after the segment was pruned.
    pub bytes: u64,
    /// Time at which the lines were deleted, RFC 3339.
    pub pruned_at: Option<String>,
}

/// One line of a sealed segment: an event, combined reads, or a hash of the chain.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub enum SegmentLine {
    /// An audit event.
    Event {
        /// Position in the chain.
        sequence: i64,
        /// Time of the event in microseconds since 1970-01-01 UTC.
        at_us: i64,
        /// Actor that performed the action.
        actor: String,
        /// The action, such as `profile.put`.
        action: String,
        /// Resource of the action, such as `certificate/UUID`.
        resource: String,
        /// Further details of the event.
        #[cfg_attr(feature = "schemas", schema(value_type = Object))]
        details: Value,
        /// SHA-256 of the preceding hash and the fields of this event.
        hash: String,
    },
    /// Reads of a version of a credential by one actor within one minute.
    Reads {
        /// Actor that read the credential.
        actor: String,
        /// Resource that was read.
        resource: String,
        /// Version of the credential that was read.
        version: String,
        /// Number of reads.
        times: u64,
        /// Number of events that were combined into this line.
        records: u64,
        /// Time of the first read in microseconds since 1970-01-01 UTC.
        first_us: i64,
        /// Time of the last read in microseconds since 1970-01-01 UTC.
        last_us: i64,
    },
    /// The hash of the chain at a position that a signed head names.
    Point {
        /// Position in the chain.
        sequence: i64,
        /// Hash of the event at this position.
        hash: String,
    },
}

/// A proof that a line is in a segment, and that the segment is part of the audit log.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct InclusionProof {
    /// Head of the segment that contains the line.
    pub segment: SegmentHead,
    /// Index of the line in the segment, from 0.
    pub index: u64,
    /// The line whose inclusion is proved.
    pub line: SegmentLine,
    /// Merkle path from the line to the root (RFC 6962 section 2.1.1), as hexadecimal hashes.
    pub path: Vec<String>,
    /// Heads of all later segments.
    pub later: Vec<SegmentHead>,
}

/// Query parameters that select the line to prove.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ProofQuery {
    /// Index of the line in the segment, from 0.
    pub line: u64,
}

/// Query parameters of `GET /api/v1/audit/heads`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct HeadsQuery {
    /// Only heads with a larger number than this one.
    pub after: Option<u64>,
}

/// Query parameters that filter audit events.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct AuditQuery {
    /// Only events of this actor, such as `token:ci`.
    pub actor: Option<String>,
    /// Only events with this action, such as `certificate.issue`.
    pub action: Option<String>,
    /// Only events of this resource, such as `certificate/UUID`.
    pub resource: Option<String>,
    /// Only events at or after this time, RFC 3339.
    pub from: Option<String>,
    /// Only events before this time, RFC 3339.
    pub before: Option<String>,
}
