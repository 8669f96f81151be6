//! The roles that a process may have.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The role of a process. Roles start in this order.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Control plane: API, CA protocols, credential store, watches
    Server,
    /// Holds the CA keys and signs; alone, it listens at signer.socket only
    Signer,
    /// Key service, a node of the control plane
    Keys,
    /// TLS terminator, configured in [edge]
    Edge,
    /// TLS-intercepting proxy, configured in [proxy]
    Proxy,
    /// Agent of this host, configured in [agent]
    Agent,
}

impl Role {
    /// Returns the name of the role in the configuration, such as `server`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Signer => "signer",
            Self::Keys => "keys",
            Self::Edge => "edge",
            Self::Proxy => "proxy",
            Self::Agent => "agent",
        }
    }
}
