//! The client of key services. All callers share one connection for each server, with many pending requests and replies in any
//! order. Connections are opened in the background, so that no request waits for a handshake.

mod address;
mod channel;
mod connection;
mod error;
mod failover;
mod key;
mod metrics;
mod options;
pub(crate) mod tls;

pub use address::{InvalidServer, Server};
pub use error::{ClientError, ClientStartError};
pub use failover::Client;
pub use key::RemoteKey;
pub use metrics::ClientMetrics;
pub use options::{ClientOptions, SERVERS_MAX};
pub use tls::ClientTls;
