//! Signing for others, and asking others to sign: the Keyless protocol, version 1, from its octets to its server and its client.
//!
//! - [`wire`]: messages, read and written.
//! - [`operation`]: what can be asked for.
//! - [`KeySet`]: keys by their identifiers, from sources that may change; [`Folder`] is one.
//! - [`stage`]: where signatures are made, in slices, bounded.
//! - [`server`]: who listens.
//! - [`client`]: asking others to sign.
//! - [`Metrics`]: what is counted.

pub mod client;
mod folder;
mod key_set;
mod metrics;
pub mod operation;
pub mod server;
pub mod stage;
pub mod wire;

pub use folder::{FileKind, Folder, FolderError, Look};
pub use key_set::{ELSEWHERE_PER_KEY_MAX, Key, KeySet};
pub use metrics::Metrics;
