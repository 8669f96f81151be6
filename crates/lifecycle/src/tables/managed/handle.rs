//! The handle [`Managed`]. Its methods are in the files beside this one, each with its SQL statements.

store::handle! {
    /// Managed certificates, their versions and counters.
    Managed
}
