//! What an agent asks its server.

use std::time::Duration;

use uuid::Uuid;

use crate::agents::work::{AgentJob, CsrMade, Enrolled, Enrolment, HostFacts, JOBS_MAX, JobResult, Renewal};
use crate::joining::host::{ApiError, HostError, Identity, REQUEST, ServerApi, Trust};

/// After the end of a wait, for its answer.
const MARGIN: Duration = Duration::from_secs(30);
/// What the server is told that we are.
const PROGRAM: &str = concat!("bulla-agent/", env!("CARGO_PKG_VERSION"));

/// A job as the server gave it.
pub(super) enum Given {
    Job(Box<AgentJob>),
    /// Of a kind this version does not know; why.
    Strange(Uuid, String),
}

impl Given {
    pub(super) fn id(&self) -> Uuid {
        match self {
            Self::Job(job) => job.job,
            Self::Strange(id, _) => *id,
        }
    }
}

/// The server, as agents ask it.
pub(super) struct Api(ServerApi);

impl Api {
    pub(super) fn new(server: &str, trust: &Trust, identity: Option<&Identity>) -> Result<Self, HostError> {
        ServerApi::new(server, trust, identity, PROGRAM).map(Self)
    }

    pub(super) async fn enroll(&self, request: &Enrolment) -> Result<Enrolled, ApiError> {
        self.0.post("/api/v1/agent/enroll", request, REQUEST).await
    }

    pub(super) async fn renew(&self, csr_pem: String) -> Result<Enrolled, ApiError> {
        self.0.post("/api/v1/agent/renew", &Renewal { csr_pem }, REQUEST).await
    }

    /// Jobs, waiting for some as long as asked.
    pub(super) async fn work(&self, facts: &HostFacts, wait_seconds: u32) -> Result<Vec<Given>, ApiError> {
        #[derive(serde::Deserialize)]
        struct Assignment {
            jobs: Vec<serde_json::Value>,
        }
        let limit = Duration::from_secs(wait_seconds.into()) + MARGIN;
        let wait = wait_seconds.to_string();
        let query = [
            ("wait", &wait),
            ("version", &facts.version),
            ("hostname", &facts.hostname),
            ("os", &facts.os),
            ("arch", &facts.arch),
            ("addresses", &facts.addresses),
        ];
        let url = reqwest::Url::parse_with_params(&format!("{}/api/v1/agent/work", self.0.server()), query);
        let url = url.map_err(|error| ApiError::Answer {
            server: self.0.server().to_owned(),
            reason: error.to_string(),
        })?;
        let request = self.0.client().get(url).timeout(limit);
        let assigned: Assignment = self.0.read(self.0.send(request).await?).await?;
        Ok(assigned.jobs.into_iter().take(JOBS_MAX).filter_map(given).collect())
    }

    pub(super) async fn csr(&self, job: Uuid, csr_pem: String) -> Result<(), ApiError> {
        self.0.tell(&format!("/api/v1/agent/jobs/{job}/csr"), &CsrMade { csr_pem }).await
    }

    pub(super) async fn result(&self, job: Uuid, result: &JobResult) -> Result<(), ApiError> {
        self.0.tell(&format!("/api/v1/agent/jobs/{job}/result"), result).await
    }
}

/// What has not even an identity is passed over.
fn given(value: serde_json::Value) -> Option<Given> {
    let id = value.get("job").and_then(|id| id.as_str()?.parse().ok());
    match serde_json::from_value(value) {
        Ok(job) => Some(Given::Job(Box::new(job))),
        Err(error) => id.map(|id| Given::Strange(id, error.to_string())),
    }
}
