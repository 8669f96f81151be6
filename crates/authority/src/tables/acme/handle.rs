//! The handle [`Acme`]. Its methods are in the files beside this one, each with the statements it sends.

store::handle! {
    /// Rows of the ACME server: accounts, external keys, orders, authorizations, limits.
    Acme
}
