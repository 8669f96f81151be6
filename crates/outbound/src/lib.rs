//! Everything a connection out needs: resolver, dialler, TLS, budgets, deadlines, retries.
//!
//! What is said over a connection is no concern of this crate.

pub mod budget;
pub mod deadline;
pub mod dial;
pub mod guard;
pub mod http;
pub mod jitter;
pub mod limits;
pub mod pool;
pub mod rate;
pub mod resolve;
pub mod retry;
pub mod tls;
pub mod unwanted;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use deadline::Deadline;
