//! Managed certificates: requests, selections, bulk actions, responses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::endpoints::EndpointBody;
use crate::problem::ProblemDocument;

/// A certificate to bring under management.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewCertificateBody {
    /// Its name, unique; the first of `names` when absent.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 200))]
    pub name: Option<String>,
    /// What it is to speak for: DNS names, addresses, URIs, email addresses.
    #[cfg_attr(feature = "schemas", schema(min_items = 1, max_items = 100, example = json!(["www.example.org"])))]
    pub names: Vec<String>,
    /// The profile it is issued by.
    #[cfg_attr(feature = "schemas", schema(example = "web", min_length = 1, max_length = 200))]
    pub profile: String,
    /// The issuer; `internal`, our own CA, when absent.
    pub issuer: Option<String>,
    /// The owner.
    pub owner: Option<String>,
    /// The team that does.
    pub team: Option<String>,
    /// Labels of your own.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The environment: `production`.
    #[cfg_attr(feature = "schemas", schema(example = "prod"))]
    pub environment: Option<String>,
    /// The renewal policy.
    pub policy: Option<String>,
    /// Where its key is made and kept; in this server when absent.
    pub key_location: Option<KeyLocationBody>,
    /// The kind of its key; `p256` when absent.
    #[cfg_attr(feature = "schemas", schema(example = "p256"))]
    pub key_type: Option<String>,
    /// The deployment targets.
    #[serde(default)]
    pub targets: Vec<TargetBody>,
    /// Whether the scheduler renews it; true when absent.
    pub auto_renew: Option<bool>,
    /// When it is renewed, in place of its policy's rule: `renew_before` (`{"days": 30}`, `{"hours": 6}` or
    /// `{"fraction": 0.33}`), `obey_issuer`, `windows`.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Value>,
    /// How long a version is valid, seconds; the profile's default when absent.
    #[cfg_attr(feature = "schemas", schema(minimum = 60))]
    pub lifetime_seconds: Option<i64>,
    /// The subject, `CN=…, O=…`; what the profile says when absent.
    pub subject: Option<String>,
    /// Whether servers must staple (RFC 7633).
    #[serde(default)]
    pub must_staple: bool,
    /// The external issuer's own profile or role.
    pub issuer_profile: Option<String>,
    /// For people.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 8192))]
    pub notes: String,
    /// Whether it is issued now; true when absent.
    pub issue: Option<bool>,
}

/// Where a private key is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "at", deny_unknown_fields)]
pub enum KeyLocationBody {
    /// In this server, sealed.
    Server,
    /// On an agent's host: it never leaves.
    Agent {
        /// Which agent.
        agent: Uuid,
    },
    /// With the key service; never given out.
    KeyService,
}

/// A deployment target of a certificate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum TargetBody {
    /// An agent puts it in place.
    Deploy {
        /// The target.
        target: Uuid,
        /// Its agent.
        agent: Uuid,
    },
    /// An endpoint of the inventory that is to serve it.
    Endpoint {
        /// Name, address or path.
        host: String,
        /// Port; 0 for files.
        port: u16,
        /// `tls`, `smtp`, …
        protocol: String,
        /// The SNI sent.
        server_name: String,
    },
}

/// What to change of a certificate. A member left out stays; one that is null is taken away.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CertificatePatch {
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 200))]
    pub name: Option<String>,
    /// All its names.
    #[cfg_attr(feature = "schemas", schema(min_items = 1, max_items = 100))]
    pub names: Option<Vec<String>>,
    /// Its profile.
    pub profile: Option<String>,
    /// Its issuer.
    pub issuer: Option<String>,
    /// The owner.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub owner: Option<Option<String>>,
    /// The team that does.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub team: Option<Option<String>>,
    /// All its tags.
    pub tags: Option<BTreeMap<String, String>>,
    /// The environment: `production`.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub environment: Option<Option<String>>,
    /// The renewal policy.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub policy: Option<Option<String>>,
    /// Where the next key is made and kept.
    pub key_location: Option<KeyLocationBody>,
    /// The kind of the next key.
    pub key_type: Option<String>,
    /// All its targets.
    pub targets: Option<Vec<TargetBody>>,
    /// Whether the scheduler renews it.
    pub auto_renew: Option<bool>,
    /// When it is renewed, in place of its policy's rule.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Option<Value>>,
    /// How long the next version is valid, seconds.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<i64>, minimum = 60))]
    pub lifetime_seconds: Option<Option<i64>>,
    /// The subject.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub subject: Option<Option<String>>,
    /// Whether servers must staple.
    pub must_staple: Option<bool>,
    /// The external issuer's own profile or role.
    #[serde(deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub issuer_profile: Option<Option<String>>,
    /// For people.
    #[cfg_attr(feature = "schemas", schema(max_length = 8192))]
    pub notes: Option<String>,
    /// Whether a version with all this is asked for now.
    pub renew: bool,
}

