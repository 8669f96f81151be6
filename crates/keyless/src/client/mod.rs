//! The client of key services. One connection per server, shared by all callers, with many requests in flight and replies in any
//! order. Connections are made in the background: no request waits for a handshake.

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
