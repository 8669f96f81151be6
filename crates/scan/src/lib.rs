//! Probes TLS endpoints and reports findings: targets, probes, rules.

mod adaptive_timeouts;
mod clock;
mod ending;
mod engine;
pub mod estate;
pub mod files;
mod folder;
mod job;
pub mod judge;
pub mod observation;
mod options;
mod probe;
mod progress;
pub mod revocation;
pub mod rules;
mod stacks;
pub mod starttls;
pub mod target;
pub mod tls;
mod trusted;

/// Boxes the future of a public `async fn`. Without the box, every crate that awaits the future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use engine::{KnownEndpoints, Run, Scanner};
pub use estate::{Estate, EstateFinding};
pub use events::ProbeOutcome;
pub use observation::Observation;
pub use options::{Limits, ScanOptions};
pub use progress::{Progress, Snapshot};
pub use target::{Target, TargetOptions, Targets};
pub use trusted::{TrustAnchors, TrustError, Trusted};

/// Reason why the scanner cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The system's random number generator failed. Handshakes need random numbers.
    #[error("the system's random number generator failed")]
    NoRandomness,
}
