//! The protocol between agents and the server.
//!
//! | request | response |
//! |---|---|
//! | `POST /api/v1/agent/enroll` [`Enrolment`] | [`Enrolled`] |
//! | `POST /api/v1/agent/renew` [`Renewal`] | [`Enrolled`] |
//! | `GET /api/v1/agent/work?wait=SECONDS&…` with [`HostFacts`] | [`Assignment`] |
//! | `GET /api/v1/agent/targets` | [`AgentTargets`] |
//! | `POST /api/v1/agent/jobs/ID/csr` [`GeneratedCsr`] | nothing |
//! | `POST /api/v1/agent/jobs/ID/result` [`JobResult`] | nothing |
//!
//! All requests but the first use mutual TLS. An agent ignores unknown fields and unknown kinds of work.

use futures_util::future::BoxFuture;
use keys::{KeyType, Secret};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::Fingerprint;

use crate::deploy::{Outcome, Report, Target};

/// Maximum seconds that a poll may wait for work. Load balancers close connections that are idle for longer.
pub const WAIT_SECONDS_MAX: u32 = 60;
/// Maximum number of jobs in one response.
pub const JOBS_MAX: usize = 16;
/// Maximum number of targets in a response, far more than one host needs.
pub const TARGETS_MAX: usize = 1_000;
/// Maximum characters of an error that are stored.
pub const ERROR_MAX: usize = 4_000;

/// Facts about the agent's host, sent with every poll.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct HostFacts {
    /// Version of the agent program.
    #[serde(default)]
    pub version: String,
    /// Host name.
    #[serde(default)]
    pub hostname: String,
    /// Operating system: `linux`, `macos`, …
    #[serde(default)]
    pub os: String,
    /// Processor architecture: `x86_64`, `aarch64`, …
    #[serde(default)]
    pub arch: String,
    /// IP addresses, separated by commas.
    #[serde(default)]
    pub addresses: String,
}

/// Request of a host to become an agent.
#[derive(Deserialize, Serialize)]
pub struct Enrolment {
    /// The single-use token.
    pub token: String,
    /// CSR for the client certificate, signed with the key generated on the host.
    pub csr_pem: String,
    /// Name of the agent. Default: the host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Facts about the host at the time of the enrolment.
    #[serde(default)]
    pub facts: HostFacts,
}

/// A request for the next client certificate.
#[derive(Debug, Deserialize, Serialize)]
pub struct Renewal {
    /// CSR, signed with the key of the current certificate.
    pub csr_pem: String,
}

/// Response to an enrolment or a renewal: id, name and client certificate of the agent.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Enrolled {
    /// Id that the server assigned to the agent.
    pub agent: Uuid,
    /// Name of the agent. Differs from the requested name if that name is invalid or taken.
    pub name: String,
    /// The client certificate and its chain, PEM.
    pub certificate_pem: String,
    /// PEM trust anchors for the server's own certificate. Empty when the host's own trust store is enough.
    #[serde(default)]
    pub ca_pem: String,
}

/// Response to a poll: the jobs that the agent must run.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Assignment {
    /// The jobs, at most [`JOBS_MAX`].
    pub jobs: Vec<AgentJob>,
}

/// A job that the server hands out to an agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AgentJob {
    /// Id of the job. A job that is handed out again has the same id.
    pub job: Uuid,
    /// Id of the managed certificate.
    pub certificate: Uuid,
    /// Human-readable name of the certificate.
    pub name: String,
    /// The action to perform.
    pub work: Work,
    /// The job's span (W3C Trace Context). `None` unless the server exports spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// The work of a job: generate a CSR, or deploy a certificate.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Generate a key and a CSR.
    Csr {
        /// Type of the key to generate.
        key_type: KeyType,
        /// DNS names and addresses in text form.
        names: Vec<String>,
        /// The subject, `CN=…, O=…`. Absent: an empty subject.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// Whether to request the must-staple extension.
        #[serde(default)]
        must_staple: bool,
    },
    /// Deploy a certificate to a target.
    Deploy {
        /// PEM chain: leaf first, without the root.
        chain_pem: String,
        /// The private key, if the server has it. `None` when the agent has it.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            serialize_with = "keys::secret::exposed_option"
        )]
        key_pem: Option<Secret>,
        /// The target to deploy to.
        target: AssignedTarget,
    },
    /// A kind of job that only newer versions know.
    #[serde(other)]
    Unknown,
}

