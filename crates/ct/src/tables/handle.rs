//! The handle [`Ct`]. Its methods are in the files beside this one, each with the statements it sends.

store::handle! {
    /// Certificate Transparency: watched domains, searches, logs, issuances found.
    Ct
}
