//! Requests to the control plane from a joined or joining host.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use telemetry::chain;

use super::error::{ApiError, JoinError};
use super::identity::Identity;
use super::trust::Trust;

/// Timeout of a connection attempt, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a request that the server answers immediately.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of a response. Sixteen jobs with their chains are a few hundred kilobytes, a page of sealed keys 3 MB.
const RESPONSE_MAX: usize = 8 * 1_024 * 1_024;
/// Maximum characters of the server's reason that are shown.
const REASON_MAX: usize = 500;

/// Client for the control plane's API. Reuses its connections.
pub struct Api {
    client: Client,
    server: String,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Api {
    /// Creates a client. `program` is its name in the server's log.
    pub(super) fn new(
        program: &str,
        server: &str,
        trust: &Trust,
        identity: Option<&Identity>,
    ) -> Result<Self, JoinError> {
        let client = Client::builder()
            .tls_backend_preconfigured(trust.client_config(identity)?)
            .http1_only()
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(format!("{program}/{}", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| JoinError::Trust(format!("TLS cannot be set up: {}", chain(&error))))?;
        Ok(Self { client, server: server.to_owned() })
    }

    /// Sends a POST with JSON. Returns the parsed response.
    ///
    /// # Errors
    /// [`ApiError`]
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<T, ApiError> {
        let request = self.client.post(format!("{}{path}", self.server)).json(body).timeout(within);
        let response = self.send(request).await?;
        self.read(response).await
    }

    /// Sends a POST with JSON. Ignores the response body.
    ///
    /// # Errors
    /// [`ApiError`]
    pub async fn post_without_response(&self, path: &str, body: &impl Serialize) -> Result<(), ApiError> {
        let request = self.client.post(format!("{}{path}", self.server)).json(body).timeout(REQUEST_TIMEOUT);
        let response = self.send(request).await?;
        // Read the whole body, so that the connection can be reused.
        self.body(response).await.map(drop)
    }

    /// Sends a GET with a query. Returns the parsed response.
    ///
    /// # Errors
    /// [`ApiError`]
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        within: Duration,
    ) -> Result<T, ApiError> {
        let url = reqwest::Url::parse_with_params(&format!("{}{path}", self.server), query);
        let url =
            url.map_err(|error| ApiError::Answer { server: self.server.clone(), reason: error.to_string() })?;
        let response = self.send(self.client.get(url).timeout(within)).await?;
        self.read(response).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<reqwest::Response, ApiError> {
        let response = request.send().await.map_err(|error| self.unavailable(&error))?;
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
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unavailable(&error))? {
            if body.len() + chunk.len() > RESPONSE_MAX {
                let reason = format!("more than {RESPONSE_MAX} bytes");
                return Err(ApiError::Answer { server: self.server.clone(), reason });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn unavailable(&self, error: &reqwest::Error) -> ApiError {
        ApiError::Unavailable { server: self.server.clone(), reason: chain(error) }
    }
}

/// Returns the detail of a problem document (RFC 9457), or the meaning of the status.
fn reason(status: StatusCode, body: &[u8]) -> String {
    let document: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let text = |name: &str| Some(document.as_ref()?.get(name)?.as_str()?.to_owned());
    let detail = text("detail").or_else(|| text("title"));
    let detail = detail.unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason given").to_owned());
    detail.chars().filter(|letter| !letter.is_control()).take(REASON_MAX).collect()
}
