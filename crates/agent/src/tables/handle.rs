//! The handle [`Agents`]. Its methods are in the neighboring files, each beside its SQL statements.

store::handle! {
    /// Agents, their tokens, targets and deployments.
    Agents
}
