//! Certificate policies and their violations.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A policy to make.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPolicy {
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "production", min_length = 1, max_length = 200))]
    pub name: String,
    /// What it says: `description`, `applies_to` (`all`, `environments`, `teams`, `profiles`, `issuers`, `tags`),
    /// `enforcement` (`advisory` or `enforced`), `rules`, `renewal`, `requires_approval`. See docs/lifecycle.md.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"applies_to": {"environments": ["prod"]}, "enforcement": "enforced",
        "rules": [{"rule": "allowed_domains", "domains": ["example.org"], "severity": "error"}],
        "renewal": {"renew_before": {"days": 30}}})))]
    pub policy: Map<String, Value>,
}

/// What a policy is to say.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyBody {
    /// As when it is made.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub policy: Map<String, Value>,
}

/// A policy.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Policy))]
pub struct PolicyView {
    /// Its name.
    pub name: String,
    /// The content.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub policy: Value,
    /// Moves with every change.
    pub revision: i64,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// A rule broken.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Violation))]
pub struct ViolationView {
    /// The certificate.
    pub certificate: Uuid,
    /// Its name.
    pub name: String,
    /// The policy.
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// `info`, `warning`, `error` or `critical`.
    pub severity: String,
    /// For people.
    pub message: String,
    /// When it was first found, RFC 3339.
    pub found_at: String,
}

/// Which violations to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ViolationQuery {
    /// Of this policy.
    pub policy: Option<String>,
    /// Of this certificate.
    pub certificate: Option<Uuid>,
    /// At least so bad: `info`, `warning`, `error` or `critical`.
    pub severity: Option<String>,
}