/// Which certificates: by identity or by filter, not both.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SelectionBody {
    /// These, up to 10,000.
    #[cfg_attr(feature = "schemas", schema(max_items = 10000))]
    pub ids: Option<Vec<Uuid>>,
    /// All that match, however many; `{}` is everything.
    pub filter: Option<CertificateFilter>,
}

/// What became of an action on many.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BulkView {
    /// Certificates selected.
    pub matched: u64,
    /// Number of objects changed.
    pub done: u64,
    /// Those that were so already, or are under way.
    pub already: u64,
    /// Number of objects refused.
    pub refused: u64,
    /// Identities that do not exist.
    pub missing: u64,
    /// Why, for the first hundred refused.
    pub reasons: Vec<RefusedView>,
}

/// One that an action could not be done to.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RefusedView {
    /// Which.
    pub id: Uuid,
    /// Why.
    pub reason: String,
}

/// Certificates to enter.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchBody {
    /// Up to 1,000.
    #[cfg_attr(feature = "schemas", schema(min_items = 1, max_items = 1000))]
    pub certificates: Vec<NewCertificateBody>,
}

/// What became of each, in order.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BatchView {
    /// As many as were given.
    pub items: Vec<BatchItem>,
}

/// What became of one: either member is there.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct BatchItem {
    /// The created certificate.
    pub created: Option<CreatedView>,
    /// The problem that prevented it.
    pub problem: Option<ProblemDocument>,
}

/// What to renew.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewMany {
    /// Which.
    pub select: SelectionBody,
    /// Why, a few words for the log.
    #[cfg_attr(feature = "schemas", schema(max_length = 200))]
    pub reason: Option<String>,
}

/// What to revoke.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeMany {
    /// Which.
    pub select: SelectionBody,
    /// `unspecified`, `keyCompromise`, `affiliationChanged`, `superseded`, `cessationOfOperation` or
    /// `privilegeWithdrawn`; unspecified when absent.
    pub reason: Option<String>,
    /// Whether each gets a new version, with a new key, at once.
    #[serde(default)]
    pub replace: bool,
}

/// What many certificates get. A member left out stays; one that is null is taken away.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReassignMany {
    /// Which.
    pub select: SelectionBody,
    /// The owner.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub owner: Option<Option<String>>,
    /// The team that does.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub team: Option<Option<String>>,
    /// The environment: `production`.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub environment: Option<Option<String>>,
    /// The policy that says when they are renewed.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub policy: Option<Option<String>>,
    /// Tags to set.
    #[serde(default)]
    pub tags_set: BTreeMap<String, String>,
    /// Tags to take away.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_items = 32))]
    pub tags_unset: Vec<String>,
}

/// Which certificates to list.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
#[serde(default)]
pub struct CertificateFilter {
    /// In one of these states, separated by commas: `pending`, `awaiting_approval`, `awaiting_csr`, `issuing`,
    /// `deploying`, `active`, `failed`, `revoked`, `archived`.
    #[cfg_attr(feature = "schemas", param(example = "active,failed"))]
    pub status: Option<String>,
    /// With exactly this name.
    pub name: Option<String>,
    /// Issued by this profile.
    pub profile: Option<String>,
    /// By this issuer.
    pub issuer: Option<String>,
    /// Of this owner.
    pub owner: Option<String>,
    /// Of this team.
    pub team: Option<String>,
    /// In this environment.
    pub environment: Option<String>,
    /// Naming this policy.
    pub policy: Option<String>,
    /// With the key at this agent.
    pub agent: Option<Uuid>,
    /// With this tag, `name=value`.
    #[cfg_attr(feature = "schemas", param(example = "cost=42"))]
    pub tag: Option<String>,
    /// Ending before this time, RFC 3339.
    pub expires_before: Option<String>,
    /// Ending at this time or later, RFC 3339.
    pub expires_after: Option<String>,
    /// Whose name or names hold this text. No index helps: a rare text walks many pages.
    pub contains: Option<String>,
    /// With a name that ends so.
    #[cfg_attr(feature = "schemas", param(example = ".example.org"))]
    pub suffix: Option<String>,
    /// Whose current version has this serial number, hexadecimal; colons may be between the bytes.
    #[cfg_attr(feature = "schemas", param(example = "79c2e1f04b3a"))]
    pub serial: Option<String>,
    /// Whose current version has this SHA-256 fingerprint, hexadecimal.
    pub fingerprint: Option<String>,
    /// With a key of this kind: `p256`, `p384`, `rsa2048`, `ed25519`.
    #[cfg_attr(feature = "schemas", param(example = "p256"))]
    pub algorithm: Option<String>,
    /// That breaks this rule of a policy.
    pub finding: Option<String>,
}

