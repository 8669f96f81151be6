//! Managed certificates: requests, selections, bulk actions, responses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::endpoints::EndpointBody;
use crate::problem::ProblemDocument;

/// A managed certificate to create.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewCertificateBody {
    /// Name of the managed certificate, unique; the first of `names` when absent.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 200))]
    pub name: Option<String>,
    /// Subject alternative names: DNS names, IP addresses, URIs, email addresses.
    #[cfg_attr(feature = "schemas", schema(min_items = 1, max_items = 100, example = json!(["www.example.org"])))]
    pub names: Vec<String>,
    /// Profile with which the certificate is issued.
    #[cfg_attr(feature = "schemas", schema(example = "web", min_length = 1, max_length = 200))]
    pub profile: String,
    /// Issuer; `internal`, the CA of this server, when absent.
    pub issuer: Option<String>,
    /// Name of the owner, as in the list of owners.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// User-defined tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Environment, such as `production`.
    #[cfg_attr(feature = "schemas", schema(example = "prod"))]
    pub environment: Option<String>,
    /// Renewal policy; none when absent.
    pub policy: Option<String>,
    /// Location where the private key is generated and stored; this server when absent.
    pub key_location: Option<KeyLocationBody>,
    /// Key type; `p256` when absent.
    #[cfg_attr(feature = "schemas", schema(example = "p256"))]
    pub key_type: Option<String>,
    /// Deployment targets, and endpoints that must present the certificate.
    #[serde(default)]
    pub targets: Vec<TargetBody>,
    /// Whether the certificate is renewed automatically; true when absent.
    pub auto_renew: Option<bool>,
    /// Renewal rule that overrides the rule of the policy: `renew_before` (`{"days": 30}`, `{"hours": 6}` or `{"fraction": 0.33}`),
    /// `obey_issuer`, `windows`.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Value>,
    /// Lifetime of a version in seconds; the default of the profile when absent.
    #[cfg_attr(feature = "schemas", schema(minimum = 60))]
    pub lifetime_seconds: Option<i64>,
    /// Subject, such as `CN=…, O=…`; the subject of the profile when absent.
    pub subject: Option<String>,
    /// Whether servers must staple OCSP responses (RFC 7633).
    #[serde(default)]
    pub must_staple: bool,
    /// Profile or role at the external issuer.
    pub issuer_profile: Option<String>,
    /// Free-text notes.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 8192))]
    pub notes: String,
    /// Whether to issue the certificate immediately; true when absent.
    pub issue: Option<bool>,
}

/// Location where a private key is generated and stored.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "at", deny_unknown_fields)]
pub enum KeyLocationBody {
    /// The server stores the key, encrypted.
    Server,
    /// An agent stores the key on its host. The key never leaves the host.
    Agent {
        /// UUID of the agent, as in `/api/v1/agents/{id}`.
        agent: Uuid,
    },
    /// The key service stores the key and never exports it.
    KeyService,
}

/// A deployment target of a certificate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum TargetBody {
    /// A target to which an agent deploys the certificate.
    Deploy {
        /// UUID of the target, as in `/api/v1/targets/{id}`.
        target: Uuid,
        /// Identifier of the agent that deploys to the target.
        agent: Uuid,
    },
    /// An endpoint of the inventory that must present the certificate.
    Endpoint {
        /// Hostname, IP address or file path.
        host: String,
        /// Port; 0 for a file.
        port: u16,
        /// Protocol, such as `tls` or `smtp`.
        protocol: String,
        /// Server name that the probe sends (SNI).
        server_name: String,
    },
}

