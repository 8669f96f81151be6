//! Revocation by certificate, key or filter; blocked keys.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A request to revoke certificates. Give exactly one of `certificate`, `serial`, `certificates`, `key` and `filter`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRevocation {
    /// Revocation reason of RFC 5280: `keyCompromise`, `superseded`, `cessationOfOperation`, `certificateHold`, … `removeFromCRL`
    /// releases certificates from hold.
    #[cfg_attr(feature = "schemas", schema(example = "superseded"))]
    pub reason: String,
    /// Revocation date in the CRL; now when absent.
    pub revoked_at: Option<String>,
    /// Time from which the key is suspected to be compromised (invalidity date); only with `keyCompromise`.
    pub invalid_since: Option<String>,
    /// Identifier or fingerprint of one certificate.
    pub certificate: Option<String>,
    /// CA and serial number of one certificate.
    pub serial: Option<IssuerSerial>,
    /// Identifiers of several certificates.
    #[cfg_attr(feature = "schemas", schema(max_items = 10000))]
    pub certificates: Option<Vec<Uuid>>,
    /// SHA-256 of a SubjectPublicKeyInfo. All certificates with this public key are revoked.
    pub key: Option<String>,
    /// Filter. All matching certificates are revoked.
    pub filter: Option<RevocationConditions>,
}

/// A certificate, identified by its CA and serial number.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IssuerSerial {
    /// Identifier or name of the CA.
    pub ca: String,
    /// The serial number, hexadecimal.
    pub serial: String,
}

/// Conditions for certificates to revoke. At least one is required; all given conditions must match.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevocationConditions {
    /// Only certificates of this profile.
    pub profile: Option<String>,
    /// Only certificates of this CA, by identifier or name.
    pub ca: Option<String>,
    /// Only certificates with this name or a subdomain of it.
    pub name: Option<String>,
    /// Only certificates requested over this protocol.
    pub source: Option<String>,
    /// Only certificates of this requester.
    pub requester: Option<String>,
    /// Only certificates issued at or after this time.
    pub issued_after: Option<String>,
    /// Only certificates issued before this time.
    pub issued_before: Option<String>,
}

/// Result of a revocation: the number of changed, unchanged and expired certificates.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RevocationView {
    /// Number of certificates whose state changed.
    pub count: u64,
    /// Number of certificates that already had the requested state.
    pub already: u64,
    /// Number of expired certificates. CRLs do not list them.
    pub expired: u64,
    /// Identifier of the request in the audit log.
    pub action: Uuid,
}

/// A key to block. Give exactly one of `key` and `certificate`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewBlockedKey {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub key: Option<String>,
    /// Certificate with the key: its identifier, its fingerprint, or the certificate in PEM.
    pub certificate: Option<String>,
}

/// A public key, and whether it is blocked.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BlockedKeyView {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub key: String,
    /// Whether the key is blocked. No certificate is issued for a blocked key.
    pub blocked: bool,
}

/// Query parameters of `GET /api/v1/revocations`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct RevocationQuery {
    /// Only revocations of this CA, by identifier or name.
    pub ca: Option<String>,
}

/// A revoked certificate.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RevokedView {
    /// Identifier of the certificate. `/api/v1/issued/{id}` returns the certificate.
    pub certificate: Uuid,
    /// Identifier of the CA that issued the certificate.
    pub ca: Uuid,
    /// Serial number, hexadecimal.
    #[cfg_attr(feature = "schemas", schema(example = "79c2e1f04b3a"))]
    pub serial: String,
    /// Profile with which the certificate was issued.
    pub profile: String,
    /// Revocation reason. `removeFromCRL` means that a hold was released and the certificate is valid again.
    #[cfg_attr(feature = "schemas", schema(example = "superseded"))]
    pub reason: String,
    /// Revocation date in the CRL, RFC 3339.
    pub revoked_at: String,
    /// Time at which the revocation was recorded, RFC 3339.
    pub recorded_at: String,
    /// End of validity, RFC 3339. CRLs do not list the certificate after this time.
    pub not_after: String,
    /// Actor that revoked the certificate.
    pub actor: String,
    /// Identifier of the request in the audit log.
    pub action: Uuid,
}

/// A blocked key. No certificate is issued for it.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BlockedKeyEntry {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub key: String,
    /// Time at which the key was blocked, RFC 3339.
    pub blocked_at: String,
    /// Actor that blocked the key.
    pub actor: String,
}
