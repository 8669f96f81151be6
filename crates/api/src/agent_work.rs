//! Requests of agents, over mutual TLS: enrolment, renewal, CSRs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A request to enrol a host as an agent.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EnrolmentBody {
    /// The enrolment token. It can be used once.
    pub token: String,
    /// CSR for the client certificate, PEM, signed with the key generated on the host.
    pub csr_pem: String,
    /// Name of the agent; the hostname when absent.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// Version of the agent and properties of its host.
    #[serde(default)]
    pub facts: FactsBody,
}

/// Properties that an agent reports: its version, and the name, system and addresses of its host.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct FactsBody {
    /// Version of the agent.
    #[serde(default)]
    pub version: String,
    /// Hostname, as reported by the agent.
    #[serde(default)]
    pub hostname: String,
    /// Operating system of the host.
    #[serde(default)]
    pub os: String,
    /// Processor architecture of the host.
    #[serde(default)]
    pub arch: String,
    /// Network addresses of the host, separated by commas.
    #[serde(default)]
    pub addresses: String,
}

/// A newly issued client certificate of an agent.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct EnrolledView {
    /// UUID of the agent, as in `/api/v1/agents/{id}`.
    pub agent: Uuid,
    /// Name of the agent, unique.
    pub name: String,
    /// The certificate and its chain, PEM.
    pub certificate_pem: String,
    /// CA certificates that the agent must trust to verify this server, PEM; empty when the trust store of the host suffices.
    pub ca_pem: String,
}

/// A request for the next client certificate.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewalBody {
    /// CSR, PEM, signed with the key of the current certificate.
    pub csr_pem: String,
}

/// The CSR that an agent submits for a job.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CsrBody {
    /// The CSR (PKCS #10), PEM.
    pub csr_pem: String,
}

/// The result of an agent's job.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResultBody {
    /// Outcome: `deployed`, `unchanged`, `failed`, `rolled_back` or `broken`.
    #[cfg_attr(feature = "schemas", schema(example = "deployed"))]
    pub outcome: String,
    /// Id of the target; absent when the job failed before it reached a target.
    pub target: Option<Uuid>,
    /// Error message of a failed job.
    pub error: Option<String>,
    /// Error of the rollback, when the previous state could not be restored.
    pub rollback_error: Option<String>,
    /// SHA-256 of the leaf certificate that the endpoint presents.
    pub served: Option<String>,
}

/// Targets of an agent, for the local policy of its host.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentTargetsView {
    /// Targets. Each has its identifier, its name and the settings of its kind. Passwords are replaced by a placeholder.
    #[cfg_attr(feature = "schemas", schema(value_type = Vec<Object>))]
    pub targets: Vec<Value>,
}
