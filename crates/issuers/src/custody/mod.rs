//! External encryption of the master key: by a program of the operator, Vault or OpenBao. Each is called once at startup.

mod program;
mod transit;

pub use program::Program;
pub use transit::{Transit, TransitConfig};
