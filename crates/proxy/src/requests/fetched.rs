//! A credential as read from its source.

use keys::Secret;

/// A credential as read from its source. Its `Debug` output contains no value.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The values of the requested fields.
    pub values: Vec<Secret>,
    /// Name of the version in the audit log: the id in the store, or the modification time of a file.
    pub version: Option<String>,
}
