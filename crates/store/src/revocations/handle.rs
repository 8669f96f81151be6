//! The handle [`Revocations`]. Its methods are in the files beside this one, each with the statements it sends.

use crate::store::handle;

handle! {
    /// Revoked certificates, blocked keys, CRLs and OCSP responders.
    Revocations, revocations
}
