//! The audit log.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that was done.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuditView {
    /// When.
    pub at: String,
    /// Who.
    #[cfg_attr(feature = "schemas", schema(example = "user:alice"))]
    pub actor: String,
    /// What.
    #[cfg_attr(feature = "schemas", schema(example = "certificate.revoke"))]
    pub action: String,
    /// To what.
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

/// What a walk over every chain found.
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
