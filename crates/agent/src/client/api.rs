//! HTTP requests that the agent sends to the server.

use std::time::Duration;

use enrollment::client::{Api, ApiError, REQUEST_TIMEOUT};
use uuid::Uuid;

use crate::work::{
    AgentJob, AgentTargets, Enrolled, Enrolment, GeneratedCsr, HostFacts, JOBS_MAX, JobResult, Renewal,
};

/// Extra time after the end of a long poll, for the response.
const MARGIN: Duration = Duration::from_secs(30);

/// A job as received from the server.
pub(super) enum AssignedJob {
    Job(Box<AgentJob>),
    /// A job that this version cannot parse: its id and the parse error.
    Unreadable(Uuid, String),
}

impl AssignedJob {
    pub(super) fn id(&self) -> Uuid {
        match self {
            Self::Job(job) => job.job,
            Self::Unreadable(id, _) => *id,
        }
    }
}

pub(super) async fn enroll(api: &Api, request: &Enrolment) -> Result<Enrolled, ApiError> {
    api.post("/api/v1/agent/enroll", request, REQUEST_TIMEOUT).await
}

pub(super) async fn renew(api: &Api, csr_pem: String) -> Result<Enrolled, ApiError> {
    api.post("/api/v1/agent/renew", &Renewal { csr_pem }, REQUEST_TIMEOUT).await
}

/// Polls the server for jobs. Waits up to the requested time when there are none.
pub(super) async fn work(
    api: &Api,
    facts: &HostFacts,
    wait_seconds: u32,
) -> Result<Vec<AssignedJob>, ApiError> {
    #[derive(serde::Deserialize)]
    struct Assignment {
        jobs: Vec<serde_json::Value>,
    }
    let limit = Duration::from_secs(wait_seconds.into()) + MARGIN;
    let wait = wait_seconds.to_string();
    let query = [
        ("wait", wait.as_str()),
        ("version", &facts.version),
        ("hostname", &facts.hostname),
        ("os", &facts.os),
        ("arch", &facts.arch),
        ("addresses", &facts.addresses),
    ];
    let assigned: Assignment = api.get("/api/v1/agent/work", &query, limit).await?;
    Ok(assigned.jobs.into_iter().take(JOBS_MAX).filter_map(parse_job).collect())
}

pub(super) async fn targets(api: &Api) -> Result<AgentTargets, ApiError> {
    api.get("/api/v1/agent/targets", &[], REQUEST_TIMEOUT).await
}

pub(super) async fn csr(api: &Api, job: Uuid, csr_pem: String) -> Result<(), ApiError> {
    api.post_without_response(&format!("/api/v1/agent/jobs/{job}/csr"), &GeneratedCsr { csr_pem }).await
}

pub(super) async fn result(api: &Api, job: Uuid, result: &JobResult) -> Result<(), ApiError> {
    api.post_without_response(&format!("/api/v1/agent/jobs/{job}/result"), result).await
}

/// Parses a job. Returns `None` for a value without a job id.
fn parse_job(value: serde_json::Value) -> Option<AssignedJob> {
    let id = value.get("job").and_then(|id| id.as_str()?.parse().ok());
    match serde_json::from_value(value) {
        Ok(job) => Some(AssignedJob::Job(Box::new(job))),
        Err(error) => id.map(|id| AssignedJob::Unreadable(id, error.to_string())),
    }
}
