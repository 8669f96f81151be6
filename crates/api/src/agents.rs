//! Agents, their groups and enrollment tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Labels by name, sorted.
pub type Labels = BTreeMap<String, String>;

/// An agent.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "web-1"))]
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Whether it has asked for work in the last minutes.
    pub online: bool,
    /// When it last asked for work, to the minute.
    pub last_seen_at: String,
    /// Its host's name.
    pub hostname: String,
    /// Its host's operating system.
    pub os: String,
    /// Its host's kind of processor.
    pub arch: String,
    /// Its version.
    pub version: String,
    /// Its host's addresses.
    pub addresses: Vec<String>,
    /// When it was enrolled.
    pub enrolled_at: String,
    /// When its client certificate ends; it renews it by itself.
    pub certificate_expires_at: String,
    /// When it was retired.
    pub retired_at: Option<String>,
}

/// What to change.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    /// Another name.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// Other labels, in place of all.
    pub labels: Option<Labels>,
}

/// A group of agents.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentGroupView {
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(example = "web"))]
    pub name: String,
    /// Labels its agents have, all of them.
    pub selector: Labels,
    /// For people.
    pub description: String,
    /// Creation time.
    pub created_at: String,
    /// Time of the last change.
    pub updated_at: String,
}

/// A group to make.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAgentGroup {
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: String,
    /// Labels its agents have, all of them: 1 to 8.
    pub selector: Labels,
    /// For people.
    #[serde(default)]
    pub description: String,
}

/// A group as it is to be.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentGroupChange {
    /// Labels its agents have, all of them: 1 to 8.
    pub selector: Labels,
    /// For people.
    #[serde(default)]
    pub description: String,
}

/// A token to make.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAgentToken {
    /// Labels its agent gets.
    #[serde(default)]
    pub labels: Labels,
    /// Seconds it is good: an hour when absent, a month at most.
    #[cfg_attr(feature = "schemas", schema(minimum = 1, maximum = 2_592_000))]
    pub seconds: Option<i64>,
}

/// A token, without itself.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentTokenView {
    /// Its identity.
    pub id: Uuid,
    /// Labels its agent gets.
    pub labels: Labels,
    /// Actor that created it.
    pub created_by: String,
    /// When.
    pub created_at: String,
    /// Expiry: later uses are rejected.
    pub expires_at: String,
    /// When it was used.
    pub used_at: Option<String>,
    /// The agent it has enrolled.
    pub agent: Option<Uuid>,
}

/// A token just made.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedAgentToken {
    /// The secret. It is shown this once.
    pub token: String,
    /// The stored part, without the secret.
    #[serde(flatten)]
    pub view: AgentTokenView,
}

/// Which agents to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct AgentsQuery {
    /// Labels they must have, `name=value`, separated by commas.
    #[cfg_attr(feature = "schemas", param(example = "env=prod,role=web"))]
    pub labels: Option<String>,
    /// Only agents of this group.
    pub group: Option<String>,
    /// Only those online, or only those offline.
    pub online: Option<bool>,
    /// Retired ones too.
    #[serde(default)]
    pub retired: bool,
}
