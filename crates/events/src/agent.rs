//! The event body about agents.

use serde::{Deserialize, Serialize};

/// An agent stopped reporting, or reports again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentContact {
    /// The agent's name.
    pub name: String,
}
