//! Upstreams: connections that are kept for the next request, bounded in all, for each host, and in time.
//!
//! From the lowest module up: `slot` (how many connections there may be), `http2` and `sender` (a connection), `idle` (those that wait),
//! `body` (an answer's body, which gives its connection back), `policy` and `parent` (how an upstream is reached), `tls` (of one upstream), `connect` (making a
//! connection), `upstreams` (all of them), `single` (one connection for all who wait for the same upstream), `websocket`, `send`.

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
pub use body::{Relayed, TrailerFilter};
pub use error::{NoAnswer, NoConnection, NoParent};
pub use parent::{BadParent, Link, Parent};
pub use policy::{UpstreamPolicies, UpstreamPolicy, UpstreamWay};
pub use send::Unanswered;
pub use slot::Slot;
pub use tls::UpstreamTls;
pub use upstreams::{PoolOptions, ProbedServer, Reuse, Upstreams};
