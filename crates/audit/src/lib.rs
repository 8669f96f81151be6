//! The audit log beyond its rows: heads signed by a key of the server, witnesses that keep them, sealed segments of old events.
//!
//! The rows and their hash chains are in crate `db`; what is signed and sealed, and how it is verified, in crate `audit_proof`.

mod body;
mod error;
mod log;
mod options;
mod retention;
mod running;
mod sending;
mod signing;
pub mod tables;
mod verification;
mod witness;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use audit_proof::segment::Reads;
pub use error::AuditError;
pub use log::{AuditLog, AuditParts};
pub use options::{AuditOptions, Retention};
pub use retention::Step;
pub use verification::Verified;
pub use witness::{BadSyslogAddress, SyslogAddress, WebhookWitness, WitnessOptions};
