//! The handle [`Ct`]. Its methods are in the other files of this module, together with their SQL statements.

store::handle! {
    /// Tables of Certificate Transparency: watched domains, searches, logs and issuances.
    Ct
}
