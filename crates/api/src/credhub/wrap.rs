//! Values read once by the holder of a token: not in CredHub.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::lenient;

/// A token to make: `POST /api/v1/wrap`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WrapRequest {
    /// The credential's name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// The token's lifetime, s; 300 when absent.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// A token.
#[derive(Deserialize, Serialize)]
pub struct WrapView {
    /// The token. It is shown this once.
    pub token: String,
    /// When it expires, RFC 3339.
    pub expires_at: String,
    /// The credential's name.
    pub name: String,
    /// The version that it reads.
    pub version: Uuid,
}

/// A token to read the value of: `POST /api/v1/unwrap`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnwrapRequest {
    /// The token.
    #[serde(default, deserialize_with = "lenient::text")]
    pub token: String,
}

/// The value behind a token.
#[derive(Deserialize, Serialize)]
pub struct UnwrapView {
    /// The credential's name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version; null where it was a value and no credential.
    pub version: Option<Uuid>,
    /// Actor that created the token.
    pub wrapped_by: String,
    /// The value.
    pub value: Value,
}
