//! Settings of the client.

use std::time::Duration;

use super::address::Server;
use super::tls::ClientTls;

/// Maximum servers, tried in turn. The protocol's usual setup has three sites; more servers need a load balancer.
pub const SERVERS_MAX: usize = 16;

/// Servers and timeouts of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Servers in order of preference; at most [`SERVERS_MAX`].
    pub servers: Vec<Server>,
    /// Client certificate and roots; required if a server uses TLS.
    pub tls: Option<ClientTls>,
    /// Maximum pending requests on a connection. A further request goes to the next server, or fails if there is none. The
    /// default equals gokeyless's concurrency.
    pub in_flight_max: usize,
    /// Timeout of connecting, including the handshake.
    pub connect_timeout: Duration,
    /// Interval of pings. Servers close TCP connections that are silent for 30 s.
    pub ping_every: Duration,
    /// Timeout of a ping; then the connection is closed. The reader of the connection also receives all other replies, so a slow
    /// ping means that all replies are slow.
    pub ping_timeout: Duration,
    /// First pause after a failed attempt to connect; it doubles up to [`Self::backoff_max`].
    pub backoff: Duration,
    /// Maximum pause between attempts.
    pub backoff_max: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tls: None,
            in_flight_max: 1_024,
            connect_timeout: Duration::from_secs(3),
            ping_every: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
        }
    }
}
