//! Routing of signature requests to other nodes, for keys that this node does not have. The nearest node with the key signs.
//! Connections are opened and measured in the background, so that no request waits for a handshake. If there are many connections,
//! the nodes of one site share them.
//!
//! - [`Router`]: the current nodes, and the connections to them.
//! - [`Holders`]: the nodes that can use certain keys.
//! - [`RoutedKey`]: a key on other nodes, as a [`Signer`](keys::Signer).

mod attempt;
mod channel;
mod connection;
mod detours;
mod error;
mod holders;
mod key;
mod latency;
mod links;
mod metrics;
mod options;
mod peer;
mod pod;
mod rank;
mod relay;
mod rendezvous;
mod router;
mod state;

pub use crate::limits::{NODE_MAX as IN_FLIGHT_MAX, NODE_PER_TENANT_MAX as TENANT_IN_FLIGHT_MAX};
pub use crate::node::{Member, NODES_DNS, NODES_URI, NodeId};
pub(crate) use attempt::RequestContext;
pub(crate) use error::RelayError;
pub use error::RouteError;
pub use holders::Holders;
pub use key::RoutedKey;
pub use links::PER_SITE_MAX;
pub use metrics::RoutingMetrics;
pub use options::{RouterOptions, TRIES_MAX};
pub use pod::{POD_NODES, WANTED_MAX};
pub use router::Router;
