//! The key service and its client: signatures for TLS terminators. It supports two protocols: Keyless, version 1, and a native one
//! over gRPC.
//!
//! - [`wire`]: messages of the Keyless protocol.
//! - [`operation`]: the operations of requests.
//! - [`KeySet`]: keys by identifier, from sources that may change, such as [`Folder`].
//! - [`stage`]: signatures with keys of this process, in bounded queues.
//! - [`fair`]: weighted fair queues for tenants.
//! - [`tenant`]: tenants, their limits and their keys.
//! - [`server`]: listeners, connections, requests.
//! - [`native`]: messages and client of the native protocol.
//! - [`client`]: the client of the Keyless protocol.
//! - `cloud` (with the features `aws`, `azure` and `gcp`): keys in cloud key services.
//! - [`routing`]: routes requests to the nearest node that has the key.
//! - [`places`]: policies that restrict where keys may be used.
//! - [`Metrics`]: the metrics of the server.
//! - [`records`]: a record of every signature.
//! - [`traces`]: finished requests, stored for inspection.

mod backoff;
pub mod budget;
pub mod client;
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
pub mod records;
mod refusal;
pub mod routing;
pub mod server;
pub mod stage;
pub mod tenant;
pub mod traces;
pub mod wire;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use file_stamp::FileStamp;
pub use folder::{FileKind, FileProblem, Folder, FolderContents, FolderError, UnusableKey};
pub use key_set::{Key, KeySet, Source};
pub use limits::REMOTE_PER_KEY_MAX;
pub use metrics::Metrics;
