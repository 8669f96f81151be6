//! The handle [`Acme`]. Its methods are in the other files of this directory, together with their SQL statements.

store::handle! {
    /// Tables of the ACME server: accounts, external keys, orders, authorizations, limits.
    Acme
}
