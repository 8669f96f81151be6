//! HTTP and relaying, shared by the proxy and the TLS terminator.
//!
//! - Connections: [`opening`] reads the first bytes, [`serve`] serves HTTP, [`relay`] relays bytes.
//! - Requests: [`client`] and [`target`] describe client and target, [`client_body`] and [`request_body`] stream the body,
//!   [`fields`] removes hop-by-hop fields, [`upgrade`] and [`websocket`] handle protocol upgrades.
//! - [`upstream`]: the pool of connections to upstreams.
//! - [`page`] and [`unanswered`]: error responses.
//! - [`access_log`]: one line for each request.

pub mod access_log;
pub mod address;
pub mod cipher_suites;
pub mod client;
pub mod client_body;
pub mod clock;
pub mod fields;
mod framing;
pub mod hangup;
pub mod names;
pub mod next_head;
pub mod opening;
pub mod page;
pub mod relay;
pub mod request_body;
pub mod serve;
pub mod stall;
pub mod streams;
mod strict;
pub mod target;
mod trailers;
pub mod unanswered;
pub mod upgrade;
pub mod upstream;
pub mod websocket;
mod websocket_key;