/// A change to a managed certificate. An absent member keeps its value; null removes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CertificatePatch {
    /// New name of the managed certificate.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 200))]
    pub name: Option<String>,
    /// New subject alternative names. They replace all present ones.
    #[cfg_attr(feature = "schemas", schema(min_items = 1, max_items = 100))]
    pub names: Option<Vec<String>>,
    /// Name of the new profile.
    pub profile: Option<String>,
    /// Name of the new issuer.
    pub issuer: Option<String>,
    /// New owner; null for none.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub owner: Option<Option<String>>,
    /// New owning team; null for none.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub team: Option<Option<String>>,
    /// New tags. They replace all present ones.
    pub tags: Option<BTreeMap<String, String>>,
    /// New environment, such as `production`; null for none.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub environment: Option<Option<String>>,
    /// New renewal policy; null for none.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub policy: Option<Option<String>>,
    /// Location where the next key is generated and stored.
    pub key_location: Option<KeyLocationBody>,
    /// Type of the next key, such as `p256`.
    pub key_type: Option<String>,
    /// New deployment targets. They replace all present ones.
    pub targets: Option<Vec<TargetBody>>,
    /// Whether the certificate is renewed automatically.
    pub auto_renew: Option<bool>,
    /// Renewal rule that overrides the rule of the policy; null removes it.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Option<Value>>,
    /// Lifetime of the next version in seconds; null for the default of the profile.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<i64>, minimum = 60))]
    pub lifetime_seconds: Option<Option<i64>>,
    /// New subject; null for the subject of the profile.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub subject: Option<Option<String>>,
    /// Whether servers must staple OCSP responses (RFC 7633).
    pub must_staple: Option<bool>,
    /// Profile or role at the external issuer; null for none.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub issuer_profile: Option<Option<String>>,
    /// Free-text notes.
    #[cfg_attr(feature = "schemas", schema(max_length = 8192))]
    pub notes: Option<String>,
    /// Whether to request a version with these changes immediately.
    pub renew: bool,
}

/// A selection of certificates, by identifier or by filter, not both.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SelectionBody {
    /// Identifiers of up to 10,000 certificates.
    #[cfg_attr(feature = "schemas", schema(max_items = 10000))]
    pub ids: Option<Vec<Uuid>>,
    /// Filter. All matching certificates are selected, without a limit; `{}` selects every certificate.
    pub filter: Option<CertificateFilter>,
}

/// The result of a bulk action: the number of certificates by outcome.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BulkView {
    /// Number of selected certificates.
    pub matched: u64,
    /// Number of certificates to which the action was applied.
    pub done: u64,
    /// Number of certificates for which the action was already done or is in progress.
    pub already: u64,
    /// Number of certificates for which the action was refused.
    pub refused: u64,
    /// Number of given identifiers that do not exist.
    pub missing: u64,
    /// Reasons for the first 100 refusals.
    pub reasons: Vec<RefusedView>,
}

/// A certificate for which a bulk action was refused.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RefusedView {
    /// UUID of the certificate, used in `/api/v1/certificates/{id}`.
    pub id: Uuid,
    /// Reason for the refusal.
    pub reason: String,
}

/// Certificates to create in one request.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchBody {
    /// The certificates, up to 1,000.
    #[cfg_attr(feature = "schemas", schema(min_items = 1, max_items = 1000))]
    pub certificates: Vec<NewCertificateBody>,
}

/// The results of a batch, in the order of the request.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BatchView {
    /// One result for each certificate of the request.
    pub items: Vec<BatchItem>,
}

/// The result for one certificate of a batch. Exactly one member is present.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BatchItem {
    /// The created certificate; absent if the creation failed.
    pub created: Option<CreatedView>,
    /// Reason why the certificate was not created; absent if it was created.
    pub problem: Option<ProblemDocument>,
}

/// A selection of certificates to renew.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewMany {
    /// Certificates to renew.
    pub select: SelectionBody,
    /// Reason for the renewal, a short text for the log.
    #[cfg_attr(feature = "schemas", schema(max_length = 200))]
    pub reason: Option<String>,
    /// Maximum number of renewals to start, for renewals in waves. The certificates that were created earliest are renewed first.
    /// Certificates that are already being renewed do not count.
    #[cfg_attr(feature = "schemas", schema(minimum = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// A selection of certificates to revoke.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeMany {
    /// Certificates to revoke.
    pub select: SelectionBody,
    /// Revocation reason: `unspecified` (the default), `keyCompromise`, `affiliationChanged`, `superseded`, `cessationOfOperation`
    /// or `privilegeWithdrawn`.
    pub reason: Option<String>,
    /// Whether to request a new version with a new key for each certificate immediately.
    #[serde(default)]
    pub replace: bool,
}

/// New properties of many certificates. An absent member keeps its value; null removes it.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReassignMany {
    /// Certificates to change.
    pub select: SelectionBody,
    /// New owner; null for none.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub owner: Option<Option<String>>,
    /// New owning team; null for none.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub team: Option<Option<String>>,
    /// New environment, such as `production`; null for none.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub environment: Option<Option<String>>,
    /// New renewal policy; null for none.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub policy: Option<Option<String>>,
    /// Tags to add or replace.
    #[serde(default)]
    pub tags_set: BTreeMap<String, String>,
    /// Names of tags to remove.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_items = 32))]
    pub tags_unset: Vec<String>,
}

