//! Requests of agents, over mutual TLS: enrollment, renewal, CSRs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A host that wants to become an agent.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EnrolmentBody {
    /// The enrolment token, used once.
    pub token: String,
    /// A request for the client certificate, signed with the key made on the host.
    pub csr_pem: String,
    /// The agent's name; the host's when absent.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// Facts about the host.
    #[serde(default)]
    pub facts: FactsBody,
}

/// Facts about an agent's host.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct FactsBody {
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// The host's name.
    #[serde(default)]
    pub hostname: String,
    /// The host's operating system.
    #[serde(default)]
    pub os: String,
    /// The host's kind of processor.
    #[serde(default)]
    pub arch: String,
    /// The host's addresses, separated by commas.
    #[serde(default)]
    pub addresses: String,
}

/// An agent's client certificate.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct EnrolledView {
    /// The agent.
    pub agent: Uuid,
    /// Its name.
    pub name: String,
    /// The certificate and its chain, PEM.
    pub certificate_pem: String,
    /// Certificates below which this server's own stands, PEM; empty when the host's roots will do.
    pub ca_pem: String,
}

/// A request for the next client certificate.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewalBody {
    /// Signed with the key of the one before, PEM.
    pub csr_pem: String,
}

/// A CSR.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CsrBody {
    /// PEM.
    pub csr_pem: String,
}

/// How a job went.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResultBody {
    /// `deployed`, `unchanged`, `failed`, `rolled_back` or `broken`.
    #[cfg_attr(feature = "schemas", schema(example = "deployed"))]
    pub outcome: String,
    /// The target; absent when the job failed before that.
    pub target: Option<Uuid>,
    /// The error.
    pub error: Option<String>,
    /// Why what was before is not back.
    pub rollback_error: Option<String>,
    /// SHA-256 of the leaf that the endpoint shows.
    pub served: Option<String>,
}

/// The targets of an agent, for the policy of its host.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AgentTargetsView {
    /// Targets: each with its identity, its name, and where it is by kind; passwords are replaced.
    #[cfg_attr(feature = "schemas", schema(value_type = Vec<Object>))]
    pub targets: Vec<Value>,
}
