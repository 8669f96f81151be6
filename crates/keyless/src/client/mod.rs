//! Asking others to sign: one connection a server, kept, shared by everybody, many requests under way on it, replies in any
//! order. Connections are made in the background: no request makes one.

mod address;
mod connection;
mod error;
mod failover;
mod key;
mod link;
mod metrics;
mod options;
pub(crate) mod tls;

pub use address::{NoServer, Server};
pub use error::{ClientError, ClientStartError};
pub use failover::Client;
pub use key::RemoteKey;
pub use metrics::ClientMetrics;
pub use options::{ClientOptions, SERVERS_MAX};
pub use tls::ClientTls;
