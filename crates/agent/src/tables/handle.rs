//! The handle [`Agents`]. Its methods are in the files beside this one, each with the statements it sends.

store::handle! {
    /// Agents, their tokens, targets and deployments.
    Agents
}
