//! Certificates found by scans, and requests to claim or dismiss them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::certificates::{KeyLocationBody, TargetBody};
use crate::endpoints::EndpointBody;

/// The scan result of an endpoint.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct FoundView {
    /// Endpoint that was scanned.
    pub endpoint: EndpointBody,
    /// Outcome of the last scan.
    pub outcome: String,
    /// Whether the endpoint presented a certificate in the last scan.
    pub answering: bool,
    /// Severity of the worst finding; a higher number is worse.
    pub severity: Option<u8>,
    /// Certificate that was last seen at the endpoint.
    pub leaf: Option<LeafView>,
    /// State of the certificate: `unmanaged`, `managed`, `ignored` (temporarily) or `dismissed` (permanently); null if no
    /// certificate was ever seen.
    pub state: Option<String>,
    /// Managed certificate that has the found certificate as a version.
    pub certificate: Option<Uuid>,
    /// Reason why the certificate is ignored or dismissed.
    pub note: Option<String>,
    /// End of the period in which the certificate is ignored, RFC 3339.
    pub ignored_until: Option<String>,
    /// Team that owns the certificate according to the current ownership rules. For a managed certificate, its own team.
    pub team: Option<String>,
    /// Owner, determined in the same way as `team`.
    pub owner: Option<String>,
    /// Environment, determined in the same way as `team`.
    pub environment: Option<String>,
    /// Tags, determined in the same way as `team`.
    pub tags: BTreeMap<String, String>,
    /// Time of the first scan, RFC 3339.
    pub first_seen_at: String,
    /// Time of the last scan, RFC 3339.
    pub last_seen_at: String,
}

/// A certificate that was found by a scan.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = FoundLeaf))]
pub struct LeafView {
    /// SHA-256 fingerprint of the certificate.
    pub fingerprint: String,
    /// Subject as text (RFC 4514).
    pub subject: String,
    /// Issuer as text (RFC 4514).
    pub issuer: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// End of validity, RFC 3339.
    pub not_after: String,
    /// Algorithm of the key, such as `RSA` or `P-256`.
    pub key_algorithm: String,
    /// Key size in bits.
    pub key_bits: u32,
}

/// A scan: of a watch, or of `bulla scan`.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ScanView {
    /// UUID of the scan: `from` or `to` in a comparison of two scans.
    pub id: Uuid,
    /// State: `running`, `finished` or `interrupted`.
    pub state: String,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Time at which the scan finished or was interrupted, RFC 3339.
    pub finished_at: Option<String>,
    /// Targets and options, as they were given.
    pub spec: ScanSpecView,
    /// Number of targets that were given. `spec` has the first 20.
    #[cfg_attr(feature = "schemas", schema(example = 20))]
    pub targets: u64,
    /// Digest of the targets and of the options that change the set of endpoints: scans with the same digest can be compared.
    #[cfg_attr(feature = "schemas", schema(example = "9f86d081884c7d659a2feaa0c55ad015"))]
    pub scope: String,
    /// Number of scanned endpoints.
    pub endpoints: u64,
    /// Number of endpoints that presented a certificate.
    pub answered: u64,
    /// Number of endpoints that differed from the scan before.
    pub changes: u64,
    /// Number of certificates that no earlier scan saw.
    pub new_certificates: u64,
    /// Time at which the retention first removed observations of the scan, RFC 3339; null while all are stored. After this time the
    /// scan can no longer be compared.
    #[serde(default)]
    pub pruned_at: Option<String>,
}

/// Targets and settings of a scan.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ScanSpecView {
    /// The first 20 targets. A file of targets is shown by its name without the folder: `@hosts.txt`.
    #[cfg_attr(feature = "schemas", schema(example = json!(["example.com", "192.0.2.0/24"])))]
    pub targets: Vec<String>,
    /// Clouds and clusters from which the scan read certificates.
    pub sources: Vec<String>,
    /// Ports of targets without a port; null for the ports of their protocols.
    #[cfg_attr(feature = "schemas", schema(example = "443,8443"))]
    pub ports: Option<String>,
    /// The first 20 server names for targets without one.
    pub server_names: Vec<String>,
    /// STARTTLS protocol of targets without a scheme.
    pub starttls: Option<String>,
    /// Whether every address of a name is a separate endpoint.
    pub all_addresses: bool,
    /// Whether the scan probed the endpoints of the inventory instead of given targets.
    pub again: bool,
}

/// Query parameters that select differences: two scans, or a start time. Without parameters, the newest finished scan is compared
/// with the previous finished scan of the same targets.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct DiffQuery {
    /// Id of the earlier scan; with `to`.
    pub from: Option<Uuid>,
    /// Id of the later scan; with `from`.
    pub to: Option<Uuid>,
    /// All changes since this time, RFC 3339, over all scans; not with `from` and `to`.
    pub since: Option<String>,
}

