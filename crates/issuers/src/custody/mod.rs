//! External encryption of the master key: by a program of the operator, or by Vault or OpenBao, called once at startup.

mod program;
mod transit;

pub use program::Program;
pub use transit::{Transit, TransitConfig};
