//! The handle [`Credentials`]. Its methods are in the files beside this one, each with the statements it sends.

store::handle! {
    /// Credentials: versions, permissions, rotation, hooks, wraps.
    Credentials
}
