//! Signing for others, and asking others to sign: the Keyless protocol, version 1, from its octets to its server and its client,
//! and a native one beside it.
//!
//! - [`wire`]: messages, read and written.
//! - [`operation`]: what can be asked for.
//! - [`KeySet`]: keys by their identifiers, from sources that may change; [`Folder`] is one.
//! - [`stage`]: where signatures are made, in slices, bounded.
//! - [`fair`]: lines served by their shares.
//! - [`tenant`]: whose request it is, and what that one may have.
//! - [`server`]: who listens.
//! - [`native`]: the native protocol, gRPC: its messages, its client.
//! - [`client`]: asking others to sign.
//! - `cloud` (with the features `aws`, `azure` and `gcp`): keys in the key services of clouds.
//! - [`routing`]: asking the nearest of the nodes that can.
//! - [`places`]: where keys may be used.
//! - [`Metrics`]: what is counted.
//! - [`traces`]: what became of single requests.

mod backoff;
mod budget;
pub mod client;
#[cfg(feature = "cloud")]
pub mod cloud;
mod destination;
pub mod fair;
mod file_stamp;
mod flow;
mod folder;
mod in_flight;
mod key_name;
mod key_set;
mod limits;
mod metrics;
pub mod native;
mod node;
pub mod operation;
pub mod places;
mod refusal;
pub mod routing;
pub mod server;
pub mod stage;
pub mod tenant;
pub mod traces;
pub mod wire;

pub use file_stamp::FileStamp;
pub use folder::{FileKind, FileProblem, Folder, FolderError, Look, NoKey};
pub use key_set::{Key, KeySet, Source};
pub use limits::ELSEWHERE_PER_KEY_MAX;
pub use metrics::Metrics;
