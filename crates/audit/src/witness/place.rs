//! A place that keeps heads.

use futures_util::future::BoxFuture;

/// A place that keeps heads.
pub(crate) trait Witness: Send + Sync {
    /// Its name in the database.
    fn name(&self) -> &'static str;

    /// Returns once the witness has the head: JSON on one line.
    fn send<'a>(&'a self, head: &'a str) -> BoxFuture<'a, Result<(), String>>;
}
