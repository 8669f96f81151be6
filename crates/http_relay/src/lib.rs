//! What the proxy and the TLS terminator both need of HTTP and of relaying.
//!
//! - Connections: [`opening`] reads their first bytes, [`serve`] serves HTTP on them, [`relay`] passes bytes on.
//! - Requests: [`client`] and [`target`] say who asks for what, [`client_body`] and [`request_body`] carry the body, [`fields`] removes the
//!   header fields of one connection, [`upgrade`] and [`websocket`] change protocols.
//! - [`upstream`]: the pool of connections to upstreams.
//! - [`page`] and [`unanswered`]: answers where no upstream answers.
//! - [`access_log`]: a line for each request.

pub mod access_log;
pub mod address;
pub mod cipher_suites;
pub mod client;
pub mod client_body;
pub mod clock;
pub mod fields;
mod framing;
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
