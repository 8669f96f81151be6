//! An order for a certificate, and when to renew one.

use std::sync::Arc;
use std::time::Instant;

use x509::{GeneralName, UnixTime};

/// An order for a certificate.
#[derive(Clone, Debug)]
pub struct Order {
    /// Identifies this order for good: at most [`ORDER_KEY_MAX`] bytes, the same at every repetition.
    pub key: String,
    /// A PKCS #10 request, signed.
    pub csr_der: Vec<u8>,
    /// The names the certificate must hold: no more, no less.
    pub names: Vec<GeneralName>,
    /// The issuer's profile, role or provisioner, if it has one.
    pub profile: Option<String>,
    /// How long it should be valid, seconds; `None` leaves it to the issuer.
    pub lifetime_seconds: Option<i64>,
    /// The certificate this one takes the place of, in DER.
    pub replaces: Option<Arc<[u8]>>,
    /// When an answer is of no more use.
    pub deadline: Instant,
    /// The requester, as in the audit log.
    pub requester: String,
}

/// Bytes of the longest [`Order::key`].
pub const ORDER_KEY_MAX: usize = 200;

/// When to renew, as the issuer suggests (RFC 9773 section 4.2).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Window {
    /// The first moment.
    pub start: UnixTime,
    /// The last moment. A window wholly in the past means: now.
    pub end: UnixTime,
    /// When to ask again, seconds: 60 to 86 400 whatever the issuer said.
    pub retry_after_seconds: u32,
    /// A page that tells people why.
    pub explanation: Option<String>,
}