/// A target that is assigned to an agent, with its id.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AssignedTarget {
    /// Id of the target.
    pub id: Uuid,
    /// Human-readable name of the target.
    pub name: String,
    /// Configuration of the target.
    pub target: Target,
}

/// The targets of an agent, without their passwords. The owner of the host can list them.
#[derive(Debug, Deserialize, Serialize)]
pub struct AgentTargets {
    /// The targets, at most [`TARGETS_MAX`].
    pub targets: Vec<AssignedTarget>,
}

/// The CSR that an agent generated for a job.
#[derive(Debug, Deserialize, Serialize)]
pub struct GeneratedCsr {
    /// PKCS #10 CSR in PEM, signed with the generated key.
    pub csr_pem: String,
}

/// Result of a job, as the agent reports it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct JobResult {
    /// Outcome of the job, such as `deployed` or `rolled_back`.
    pub outcome: Outcome,
    /// Id of the target. Absent when the job failed before the deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Uuid>,
    /// Error of a failed job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reason why the rollback failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_error: Option<String>,
    /// SHA-256 of the leaf that the endpoint serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
}

impl JobResult {
    /// Builds the result of a deployment from its report.
    #[must_use]
    pub fn of(target: Uuid, report: &Report) -> Self {
        Self {
            outcome: report.outcome,
            target: Some(target),
            error: report.error.as_deref().map(shortened),
            rollback_error: report.rollback_error.as_deref().map(shortened),
            served: report.served.map(|served| served.to_string()),
        }
    }

    /// Builds the result of a failed job.
    #[must_use]
    pub fn failed(target: Option<Uuid>, error: &str) -> Self {
        Self {
            outcome: Outcome::Failed,
            target,
            error: Some(shortened(error)),
            rollback_error: None,
            served: None,
        }
    }

    /// Returns whether the certificate is deployed.
    #[must_use]
    pub fn is_deployed(&self) -> bool {
        matches!(self.outcome, Outcome::Deployed | Outcome::Unchanged)
    }

    /// Returns the fingerprint of the leaf that the endpoint serves. `None` if it is missing or malformed.
    #[must_use]
    pub fn served(&self) -> Option<Fingerprint> {
        self.served.as_deref().and_then(|text| text.parse().ok())
    }

    /// Joins all errors into one text of at most [`ERROR_MAX`] characters.
    #[must_use]
    pub fn error_text(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        let text = match self.rollback_error.as_deref() {
            Some(rollback) => format!("{error}; the rollback also failed: {rollback}"),
            None => error.to_owned(),
        };
        Some(shortened(&text))
    }
}

/// Shortens a text. Keeps its line breaks: a policy's refusal lists the lines to add.
fn shortened(text: &str) -> String {
    text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).take(ERROR_MAX).collect()
}

/// Reason why a job could not be handed out, or why its result could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The job does not exist, or belongs to another agent.
    #[error("unknown job for this agent")]
    NotFound,
    /// The request is invalid. Repeating it does not help.
    #[error("{0}")]
    Refused(String),
    /// Temporarily unavailable. A retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

/// Source of agents' jobs, implemented by the lifecycle of managed certificates.
pub trait WorkSource: Send + Sync {
    /// Returns the agent's pending jobs, at most `limit`. A job without a report is returned again later. Sends one statement when
    /// there are no jobs.
    fn jobs_for_agent(&self, agent: Uuid, limit: usize) -> BoxFuture<'_, Result<Vec<AgentJob>, WorkError>>;

    /// Stores the CSR of a job. A repetition changes nothing.
    fn accept_csr(&self, agent: Uuid, job: Uuid, csr_der: Vec<u8>) -> BoxFuture<'_, Result<(), WorkError>>;

    /// Stores the result of a job. A repetition changes nothing.
    fn finished(&self, agent: Uuid, job: Uuid, result: JobResult) -> BoxFuture<'_, Result<(), WorkError>>;
}
