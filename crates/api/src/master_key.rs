//! Master keys and their rotation.

use serde::{Deserialize, Serialize};

/// Result of a rotation.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RotatedView {
    /// The id of the master key that is current on this node.
    pub master: String,
    /// Values wrapped again.
    pub rewrapped: u64,
    /// Values that did not open and stay as they are, `TABLE.COLUMN ID: why`; a hundred are named at most.
    pub failed: Vec<String>,
    /// Values still under another master key. Only at 0 may the older ones be forgotten.
    pub remaining: u64,
    /// The same by column.
    pub columns: Vec<RotatedColumnView>,
}

/// A rotation that takes longer than one waits for an answer.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RotatingView {
    /// The id of the master key that is current on this node.
    pub master: String,
    /// Always true: this node wraps again, and `GET /api/v1/master-key` counts how far it is.
    pub rotating: bool,
}

/// What a rotation did to one column.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RotatedColumnView {
    /// `credential_versions.sealed`.
    pub column: String,
    /// Values wrapped again.
    pub rewrapped: u64,
    /// Values still under another master key.
    pub remaining: u64,
}

/// The master keys and what is sealed under each.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MasterKeysView {
    /// The id of the master key that is current on this node.
    pub current: String,
    /// Values that are not under it. While there are any, the older keys stay configured.
    pub remaining: u64,
    /// Whether this node wraps again now.
    pub rotating: bool,
    /// Every master key that this node has, that the database knows, or that something is sealed under.
    pub keys: Vec<MasterKeyView>,
}

/// A master key.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MasterKeyView {
    /// Its id.
    pub id: String,
    /// Whether it is the current one on this node.
    pub current: bool,
    /// Whether this node has it. What is sealed under one that it does not have opens nowhere here.
    pub configured: bool,
    /// Number of values sealed under this master key.
    pub values: u64,
    /// The same by column.
    pub columns: Vec<SealedColumnView>,
}

/// Values of one column.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SealedColumnView {
    /// `credential_versions.sealed`.
    pub column: String,
    /// How many.
    pub values: u64,
}
