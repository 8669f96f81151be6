//! The TLS terminator: TLS 1.2 and 1.3 with private keys that stay outside of this process.
//!
//! A key service makes each signature. After the handshake, the terminator forwards either bytes or single HTTP requests to an
//! upstream.
//!
//! Path of a connection, by module:
//!
//! - `accept`: connection slots
//! - `connection`: deadlines
//! - `hello`: choice of the certificate
//! - `signing`: requests to the key service
//! - `flight`: holds back the server's first flight until the key service has signed
//! - `upstream` and `relay`: forwarding of bytes
//! - `requests` and `forwarded`: forwarding of HTTP requests
//!
//! In the background, `keeper` reloads the files and `staples` fetches OCSP responses.

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

/// Boxes the future of a public `async fn`. Otherwise every crate that awaits the function compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use accept::{Running, StartError, start};
pub use bad_route::{BadRoute, SERVERS_MAX};
pub use certificate::{BadCertificate, CertificateFile};
pub use client_auth::{BadClientCrls, ClientAuth, ClientCertificates, ClientCrls};
pub use group::{Balance, Group, HealthOptions};
pub use keeper::{CertificateLoadError, LoadedCertificates};
pub use metrics::EdgeMetrics;
pub use options::Options;
pub use routes::{Mode, Route, Routes};
pub use staples::StapleOptions;
pub use tickets::{BadTicketKeys, TICKET_KEYS_MAX};
