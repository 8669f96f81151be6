//! The event body about agents.

use serde::{Deserialize, Serialize};

/// An agent stopped reporting, or reports again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentContact {
    /// Name of the agent, as shown in the list of agents.
    pub name: String,
}
