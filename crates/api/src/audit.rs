//! The audit log.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that was done.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuditView {
    /// When.
    pub at: String,
    /// The actor.
    #[cfg_attr(feature = "schemas", schema(example = "user:alice"))]
    pub actor: String,
    /// The action, as in the audit log: `profile.put`.
    #[cfg_attr(feature = "schemas", schema(example = "certificate.revoke"))]
    pub action: String,
    /// The resource.
    pub resource: String,
    /// The rest.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub details: Value,
    /// Its chain.
    pub shard: i64,
    /// Its place in the chain, from 1.
    pub sequence: i64,
    /// SHA-256 over the hash before it and its fields, in hexadecimal.
    pub hash: String,
}

/// Result of verifying every chain of the audit log.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct VerificationView {
    /// Whether every chain is whole.
    pub good: bool,
    /// Events whose hash was recomputed.
    pub events: u64,
    /// Chains walked.
    pub chains: u64,
    /// The first fault of each broken chain, in words.
    pub faults: Vec<String>,
    /// The end of each chain, `shard:sequence:hash`: kept elsewhere, it shows an end cut off.
    pub heads: Vec<String>,
    /// Sealed segments that were checked.
    #[serde(default)]
    pub segments: u64,
    /// Signed heads that were checked.
    #[serde(default)]
    pub signed_heads: u64,
    /// What the verification could not tell, in words.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The ends of all chains of the audit log at one time, signed by the audit key. The signature covers the head as JSON on one line,
/// with the members in this order and without `signature`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SignedHead {
    /// `bulla-audit-head-1`.
    pub format: String,
    /// The UUID of the log.
    pub server: String,
    /// Its number, from 1.
    pub sequence: u64,
    /// When it was signed, RFC 3339.
    pub at: String,
    /// SHA-256 of the signed head before it, as JSON on one line; zeros for the first.
    pub previous: String,
    /// The end of each chain, `shard:sequence:hash`; chains without events are left out.
    pub heads: Vec<String>,
    /// The number of the newest sealed segment; 0 without one.
    pub segments: u64,
    /// SHA-256 of the head of that segment; zeros without one.
    pub segment: String,
    /// The public key that signed: SubjectPublicKeyInfo, DER in base64.
    pub key: String,
    /// The signature, base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
}

/// The key that signs heads of the audit log.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuditKeyView {
    /// The UUID of the log.
    pub server: String,
    /// SHA-256 of the SubjectPublicKeyInfo, in hexadecimal.
    pub sha256: String,
    /// The public key, PEM.
    pub public_key_pem: String,
}

/// The head of a sealed segment of the audit log: events `first` to `last` of one chain.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SegmentHead {
    /// `bulla-audit-segment-1`.
    pub format: String,
    /// Its number, from 1.
    pub segment: u64,
    /// The chain.
    pub shard: i64,
    /// The place of its first event.
    pub first: i64,
    /// The place of its last event.
    pub last: i64,
    /// Its lines: fewer than its events where reads were counted together.
    pub lines: u64,
    /// The earliest time of an event in it, RFC 3339.
    pub from: String,
    /// The latest time of an event in it, RFC 3339.
    pub to: String,
    /// The hash of the event before its first one; zeros for none.
    pub before: String,
    /// The hash of its last event.
    pub after: String,
    /// The root of the Merkle tree over its lines (RFC 6962 section 2.1).
    pub root: String,
    /// SHA-256 of the head of the segment before it, as JSON on one line; zeros for the first.
    pub previous: String,
    /// The public key that signed: SubjectPublicKeyInfo, DER in base64.
    pub key: String,
    /// The signature over the head as JSON on one line, with the members in this order and without `signature`; base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
}

/// A sealed segment in a listing.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SegmentView {
    /// Its head.
    pub head: SegmentHead,
    /// Size of its lines in the database, compressed and encrypted, bytes; 0 once it is pruned.
    pub bytes: u64,
    /// When its lines were deleted.
    pub pruned_at: Option<String>,
}

/// A line of a segment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub enum SegmentLine {
    /// An event.
    Event {
        /// Its place in the chain.
        sequence: i64,
        /// When, µs since 1970.
        at_us: i64,
        /// The actor.
        actor: String,
        /// The action, as in the audit log: `profile.put`.
        action: String,
        /// The resource.
        resource: String,
        /// The rest.
        #[cfg_attr(feature = "schemas", schema(value_type = Object))]
        details: Value,
        /// SHA-256 over the hash before it and its fields.
        hash: String,
    },
    /// Reads of a version of a credential by one actor within one minute.
    Reads {
        /// The actor.
        actor: String,
        /// The resource.
        resource: String,
        /// The version.
        version: String,
        /// How often.
        times: u64,
        /// In how many events that was.
        records: u64,
        /// The first time, µs since 1970.
        first_us: i64,
        /// The last time, µs since 1970.
        last_us: i64,
    },
    /// The hash of the chain at a place that a signed head names.
    Point {
        /// The place.
        sequence: i64,
        /// The hash of the event there.
        hash: String,
    },
}

/// The proof that a line is in a segment, and that the segment is one of the log's.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct InclusionProof {
    /// The head of the segment.
    pub segment: SegmentHead,
    /// The number of the line, from 0.
    pub index: u64,
    /// The line.
    pub line: SegmentLine,
    /// The Merkle path from the line to the root (RFC 6962 section 2.1.1), hashes in hexadecimal.
    pub path: Vec<String>,
    /// The heads of the segments after it.
    pub later: Vec<SegmentHead>,
}

/// Which line of a segment to prove.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ProofQuery {
    /// The number of the line, from 0.
    pub line: u64,
}

/// Which signed heads.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct HeadsQuery {
    /// Only those after this number.
    pub after: Option<u64>,
}

/// Which events.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct AuditQuery {
    /// Only of this actor: `token:ci`.
    pub actor: Option<String>,
    /// Only this action: `certificate.issue`.
    pub action: Option<String>,
    /// Only on this resource: `certificate/UUID`.
    pub resource: Option<String>,
    /// From this time on, RFC 3339.
    pub from: Option<String>,
    /// Before this time, RFC 3339.
    pub before: Option<String>,
}
