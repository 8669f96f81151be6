//! The handle [`Agents`]. Its methods are in the neighboring files, each next to its SQL statements.

store::handle! {
    /// Agents, their tokens, targets and deployments.
    Agents
}
