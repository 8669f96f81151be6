//! The control plane of the key service: sites where private keys may be, their nodes, and the policies that decide which nodes may
//! open which keys.
//!
//! A node joins with a single-use token, and sends a heartbeat every quarter of a second. The other nodes get a signed
//! [`Statement`](keyless::places::Statement) about the node. The statement contains the attributes of the node's site and join
//! token, never attributes that the node claims. [`work`] is the protocol between nodes and the control plane, [`node`] is the
//! node's side.

mod beats;
mod directory;
mod enrolment;
mod error;
pub mod node;
mod nodes;
mod numbers;
pub mod policies;
mod round;
mod site;
mod statements;
mod steadiness;
pub mod tables;
mod timing;
mod view;
pub mod work;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use keyless::places::Attributes;

pub use directory::{NODES_MAX, SITES_MAX, Sites, SitesParts, stored_attributes};
pub use enrolment::{CreatedNodeToken, NewNodeToken};
pub use error::SiteError;
pub use nodes::{NodeQuery, attributes_of, node_domain, node_uri};
pub use site::NewSite;
pub use timing::{AWAY_PAUSE_MAX, BEAT_EVERY, LEASE};
