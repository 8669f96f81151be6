//! Deployment policy of this host: a file in which the owner of the host lists what the server may do. Read again for each
//! deployment.
//!
//! Actions that the file does not list are rejected. Without the file, all actions are rejected.

mod example;
mod file;
mod pattern;
mod rules;
mod want;

pub use example::EXAMPLE;
pub use file::{POLICY_FILE, PolicyError, PolicyFile};
pub use rules::Policy;
pub(crate) use rules::{Program, RequestedFile};
pub use want::{DeniedAction, Refusal};
