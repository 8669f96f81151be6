//! Signing and retention of the audit log: heads signed by a key of the server, witnesses that store them, and sealed segments of
//! old events.
//!
//! The rows and their hash chains are in crate `db`. The signed formats and their verification are in crate `audit_proof`.

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

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use audit_proof::segment::Reads;
pub use error::AuditError;
pub use log::{AuditLog, AuditParts};
pub use options::{AuditOptions, Retention};
pub use retention::Step;
pub use verification::Verified;
pub use witness::{BadSyslogAddress, SyslogAddress, WebhookWitness, Witness, WitnessOptions};
