//! The handle [`Credentials`]. Its methods are in the other files of this module, each with the statements it sends.

store::handle! {
    /// Tables of credentials: versions, permissions, rotation, hooks, single-use tokens.
    Credentials
}
