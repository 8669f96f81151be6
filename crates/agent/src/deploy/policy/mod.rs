//! Deployment policy of this host: a file in which the owner of the host lists what the server may do. Read again for each deployment.
//!
//! Only what the file names is allowed. Without the file nothing is allowed.

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
