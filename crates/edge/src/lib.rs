//! The terminator: TLS 1.2 and 1.3 for certificates whose private keys are not in this process. Each signature is asked of a
//! key service; what a handshake leads to is bytes between a client and an upstream, or requests, each passed on for itself.
//!
//! A connection's way: `accept` (places), `connection` (deadlines), `hello` (which certificate), `signing` (the key
//! service), `flight` (nothing is said before there is a signature), then, by its route, `upstream` (who gets it) and `relay`
//! (bytes), or `requests` (each for itself; `forwarded`: who asks). Off that way
//! `keeper` keeps what is presented as the files say, and `staples` what is stapled to it.

mod accept;
mod certificate;
mod connection;
mod flight;
mod forwarded;
mod hello;
mod keeper;
mod metrics;
mod proxy_protocol;
mod requests;
mod routes;
mod signing;
mod sites;
mod staples;
mod tickets;
mod upstream;

pub use accept::{Running, StartError, start};
pub use certificate::{BadCertificate, CertificateFile};
pub use keeper::{KeepError, Loaded};
pub use metrics::EdgeMetrics;
pub use routes::{BadRoute, Mode, Route, Routes};
pub use staples::StapleOptions;
pub use tickets::{BadTicketKeys, TICKET_KEYS_MAX};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_relay::access_log::AccessLog;
use ipnet::IpNet;

/// How the terminator listens, what it presents, and to whom it passes on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder of chains (`NAME.pem`, leaf first), and of what is stapled to them (`NAME.ocsp`, DER).
    pub certificates: PathBuf,
    /// The name of the file that is presented to who names no host, and, if [`Self::unknown_names_get_default`], to who
    /// names one that no certificate is for.
    pub default_certificate: Option<String>,
    /// Otherwise they get the alert unrecognized_name (RFC 6066 section 3).
    pub unknown_names_get_default: bool,
    /// How staples are fetched for chains that name a responder and have none beside them; `None`: they are not.
    pub staples: Option<StapleOptions>,
    /// Who gets the connections, by the name asked for.
    pub routes: Routes,
    /// The keys that session tickets are sealed under, shared by those who serve the same names. Made here when `None`.
    pub ticket_keys_file: Option<PathBuf>,
    /// How long a ticket key made here seals; it opens for twice as long.
    pub ticket_key_life: Duration,
    /// Between two looks at the folder and at the ticket keys.
    pub reload: Duration,
    /// Connections at once; more are closed at once. Some 100 KB each.
    pub connections_max: usize,
    /// For a TLS handshake from accepted to done, its signature included.
    pub handshake_timeout: Duration,
    /// For a signature.
    pub sign_timeout: Duration,
    /// For finding the upstream's address and connecting to it.
    pub connect_timeout: Duration,
    /// A connection on which nothing came from either side, before it is closed; of one with requests, a body on which nothing came.
    pub idle: Duration,
    /// For a request's head, from its first octet or from the end of the one before.
    pub head_timeout: Duration,
    /// For the head of an upstream's answer, from when the request was sent, or while nothing of it is taken.
    pub response_timeout: Duration,
    /// Connections at once that requests are sent on, those that wait for the next one included.
    pub upstream_connections_max: usize,
    /// Of those, to one upstream. `None`: half of them where requests go to more than one, so that one that is slow or gone leaves
    /// the others places, else all.
    pub upstream_per_host_max: Option<usize>,
    /// Such as wait for the next request; the one that waits the longest is closed for another.
    pub upstream_idle_max: usize,
    /// How long one waits.
    pub upstream_idle: Duration,
    /// Networks of clients who say for whom they ask: what their requests tell of that is passed on.
    pub trusted_clients: Vec<IpNet>,
    /// Where a line for each request goes.
    pub access_log: Option<AccessLog>,
    /// Whether its lines have queries.
    pub access_log_query: bool,
}

impl Options {
    /// Connections to one upstream of these routes.
    fn per_upstream(&self, routes: &Routes) -> usize {
        let share = if routes.asks_several() { 2 } else { 1 };
        self.upstream_per_host_max.unwrap_or((self.upstream_connections_max / share).max(1))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            certificates: PathBuf::new(),
            default_certificate: None,
            unknown_names_get_default: false,
            staples: None,
            routes: Routes::default(),
            ticket_keys_file: None,
            ticket_key_life: Duration::from_secs(12 * 3_600),
            reload: Duration::from_secs(10),
            connections_max: 16_384,
            handshake_timeout: Duration::from_secs(10),
            sign_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(5),
            idle: Duration::from_secs(300),
            head_timeout: Duration::from_secs(30),
            response_timeout: Duration::from_secs(60),
            upstream_connections_max: 4_096,
            upstream_per_host_max: None,
            upstream_idle_max: 512,
            upstream_idle: Duration::from_secs(30),
            trusted_clients: Vec::new(),
            access_log: None,
            access_log_query: false,
        }
    }
}
