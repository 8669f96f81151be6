//! Revocation by certificate, key or filter; blocked keys.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What to revoke: exactly one of `certificate`, `serial`, `certificates`, `key` and `filter`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRevocation {
    /// Why, as in RFC 5280: `keyCompromise`, `superseded`, `cessationOfOperation`, `certificateHold`, …
    /// `removeFromCRL` takes certificates off hold.
    #[cfg_attr(feature = "schemas", schema(example = "superseded"))]
    pub reason: String,
    /// The date in the CRL; now unless given.
    pub revoked_at: Option<String>,
    /// Since when the key is thought to be compromised; with `keyCompromise` only.
    pub invalid_since: Option<String>,
    /// One certificate, by id or fingerprint.
    pub certificate: Option<String>,
    /// One certificate, by its authority and serial number.
    pub serial: Option<IssuerSerial>,
    /// These certificates, by id.
    #[cfg_attr(feature = "schemas", schema(max_items = 10000))]
    pub certificates: Option<Vec<Uuid>>,
    /// All with this public key: SHA-256 of the SubjectPublicKeyInfo.
    pub key: Option<String>,
    /// All that all conditions hold for.
    pub filter: Option<RevocationConditions>,
}

/// A certificate by its authority and serial number.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IssuerSerial {
    /// The authority, by id or name.
    pub ca: String,
    /// The serial number, hexadecimal.
    pub serial: String,
}

/// Conditions, at least one.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevocationConditions {
    /// Issued by this profile.
    pub profile: Option<String>,
    /// By this authority, by id or name.
    pub ca: Option<String>,
    /// With a name that is this one or lies below it.
    pub name: Option<String>,
    /// Only certificates requested over this protocol.
    pub source: Option<String>,
    /// For this requester.
    pub requester: Option<String>,
    /// At this time or later.
    pub issued_after: Option<String>,
    /// Before this time.
    pub issued_before: Option<String>,
}

/// Result of a revocation.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RevocationView {
    /// Certificates whose state it changed.
    pub count: u64,
    /// Those that were in that state already.
    pub already: u64,
    /// Expired certificates, which CRLs do not list.
    pub expired: u64,
    /// The call, as the audit log names it.
    pub action: Uuid,
}

/// A key to block: exactly one of `key` and `certificate`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewBlockedKey {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub key: Option<String>,
    /// A certificate with the key: its id or fingerprint, or itself in PEM.
    pub certificate: Option<String>,
}

/// A key, and whether it is blocked.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BlockedKeyView {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub key: String,
    /// Whether nothing is issued for it.
    pub blocked: bool,
}

/// Which revocations to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct RevocationQuery {
    /// Of this authority, by id or name.
    pub ca: Option<String>,
}

/// A revoked certificate.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RevokedView {
    /// The certificate: `/api/v1/issued/{id}` shows it.
    pub certificate: Uuid,
    /// The authority that issued it.
    pub ca: Uuid,
    /// Its serial number, hexadecimal.
    #[cfg_attr(feature = "schemas", schema(example = "79c2e1f04b3a"))]
    pub serial: String,
    /// The profile it was issued by.
    pub profile: String,
    /// Why; `removeFromCRL` when a hold was lifted: the certificate is good again.
    #[cfg_attr(feature = "schemas", schema(example = "superseded"))]
    pub reason: String,
    /// The date in the CRL, RFC 3339.
    pub revoked_at: String,
    /// When it was recorded, RFC 3339.
    pub recorded_at: String,
    /// End of its validity, RFC 3339: after it no CRL lists the certificate.
    pub not_after: String,
    /// Actor that revoked it.
    pub actor: String,
    /// The call, as the audit log names it.
    pub action: Uuid,
}

/// A key for which nothing is issued.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BlockedKeyEntry {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub key: String,
    /// When it was blocked, RFC 3339.
    pub blocked_at: String,
    /// Actor that blocked it.
    pub actor: String,
}
