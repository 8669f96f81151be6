//! Certificate policies and their violations.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A certificate policy to create.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPolicy {
    /// Name of the policy, unique.
    #[cfg_attr(feature = "schemas", schema(example = "production", min_length = 1, max_length = 200))]
    pub name: String,
    /// Content of the policy: `description`, `applies_to` (`all`, `environments`, `teams`, `profiles`, `issuers`, `tags`),
    /// `enforcement` (`advisory` or `enforced`), `rules`, `renewal`, `requires_approval`. See docs/lifecycle.md.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"applies_to": {"environments": ["prod"]}, "enforcement": "enforced",
        "rules": [{"rule": "allowed_domains", "domains": ["example.org"], "severity": "error"}],
        "renewal": {"renew_before": {"days": 30}}})))]
    pub policy: Map<String, Value>,
}

/// New content of a certificate policy.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyBody {
    /// Content of the policy, as in the request that creates it.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub policy: Map<String, Value>,
}

/// A certificate policy, with its content and revision.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Policy))]
pub struct PolicyView {
    /// Name of the policy, unique.
    pub name: String,
    /// Content of the policy: `description`, `applies_to`, `enforcement`, `rules`, `renewal`, `requires_approval`.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub policy: Value,
    /// Number that changes with every change of the policy.
    pub revision: i64,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// A violation of a policy rule.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Violation))]
pub struct ViolationView {
    /// UUID of the certificate, as in `/api/v1/certificates/{id}`.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Name of the policy.
    pub policy: String,
    /// Name of the rule.
    pub rule: String,
    /// Severity: `info`, `warning`, `error` or `critical`.
    pub severity: String,
    /// Human-readable description.
    pub message: String,
    /// Time at which the violation was first found, RFC 3339.
    pub found_at: String,
}

/// Query parameters of `GET /api/v1/violations`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ViolationQuery {
    /// Only violations of this policy.
    pub policy: Option<String>,
    /// Only violations of this certificate.
    pub certificate: Option<Uuid>,
    /// Minimum severity: `info`, `warning`, `error` or `critical`.
    pub severity: Option<String>,
}
