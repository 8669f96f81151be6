//! Certification authorities: the tree, import, cross-signing, renewal, retirement.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A certification authority (CA) to create.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAuthority {
    /// Name of the CA, unique.
    #[cfg_attr(feature = "schemas", schema(example = "web", min_length = 1, max_length = 64))]
    pub name: String,
    /// Distinguished name of the CA.
    #[cfg_attr(feature = "schemas", schema(example = "CN=Example Web CA, O=Example, C=DE"))]
    pub subject: String,
    /// Identifier or name of the parent CA. Without `parent` and without `external`, the new CA is a root.
    pub parent: Option<String>,
    /// Whether the new CA is an intermediate of a CA outside this server. The response then contains a CSR for the external CA to
    /// sign.
    #[serde(default)]
    pub external: bool,
    /// Key type; when absent, `p384` for a root and `p256` for an intermediate.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>, example = "p256"))]
    pub key_type: Option<String>,
    /// Key provider that stores the key (`pkcs11`). When absent, the key is stored encrypted in the database.
    pub key_provider: Option<String>,
    /// Lifetime in seconds; when absent, ten years for a root and five years for an intermediate.
    #[cfg_attr(feature = "schemas", schema(minimum = 3600))]
    pub lifetime_seconds: Option<i64>,
    /// Maximum number of intermediate CAs below this CA in a chain (path length constraint). When absent, 0 for an intermediate and
    /// unlimited for a root.
    pub path_length: Option<u32>,
    /// Constraints on the names in certificates below this CA.
    pub name_limits: Option<NewNameLimits>,
    /// Certificate policies, as dotted OIDs.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Extended key usages allowed in certificates below this CA, as dotted OIDs. An empty list allows any.
    #[serde(default)]
    pub extended_key_usage: Vec<String>,
}

/// Permitted and excluded names: `dns:example.com`, `ip:10.0.0.0/8`, `email:example.com`, `uri:.example.com`, `dir:O=Example,
/// C=DE`.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewNameLimits {
    /// Permitted subtrees. If the list has entries of one kind of name, every name of that kind must match one of them.
    #[serde(default)]
    pub permitted: Vec<String>,
    /// Excluded subtrees. No name may match one of them.
    #[serde(default)]
    pub excluded: Vec<String>,
}

/// A CA to import with its private key. The type has no `Debug`, so that the key cannot be logged.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportedAuthority {
    /// Name of the CA, unique.
    pub name: String,
    /// Certificate of the CA and then its parent CAs, PEM. The root may be omitted.
    pub certificates: String,
    /// Private key of the CA, PEM.
    #[cfg_attr(feature = "schemas", schema(format = Password))]
    pub key: String,
}

/// A certificate to install in a CA that waits for its certificate.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InstalledCertificate {
    /// The certificate and its chain, PEM, leaf first.
    pub certificates: String,
}

/// Request body of a cross-signature: the CA that signs.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CrossSignature {
    /// Identifier or name of the CA that signs.
    pub by: String,
}

/// Options for renewing a CA.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Renewing {
    /// Lifetime of the new certificate in seconds; the lifetime of the old certificate when absent.
    #[cfg_attr(feature = "schemas", schema(minimum = 3600))]
    pub lifetime_seconds: Option<i64>,
}

/// Options for retiring a CA.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Retiring {
    /// Whether to retire the CA even if profiles use it, no other CA can issue, or certificates that it issued need its CRL.
    #[serde(default)]
    pub force: bool,
}

/// Result of retiring a CA.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Retired {
    /// New state: `retiring` (the CA issues no more certificates) or `retired` (the CA no longer signs anything).
    pub state: String,
}

