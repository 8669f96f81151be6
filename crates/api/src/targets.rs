//! Deployment targets and deployments.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A deployment target: a service, file or command on a host, to which an agent deploys certificates.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DeployTargetView {
    /// UUID of the target, used in `/api/v1/targets/{id}`.
    pub id: Uuid,
    /// Name of the target, unique.
    #[cfg_attr(feature = "schemas", schema(example = "web-1 nginx"))]
    pub name: String,
    /// Agent that deploys to the target.
    pub agent: Uuid,
    /// Kind of target: `nginx`, `apache`, `haproxy`, `caddy`, `traefik`, `envoy`, `postfix`, `dovecot`, `files`, `pkcs12`, `jks`,
    /// `exec`.
    pub kind: String,
    /// Settings of the target; the members depend on the kind. Passwords are replaced by a placeholder.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"type": "nginx", "fullchain": "/etc/nginx/tls/a.pem",
        "key": "/etc/nginx/tls/a.key", "verify": {"port": 443, "server_name": "a.example"}})))]
    pub target: Value,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// A deployment target to create or replace.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeployTarget {
    /// Name of the target.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: String,
    /// Agent that deploys to the target.
    pub agent: Uuid,
    /// Settings of the target; the members depend on the kind. If a password is the placeholder from a response, the stored
    /// password is kept.
    #[cfg_attr(feature = "schemas", schema(value_type = Object, example = json!({"type": "files", "key": {"path": "/etc/ssl/a.key", "mode": "0640"},
        "fullchain": "/etc/ssl/a.pem", "reload": ["systemctl", "reload", "app"]})))]
    pub target: Value,
}

/// The deployment of one certificate version to one target.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DeploymentView {
    /// UUID of the managed certificate, as in `/api/v1/certificates/{id}`.
    pub certificate: Uuid,
    /// UUID of the target, as in `/api/v1/targets/{id}`.
    pub target: Uuid,
    /// UUID of the agent, as in `/api/v1/agents/{id}`.
    pub agent: Uuid,
    /// SHA-256 of the leaf certificate to deploy.
    pub fingerprint: String,
    /// State: `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    pub state: String,
    /// Number of deployment attempts.
    pub attempts: i64,
    /// Error of the last deployment attempt.
    pub error: Option<String>,
    /// SHA-256 of the leaf certificate that the endpoint presented after the deployment.
    pub served: Option<String>,
    /// Time of the request, RFC 3339.
    pub created_at: String,
    /// Time of the last deployment attempt, RFC 3339.
    pub updated_at: String,
}

/// Query parameters of `GET /api/v1/targets`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct TargetQuery {
    /// Only targets of this agent.
    pub agent: Option<Uuid>,
}

/// Query parameters of `GET /api/v1/deployments`. All given conditions must match.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct DeploymentQuery {
    /// Only deployments of this managed certificate.
    pub certificate: Option<Uuid>,
    /// Only deployments to this target.
    pub target: Option<Uuid>,
    /// Only deployments by this agent.
    pub agent: Option<Uuid>,
    /// Only deployments in this state: `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    #[cfg_attr(feature = "schemas", param(example = "failed"))]
    pub state: Option<String>,
}
