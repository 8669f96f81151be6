//! What a search finds.

use db::{Row, StoreError};

/// A credential that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundCredential {
    /// As it was first written.
    pub name: String,
    /// When its newest version was stored, µs.
    pub created_at_us: i64,
    /// When that version's certificate ends, µs.
    pub not_after_us: Option<i64>,
}

/// Whether the newest version of a name (`c`) has not ended at the time `$now`.
macro_rules! stands {
    ($now:literal) => {
        concat!("(c.current_ends_at IS NULL OR c.current_ends_at > ", $now, ")")
    };
}

pub(super) use stands;

pub(super) fn found_of(mut row: Row) -> Result<FoundCredential, StoreError> {
    Ok(FoundCredential { name: row.text()?, created_at_us: row.int()?, not_after_us: row.maybe_int()? })
}
