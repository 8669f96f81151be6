//! Certificate Transparency: watched domains, searches, logs, issuances.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A watched domain.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtDomainView {
    /// Its name: a registered domain. Everything below it is watched too.
    #[cfg_attr(feature = "schemas", schema(example = "example.com"))]
    pub name: String,
    /// Whether the client certificate is requested and matched.
    pub enabled: bool,
    /// Which services watch it, `logs` among them; empty: all.
    pub services: Vec<String>,
    /// Words that an issuer's name must contain; empty: any issuer of a known certificate for the domain.
    pub issuers: Vec<String>,
    /// Whether those issuers may issue for any name below it.
    pub trust_issuers: bool,
    /// When it was first watched.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
    /// Where each search service was left; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searches: Option<Vec<CtSearchView>>,
}

/// Where a search service was left for a domain.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtSearchView {
    /// Which domain.
    pub domain: String,
    /// Which service.
    pub service: String,
    /// `asking`, `due`, `failing` or `planned`.
    pub state: String,
    /// The service's own mark of where to go on.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub cursor: Value,
    /// When it had told all it knew for the first time: what it told until then is the baseline.
    pub baseline_at: Option<String>,
    /// When it last answered.
    pub answered_at: Option<String>,
    /// When it is to be retried.
    pub next_at: String,
    /// Seconds that a due question has waited, or since when it fails.
    pub lag_s: i64,
    /// Failures in a row.
    pub failures: i64,
    /// The last of them.
    pub last_error: Option<String>,
}

/// A log that is followed, or was.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtLogView {
    /// SHA-256 of its key (RFC 6962 section 3.2), hexadecimal.
    pub id: String,
    /// Its name on the list.
    pub name: String,
    /// `followed`, `failing`, `inconsistent`, or `new` when it was never read.
    pub state: String,
    /// Entries of the last checkpoint that was verified to go on from all before it.
    pub tree_size: Option<u64>,
    /// The first entry that has not been read.
    pub next_entry: Option<u64>,
    /// Entries that have not been read.
    pub behind: i64,
    /// Since when there is more to be read than one step reads.
    pub behind_since: Option<String>,
    /// The hash of that checkpoint's tree, hexadecimal.
    pub root: Option<String>,
    /// When the log signed it.
    pub checkpoint_at: Option<String>,
    /// The last step.
    pub stepped_at: Option<String>,
    /// Since when it cannot be read, or stands still.
    pub failing_since: Option<String>,
    /// The last error.
    pub last_error: Option<String>,
    /// What is wrong with it: `forked`, `rolled-back`, `wrong-tile`, `bad-checkpoint`. It is not read past that.
    pub alarm: Option<String>,
    /// Since when.
    pub alarmed_at: Option<String>,
    /// The proof: signed notes of the log that cannot both be true, where there are two.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub evidence: Option<Value>,
}

/// What was issued for a watched domain: one however often it was logged, precertificate and certificate together.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CtIssuanceView {
    /// Its identity.
    pub id: Uuid,
    /// `pending` (it waits for its verdict), `expected`, `unexpected` or `acknowledged`.
    pub verdict: String,
    /// Why: `{"known":"managed"}`, `{"renewal":…}`, `"allowed_issuer"`, `"baseline"`, `{"accepted":…}`,
    /// `{"acknowledged":…}`, `{"unasked":[…]}`; null while pending.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub reason: Value,
    /// The issuer's name.
    pub issuer: String,
    /// Hexadecimal; empty when it cannot be read.
    pub serial: String,
    /// The names it is for.
    pub names: Vec<String>,
    /// First second of validity.
    pub not_before: String,
    /// Last second of validity.
    pub not_after: String,
    /// SHA-256 of the public key (SubjectPublicKeyInfo), where the source tells it.
    pub spki_sha256: Option<String>,
    /// SHA-256 of the certificate or precertificate, where the source tells it.
    pub sha256: Option<String>,
    /// Which log or service told first.
    pub source: String,
    /// When it was logged, where the source tells it.
    pub logged_at: Option<String>,
    /// When it was found.
    pub found_at: String,
    /// The watched domains it was found for; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<String>>,
    /// The certificate or precertificate (base64 of DER), where it is kept; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub der: Option<String>,
}

/// How a domain shall be watched.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CtDomainSettingsBody {
    /// Which services watch it, `logs` among them; empty: all.
    #[serde(default)]
    pub services: Vec<String>,
    /// Words that an issuer's name must contain, in any case; empty: any issuer of a known certificate for the domain.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["Let's Encrypt"]), max_items = 64))]
    pub issuers: Vec<String>,
    /// Whether those issuers may issue for any name below it, known or not.
    #[serde(default)]
    pub trust_issuers: bool,
    /// Whether the client certificate is requested and matched.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}

/// A domain to watch.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CtDomainBody {
    /// A registered domain: what stands directly below a public suffix.
    #[cfg_attr(feature = "schemas", schema(example = "example.com"))]
    pub name: String,
    /// Which services watch it, `logs` among them; empty: all.
    #[serde(default)]
    pub services: Vec<String>,
    /// Words that an issuer's name must contain, in any case; empty: any issuer of a known certificate for the domain.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["Let's Encrypt"]), max_items = 64))]
    pub issuers: Vec<String>,
    /// Whether those issuers may issue for any name below it, known or not.
    #[serde(default)]
    pub trust_issuers: bool,
    /// Whether the client certificate is requested and matched.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}

/// Why an issuance is expected, or has been seen to.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CtReasonBody {
    /// For anyone who reads it later.
    #[cfg_attr(
        feature = "schemas",
        schema(example = "bought by marketing", min_length = 1, max_length = 1024)
    )]
    pub reason: String,
}

/// Which issuances.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct CtIssuanceQuery {
    /// Only issuances for this watched domain.
    pub domain: Option<String>,
    /// Those with this verdict: `pending`, `expected`, `unexpected`, `acknowledged`.
    pub verdict: Option<String>,
    /// Those found at this time or later, RFC 3339.
    pub since: Option<String>,
}
