//! Requests to the server.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use telemetry::chain;
use uuid::Uuid;

use super::AgentRunError;
use super::folder::Identity;
use super::trust::Trust;
use crate::agents::work::{AgentJob, CsrMade, Enrolled, Enrolment, HostFacts, JOBS_MAX, JobResult, Renewal};

/// For a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(10);
/// For a request that waits for nothing.
const REQUEST: Duration = Duration::from_secs(60);
/// After the end of a wait, for its answer.
const MARGIN: Duration = Duration::from_secs(30);
/// Octets of an answer: sixteen jobs with their chains are some hundred kilobytes.
const ANSWER_MAX: usize = 4 * 1_024 * 1_024;
/// Letters of the server's reason that are shown.
const REASON_MAX: usize = 500;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// No answer.
    #[error("{server} does not answer: {reason}")]
    Away {
        /// Who was asked.
        server: String,
        /// What went wrong.
        reason: String,
    },
    /// A refusal.
    #[error("{server} refuses ({status}): {reason}")]
    Refused {
        /// Who was asked.
        server: String,
        /// The HTTP status.
        status: u16,
        /// What the server says.
        reason: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// An answer that makes no sense.
    #[error("{server} answers what cannot be understood: {reason}")]
    Answer {
        /// Who was asked.
        server: String,
        /// What is wrong.
        reason: String,
    },
}

impl ApiError {
    /// When the server wants to be asked again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the same again may go differently.
    #[must_use]
    pub fn can_heal(&self) -> bool {
        match self {
            Self::Away { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Answer { .. } => false,
        }
    }
}

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

/// The server, spoken to over one client that keeps its connections.
pub(super) struct Api {
    client: Client,
    server: String,
}

impl Api {
    pub(super) fn new(
        server: &str,
        trust: &Trust,
        identity: Option<&Identity>,
    ) -> Result<Self, AgentRunError> {
        let client = Client::builder()
            .tls_backend_preconfigured(trust.client_config(identity)?)
            .http1_only()
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .user_agent(concat!("bulla-agent/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| AgentRunError::Trust(format!("TLS cannot be set up: {}", chain(&error))))?;
        Ok(Self { client, server: server.to_owned() })
    }

    pub(super) async fn enroll(&self, request: &Enrolment) -> Result<Enrolled, ApiError> {
        self.post("/api/v1/agent/enroll", request).await
    }

    pub(super) async fn renew(&self, csr_pem: String) -> Result<Enrolled, ApiError> {
        self.post("/api/v1/agent/renew", &Renewal { csr_pem }).await
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
        let url = reqwest::Url::parse_with_params(&format!("{}/api/v1/agent/work", self.server), query);
        let url =
            url.map_err(|error| ApiError::Answer { server: self.server.clone(), reason: error.to_string() })?;
        let request = self.client.get(url).timeout(limit);
        let assigned: Assignment = self.read(self.send(request).await?).await?;
        Ok(assigned.jobs.into_iter().take(JOBS_MAX).filter_map(given).collect())
    }

    pub(super) async fn csr(&self, job: Uuid, csr_pem: String) -> Result<(), ApiError> {
        self.tell(&format!("/api/v1/agent/jobs/{job}/csr"), &CsrMade { csr_pem }).await
    }

    pub(super) async fn result(&self, job: Uuid, result: &JobResult) -> Result<(), ApiError> {
        self.tell(&format!("/api/v1/agent/jobs/{job}/result"), result).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        let request = self.client.post(format!("{}{path}", self.server)).json(body).timeout(REQUEST);
        let response = self.send(request).await?;
        self.read(response).await
    }

    async fn tell(&self, path: &str, body: &impl Serialize) -> Result<(), ApiError> {
        let request = self.client.post(format!("{}{path}", self.server)).json(body).timeout(REQUEST);
        let response = self.send(request).await?;
        // Drained, so that the connection can be used again.
        self.body(response).await.map(drop)
    }

    async fn send(&self, request: RequestBuilder) -> Result<reqwest::Response, ApiError> {
        let response = request.send().await.map_err(|error| self.away(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(reqwest::header::RETRY_AFTER);
        let retry_after =
            retry_after.and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
        let body = self.body(response).await.unwrap_or_default();
        Err(ApiError::Refused {
            server: self.server.clone(),
            status: status.as_u16(),
            reason: reason(status, &body),
            retry_after,
        })
    }

    async fn read<T: DeserializeOwned>(&self, response: reqwest::Response) -> Result<T, ApiError> {
        let body = self.body(response).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Answer { server: self.server.clone(), reason: error.to_string() })
    }

    async fn body(&self, mut response: reqwest::Response) -> Result<Vec<u8>, ApiError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.away(&error))? {
            if body.len() + chunk.len() > ANSWER_MAX {
                let reason = format!("more than {ANSWER_MAX} octets");
                return Err(ApiError::Answer { server: self.server.clone(), reason });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn away(&self, error: &reqwest::Error) -> ApiError {
        ApiError::Away { server: self.server.clone(), reason: chain(error) }
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

/// A problem document's detail (RFC 9457), or what the status means.
fn reason(status: StatusCode, body: &[u8]) -> String {
    let document: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let text = |name: &str| Some(document.as_ref()?.get(name)?.as_str()?.to_owned());
    let said = text("detail").or_else(|| text("title"));
    let said = said.unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason given").to_owned());
    said.chars().filter(|letter| !letter.is_control()).take(REASON_MAX).collect()
}
