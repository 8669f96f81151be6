//! Agents, their groups and enrolment tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Labels: the value of each label by its name.
pub type Labels = BTreeMap<String, String>;

/// An agent: a program on a host that deploys certificates.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// UUID of the agent, used in `/api/v1/agents/{id}`.
    pub id: Uuid,
    /// Name of the agent, unique.
    #[cfg_attr(feature = "schemas", schema(example = "web-1"))]
    pub name: String,
    /// Labels, by which groups and the query parameter `labels` select the agent.
    pub labels: Labels,
    /// Whether the agent has requested work in the last few minutes.
    pub online: bool,
    /// Time of the last request for work, with a precision of one minute.
    pub last_seen_at: String,
    /// Hostname, as reported by the agent.
    pub hostname: String,
    /// Operating system of the host.
    pub os: String,
    /// Processor architecture of the host.
    pub arch: String,
    /// Version of the agent, as reported by the agent.
    pub version: String,
    /// Network addresses of the host.
    pub addresses: Vec<String>,
    /// Enrolment time, RFC 3339.
    pub enrolled_at: String,
    /// Expiry time of the client certificate. The agent renews the certificate itself.
    pub certificate_expires_at: String,
    /// Time at which the agent was retired, RFC 3339.
    pub retired_at: Option<String>,
}

/// A change to an agent. Absent members keep their value.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    /// New name, unique.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// New labels. They replace all present labels.
    pub labels: Option<Labels>,
}

/// A group of agents, selected by their labels.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentGroupView {
    /// Name of the group, unique.
    #[cfg_attr(feature = "schemas", schema(example = "web"))]
    pub name: String,
    /// Labels that an agent must have to belong to the group. All of them must match.
    pub selector: Labels,
    /// Human-readable description.
    pub description: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// An agent group to create.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAgentGroup {
    /// Name of the group, unique.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: String,
    /// Labels that an agent must have to belong to the group, 1 to 8. All of them must match.
    pub selector: Labels,
    /// Human-readable description.
    #[serde(default)]
    pub description: String,
}

/// Request body that replaces the selector and the description of an agent group.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentGroupChange {
    /// Labels that an agent must have to belong to the group, 1 to 8. All of them must match.
    pub selector: Labels,
    /// Human-readable description.
    #[serde(default)]
    pub description: String,
}

/// An enrolment token to create.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAgentToken {
    /// Labels of the agent that enrols with the token.
    #[serde(default)]
    pub labels: Labels,
    /// Lifetime in seconds: one hour when absent, one month at most.
    #[cfg_attr(feature = "schemas", schema(minimum = 1, maximum = 2_592_000))]
    pub seconds: Option<i64>,
}

/// An enrolment token without its secret.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentTokenView {
    /// UUID of the token, used in `/api/v1/agent-tokens/{id}`.
    pub id: Uuid,
    /// Labels of the agent that enrols with the token.
    pub labels: Labels,
    /// Actor that created the token.
    pub created_by: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Expiry time. Later uses are rejected.
    pub expires_at: String,
    /// Time at which the token was used, RFC 3339.
    pub used_at: Option<String>,
    /// Agent that enrolled with the token.
    pub agent: Option<Uuid>,
}

/// Response to the creation of an enrolment token: the secret and the metadata of the token.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedAgentToken {
    /// The secret token. It is shown only in this response.
    pub token: String,
    /// The token without the secret.
    #[serde(flatten)]
    pub view: AgentTokenView,
}

/// Query parameters of `GET /api/v1/agents`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct AgentsQuery {
    /// Labels that the agents must have, as `name=value`, separated by commas.
    #[cfg_attr(feature = "schemas", param(example = "env=prod,role=web"))]
    pub labels: Option<String>,
    /// Only agents of this group.
    pub group: Option<String>,
    /// Whether to list only online agents (`true`) or only offline agents (`false`).
    pub online: Option<bool>,
    /// Whether to include retired agents.
    #[serde(default)]
    pub retired: bool,
}
