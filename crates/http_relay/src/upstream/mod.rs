//! Upstreams: a pool of connections, limited in total, for each host, and in time.
//!
//! Modules, from the lowest up:
//!
//! - `slot`: limits of connections
//! - `http2`, `sender`: one connection
//! - `idle`: idle connections
//! - `body`: a response's body, which returns its connection to the pool
//! - `policy`, `parent`: routes and TLS by host
//! - `tls`: TLS options of one upstream
//! - `connect`: opening of connections
//! - `upstreams`: the pool
//! - `single`: one connection for concurrent requests to an origin
//! - `websocket`, `send`: use of connections

mod address_rule;
mod body;
mod connect;
mod error;
mod http2;
mod http2_alone;
mod idle;
mod making;
mod parent;
mod policy;
mod send;
mod sender;
mod single;
mod slot;
mod tls;
mod upstreams;
mod websocket;

pub use address_rule::AddressRule;
pub use body::{BodyFilter, Buffered, UpstreamResponseBody};
pub use error::{NoAnswer, ParentProxyError, UpstreamConnectError};
pub use parent::{BadParent, Link, Parent};
pub use policy::{UpstreamPolicies, UpstreamPolicy, UpstreamRoute};
pub use send::Unanswered;
pub use slot::Slot;
pub use tls::UpstreamTls;
pub use upstreams::{PoolOptions, ProbedServer, Reuse, Upstreams};
