//! Deployment targets and deployments.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A target.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DeployTargetView {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "web-1 nginx"))]
    pub name: String,
    /// Its agent.
    pub agent: Uuid,
    /// Its kind: `nginx`, `apache`, `haproxy`, `caddy`, `traefik`, `envoy`, `postfix`, `dovecot`, `files`, `pkcs12`,
    /// `jks`, `exec`.
    pub kind: String,
    /// Where it is, by kind; passwords are replaced.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"type": "nginx", "fullchain": "/etc/nginx/tls/a.pem",
        "key": "/etc/nginx/tls/a.key", "verify": {"port": 443, "server_name": "a.example"}})))]
    pub target: Value,
    /// Creation time.
    pub created_at: String,
    /// Time of the last change.
    pub updated_at: String,
}

/// A target to make, or as it is to be.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeployTarget {
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: String,
    /// Its agent.
    pub agent: Uuid,
    /// Where it is, by kind. A password given as it is shown stays as it was.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"type": "files", "key": {"path": "/etc/ssl/a.key", "mode": "0640"},
        "fullchain": "/etc/ssl/a.pem", "reload": ["systemctl", "reload", "app"]})))]
    pub target: Value,
}

/// A deployment: one run to one target.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DeploymentView {
    /// The managed certificate.
    pub certificate: Uuid,
    /// The target.
    pub target: Uuid,
    /// Its agent.
    pub agent: Uuid,
    /// SHA-256 of the leaf that was to be deployed.
    pub fingerprint: String,
    /// `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    pub state: String,
    /// How often it was tried.
    pub attempts: i64,
    /// Error of the last attempt.
    pub error: Option<String>,
    /// SHA-256 of the leaf that the endpoint showed after it.
    pub served: Option<String>,
    /// Time of the request.
    pub created_at: String,
    /// When it was last tried.
    pub updated_at: String,
}

/// Which targets to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct TargetQuery {
    /// Only targets of this agent.
    pub agent: Option<Uuid>,
}

/// Which deployments to list; all conditions together.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct DeploymentQuery {
    /// Of this managed certificate.
    pub certificate: Option<Uuid>,
    /// To this target.
    pub target: Option<Uuid>,
    /// By this agent.
    pub agent: Option<Uuid>,
    /// In this state: `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    #[cfg_attr(feature = "schemas", param(example = "failed"))]
    pub state: Option<String>,
}
