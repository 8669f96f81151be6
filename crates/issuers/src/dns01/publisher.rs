//! The interface of a publisher of TXT records.

use std::fmt::Debug;
use std::time::Instant;

use futures_util::future::BoxFuture;

/// A TXT record that answers a dns-01 challenge.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TxtRecord {
    /// Owner name of the record, without the trailing dot.
    pub name: String,
    /// Text of the record, at most 255 bytes.
    pub value: String,
}

/// Human-readable reason why a record was not published.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct PublishError(pub String);

/// A publisher of DNS records, which also removes them. Both methods must be idempotent.
pub trait Publisher: Send + Sync + Debug {
    /// Adds the record; other records with the same name stay.
    ///
    /// # Errors
    /// [`PublishError`]. The record may have been added anyway.
    fn publish<'a>(
        &'a self,
        record: &'a TxtRecord,
        ttl: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>>;

    /// Removes only this record. A missing record is not an error.
    ///
    /// # Errors
    /// [`PublishError`].
    fn remove<'a>(
        &'a self,
        record: &'a TxtRecord,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>>;
}
