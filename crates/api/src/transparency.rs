//! Certificate Transparency: watched domains, searches, logs, issuances.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A watched domain, with its settings.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtDomainView {
    /// Name of the registered domain: directly below a public suffix. All its subdomains are watched too.
    #[cfg_attr(feature = "schemas", schema(example = "example.com"))]
    pub name: String,
    /// Whether the domain is watched.
    pub enabled: bool,
    /// Services that watch the domain, including `logs`. An empty list means all services.
    pub services: Vec<String>,
    /// Words that the name of the issuer must contain. An empty list allows any issuer of a known certificate for the domain.
    pub issuers: Vec<String>,
    /// Whether every issuance by these issuers is expected, for any name below the domain.
    pub trust_issuers: bool,
    /// Time at which the watch began, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
    /// Progress of each search service; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searches: Option<Vec<CtSearchView>>,
}

/// Progress of one search service for one domain.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtSearchView {
    /// Name of the domain.
    pub domain: String,
    /// Name of the search service.
    pub service: String,
    /// State: `asking` (a query is in progress), `due`, `failing` or `planned`.
    pub state: String,
    /// Cursor of the service, from which the next query continues.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub cursor: Value,
    /// Time at which the service had returned all existing results for the first time. Results up to this time are the baseline.
    pub baseline_at: Option<String>,
    /// Time of the last successful response.
    pub answered_at: Option<String>,
    /// Time of the next query, RFC 3339.
    pub next_at: String,
    /// Seconds since the query became due or began to fail.
    pub lag_s: i64,
    /// Number of consecutive failures.
    pub failures: i64,
    /// Error message of the last failed attempt.
    pub last_error: Option<String>,
}

/// A log that Bulla follows or has followed.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtLogView {
    /// SHA-256 of the key of the log (RFC 6962 section 3.2), hexadecimal.
    pub id: String,
    /// Name of the log in the log list.
    pub name: String,
    /// State: `followed`, `failing`, `inconsistent`, or `new` (never read).
    pub state: String,
    /// Number of entries in the last checkpoint that was verified to extend all earlier ones.
    pub tree_size: Option<u64>,
    /// Index of the first entry that has not been read.
    pub next_entry: Option<u64>,
    /// Number of entries that have not been read.
    pub behind: i64,
    /// Start of the period in which the log has more unread entries than one step reads.
    pub behind_since: Option<String>,
    /// Root hash of the last verified checkpoint, hexadecimal.
    pub root: Option<String>,
    /// Time at which the log signed the last verified checkpoint.
    pub checkpoint_at: Option<String>,
    /// Time of the last successful step in reading the log, RFC 3339; null before the first.
    pub stepped_at: Option<String>,
    /// Start of the period in which the log cannot be read or its checkpoint is out of date.
    pub failing_since: Option<String>,
    /// Error message of the last failed step, or a warning that the newest checkpoint is out of date.
    pub last_error: Option<String>,
    /// Inconsistency of the log: `forked`, `rolled-back`, `wrong-tile` or `bad-checkpoint`. Bulla reads no more entries until the
    /// log is consistent again.
    pub alarm: Option<String>,
    /// Time at which the inconsistency was found, RFC 3339.
    pub alarmed_at: Option<String>,
    /// Proof of the inconsistency: two signed notes of the log that contradict each other, if available.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub evidence: Option<Value>,
}

/// An issuance for a watched domain. A precertificate and its certificate are one issuance, in any number of logs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtIssuanceView {
    /// UUID of the issuance, used in `/api/v1/ct/issuances/{id}`.
    pub id: Uuid,
    /// Verdict: `pending` (not yet judged), `expected`, `unexpected` or `acknowledged`.
    pub verdict: String,
    /// Reason of the verdict: `{"known":"managed"}`, `{"renewal":…}`, `"allowed_issuer"`, `"baseline"`, `{"accepted":…}`,
    /// `{"acknowledged":…}`, `{"unasked":[…]}`; null while pending.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub reason: Value,
    /// Name of the issuer in the certificate.
    pub issuer: String,
    /// Serial number, hexadecimal; empty if it cannot be read.
    pub serial: String,
    /// Names for which the certificate is valid.
    pub names: Vec<String>,
    /// First second of validity, RFC 3339.
    pub not_before: String,
    /// Last second of validity, RFC 3339.
    pub not_after: String,
    /// SHA-256 of the public key (SubjectPublicKeyInfo), if the source provides it.
    pub spki_sha256: Option<String>,
    /// SHA-256 of the certificate or precertificate, if the source provides it.
    pub sha256: Option<String>,
    /// Log or service that reported the issuance first.
    pub source: String,
    /// Time at which the issuance was logged, if the source provides it.
    pub logged_at: Option<String>,
    /// Time at which the issuance was found, RFC 3339.
    pub found_at: String,
    /// Watched domains for which the issuance was found; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<String>>,
    /// The certificate or precertificate (DER, base64), if it is stored; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub der: Option<String>,
}

/// Request body that replaces the settings of a watched domain.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CtDomainSettingsBody {
    /// Services that watch the domain, including `logs`. An empty list means all services.
    #[serde(default)]
    pub services: Vec<String>,
    /// Words that the name of the issuer must contain, case-insensitive. An empty list allows any issuer of a known certificate for
    /// the domain.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["Let's Encrypt"]), max_items = 64))]
    pub issuers: Vec<String>,
    /// Whether every issuance by these issuers is expected, for any name below the domain.
    #[serde(default)]
    pub trust_issuers: bool,
    /// Whether the domain is watched.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}

/// A domain to watch.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CtDomainBody {
    /// Name of the domain. It must be a registered domain: directly below a public suffix.
    #[cfg_attr(feature = "schemas", schema(example = "example.com"))]
    pub name: String,
    /// Services that watch the domain, including `logs`. An empty list means all services.
    #[serde(default)]
    pub services: Vec<String>,
    /// Words that the name of the issuer must contain, case-insensitive. An empty list allows any issuer of a known certificate for
    /// the domain.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["Let's Encrypt"]), max_items = 64))]
    pub issuers: Vec<String>,
    /// Whether every issuance by these issuers is expected, for any name below the domain.
    #[serde(default)]
    pub trust_issuers: bool,
    /// Whether the domain is watched.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}

/// The reason why an issuance is expected or acknowledged.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CtReasonBody {
    /// Human-readable reason for the decision.
    #[cfg_attr(
        feature = "schemas",
        schema(example = "bought by marketing", min_length = 1, max_length = 1024)
    )]
    pub reason: String,
}

/// Query parameters of `GET /api/v1/ct/issuances`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct CtIssuanceQuery {
    /// Only issuances for this watched domain.
    pub domain: Option<String>,
    /// Only issuances with this verdict: `pending`, `expected`, `unexpected`, `acknowledged`.
    pub verdict: Option<String>,
    /// Only issuances found at or after this time, RFC 3339.
    pub since: Option<String>,
}
