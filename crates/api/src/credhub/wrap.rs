//! Single-use tokens that read the value of a credential. CredHub has no such endpoints.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::lenient;

/// A single-use token to create: `POST /api/v1/wrap`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WrapRequest {
    /// Name of the credential whose current value the token reads.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Lifetime of the token in seconds; 300 when absent.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// Response to the creation of a single-use token: the secret and the metadata of the token.
#[derive(Deserialize, Serialize)]
pub struct WrapView {
    /// The secret token. It is shown only in this response.
    pub token: String,
    /// Expiry time, RFC 3339.
    pub expires_at: String,
    /// Name of the credential.
    pub name: String,
    /// Version of the credential that the token reads.
    pub version: Uuid,
}

/// A single-use token to exchange for the value: `POST /api/v1/unwrap`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnwrapRequest {
    /// The secret token from the response to `POST /api/v1/wrap`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub token: String,
}

/// The value that a single-use token reads.
#[derive(Deserialize, Serialize)]
pub struct UnwrapView<V = Value> {
    /// Name of the credential.
    pub name: String,
    /// Type of the credential.
    #[serde(rename = "type")]
    pub kind: String,
    /// Version of the credential; null if the token wraps a value that is not a credential.
    pub version: Option<Uuid>,
    /// Actor that created the token.
    pub wrapped_by: String,
    /// The wrapped value: a string, an object or other JSON.
    pub value: V,
}
