//! What the owner of this host lets the server do: a file of the host's, read again for each deployment.
//!
//! Nothing is allowed that the file does not name, and nothing at all without it.

mod example;
mod file;
mod pattern;
mod rules;
mod want;

pub use example::EXAMPLE;
pub use file::{POLICY_FILE, PolicyError, PolicyFile};
pub use rules::Policy;
pub(crate) use rules::{Program, WantedFile};
pub use want::{Refusal, Want};
