//! Orders for certificates, and renewal windows.

use std::sync::Arc;
use std::time::Instant;

use uuid::Uuid;
use x509::{GeneralName, UnixTime};

/// An order for a certificate, as sent to an issuer.
#[derive(Clone, Debug)]
pub struct Order {
    /// Permanent identifier of the order: at most [`ORDER_KEY_MAX`] bytes, the same at every repetition.
    pub key: String,
    /// A signed PKCS #10 request in DER.
    pub csr_der: Vec<u8>,
    /// Names that the certificate must contain. Other names are allowed only by `NameRule::MayAdd`.
    pub names: Vec<GeneralName>,
    /// The issuer's profile, role or provisioner, if any.
    pub profile: Option<String>,
    /// Profile of the managed certificate. The internal CA uses only this profile, because its rules about names, teams and
    /// approval were already checked. `None` for an order without a managed certificate, such as a test.
    pub certificate_profile: Option<String>,
    /// Id of the internal CA that was approved for this order. `None`: the issuer or the profile selects the CA.
    pub ca: Option<Uuid>,
    /// Requested lifetime in seconds. `None`: the issuer decides.
    pub lifetime_seconds: Option<i64>,
    /// Certificate that the new certificate replaces, in DER.
    pub replaces: Option<Arc<[u8]>>,
    /// Time after which the result is no longer needed.
    pub deadline: Instant,
    /// Requester in the notation of the audit log.
    pub requester: String,
}

/// Maximum bytes of an [`Order::key`].
pub const ORDER_KEY_MAX: usize = 200;

/// Renewal window that the issuer suggests (RFC 9773 section 4.2).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Window {
    /// Earliest suggested time of the renewal.
    pub start: UnixTime,
    /// End of the window. A window entirely in the past means immediately.
    pub end: UnixTime,
    /// Seconds until the next request, limited to 60 to 86 400.
    pub retry_after_seconds: u32,
    /// URL of a page with a human-readable explanation.
    pub explanation: Option<String>,
}
