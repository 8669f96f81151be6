//! What the store says of itself, and its errors.

use serde::{Deserialize, Serialize};

use super::lenient;

/// An error: a sentence. OAuth has a code in its place, and a description.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ErrorView {
    /// The sentence, or the code.
    pub error: String,
    /// The description of a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_description: Option<String>,
}

/// The response of `GET /health`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct StatusView {
    /// `UP`.
    pub status: String,
}

/// The response of `GET /version`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct VersionInfo {
    /// The version of CredHub whose API it is.
    pub version: String,
}

/// How many values are under which keys: the response of `GET /api/v1/key-usage`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct KeyUsageView {
    /// Values under the current key.
    pub active_key: u64,
    /// Values under another key that is configured.
    pub inactive_keys: u64,
    /// Values under keys that are not configured.
    pub unknown_keys: u64,
}

/// Whether the store only reads: the request and the response of `/management`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct ReadOnlyMode {
    /// Whether writes are refused. Required.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub read_only_mode: Option<bool>,
}
