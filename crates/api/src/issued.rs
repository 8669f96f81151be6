//! Certificates issued from a CSR, and the list of all issued certificates.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::listing::Direction;

/// A request to issue a certificate.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewIssued {
    /// The certification signing request (PKCS #10) in PEM.
    pub csr: String,
    /// Subject alternative names that replace those in the CSR.
    pub names: Option<Vec<String>>,
    /// Subject that replaces the one in the CSR.
    #[cfg_attr(feature = "schemas", schema(example = "CN=www.example.com"))]
    pub subject: Option<String>,
    /// Start of validity; slightly before the current time when absent.
    pub not_before: Option<String>,
    /// Lifetime in seconds; the default of the profile when absent.
    #[cfg_attr(feature = "schemas", schema(minimum = 1))]
    pub lifetime_seconds: Option<i64>,
    /// Whether servers must staple OCSP responses (RFC 7633); determined by the CSR when absent.
    pub must_staple: Option<bool>,
    /// Identifier or name of the CA; the CA of the profile when absent.
    pub ca: Option<String>,
}

/// A newly issued certificate, with its chain.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuedCertificate {
    /// UUID of the certificate, used in `/api/v1/issued/{id}`.
    pub id: Uuid,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of the certificate in DER.
    pub fingerprint: String,
    /// Identifier of the CA that signed.
    pub ca: Uuid,
    /// Profile with which the certificate was issued.
    pub profile: String,
    /// First second of validity, RFC 3339.
    pub not_before: String,
    /// Last second of validity, RFC 3339.
    pub not_after: String,
    /// The certificate and its CA certificates without the root, PEM, in the order that servers expect.
    pub chain: String,
}

/// A certificate issued by this server.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuedView {
    /// UUID of the certificate, used in `/api/v1/issued/{id}`.
    pub id: Uuid,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of the certificate in DER.
    pub fingerprint: String,
    /// Identifier of the CA that signed.
    pub ca: Uuid,
    /// Profile with which the certificate was issued; empty for certificates of CAs and OCSP responders.
    pub profile: String,
    /// Protocol of the request: `api`, `acme`, `est`, `scep`, `lifecycle` or `system`.
    pub source: String,
    /// Actor that requested the certificate.
    pub requester: String,
    /// Subject of the certificate as text (RFC 4514).
    pub subject: String,
    /// Subject alternative names.
    pub names: Vec<String>,
    /// Algorithm of the key, such as `RSA` or `P-256`.
    pub key_algorithm: String,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: String,
    /// Time of issue, RFC 3339.
    pub issued_at: String,
    /// First second of validity, RFC 3339.
    pub not_before: String,
    /// Last second of validity, RFC 3339.
    pub not_after: String,
    /// Status: `good`, `expired` or `revoked`.
    pub status: String,
    /// Revocation time, RFC 3339.
    pub revoked_at: Option<String>,
    /// Revocation reason of RFC 5280 section 5.3.1, such as `superseded`.
    pub revocation_reason: Option<String>,
    /// The certificate, PEM.
    pub certificate: String,
}

/// Query parameters of `GET /api/v1/issued`. All given conditions must match.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct IssuedQuery {
    /// Only certificates of this profile.
    pub profile: Option<String>,
    /// Only certificates of this CA, by identifier or name.
    pub ca: Option<String>,
    /// Only certificates of this requester.
    pub requester: Option<String>,
    /// Only certificates requested over this protocol: `api`, `acme`, `est`, `scep`, `lifecycle`, `system`.
    pub source: Option<String>,
    /// Only certificates with this name or a subdomain of it.
    pub name: Option<String>,
    /// Only certificates issued at or after this time.
    pub from: Option<String>,
    /// Only certificates issued before this time.
    pub before: Option<String>,
    /// Only the certificate with this serial number, hexadecimal. Colons between the bytes are allowed.
    #[cfg_attr(feature = "schemas", param(example = "79c2e1f04b3a"))]
    pub serial: Option<String>,
    /// Only the certificate with this SHA-256 fingerprint, hexadecimal.
    pub fingerprint: Option<String>,
    /// Only certificates with this public key: SHA-256 of the SubjectPublicKeyInfo, hexadecimal.
    pub key: Option<String>,
    /// Sort order by time of issue: `desc` (newest first) or `asc`.
    #[cfg_attr(feature = "schemas", param(inline))]
    pub order: Option<Direction>,
}
