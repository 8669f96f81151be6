//! External issuers and their health.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// An issuer to configure.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewIssuerBody {
    /// Name of the issuer, unique: letters a-z, digits, `-`, `_` and `.`.
    #[cfg_attr(feature = "schemas", schema(example = "letsencrypt", min_length = 1, max_length = 100))]
    pub name: String,
    /// Settings with the secrets; `type` is `internal`, `acme`, `vault`, `step_ca`, `exec` or `webhook`. See docs/issuers.md for
    /// the members of each type.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"type": "acme", "directory": "https://acme-v02.api.letsencrypt.org/directory", "terms_agreed": true})))]
    pub config: Map<String, Value>,
    /// Whether the issuer accepts orders; true when absent.
    pub enabled: Option<bool>,
}

/// A change to an issuer. Absent members keep their value.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IssuerPatch {
    /// New name, unique.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 100))]
    pub name: Option<String>,
    /// New settings. They replace all current settings, except that absent secrets are kept. If the URL, the trusted roots or the
    /// login change, the secrets must be given again. A secret that is null is removed.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub config: Option<Map<String, Value>>,
    /// Whether the issuer accepts orders.
    pub enabled: Option<bool>,
}

/// A configured issuer, without its secrets.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuerView {
    /// UUID of the issuer, used in `/api/v1/issuers/{id}`.
    pub id: Uuid,
    /// Revision of the settings. A change with `If-Match: "REVISION"` fails if the settings changed meanwhile. The health changes
    /// without a new revision. Therefore the `ETag` of this response is not the revision.
    #[cfg_attr(feature = "schemas", schema(example = 3))]
    pub revision: i64,
    /// Name of the issuer, unique.
    pub name: String,
    /// Type of the issuer: `internal`, `acme`, `vault`, `step_ca`, `exec` or `webhook`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Settings without secrets.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub config: Value,
    /// Secrets that are set, as JSON pointers into `config`.
    pub secrets_set: Vec<String>,
    /// Whether the issuer accepts orders.
    pub enabled: bool,
    /// Error in the configuration; null if there is none. Orders to the issuer fail until the error is corrected.
    pub problem: Option<String>,
    /// URL of the ACME account, if the issuer is an ACME server and has created one.
    pub account: Option<String>,
    /// State of the circuit breaker, and the last success and error.
    pub health: HealthView,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change of the settings, RFC 3339.
    pub updated_at: String,
}

/// Health of an issuer: the circuit breaker, and the last success and error.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct HealthView {
    /// State of the circuit breaker: `closed` (orders are sent), `open` (no orders are sent) or `half_open` (one trial order is
    /// sent).
    pub breaker: String,
    /// Time until which the circuit breaker stays open, RFC 3339.
    pub rests_until: Option<String>,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Time of the last success, RFC 3339.
    pub last_success_at: Option<String>,
    /// Time of the last error, RFC 3339.
    pub last_error_at: Option<String>,
    /// Code of the last error: `refused`, `unavailable`, …
    pub last_error_code: Option<String>,
    /// Human-readable description of the last error.
    pub last_error: Option<String>,
}

/// Result of a connection test of an issuer.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IssuerTest {
    /// Whether the issuer can issue certificates.
    pub ok: bool,
    /// Human-readable result.
    pub message: String,
    /// Code of the error; null if there was none.
    pub code: Option<String>,
}