/// Conditions for managed certificates: query parameters of the list and of the counts, and the member `filter` of a selection. All
/// given conditions must match.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
#[serde(default)]
pub struct CertificateFilter {
    /// Only certificates in one of these states, separated by commas: `pending`, `awaiting_approval`, `awaiting_csr`, `issuing`,
    /// `deploying`, `active`, `failed`, `revoked`, `archived`.
    #[cfg_attr(feature = "schemas", param(example = "active,failed"))]
    pub status: Option<String>,
    /// Only the certificate with exactly this name.
    pub name: Option<String>,
    /// Only certificates of this profile.
    pub profile: Option<String>,
    /// Only certificates of this issuer.
    pub issuer: Option<String>,
    /// Only certificates whose current version was issued by the CA of this server with this name.
    pub ca: Option<String>,
    /// Only certificates of this owner.
    pub owner: Option<String>,
    /// Only certificates of this team.
    pub team: Option<String>,
    /// Only certificates in this environment.
    pub environment: Option<String>,
    /// Only certificates that use this renewal policy.
    pub policy: Option<String>,
    /// Only certificates whose key is on the host of this agent.
    pub agent: Option<Uuid>,
    /// Only certificates with this tag, `name=value`.
    #[cfg_attr(feature = "schemas", param(example = "cost=42"))]
    pub tag: Option<String>,
    /// Only certificates that expire before this time, RFC 3339.
    pub expires_before: Option<String>,
    /// Only certificates that expire at or after this time, RFC 3339.
    pub expires_after: Option<String>,
    /// Only certificates whose name or subject alternative names contain this text. The search uses no index: a search for a rare
    /// text is slow.
    pub contains: Option<String>,
    /// Only certificates with a name that ends with this text.
    #[cfg_attr(feature = "schemas", param(example = ".example.org"))]
    pub suffix: Option<String>,
    /// Only certificates whose current version has this serial number, hexadecimal. Colons between the bytes are allowed.
    #[cfg_attr(feature = "schemas", param(example = "79c2e1f04b3a"))]
    pub serial: Option<String>,
    /// Only certificates whose current version has this SHA-256 fingerprint, hexadecimal.
    pub fingerprint: Option<String>,
    /// Only certificates with this key type: `p256`, `p384`, `rsa2048`, `ed25519`.
    #[cfg_attr(feature = "schemas", param(example = "p256"))]
    pub algorithm: Option<String>,
    /// Only certificates that violate this rule of a policy.
    pub finding: Option<String>,
}

/// Order of a list of certificates.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Sorted by expiry time, earliest first.
    #[default]
    Expiry,
    /// Sorted by name.
    Name,
    /// Sorted by creation time, earliest first.
    Created,
    /// Sorted by the start of the current version's validity. Certificates that were never issued come first.
    Issued,
}

/// Property by which to group certificates. The filter parameters of the list apply too.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct GroupQuery {
    /// Property: `issuer`, `profile`, `algorithm`, `owner`, `team`, `environment`, `status` or `expiry_day`.
    #[cfg_attr(feature = "schemas", param(example = "issuer"))]
    pub by: String,
}

/// Number of certificates for each value of a property.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct GroupsView {
    /// Property by which the certificates are grouped.
    #[cfg_attr(feature = "schemas", schema(example = "issuer"))]
    pub by: String,
    /// Groups, the largest first; days in order of time. At most 1,000 groups.
    pub groups: Vec<GroupView>,
    /// Number of certificates counted.
    #[cfg_attr(feature = "schemas", schema(example = 1240))]
    pub counted: u64,
    /// Whether the result is complete: false if counting stopped at a limit or if more groups exist.
    pub complete: bool,
}

/// Properties whose values are counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct FacetQuery {
    /// Properties, separated by commas, each once: `issuer`, `profile`, `algorithm`, `owner`, `team`, `environment`, `status` and
    /// `expiry_day`.
    #[cfg_attr(feature = "schemas", param(example = "status,issuer"))]
    pub by: String,
}

/// Number of certificates for each value of several properties.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct FacetsView {
    /// One element per requested property, in that order.
    pub facets: Vec<GroupsView>,
}

/// A value of the property and the number of certificates that have it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct GroupView {
    /// Value of the property; null for certificates without one. Days are RFC 3339 dates.
    #[cfg_attr(feature = "schemas", schema(example = "letsencrypt"))]
    pub value: Option<String>,
    /// Number of certificates with this value.
    #[cfg_attr(feature = "schemas", schema(example = 310))]
    pub count: u64,
}

