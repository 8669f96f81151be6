//! The terminator: TLS 1.2 and 1.3 for certificates whose private keys are not in this process. Each signature is asked of a
//! key service; what a handshake leads to is bytes between a client and an upstream, or requests, each passed on for itself.
//!
//! A connection's way: `accept` (places), `connection` (deadlines), `hello` (which certificate), `signing` (the key
//! service), `flight` (nothing is said before there is a signature), then, by its route, `upstream` (who gets it) and `relay`
//! (bytes), or `requests` (each for itself; `forwarded`: who asks). Off that way
//! `keeper` keeps what is presented as the files say, and `staples` what is stapled to it.

mod accept;
mod alert;
mod bad_route;
mod certificate;
mod client_auth;
mod connection;
mod flight;
mod forwarded;
mod greeting;
mod group;
mod health;
mod hello;
mod keeper;
mod metrics;
mod options;
mod outcome;
mod proxy_protocol;
mod requests;
mod routes;
mod signing;
mod site;
mod sites;
mod staples;
mod terminator;
mod tickets;
mod upstream;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use accept::{Running, StartError, start};
pub use bad_route::{BadRoute, SERVERS_MAX};
pub use certificate::{BadCertificate, CertificateFile};
pub use client_auth::{BadClientCrls, ClientAuth, ClientCertificates, ClientCrls};
pub use group::{Balance, Group, HealthOptions};
pub use keeper::{KeepError, Loaded};
pub use metrics::EdgeMetrics;
pub use options::Options;
pub use routes::{Mode, Route, Routes};
pub use staples::StapleOptions;
pub use tickets::{BadTicketKeys, TICKET_KEYS_MAX};
