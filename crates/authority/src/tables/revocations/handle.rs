//! The handle [`Revocations`]. Its methods are in the files beside this one, each with the statements it sends.

store::handle! {
    /// Revoked certificates, blocked keys, CRLs and OCSP responders.
    Revocations
}
