//! What agents and the server say to each other.
//!
//! | request | answer |
//! |---|---|
//! | `POST /api/v1/agent/enroll` [`Enrolment`] | [`Enrolled`] |
//! | `POST /api/v1/agent/renew` [`Renewal`] | [`Enrolled`] |
//! | `GET /api/v1/agent/work?wait=SECONDS&…` with [`HostFacts`] | [`Assignment`] |
//! | `GET /api/v1/agent/targets` | [`AgentTargets`] |
//! | `POST /api/v1/agent/jobs/ID/csr` [`CsrMade`] | nothing |
//! | `POST /api/v1/agent/jobs/ID/result` [`JobResult`] | nothing |
//!
//! All but the first over mutual TLS. An agent passes over fields and kinds of work it does not know.

use futures_util::future::BoxFuture;
use keys::{KeyType, Secret};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::Fingerprint;

use crate::deploy::{Outcome, Report, Target};

/// Seconds a poll may wait for work at most. Balancers cut connections that are silent for longer.
pub const WAIT_SECONDS_MAX: u32 = 60;
/// Jobs in one answer.
pub const JOBS_MAX: usize = 16;
/// Targets of one agent in an answer: far more than hosts have servers.
pub const TARGETS_MAX: usize = 1_000;
/// Letters of an error that are kept.
pub const ERROR_MAX: usize = 4_000;

/// What an agent says of its host, with every poll.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct HostFacts {
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// The host's name.
    #[serde(default)]
    pub hostname: String,
    /// `linux`, `macos`, …
    #[serde(default)]
    pub os: String,
    /// `x86_64`, `aarch64`, …
    #[serde(default)]
    pub arch: String,
    /// Its addresses, separated by commas.
    #[serde(default)]
    pub addresses: String,
}

/// A host that wants to become an agent.
#[derive(Deserialize, Serialize)]
pub struct Enrolment {
    /// The token, used once.
    pub token: String,
    /// A request for the client certificate, signed with the key made on the host.
    pub csr_pem: String,
    /// The agent's name; the host's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The host.
    #[serde(default)]
    pub facts: HostFacts,
}

/// A request for the next client certificate.
#[derive(Debug, Deserialize, Serialize)]
pub struct Renewal {
    /// Signed with the key of the one before.
    pub csr_pem: String,
}

/// What an agent shows itself with from now on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Enrolled {
    /// The agent.
    pub agent: Uuid,
    /// Its name.
    pub name: String,
    /// The client certificate and its chain, PEM.
    pub certificate_pem: String,
    /// Certificates below which the server's own stands, PEM; empty when the host's own roots will do.
    #[serde(default)]
    pub ca_pem: String,
}

/// What there is to do.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Assignment {
    /// At most [`JOBS_MAX`].
    pub jobs: Vec<AgentJob>,
}

/// One piece of work.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AgentJob {
    /// Its identity: the same work has the same one, however often it is given.
    pub job: Uuid,
    /// The managed certificate.
    pub certificate: Uuid,
    /// Its name, for people.
    pub name: String,
    /// The work.
    pub work: Work,
}

/// Kinds of work.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Make a key and a CSR.
    Csr {
        /// The kind of key.
        key_type: KeyType,
        /// Names, as people write them.
        names: Vec<String>,
        /// The subject, `CN=…, O=…`; none when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// Ask for the must-staple extension.
        #[serde(default)]
        must_staple: bool,
    },
    /// Bring a certificate to a target.
    Deploy {
        /// Leaf first, root left out.
        chain_pem: String,
        /// The private key, if the server holds it; otherwise the agent does.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            serialize_with = "keys::secret::exposed_option"
        )]
        key_pem: Option<Secret>,
        /// The target.
        target: TargetWork,
    },
    /// Something a newer server knows.
    #[serde(other)]
    Unknown,
}

/// A target with its identity.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TargetWork {
    /// Its identity.
    pub id: Uuid,
    /// Its name, for people.
    pub name: String,
    /// The target.
    pub target: Target,
}

/// The targets of an agent, as its host's owner may see them: without passwords.
#[derive(Debug, Deserialize, Serialize)]
pub struct AgentTargets {
    /// At most [`TARGETS_MAX`].
    pub targets: Vec<TargetWork>,
}

/// A CSR.
#[derive(Debug, Deserialize, Serialize)]
pub struct CsrMade {
    /// PEM.
    pub csr_pem: String,
}

/// How a job went.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct JobResult {
    /// In one word.
    pub outcome: Outcome,
    /// Where it was deployed to; absent when a job failed before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Uuid>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the rollback failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_error: Option<String>,
    /// SHA-256 of the leaf the endpoint shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
}

impl JobResult {
    /// A report on a deployment.
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

    /// A job that came to nothing.
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

    /// Whether the certificate is in place.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self.outcome, Outcome::Deployed | Outcome::Unchanged)
    }

    /// The leaf the endpoint shows, if it is a fingerprint.
    #[must_use]
    pub fn served(&self) -> Option<Fingerprint> {
        self.served.as_deref().and_then(|text| text.parse().ok())
    }

    /// Everything that went wrong, in one text of [`ERROR_MAX`] letters at most.
    #[must_use]
    pub fn error_text(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        let text = match self.rollback_error.as_deref() {
            Some(rollback) => format!("{error}; and what was before is not back: {rollback}"),
            None => error.to_owned(),
        };
        Some(shortened(&text))
    }
}

/// Shortens a text. Keeps its lines: a policy's refusal lists the lines to add.
fn shortened(text: &str) -> String {
    text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).take(ERROR_MAX).collect()
}

/// Why work was not given or taken.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// No such job, or another agent's.
    #[error("there is no such job for this agent")]
    NotFound,
    /// It makes no sense; the same again will not either.
    #[error("{0}")]
    Refused(String),
    /// Later, perhaps.
    #[error("{0}")]
    Unavailable(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

/// Where agents' work comes from: the life of managed certificates.
pub trait WorkSource: Send + Sync {
    /// What the agent may do now, at most `limit`; what is given is given again when nothing is heard of it. One
    /// statement when there is nothing.
    fn jobs_for_agent(&self, agent: Uuid, limit: usize) -> BoxFuture<'_, Result<Vec<AgentJob>, WorkError>>;

    /// Takes the CSR of a job; the same one again changes nothing.
    fn accept_csr(&self, agent: Uuid, job: Uuid, csr_der: Vec<u8>) -> BoxFuture<'_, Result<(), WorkError>>;

    /// Takes the result of a job; the same one again changes nothing.
    fn finished(&self, agent: Uuid, job: Uuid, result: JobResult) -> BoxFuture<'_, Result<(), WorkError>>;
}
