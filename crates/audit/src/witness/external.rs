//! The trait for external systems that store signed heads.

use std::fmt;

use futures_util::future::BoxFuture;

/// An external system that stores signed heads.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Returns the name of the witness in the database.
    fn name(&self) -> &'static str;

    /// Sends a head: JSON on one line. Returns once the witness has stored it.
    fn send<'a>(&'a self, head: &'a str) -> BoxFuture<'a, Result<(), String>>;
}