/// Options for exporting a certificate with its private key.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportBody {
    /// Format of the exported file.
    pub format: ExportKind,
    /// Password of the PKCS#12 file, at least 8 bytes.
    #[cfg_attr(feature = "schemas", schema(format = Password))]
    pub password: Option<String>,
}

/// File format of an export.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ExportKind {
    /// The chain and the private key (PKCS#8) in PEM.
    Pem,
    /// One PKCS#12 file, encrypted with a password.
    Pkcs12,
}

/// Options for revoking a certificate.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeBody {
    /// Revocation reason (RFC 5280 section 5.3.1): `unspecified` (the default), `keyCompromise`, `affiliationChanged`,
    /// `superseded`, `cessationOfOperation` or `privilegeWithdrawn`.
    #[cfg_attr(feature = "schemas", schema(example = "superseded"))]
    pub reason: Option<String>,
    /// Whether to request a new version with a new key immediately.
    #[serde(default)]
    pub replace: bool,
}

/// A managed certificate, with its settings, its newest version and its next run.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CertificateView {
    /// UUID of the certificate, used in `/api/v1/certificates/{id}`.
    pub id: Uuid,
    /// Name of the managed certificate.
    pub name: String,
    /// Subject alternative names.
    pub names: Vec<String>,
    /// State: `pending`, `awaiting_approval`, `awaiting_csr`, `issuing`, `deploying`, `active`, `failed`, `revoked` or `archived`.
    pub status: String,
    /// Profile with which the certificate is issued.
    pub profile: String,
    /// Name of the issuer; `internal` for the CA of this server.
    pub issuer: String,
    /// Name of the owner, as in the list of owners.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// User-defined tags.
    pub tags: BTreeMap<String, String>,
    /// Environment, such as `production`.
    pub environment: Option<String>,
    /// Name of the renewal policy; null for none.
    pub policy: Option<String>,
    /// Location where the private key is generated and stored.
    pub key_location: KeyLocationBody,
    /// Key type, such as `p256`.
    pub key_type: String,
    /// Deployment targets, and endpoints that must present the certificate.
    pub targets: Vec<TargetBody>,
    /// Whether the certificate is renewed automatically.
    pub auto_renew: bool,
    /// Renewal rule that overrides the rule of the policy.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Value>,
    /// Requested lifetime of a version in seconds.
    pub lifetime_seconds: Option<i64>,
    /// Subject; null for the subject of the profile.
    pub subject: Option<String>,
    /// Whether servers must staple OCSP responses (RFC 7633).
    pub must_staple: bool,
    /// Profile or role at the external issuer.
    pub issuer_profile: Option<String>,
    /// Free-text notes.
    pub notes: String,
    /// The newest version of the certificate.
    pub current: Option<CurrentView>,
    /// The version that a scan or an agent verified as served. If several versions are served: the version that expires first. Null
    /// if no version was verified.
    #[serde(default)]
    pub served: Option<VerifiedView>,
    /// The served version: `newest`, `older` or `not verified`. If several versions are served, the version that expires first
    /// counts.
    #[serde(default)]
    pub served_status: String,
    /// Expiry time for alerts, filters and the summary, RFC 3339: of the served version if one is verified, otherwise of the newest
    /// version.
    #[serde(default)]
    pub ends_at: Option<String>,
    /// Start of the period in which a version has waited for deployment to all targets, RFC 3339. A renewal does not reset this
    /// time.
    #[serde(default)]
    pub undeployed_since: Option<String>,
    /// Start time of the next renewal run, RFC 3339.
    pub renew_at: Option<String>,
    /// The run that is planned or in progress.
    pub run: Option<RunView>,
    /// Number of failed runs since the last successful one.
    pub failures: u32,
    /// Error of the last failed attempt.
    pub last_error: Option<String>,
    /// Number that changes with every change of the object.
    pub revision: i64,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// The newest version of a certificate.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CurrentView {
    /// SHA-256 of the leaf.
    pub fingerprint: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// End of validity, RFC 3339.
    pub not_after: String,
    /// Whether the version is revoked.
    pub revoked: bool,
}

/// The served version of a certificate, as verified by a scan or an agent.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct VerifiedView {
    /// SHA-256 of the leaf.
    pub fingerprint: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// Earliest expiry time of the certificates in the chain, RFC 3339.
    pub not_after: String,
}

