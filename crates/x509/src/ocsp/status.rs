//! The status of a certificate, and the errors a responder sends instead.

use crate::UnixTime;
use crate::crl::Reason;

/// What the responder says of a certificate (RFC 6960 section 4.2.1, CertStatus).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Status {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked {
        /// When.
        at: UnixTime,
        /// The reason, if given.
        reason: Option<Reason>,
    },
    /// The responder does not know the certificate.
    Unknown,
}

/// Why there is no answer (RFC 6960 section 4.2.1, OCSPResponseStatus).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ErrorStatus {
    /// 1: the request is none.
    MalformedRequest = 1,
    /// 2: the responder is broken.
    InternalError = 2,
    /// 3: the responder cannot answer now.
    TryLater = 3,
    /// 5: the request must be signed.
    SigRequired = 5,
    /// 6: not for this client, or not by this responder.
    Unauthorized = 6,
}
