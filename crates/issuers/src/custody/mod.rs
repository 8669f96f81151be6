//! Who outside encrypts the master key: a program of the operator's, Vault or OpenBao. Each is asked once, at the start.

mod program;
mod transit;

pub use program::Program;
pub use transit::{Transit, TransitConfig};
