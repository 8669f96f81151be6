//! The handle [`Agents`]. Its methods are in the files beside this one, each with the statements it sends.

use crate::store::handle;

handle! {
    /// Agents, their tokens, targets and deployments.
    Agents, agents
}
