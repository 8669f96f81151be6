//! External issuers and their health.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// An issuer to configure.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewIssuerBody {
    /// Its name, unique: letters a-z, digits, `-`, `_` and `.`.
    #[cfg_attr(feature = "schemas", schema(example = "letsencrypt", min_length = 1, max_length = 100))]
    pub name: String,
    /// Its settings with its secrets; `type` is `internal`, `acme`, `vault`, `step_ca`, `exec` or `webhook`. See
    /// docs/issuers.md for the members of each.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"type": "acme", "directory": "https://acme-v02.api.letsencrypt.org/directory", "terms_agreed": true})))]
    pub config: Map<String, Value>,
    /// Whether orders may go to it; true when absent.
    pub enabled: Option<bool>,
}

/// What to change of an issuer; members left out stay.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IssuerPatch {
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 100))]
    pub name: Option<String>,
    /// All its settings. Secrets left out stay as they are while they go where they went: a change of the URL, of the roots it
    /// is trusted by, or of the login demands them again. A secret that is null is removed.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub config: Option<Map<String, Value>>,
    /// Whether orders may go to it.
    pub enabled: Option<bool>,
}

/// An issuer.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuerView {
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its settings without secrets.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub config: Value,
    /// Which secrets are set, as JSON pointers into `config`.
    pub secrets_set: Vec<String>,
    /// Whether orders may go to it.
    pub enabled: bool,
    /// Why it cannot be used as it is configured; null when it can. Orders to it fail until that is corrected.
    pub problem: Option<String>,
    /// The URL of our account, where it is an ACME server that made one.
    pub account: Option<String>,
    /// Health of the issuer.
    pub health: HealthView,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// When its settings last changed, RFC 3339.
    pub updated_at: String,
}

/// How an issuer does.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct HealthView {
    /// Its circuit breaker: `closed` (orders pass), `open` (it is given a rest) or `half_open` (one order finds out).
    pub breaker: String,
    /// The end of its rest, RFC 3339.
    pub rests_until: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// The last success, RFC 3339.
    pub last_success_at: Option<String>,
    /// The last error, RFC 3339.
    pub last_error_at: Option<String>,
    /// That error, a word: `refused`, `unavailable`, …
    pub last_error_code: Option<String>,
    /// That error, for people.
    pub last_error: Option<String>,
}

/// Result of a test.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuerTest {
    /// Whether it could issue.
    pub ok: bool,
    /// The result, for people.
    pub message: String,
    /// The kind of error, a word; null when there was none.
    pub code: Option<String>,
}
