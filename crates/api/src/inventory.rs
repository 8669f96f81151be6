//! Found certificates: claimed into management, or dismissed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::certificates::{KeyLocationBody, TargetBody};
use crate::endpoints::EndpointBody;

/// What was found at an endpoint.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct FoundView {
    /// The endpoint.
    pub endpoint: EndpointBody,
    /// What the last look came to.
    pub outcome: String,
    /// Whether the last look saw a certificate.
    pub answering: bool,
    /// The severity of the worst finding, higher is worse.
    pub severity: Option<u8>,
    /// The last certificate seen.
    pub leaf: Option<LeafView>,
    /// `unmanaged`, `managed`, `ignored` (for a time) or `dismissed` (for good); null when no certificate was ever seen.
    pub state: Option<String>,
    /// The certificate under management that it is a version of.
    pub certificate: Option<Uuid>,
    /// Why it is ignored or dismissed.
    pub note: Option<String>,
    /// Until when it is ignored, RFC 3339.
    pub ignored_until: Option<String>,
    /// The team that answers for it, by the rules of ownership as they stand; of a managed certificate its own team counts.
    pub team: Option<String>,
    /// The owner, by the same rule.
    pub owner: Option<String>,
    /// The environment, by the same rule.
    pub environment: Option<String>,
    /// Labels, by the same rule.
    pub tags: BTreeMap<String, String>,
    /// First look, RFC 3339.
    pub first_seen_at: String,
    /// Last look, RFC 3339.
    pub last_seen_at: String,
}

/// A certificate that was seen.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = FoundLeaf))]
pub struct LeafView {
    /// The SHA-256 fingerprint.
    pub fingerprint: String,
    /// Its subject.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// End of validity, RFC 3339.
    pub not_after: String,
    /// The key's algorithm.
    pub key_algorithm: String,
    /// The key's size in bits.
    pub key_bits: u32,
}

/// What was found, to be managed from now on. Either `endpoint` or `fingerprint`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// What this endpoint shows; the endpoint becomes a target.
    pub endpoint: Option<EndpointBody>,
    /// The certificate with this SHA-256.
    pub fingerprint: Option<String>,
    /// Its name, unique; its first name when absent.
    pub name: Option<String>,
    /// The profile its next version is issued by.
    pub profile: String,
    /// The issuer of its next version; `internal` when absent.
    pub issuer: Option<String>,
    /// Who answers for it; when neither this nor `team` is given, both are as the rules of ownership say.
    pub owner: Option<String>,
    /// The team that does.
    pub team: Option<String>,
    /// Where it is used; as the rules of ownership say when absent.
    pub environment: Option<String>,
    /// The renewal policy.
    pub policy: Option<String>,
    /// Where its next key is made and kept; in this server when absent.
    pub key_location: Option<KeyLocationBody>,
    /// Deployment targets in addition to the endpoint.
    #[serde(default)]
    pub targets: Vec<TargetBody>,
    /// Whether the scheduler renews it; true when absent.
    pub auto_renew: Option<bool>,
    /// When it is renewed, in place of its policy's rule.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Value>,
    /// For people.
    #[serde(default)]
    pub notes: String,
}

/// A certificate that was claimed.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ClaimedView {
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
}

/// A certificate that is not to be managed.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DismissBody {
    /// Its SHA-256.
    pub fingerprint: String,
    /// Why.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 8192))]
    pub note: String,
    /// Until when, RFC 3339: it is ignored for a time. For good without.
    pub until: Option<String>,
}

/// A dismissal to take back.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UndismissBody {
    /// The certificate's SHA-256.
    pub fingerprint: String,
}

/// Filters for found certificates.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct InventoryQuery {
    /// Whose host holds this text.
    pub host: Option<String>,
    /// Whose certificate's issuer holds this text.
    pub issuer: Option<String>,
    /// Whose certificate ends before this time, RFC 3339.
    pub expires_before: Option<String>,
    /// Whose certificate ends at this time or later, RFC 3339.
    pub expires_after: Option<String>,
    /// Whether the last look saw a certificate.
    pub answering: Option<bool>,
    /// Of this team, by the rules of ownership. With this, `owner` or `nobody` a page looks at 5,000 endpoints at most: it may
    /// have fewer items than asked for, or none, and still a `next`.
    pub team: Option<String>,
    /// Of this owner, by the rules of ownership.
    pub owner: Option<String>,
    /// Only those for which no rule names a team or an owner.
    pub nobody: Option<bool>,
    /// `expiry` (also when absent) or `host`.
    pub sort: Option<String>,
}
