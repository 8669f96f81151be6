//! The handle [`Places`]. Its methods are in the neighboring files, each next to its SQL statements.

store::handle! {
    /// Sites, nodes, key policies, sealed keys and wraps.
    Places
}