/// One page of differences.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = ListingOfDifferences))]
pub struct DiffListing {
    /// Differences on this page, at most `limit`.
    pub items: Vec<ChangeView>,
    /// The `cursor` of the next page, which compares the same two scans; null on the last page.
    pub next: Option<String>,
    /// Id of the earlier scan; null with `since`.
    pub from: Option<Uuid>,
    /// Id of the later scan; null with `since`.
    pub to: Option<Uuid>,
}

/// A difference at one endpoint.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ChangeView {
    /// Kind: `new`, `gone`, `certificate-changed`, `outcome-changed`, `returned`, or, between two scans, `not-scanned`.
    #[cfg_attr(feature = "schemas", schema(example = "certificate-changed"))]
    pub change: String,
    /// Endpoint that changed.
    pub endpoint: EndpointBody,
    /// Time of the observation, RFC 3339.
    pub observed_at: String,
    /// SHA-256 fingerprint of the certificate before.
    pub old_fingerprint: Option<String>,
    /// SHA-256 fingerprint of the certificate now; null if the endpoint presented none.
    pub new_fingerprint: Option<String>,
    /// Outcome of the previous observation.
    pub old_outcome: Option<String>,
    /// Outcome of this observation.
    pub new_outcome: Option<String>,
    /// Severity of the worst finding now: `info`, `low`, `medium`, `high` or `critical`.
    pub severity: Option<String>,
}

/// A found certificate to manage. Give either `endpoint` or `fingerprint`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// Endpoint that presents the certificate. The endpoint becomes a target.
    pub endpoint: Option<EndpointBody>,
    /// SHA-256 fingerprint of the certificate.
    pub fingerprint: Option<String>,
    /// Name of the managed certificate, unique; the first name in the certificate when absent.
    pub name: Option<String>,
    /// Profile with which the next version is issued.
    pub profile: String,
    /// Issuer of the next version; `internal` when absent.
    pub issuer: Option<String>,
    /// Owner of the certificate. If neither `owner` nor `team` is given, the ownership rules determine both.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// Environment; determined by the ownership rules when absent.
    pub environment: Option<String>,
    /// Renewal policy; none when absent.
    pub policy: Option<String>,
    /// Location where the next private key is generated and stored; this server when absent.
    pub key_location: Option<KeyLocationBody>,
    /// Deployment targets in addition to the endpoint.
    #[serde(default)]
    pub targets: Vec<TargetBody>,
    /// Whether the certificate is renewed automatically; true when absent.
    pub auto_renew: Option<bool>,
    /// Renewal rule that overrides the rule of the policy.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Value>,
    /// Free-text notes.
    #[serde(default)]
    pub notes: String,
}

/// A found certificate that is now managed.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ClaimedView {
    /// UUID of the managed certificate, used in `/api/v1/certificates/{id}`.
    pub id: Uuid,
    /// Name of the managed certificate.
    pub name: String,
}

/// A found certificate to ignore or dismiss.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DismissBody {
    /// SHA-256 fingerprint of the certificate.
    pub fingerprint: String,
    /// Reason for the dismissal.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 8192))]
    pub note: String,
    /// End of the period in which the certificate is ignored, RFC 3339. When absent, the certificate is dismissed permanently.
    pub until: Option<String>,
}

/// A dismissal to undo.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UndismissBody {
    /// SHA-256 fingerprint of the certificate.
    pub fingerprint: String,
}

/// Query parameters of `GET /api/v1/inventory`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct InventoryQuery {
    /// Only endpoints whose host contains this text.
    pub host: Option<String>,
    /// Only certificates whose issuer contains this text.
    pub issuer: Option<String>,
    /// Only certificates that expire before this time, RFC 3339.
    pub expires_before: Option<String>,
    /// Only certificates that expire at or after this time, RFC 3339.
    pub expires_after: Option<String>,
    /// Whether to list only endpoints that presented a certificate in the last scan (`true`) or only those that did not (`false`).
    pub answering: Option<bool>,
    /// Only certificates that belong to this team according to the ownership rules. With `team`, `owner` or `nobody`, a page
    /// examines at most 5,000 endpoints. The page may then have fewer items than requested, or none, although `next` is set.
    pub team: Option<String>,
    /// Only certificates that belong to this owner according to the ownership rules.
    pub owner: Option<String>,
    /// Whether to list only certificates for which no rule determines a team or an owner.
    pub nobody: Option<bool>,
    /// Sort order: `expiry` (the default) or `host`.
    pub sort: Option<String>,
}
