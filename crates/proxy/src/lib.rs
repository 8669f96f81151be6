//! TLS-intercepting forward proxy. Mints one leaf certificate per host, shared by all clients and by every proxy of a cluster.
//!
//! A connection passes through these modules:
//!
//! 1. `connection`: HTTP to the proxy itself, or `socks`, or `transparent` for connections that a firewall redirects.
//! 2. `access`: authentication of clients.
//! 3. `connect`: what the client sends after CONNECT: TLS, whose ClientHello contains the host's name, or plain HTTP.
//! 4. `rules`: whether the connection is intercepted, mirrored (`mirror`), tunneled or rejected.
//! 5. [`permission`]: asks an external service for permission to issue a leaf certificate for the host.
//! 6. [`certificate_store`] and [`mint`]: cached leaf certificates, and new ones.
//! 7. `serving`: HTTP of an intercepted connection, or `tunnel`: bytes that pass through.
//! 8. `exchange`: one request and its response; [`requests`]: the rules on requests.
//!
//! `gateway` applies the [`policy`], if there is one, to every request, CONNECT and tunnel; `budgets` counts the usage of
//! identities. `holding` waits for a person's decision about requests that a rule holds ([`holds`]). [`recent`] keeps the last
//! requests, and [`replay`] sends one of them again.
//!
//! `sessions` with databases, with a policy decision and a credential, but without HTTP: [`postgresql`] and [`redis`].
//!
//! [`leases`]: leases of dynamic credentials, one for each identity. [`minting`] issues leaf certificates from the same store to
//! other TLS servers. [`revocation`] checks client certificates against CRLs.

mod access;
mod audited;
mod budgets;
pub mod certificate_store;
mod client_buckets;
mod connect;
mod connection;
mod connection_context;
mod decision;
mod destination;
mod exchange;
mod gateway;
mod hold_end;
mod holding;
pub mod holds;
mod hooked;
pub mod hooks;
mod lease_keeper;
pub mod leases;
mod metrics;
pub mod mint;
pub mod minting;
mod mirror;
mod options;
mod original;
mod page;
pub mod permission;
mod permitted;
pub mod policy;
mod policy_page;
pub mod postgresql;
mod proxy;
pub mod recent;
mod redirect;
pub mod redis;
mod refusals;
pub mod replay;
pub mod requests;
pub mod revocation;
mod rotation;
mod rule_index;
mod rules;
mod running;
mod serving;
mod sessions;
mod setting;
mod socks;
mod start_error;
mod stopped;
pub mod tables;
mod tls;
mod transparent;
mod tunnel;
mod url_path;

/// Boxes the future of a public `async fn`. Otherwise every crate that awaits the function compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use access::{AccessOptions, BadUsers, IssuerKeys, IssuerOptions, OwnTls, ProxyTlsError, Token, Users};
pub use metrics::ProxyMetrics;
pub use options::Options;
pub use redirect::TransparentOptions;
pub use rules::{Action, Rules};
pub use running::{Running, USERS_MAX, start};
pub use sessions::{DatabaseListenerOptions, UpstreamTlsMode};
pub use start_error::StartError;
