//! The handle [`Managed`]. Its methods are in the files beside this one, each with the statements it sends.

store::handle! {
    /// Certificates under management, their versions and counts.
    Managed
}
