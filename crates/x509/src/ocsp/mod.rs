//! The online certificate status protocol (RFC 6960): requests read and written, responses built, and
//! stapled ones read.

mod basic;
mod build;
mod checked;
mod request;
mod response;

pub use basic::{BasicResponse, ResponderError, ResponseError, SingleAnswer};
pub use build::{Answer, basic_response, error_response, tbs_response};
pub use checked::{NoAnswer, checked};
pub use request::{CertificateId, OcspHash, Request};
pub use response::{Outcome, Responder, Response, parse_response};

use crate::UnixTime;
use crate::crl::Reason;

/// Octets of a response that are read; real ones have 500 to 3,000.
pub const RESPONSE_MAX: usize = 64 * 1024;

/// What the responder says of a certificate (RFC 6960 section 4.2.1, CertStatus).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Status {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked {
        /// When.
        at: UnixTime,
        /// Why, when that is told.
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
