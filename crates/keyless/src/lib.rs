//! Signing for others: the Keyless protocol, version 1, from its octets to its server.
//!
//! - [`wire`]: messages, read and written.
//! - [`operation`]: what can be asked for.
//! - [`KeySet`]: keys by their identifiers, from sources that may change; [`Folder`] is one.
//! - [`stage`]: where signatures are made, in slices, bounded.
//! - [`server`]: who listens.
//! - [`Metrics`]: what is counted.

mod folder;
mod key_set;
mod metrics;
pub mod operation;
pub mod server;
pub mod stage;
pub mod wire;

pub use folder::{FileError, Folder, FolderError, Look};
pub use key_set::{ELSEWHERE_PER_KEY_MAX, Key, KeySet};
pub use metrics::Metrics;
