//! The handle [`Revocations`]. Its methods are in the other files of this directory, together with their SQL statements.

store::handle! {
    /// Tables of revoked certificates, blocked keys, CRLs and OCSP responders.
    Revocations
}