/// A certification authority (CA) on this server, with its certificate and state.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuthorityView {
    /// Identifier of the CA. It is part of the URLs in issued certificates.
    pub id: Uuid,
    /// Name of the CA, unique.
    pub name: String,
    /// State: `pending` (waits for the certificate from its parent), `active`, `retiring` (issues no more certificates) or
    /// `retired`.
    pub state: String,
    /// Name of the credential, for a CA in the credential store.
    pub credential: Option<String>,
    /// Identifier of the parent CA on this server.
    pub parent: Option<Uuid>,
    /// Whether the CA is a root.
    pub root: bool,
    /// Whether this CA issues the certificates of profiles that name no CA.
    pub default: bool,
    /// Distinguished name of the CA.
    pub subject: Option<String>,
    /// Key type, such as `p384`.
    pub key_type: Option<String>,
    /// SHA-256 fingerprint of the certificate.
    pub fingerprint: Option<String>,
    /// Serial number of the certificate, hexadecimal.
    pub serial: Option<String>,
    /// First second of validity, RFC 3339.
    pub not_before: Option<String>,
    /// Last second of validity, RFC 3339.
    pub not_after: Option<String>,
    /// Certificate of the CA, PEM.
    pub certificate: Option<String>,
    /// Chain that a server sends after a certificate issued by this CA, PEM: the certificate of this CA and of its parents, without
    /// the root.
    pub chain: Option<String>,
    /// Certificate of the root, PEM, if known.
    pub anchor: Option<String>,
    /// CSR of a pending CA, PEM.
    pub request: Option<String>,
    /// URLs of the CA's CRLs, OCSP responder and certificate.
    pub urls: Option<AuthorityUrls>,
    /// Time at which the CA was created or imported.
    pub created_at: String,
    /// Time after which the CA issues no more certificates, RFC 3339.
    pub retiring_at: Option<String>,
    /// Time after which the CA no longer signs anything, RFC 3339.
    pub retired_at: Option<String>,
}

/// URLs of a CA's CRLs, OCSP responder and certificate.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuthorityUrls {
    /// URL of the CA certificate.
    pub certificate: String,
    /// URL of the full CRL.
    pub crl: String,
    /// URL of the delta CRL.
    pub delta_crl: String,
    /// URL of the OCSP responder.
    pub ocsp: String,
}

/// State of the CRLs and of the OCSP responder of a CA.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct PublicationView {
    /// UUID of the CA, as in `/api/v1/authorities/{ca}`.
    pub ca: Uuid,
    /// Name of the CA.
    #[cfg_attr(feature = "schemas", schema(example = "issuing"))]
    pub name: String,
    /// CRLs of the CA: the full CRL, the delta CRL and the shards.
    pub crls: Vec<CrlStatusView>,
    /// OCSP responder of the CA; null if it has not yet received a request.
    pub ocsp: Option<ResponderStatusView>,
}

/// The state of one CRL.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CrlStatusView {
    /// Part of the revocations that the CRL covers: `full`, `delta` or the number of a shard.
    #[cfg_attr(feature = "schemas", schema(example = "full"))]
    pub part: String,
    /// State of the CRL. `current`; `pending` if revocations wait for the next CRL or no CRL was issued yet; `failing` if the
    /// last attempt failed; `expired` if the newest CRL has expired.
    #[cfg_attr(feature = "schemas", schema(example = "current"))]
    pub state: String,
    /// CRL number (RFC 5280 section 5.2.3); null if no CRL was issued yet.
    pub number: Option<i64>,
    /// Creation time, RFC 3339.
    pub this_update: Option<String>,
    /// Expiry time, RFC 3339.
    pub next_update: Option<String>,
    /// Latest time at which the next CRL is issued, RFC 3339.
    pub refresh_at: Option<String>,
    /// Age of the newest CRL in seconds.
    pub age_seconds: Option<i64>,
    /// Number of certificates on the CRL.
    pub entries: i64,
    /// Number of failed attempts since the newest CRL.
    pub failures: i64,
    /// Time of the last failed attempt, RFC 3339.
    pub failed_at: Option<String>,
    /// Error of the last failed attempt.
    pub last_error: Option<String>,
}

/// The state of an OCSP responder.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ResponderStatusView {
    /// State of the responder certificate: `current` or `expired`. If expired, a new one is issued before the next response.
    #[cfg_attr(feature = "schemas", schema(example = "current"))]
    pub state: String,
    /// Start of the responder certificate's validity, RFC 3339.
    pub not_before: String,
    /// End of the responder certificate's validity, RFC 3339.
    pub not_after: String,
}