/// A run of a managed certificate that is planned or in progress: its job, state and attempts.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RunView {
    /// UUID of the job, as in `/api/v1/jobs/{id}`.
    pub job: Uuid,
    /// State of the job: `queued`, `running`, `awaiting_approval` or `awaiting_csr`.
    pub state: String,
    /// Time of the first or next attempt, RFC 3339.
    pub next_attempt_at: String,
    /// Number of attempts so far.
    pub attempts: u32,
}

/// Response to the creation of a managed certificate: its identifier, its run and its policy violations.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedView {
    /// UUID of the certificate, used in `/api/v1/certificates/{id}`.
    pub id: Uuid,
    /// Name of the managed certificate.
    pub name: String,
    /// Id of the run that issues the certificate, if it is issued immediately.
    pub job: Option<Uuid>,
    /// Violations of advisory policies. They did not prevent the creation.
    pub violations: Vec<ViolationView>,
}

/// A violation of a policy rule.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = CertificateViolation))]
pub struct ViolationView {
    /// Name of the policy.
    pub policy: String,
    /// Name of the rule.
    pub rule: String,
    /// Severity: `info`, `warning`, `error` or `critical`.
    pub severity: String,
    /// Human-readable description.
    pub message: String,
}

/// A version of a managed certificate.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct VersionView {
    /// SHA-256 of the leaf.
    pub fingerprint: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// End of validity, RFC 3339.
    pub not_after: String,
    /// Name of the issuer; `internal` for the CA of this server.
    pub issuer: String,
    /// Whether this server stores the private key.
    pub key_here: bool,
    /// Time at which this server received or issued the certificate, RFC 3339.
    pub issued_at: String,
    /// Revocation time, RFC 3339.
    pub revoked_at: Option<String>,
    /// Revocation reason, as the number of the CRLReason (RFC 5280 section 5.3.1).
    pub revoked_reason: Option<i64>,
    /// The chain, PEM, leaf first.
    pub chain: String,
}

/// An endpoint that presented a version in the last scan.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ServedView {
    /// The endpoint that a scan probed.
    pub endpoint: EndpointBody,
    /// SHA-256 of the version's leaf.
    pub fingerprint: String,
    /// Whether this version is the current version.
    pub current: bool,
    /// End of validity of this version, RFC 3339.
    pub not_after: String,
    /// Whether the endpoint presented a certificate in the last scan.
    pub answering: bool,
    /// Time of the last scan, RFC 3339.
    pub last_seen_at: String,
}

/// The deployment of a version to a target.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = CertificateDeployment))]
pub struct DeploymentView {
    /// UUID of the target, as in `/api/v1/targets/{id}`.
    pub target: Uuid,
    /// UUID of the agent, as in `/api/v1/agents/{id}`.
    pub agent: Uuid,
    /// State: `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    pub state: String,
    /// SHA-256 of the leaf certificate that was deployed.
    pub fingerprint: String,
    /// SHA-256 of the leaf certificate that the endpoint presented after the deployment.
    pub served: Option<String>,
    /// Number of deployment attempts.
    pub attempts: i64,
    /// Error of the last attempt.
    pub error: Option<String>,
    /// Time of the request, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// Counts over all managed certificates.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SummaryView {
    /// Number of certificates that are not archived.
    pub certificates: u64,
    /// Number of certificates by state.
    pub statuses: BTreeMap<String, u64>,
    /// Number of expired certificates. The served version counts if one is verified, otherwise the newest version.
    pub expired: u64,
    /// Number of certificates whose newest version is not deployed to all targets.
    #[serde(default)]
    pub not_deployed: u64,
    /// Number of certificates that expire within N days from now, by N.
    #[cfg_attr(feature = "schemas", schema(example = json!({"7": 2, "30": 10, "90": 40})))]
    pub expiring_days: BTreeMap<String, u64>,
    /// Number of certificates by expiry day (RFC 3339 date). Days in the past are omitted.
    pub by_day: BTreeMap<String, u64>,
    /// Number of certificates whose profile issues for at most 47 days: the maximum for public TLS certificates from March 2029 on
    /// (CA/Browser Forum ballot SC-081).
    #[serde(default)]
    pub short_lived: u64,
    /// Number of runs that are due but not started, by issuer.
    pub due: BTreeMap<String, u64>,
    /// Limit for the count of due runs. A count equal to the limit means "at least".
    pub due_counted_to: u64,
}
