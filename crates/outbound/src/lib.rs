//! Outgoing connections: DNS resolution, dialing, TLS, concurrency limits, deadlines, retries.
//!
//! The protocols on top of the connections are not part of this crate.

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

/// Boxes the future of a public `async fn`. Without the box, every crate that awaits the future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use deadline::Deadline;
