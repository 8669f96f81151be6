//! The handle [`Managed`]. Its methods are in the other files of this module, together with their SQL statements.

store::handle! {
    /// Managed certificates, their versions and counters.
    Managed
}
