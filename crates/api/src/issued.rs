//! Certificates issued from a CSR, and the list of everything issued.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::listing::Direction;

/// A request for a certificate.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewIssued {
    /// The certification request (PKCS #10) in PEM.
    pub csr: String,
    /// Names instead of those in the request.
    pub names: Option<Vec<String>>,
    /// A subject instead of the one in the request.
    #[cfg_attr(feature = "schemas", schema(example = "CN=www.example.com"))]
    pub subject: Option<String>,
    /// The first moment; now, a little backdated, unless given.
    pub not_before: Option<String>,
    /// The life; the profile's unless given.
    #[cfg_attr(feature = "schemas", schema(minimum = 1))]
    pub lifetime_seconds: Option<i64>,
    /// Whether the server must staple; as the request says unless given.
    pub must_staple: Option<bool>,
    /// The authority, by id or name; the profile's unless given.
    pub ca: Option<String>,
}

/// A certificate just issued.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuedCertificate {
    /// Its id.
    pub id: Uuid,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of its DER.
    pub fingerprint: String,
    /// The authority that signed.
    pub ca: Uuid,
    /// The profile.
    pub profile: String,
    /// First moment of validity.
    pub not_before: String,
    /// Last second of validity.
    pub not_after: String,
    /// The certificate and those above it without the root, in PEM, as servers want it.
    pub chain: String,
}

/// A certificate issued here.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuedView {
    /// Its id.
    pub id: Uuid,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of its DER.
    pub fingerprint: String,
    /// The authority that signed.
    pub ca: Uuid,
    /// The profile; empty for certificates of authorities and responders.
    pub profile: String,
    /// The protocol of the request.
    pub source: String,
    /// The requester.
    pub requester: String,
    /// Its subject.
    pub subject: String,
    /// Its names.
    pub names: Vec<String>,
    /// The kind of its key.
    pub key_algorithm: String,
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub spki_sha256: String,
    /// When it was issued.
    pub issued_at: String,
    /// First moment of validity.
    pub not_before: String,
    /// Last second of validity.
    pub not_after: String,
    /// `good`, `expired` or `revoked`.
    pub status: String,
    /// When it was revoked.
    pub revoked_at: Option<String>,
    /// Why.
    pub revocation_reason: Option<String>,
    /// Itself in PEM.
    pub certificate: String,
}

/// Which certificates to list; all conditions together.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct IssuedQuery {
    /// By this profile.
    pub profile: Option<String>,
    /// By this authority, by id or name.
    pub ca: Option<String>,
    /// For this requester.
    pub requester: Option<String>,
    /// Over this protocol: `api`, `acme`, `est`, `scep`, `lifecycle`, `system`.
    pub source: Option<String>,
    /// With a name that is this one or lies below it.
    pub name: Option<String>,
    /// Issued at this time or later.
    pub from: Option<String>,
    /// Issued before this time.
    pub before: Option<String>,
    /// With this serial number, hexadecimal; colons may be between the bytes.
    #[cfg_attr(feature = "schemas", param(example = "79c2e1f04b3a"))]
    pub serial: Option<String>,
    /// With this SHA-256 fingerprint, hexadecimal.
    pub fingerprint: Option<String>,
    /// With this public key: SHA-256 of the SubjectPublicKeyInfo, hexadecimal.
    pub key: Option<String>,
    /// `desc`, the newest first, or `asc`.
    #[cfg_attr(feature = "schemas", param(inline))]
    pub order: Option<Direction>,
}
