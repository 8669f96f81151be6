//! A version of a credential with its value, as a row.

use uuid::Uuid;

use db::{Row, StoreError};
use store::states::CredentialKind;

/// A version of a credential.
#[derive(Clone, Eq, PartialEq)]
pub struct CredentialRow {
    /// The credential's identity, the same for all versions.
    pub credential: Uuid,
    /// As it was first written.
    pub name: String,
    /// Its type.
    pub kind: CredentialKind,
    /// The version's identity.
    pub version: Uuid,
    /// Versions of a name are counted from 1.
    pub number: u64,
    /// When the version was stored, µs.
    pub created_at_us: i64,
    /// From when on it is read no more, µs.
    pub ends_at_us: Option<i64>,
    /// The value.
    pub sealed: Vec<u8>,
    /// JSON.
    pub metadata: Option<String>,
    /// How it was generated: JSON.
    pub parameters: Option<String>,
    /// What is known of it and no secret: JSON.
    pub facts: Option<String>,
    /// When its certificate ends, µs.
    pub not_after_us: Option<i64>,
    /// Whether it is its authority's version in transition.
    pub transitional: bool,
    /// Which credential signed it: its name in lower case.
    pub signed_by: Option<String>,
}

impl std::fmt::Debug for CredentialRow {
    /// Without the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialRow")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Whether a version (`v`) has not ended at the time `$now`.
macro_rules! readable {
    ($now:literal) => {
        concat!("(v.ends_at IS NULL OR v.ends_at > ", $now, ")")
    };
}

pub(super) use readable;

macro_rules! columns {
    () => {
        columns!("v.sealed")
    };
    ($sealed:literal) => {
        concat!(
            "c.uuid, c.name, c.kind, v.uuid, v.number, v.created_at, v.ends_at, ",
            $sealed,
            ", v.metadata, v.parameters, v.facts, v.not_after, v.transitional, v.signed_by"
        )
    };
}

pub(super) use columns;

pub(super) fn row_of(mut row: Row) -> Result<CredentialRow, StoreError> {
    Ok(CredentialRow {
        credential: row.uuid()?,
        name: row.text()?,
        kind: row.named("credentials.kind")?,
        version: row.uuid()?,
        number: row.number()?,
        created_at_us: row.int()?,
        ends_at_us: row.maybe_int()?,
        // Left out where all together would be too much.
        sealed: row.maybe_blob()?.unwrap_or_default(),
        metadata: row.maybe_text()?,
        parameters: row.maybe_text()?,
        facts: row.maybe_text()?,
        not_after_us: row.maybe_int()?,
        transitional: row.flag()?,
        signed_by: row.maybe_text()?,
    })
}
