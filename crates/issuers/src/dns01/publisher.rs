//! The interface of a publisher of TXT records.

use std::fmt::Debug;
use std::time::Instant;

use futures_util::future::BoxFuture;

/// A TXT record.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TxtRecord {
    /// Its owner, without the trailing dot.
    pub name: String,
    /// Its text, at most 255 bytes.
    pub value: String,
}

/// Why a record was not published, for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct PublishError(pub String);

/// Changes the DNS. Both methods may be called again for the same record.
pub trait Publisher: Send + Sync + Debug {
    /// Adds the record beside others of its name.
    ///
    /// # Errors
    /// [`PublishError`]; the record may be there all the same.
    fn publish<'a>(
        &'a self,
        record: &'a TxtRecord,
        ttl: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>>;

    /// Removes this record and no other; one that is not there is no error.
    ///
    /// # Errors
    /// [`PublishError`].
    fn remove<'a>(
        &'a self,
        record: &'a TxtRecord,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>>;
}
