//! The row of a credential version with its encrypted value.

use uuid::Uuid;

use db::{Row, StoreError};
use store::states::CredentialKind;

/// A version of a credential, with its encrypted value.
#[derive(Clone, Eq, PartialEq)]
pub struct CredentialRow {
    /// Id of the credential, the same for all its versions.
    pub credential: Uuid,
    /// The name, with the capitalization in which it was first written.
    pub name: String,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Id of the version.
    pub version: Uuid,
    /// Number of the version, counted from 1 for each name.
    pub number: u64,
    /// Creation time of the version, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// End of the version, µs since 1970-01-01 UTC. The version cannot be read after this time.
    pub ends_at_us: Option<i64>,
    /// The encrypted value.
    pub sealed: Vec<u8>,
    /// Metadata, as JSON.
    pub metadata: Option<String>,
    /// Parameters of the generation, as JSON.
    pub parameters: Option<String>,
    /// Public properties of the value, as JSON.
    pub facts: Option<String>,
    /// Expiry of the version's certificate, µs since 1970-01-01 UTC.
    pub not_after_us: Option<i64>,
    /// Whether this is the transitional version of a CA.
    pub transitional: bool,
    /// Name (lower case) of the credential that signed the certificate.
    pub signed_by: Option<String>,
}

impl std::fmt::Debug for CredentialRow {
    /// Formats without the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialRow")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// SQL condition: a version (`v`) has not ended at the time `$now`.
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
        // NULL if the response would exceed the size limit.
        sealed: row.maybe_blob()?.unwrap_or_default(),
        metadata: row.maybe_text()?,
        parameters: row.maybe_text()?,
        facts: row.maybe_text()?,
        not_after_us: row.maybe_int()?,
        transitional: row.flag()?,
        signed_by: row.maybe_text()?,
    })
}
