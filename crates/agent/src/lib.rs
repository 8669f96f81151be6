//! Agents: programs on other hosts that generate keys and deploy certificates there.
//!
//! [`Agents`] is the server's side: the directory of agents, their work and their targets. [`client`] is the agent itself,
//! [`deploy`] deploys a certificate on its host, and [`work`] is the protocol between server and agent.

mod accounts;
pub mod client;
pub mod deploy;
mod directory;
mod enrolment;
mod identity;
mod presence;
pub mod tables;
mod targets;
mod waiting;
pub mod work;

/// Boxes the future of a public `async fn`, so that crates that await it do not compile its body again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use directory::{
    AgentError, AgentQuery, Agents, AgentsParts, LABELS_MAX, Labels, OFFLINE_AFTER, labels_of,
};
pub use enrolment::{CreatedToken, EnrolError, NewToken};
pub use identity::agent_uri;
pub use targets::{NewTarget, TargetView};