/// In which order to list.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The soonest end first.
    #[default]
    Expiry,
    /// By name.
    Name,
    /// The earliest entered first.
    Created,
    /// By the start of the current version's validity; those never issued come before all others.
    Issued,
}

/// By what to group certificates. The filter of the listing goes with it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct GroupQuery {
    /// `issuer`, `profile`, `algorithm`, `owner`, `team`, `environment`, `status` or `expiry_day`.
    #[cfg_attr(feature = "schemas", param(example = "issuer"))]
    pub by: String,
}

/// How many certificates there are of each value.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct GroupsView {
    /// The member to group by.
    #[cfg_attr(feature = "schemas", schema(example = "issuer"))]
    pub by: String,
    /// The largest group first; days in their order. At most 1,000.
    pub groups: Vec<GroupView>,
    /// Certificates counted.
    #[cfg_attr(feature = "schemas", schema(example = 1240))]
    pub counted: u64,
    /// False when counting stopped at a bound, or when there are more groups.
    pub complete: bool,
}

/// One value and how many certificates have it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct GroupView {
    /// The value; null for certificates without one. Days are RFC 3339 dates.
    #[cfg_attr(feature = "schemas", schema(example = "letsencrypt"))]
    pub value: Option<String>,
    /// How many.
    #[cfg_attr(feature = "schemas", schema(example = 310))]
    pub count: u64,
}

/// How to give a certificate out with its key.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportBody {
    /// The format.
    pub format: ExportKind,
    /// Of the PKCS#12 file, 8 bytes at least.
    #[cfg_attr(feature = "schemas", schema(format = Password))]
    pub password: Option<String>,
}

/// The kind of file.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ExportKind {
    /// The chain and the key in PKCS#8, PEM.
    Pem,
    /// One PKCS#12 file under a password.
    Pkcs12,
}

/// Why a certificate is revoked.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeBody {
    /// `unspecified`, `keyCompromise`, `affiliationChanged`, `superseded`, `cessationOfOperation` or
    /// `privilegeWithdrawn` (RFC 5280 section 5.3.1); unspecified when absent.
    #[cfg_attr(feature = "schemas", schema(example = "superseded"))]
    pub reason: Option<String>,
    /// Whether a new version, with a new key, is asked for at once.
    #[serde(default)]
    pub replace: bool,
}

/// A certificate under management.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CertificateView {
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The names in the certificate.
    pub names: Vec<String>,
    /// What it waits for: `pending`, `awaiting_approval`, `awaiting_csr`, `issuing`, `deploying`, `active`, `failed`,
    /// `revoked`, `archived`.
    pub status: String,
    /// The profile it is issued by.
    pub profile: String,
    /// The issuer.
    pub issuer: String,
    /// The owner.
    pub owner: Option<String>,
    /// The team that does.
    pub team: Option<String>,
    /// Labels of people's own.
    pub tags: BTreeMap<String, String>,
    /// The environment: `production`.
    pub environment: Option<String>,
    /// The renewal policy.
    pub policy: Option<String>,
    /// Location of the private key.
    pub key_location: KeyLocationBody,
    /// The kind of its key.
    pub key_type: String,
    /// The deployment targets.
    pub targets: Vec<TargetBody>,
    /// Whether the scheduler renews it.
    pub auto_renew: bool,
    /// When it is renewed, in place of its policy's rule.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub renewal: Option<Value>,
    /// How long a version is to be valid, seconds.
    pub lifetime_seconds: Option<i64>,
    /// The subject.
    pub subject: Option<String>,
    /// Whether servers must staple.
    pub must_staple: bool,
    /// The external issuer's own profile or role.
    pub issuer_profile: Option<String>,
    /// For people.
    pub notes: String,
    /// The newest version.
    pub current: Option<CurrentView>,
    /// Of the versions that are verified as served, the one that ends first. Null: no agent and no scan verified one.
    #[serde(default)]
    pub served: Option<VerifiedView>,
    /// `newest`, `older` or `not verified`: which version is served, of several places the one that ends first.
    #[serde(default)]
    pub served_status: String,
    /// The end that counts for alerts, filters and the summary, RFC 3339: of what is served, else of the newest version.
    #[serde(default)]
    pub ends_at: Option<String>,
    /// Since when a version waits to be in place at every target, RFC 3339. A renewal in between does not change it.
    #[serde(default)]
    pub undeployed_since: Option<String>,
    /// When its next run begins, RFC 3339.
    pub renew_at: Option<String>,
    /// The run that is planned or under way.
    pub run: Option<RunView>,
    /// Runs without success since the last one with.
    pub failures: u32,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Moves with every change.
    pub revision: i64,
    /// When it was entered, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// The newest version.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CurrentView {
    /// SHA-256 of the leaf.
    pub fingerprint: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// End of validity, RFC 3339.
    pub not_after: String,
    /// Whether it is revoked.
    pub revoked: bool,
}

