//! The trait of witnesses.

use futures_util::future::BoxFuture;

/// An external system that stores signed heads.
pub(crate) trait Witness: Send + Sync {
    /// Returns the name of the witness in the database.
    fn name(&self) -> &'static str;

    /// Sends a head: JSON on one line. Returns once the witness has stored it.
    fn send<'a>(&'a self, head: &'a str) -> BoxFuture<'a, Result<(), String>>;
}
