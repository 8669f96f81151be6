//! Certification authorities: the tree, import, cross-signing, renewal, retirement.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An authority to make.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAuthority {
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "web", min_length = 1, max_length = 64))]
    pub name: String,
    /// Its distinguished name.
    #[cfg_attr(feature = "schemas", schema(example = "CN=Example Web CA, O=Example, C=DE"))]
    pub subject: String,
    /// Above it, by id or name: an intermediate. Without, and without `external`: a root.
    pub parent: Option<String>,
    /// An intermediate below an authority elsewhere: the answer has a request for it to sign.
    #[serde(default)]
    pub external: bool,
    /// The kind of key to make; `p384` for a root and `p256` for others unless given.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>, example = "p256"))]
    pub key_type: Option<String>,
    /// What shall hold the key (`pkcs11`); the database, sealed, unless given.
    pub key_provider: Option<String>,
    /// Its life; ten years for a root and five for others unless given.
    #[cfg_attr(feature = "schemas", schema(minimum = 3600))]
    pub lifetime_seconds: Option<i64>,
    /// Authorities that may stand below it in a path; 0 for an intermediate, any number for a root unless given.
    pub path_length: Option<u32>,
    /// Names that certificates below it may have.
    pub name_limits: Option<NewNameLimits>,
    /// Certificate policies, dotted.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Extended key usages that certificates below it may have, dotted; any unless given.
    #[serde(default)]
    pub extended_key_usage: Vec<String>,
}

/// Names permitted and excluded: `dns:example.com`, `ip:10.0.0.0/8`, `email:example.com`, `uri:.example.com`,
/// `dir:O=Example, C=DE`.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewNameLimits {
    /// Of each kind of name in here, names must fall under one of these.
    #[serde(default)]
    pub permitted: Vec<String>,
    /// Names must fall under none of these.
    #[serde(default)]
    pub excluded: Vec<String>,
}

/// An authority to take in, with its key. It has no `Debug`: the key must not come into a log.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportedAuthority {
    /// Its name, unique.
    pub name: String,
    /// Its certificate in PEM, then those above it; the root may be left out.
    pub certificates: String,
    /// Its private key in PEM.
    #[cfg_attr(feature = "schemas", schema(format = Password))]
    pub key: String,
}

/// A certificate for an authority that waits for one.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InstalledCertificate {
    /// The certificate and its chain, PEM, leaf first.
    pub certificates: String,
}

/// A cross-signature by another CA.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CrossSignature {
    /// The authority that signs, by id or name.
    pub by: String,
}

/// How to renew.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Renewing {
    /// Its life from now; as long as the old certificate was made for unless given.
    #[cfg_attr(feature = "schemas", schema(minimum = 3600))]
    pub lifetime_seconds: Option<i64>,
}

/// How to retire.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Retiring {
    /// Though profiles name it, no other authority issues, or certificates that it issued need its CRL.
    #[serde(default)]
    pub force: bool,
}

/// Result of retiring a CA.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Retired {
    /// `retiring`: it issues no more; `retired`: it signs nothing any more.
    pub state: String,
}

/// A certification authority.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuthorityView {
    /// Its id: it stands in the addresses that certificates carry.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// `pending` (its request waits for a certificate), `active`, `retiring` (issues no more) or `retired`.
    pub state: String,
    /// The credential that it is, for one that the credential store keeps.
    pub credential: Option<String>,
    /// The authority here above it.
    pub parent: Option<Uuid>,
    /// Whether it is a root.
    pub root: bool,
    /// Whether certificates of profiles that name no CA are issued from it.
    pub default: bool,
    /// Its distinguished name.
    pub subject: Option<String>,
    /// The kind of its key.
    pub key_type: Option<String>,
    /// SHA-256 of its certificate.
    pub fingerprint: Option<String>,
    /// Its serial number, hexadecimal.
    pub serial: Option<String>,
    /// First moment of validity.
    pub not_before: Option<String>,
    /// Last second of validity.
    pub not_after: Option<String>,
    /// Its certificate in PEM.
    pub certificate: Option<String>,
    /// What a server sends above a certificate issued here, in PEM: this authority's certificate, then upwards without
    /// the root.
    pub chain: Option<String>,
    /// The root's certificate in PEM, where it is known.
    pub anchor: Option<String>,
    /// The certification request in PEM of one that is pending.
    pub request: Option<String>,
    /// URLs of its CRLs, OCSP responder and certificate.
    pub urls: Option<AuthorityUrls>,
    /// When it was made or taken in.
    pub created_at: String,
    /// Since when it issues no more.
    pub retiring_at: Option<String>,
    /// Since when it signs nothing any more.
    pub retired_at: Option<String>,
}

/// URLs of a CA's CRLs, OCSP responder and certificate.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AuthorityUrls {
    /// Its certificate.
    pub certificate: String,
    /// Its full CRL.
    pub crl: String,
    /// Its delta CRL.
    pub delta_crl: String,
    /// Its OCSP responder.
    pub ocsp: String,
}

/// What an authority publishes: its CRLs and its OCSP responder.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct PublicationView {
    /// The authority.
    pub ca: Uuid,
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(example = "issuing"))]
    pub name: String,
    /// Its CRLs: the full one, the delta, the shards.
    pub crls: Vec<CrlStatusView>,
    /// Its OCSP responder; null when none was asked yet.
    pub ocsp: Option<ResponderStatusView>,
}

/// The state of one CRL.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CrlStatusView {
    /// `full`, `delta` or the number of the shard.
    #[cfg_attr(feature = "schemas", schema(example = "full"))]
    pub part: String,
    /// `current`; `pending` when revocations wait for the next one, or none was made yet; `failing` when the last attempt
    /// failed; `expired` when the newest has ended.
    #[cfg_attr(feature = "schemas", schema(example = "current"))]
    pub state: String,
    /// Its number (RFC 5280 section 5.2.3); null when none was made yet.
    pub number: Option<i64>,
    /// Creation time, RFC 3339.
    pub this_update: Option<String>,
    /// When it ends, RFC 3339.
    pub next_update: Option<String>,
    /// When the next one is made at the latest, RFC 3339.
    pub refresh_at: Option<String>,
    /// Seconds since it was made.
    pub age_seconds: Option<i64>,
    /// Number of certificates on the CRL.
    pub entries: i64,
    /// Attempts since then that failed.
    pub failures: i64,
    /// When the last of them failed, RFC 3339.
    pub failed_at: Option<String>,
    /// The last error.
    pub last_error: Option<String>,
}

/// The state of an OCSP responder.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ResponderStatusView {
    /// `current`, or `expired`: a new responder certificate is issued with the next answer.
    #[cfg_attr(feature = "schemas", schema(example = "current"))]
    pub state: String,
    /// Start of the responder certificate's validity, RFC 3339.
    pub not_before: String,
    /// Its end, RFC 3339.
    pub not_after: String,
}