/// A version that is verified as served.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct VerifiedView {
    /// SHA-256 of the leaf.
    pub fingerprint: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// The earliest end in its chain, RFC 3339.
    pub not_after: String,
}

/// A run that is planned or under way.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RunView {
    /// The job.
    pub job: Uuid,
    /// The state.
    pub state: String,
    /// When it begins, or tries again, RFC 3339.
    pub next_attempt_at: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// A certificate that was entered.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedView {
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The run that issues it, if it is issued now.
    pub job: Option<Uuid>,
    /// Violations of advisory policies.
    pub violations: Vec<ViolationView>,
}

/// A rule broken.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = CertificateViolation))]
pub struct ViolationView {
    /// The policy.
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// `info`, `warning`, `error` or `critical`.
    pub severity: String,
    /// For people.
    pub message: String,
}

/// A version.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct VersionView {
    /// SHA-256 of the leaf.
    pub fingerprint: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, RFC 3339.
    pub not_before: String,
    /// End of validity, RFC 3339.
    pub not_after: String,
    /// The issuer.
    pub issuer: String,
    /// Whether this server holds the key.
    pub key_here: bool,
    /// When it came, RFC 3339.
    pub issued_at: String,
    /// When it was revoked, RFC 3339.
    pub revoked_at: Option<String>,
    /// Why: the CRLReason's number (RFC 5280 section 5.3.1).
    pub revoked_reason: Option<i64>,
    /// The chain, PEM, leaf first.
    pub chain: String,
}

/// An endpoint that showed a version when a scan last looked.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ServedView {
    /// The endpoint.
    pub endpoint: EndpointBody,
    /// SHA-256 of the version's leaf.
    pub fingerprint: String,
    /// Whether that is the current version.
    pub current: bool,
    /// End of that version's validity, RFC 3339.
    pub not_after: String,
    /// Whether the last look saw a certificate.
    pub answering: bool,
    /// The last look, RFC 3339.
    pub last_seen_at: String,
}

/// Where a version was brought.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = CertificateDeployment))]
pub struct DeploymentView {
    /// The target.
    pub target: Uuid,
    /// Its agent.
    pub agent: Uuid,
    /// `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    pub state: String,
    /// SHA-256 of the leaf that was brought.
    pub fingerprint: String,
    /// SHA-256 of the leaf that the endpoint showed afterwards.
    pub served: Option<String>,
    /// How often it was tried.
    pub attempts: i64,
    /// Error of the last attempt.
    pub error: Option<String>,
    /// Time of the request, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// Counts over everything under management.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SummaryView {
    /// Certificates that are not archived.
    pub certificates: u64,
    /// By status.
    pub statuses: BTreeMap<String, u64>,
    /// Expired: what is served of them, else their newest version.
    pub expired: u64,
    /// Certificates whose newest version is not in place at every target.
    #[serde(default)]
    pub not_deployed: u64,
    /// Ending within so many days from now.
    #[cfg_attr(feature = "schemas", schema(example = json!({"7": 2, "30": 10, "90": 40})))]
    pub expiring_days: BTreeMap<String, u64>,
    /// Endings by day, RFC 3339 dates, those of the past left out.
    pub by_day: BTreeMap<String, u64>,
    /// Runs that are due and not begun, by issuer.
    pub due: BTreeMap<String, u64>,
    /// Counting of due runs stops here: as many means "at least".
    pub due_counted_to: u64,
}
