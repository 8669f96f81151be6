//! Settings of the client.

use std::time::Duration;

use super::address::Server;
use super::tls::ClientTls;

/// Servers asked in turn: the protocol's sites are three, and anyone who has more wants a balancer.
pub const SERVERS_MAX: usize = 16;

/// Servers and timeouts of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// In the order of preference; at most [`SERVERS_MAX`].
    pub servers: Vec<Server>,
    /// The own certificate and whom to believe; needed where a server is spoken to over TLS.
    pub tls: Option<ClientTls>,
    /// Requests under way on a connection; past it the next server is asked, or nobody. What gokeyless serves at once.
    pub in_flight_max: usize,
    /// For making a connection, handshake included.
    pub connect_timeout: Duration,
    /// Between two pings: servers close TCP connections on which nothing came for 30 s.
    pub ping_every: Duration,
    /// For the answer to a ping; past it the connection is given up. Pings are answered by who reads the connection, so
    /// what is slow there, is slow for everybody.
    pub ping_timeout: Duration,
    /// The pause after a connection could not be made; it doubles up to [`Self::backoff_max`].
    pub backoff: Duration,
    /// The longest pause.
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
