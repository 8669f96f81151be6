//! Results of a search for credential names.

use db::{Row, StoreError};

/// A name that a search found, with data of its newest version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundCredential {
    /// The name, with the capitalization in which it was first written.
    pub name: String,
    /// Creation time of the newest version, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Expiry of the newest version's certificate, µs since 1970-01-01 UTC.
    pub not_after_us: Option<i64>,
}

/// SQL condition: the newest version of a name (`c`) has not ended at the time `$now`.
macro_rules! unexpired {
    ($now:literal) => {
        concat!("(c.current_ends_at IS NULL OR c.current_ends_at > ", $now, ")")
    };
}

pub(super) use unexpired;

pub(super) fn found_of(mut row: Row) -> Result<FoundCredential, StoreError> {
    Ok(FoundCredential { name: row.text()?, created_at_us: row.int()?, not_after_us: row.maybe_int()? })
}
