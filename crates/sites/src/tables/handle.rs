//! The handle [`Places`]. Its methods are in the files beside this one, each with the statements it sends.

store::handle! {
    /// Sites, nodes, key policies and what is sealed and wrapped for them.
    Places
}
