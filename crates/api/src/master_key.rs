//! Master keys and their rotation.

use serde::{Deserialize, Serialize};

/// The result of a master key rotation.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RotatedView {
    /// Identifier of the current master key on this node.
    pub master: String,
    /// Number of values whose data key this rotation re-wrapped under the current master key.
    pub rewrapped: u64,
    /// Values that could not be decrypted and were not changed, as `TABLE.COLUMN ID: reason`; at most 100.
    pub failed: Vec<String>,
    /// Number of values whose data key is still wrapped under another master key. Remove the older keys only when this number is 0.
    pub remaining: u64,
    /// Numbers of re-wrapped and remaining values, by database column.
    pub columns: Vec<RotatedColumnView>,
}

/// Response to a rotation that continues in the background.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RotatingView {
    /// Identifier of the current master key on this node.
    pub master: String,
    /// Always true. This node continues to re-wrap data keys; `GET /api/v1/master-key` shows the progress.
    pub rotating: bool,
}

/// The result of a rotation for one column.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RotatedColumnView {
    /// Table and column, such as `credential_versions.sealed`.
    pub column: String,
    /// Number of values in this column whose data key this rotation re-wrapped.
    pub rewrapped: u64,
    /// Number of values in this column whose data key is still wrapped under another master key.
    pub remaining: u64,
}

/// The master keys, and the number of values encrypted under each.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MasterKeysView {
    /// Identifier of the current master key on this node.
    pub current: String,
    /// Number of values that are not encrypted under the current master key. Keep the older keys configured until this number is 0.
    pub remaining: u64,
    /// Whether a rotation is in progress on this node.
    pub rotating: bool,
    /// Every master key that this node has, that the database lists, or under which a value is encrypted.
    pub keys: Vec<MasterKeyView>,
}

/// A master key, with the number of values encrypted under it.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MasterKeyView {
    /// Identifier that is derived from the master key, hexadecimal.
    pub id: String,
    /// Whether the key is the current one on this node.
    pub current: bool,
    /// Whether this node has the key. Without the key, this node cannot decrypt the values encrypted under it.
    pub configured: bool,
    /// Number of values encrypted under this master key.
    pub values: u64,
    /// Number of values encrypted under this key, by database column.
    pub columns: Vec<SealedColumnView>,
}

/// Number of encrypted values in one database column.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SealedColumnView {
    /// Table and column, such as `credential_versions.sealed`.
    pub column: String,
    /// Number of encrypted values in this column.
    pub values: u64,
}
