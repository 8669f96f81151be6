//! Status information and errors of the credential store.

use serde::{Deserialize, Serialize};

use super::lenient;

/// An error response. OAuth errors have a code in `error`, and a description.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ErrorView {
    /// Error message, or the OAuth error code.
    pub error: String,
    /// Description of an OAuth error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_description: Option<String>,
}

/// The response of `GET /health`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct StatusView {
    /// The constant `UP`.
    pub status: String,
}

/// The response of `GET /version`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct VersionInfo {
    /// Version of CredHub whose API this server implements.
    pub version: String,
}

/// Number of values encrypted under each group of keys: the response of `GET /api/v1/key-usage`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct KeyUsageView {
    /// Number of values encrypted under the current key.
    pub active_key: u64,
    /// Number of values encrypted under other configured keys.
    pub inactive_keys: u64,
    /// Number of values encrypted under keys that are not configured.
    pub unknown_keys: u64,
}

/// Read-only mode of the store: the request and the response of `/management`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct ReadOnlyMode {
    /// Whether the store rejects writes. Required.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub read_only_mode: Option<bool>,
}
