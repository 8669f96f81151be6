//! Status of a certificate, and error status of a responder.

use crate::UnixTime;
use crate::crl::Reason;

/// Status of a certificate (RFC 6960 section 4.2.1, CertStatus).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Status {
    /// The certificate is not revoked.
    Good,
    /// The certificate is revoked.
    Revoked {
        /// Time of revocation.
        at: UnixTime,
        /// The reason, if given.
        reason: Option<Reason>,
    },
    /// The responder does not know the certificate.
    Unknown,
}

/// Error status of a responder (RFC 6960 section 4.2.1, OCSPResponseStatus).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ErrorStatus {
    /// 1: the request is malformed.
    MalformedRequest = 1,
    /// 2: the responder has an internal error.
    InternalError = 2,
    /// 3: the responder cannot respond now.
    TryLater = 3,
    /// 5: the request must be signed.
    SigRequired = 5,
    /// 6: the client is not authorized, or the responder is not responsible for the certificate.
    Unauthorized = 6,
}
