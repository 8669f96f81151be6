//! AWS credentials from the SDK's standard chain, cached until they expire, and a client for JSON services, which needs no SDK of
//! the service.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::http::{
    HttpClient as AwsHttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use serde_json::Value;

use super::ApiError;
use super::http::{HttpClient, HttpError};
use super::lasting::{ExpiringValue, FetchFuture};
use outbound::pool::Verdict;

/// Time for which credentials without an expiry are cached.
const CREDENTIALS_KEPT: Duration = Duration::from_secs(15 * 60);
/// Media type of requests to JSON services.
const MEDIA_TYPE: &str = "application/x-amz-json-1.1";

/// Configuration of access to AWS.
#[derive(Clone, Debug, Default)]
pub struct AwsOptions {
    /// Endpoint that replaces the default endpoints of all services, for tests and private networks.
    pub endpoint: Option<String>,
    /// Access key id and secret that replace the standard credential chain.
    pub credentials: Option<(String, String)>,
}

/// Returns the version of the SDK's default behavior that Bulla uses.
#[must_use]
pub fn behavior() -> BehaviorVersion {
    BehaviorVersion::latest()
}

/// Converts the name of a region to the SDK's type.
#[must_use]
pub fn region_of(name: &str) -> Region {
    Region::new(name.to_owned())
}

/// Names of one AWS service that uses the JSON protocol.
#[derive(Clone, Copy, Debug)]
pub struct JsonProtocol {
    /// Service name in signatures and host names: `kms`.
    pub name: &'static str,
    /// Prefix of operation names in the `X-Amz-Target` header: `TrentService`.
    pub target: &'static str,
}

impl JsonProtocol {
    /// The key management service.
    pub const KMS: Self = Self { name: "kms", target: "TrentService" };
}

/// Client of one JSON service in one region.
pub struct JsonService {
    protocol: JsonProtocol,
    region: String,
    endpoint: String,
    credentials: Option<CachedCredentials>,
    http: HttpClient,
}

impl AwsOptions {
    /// Returns the endpoint of a service in a region.
    pub(crate) fn endpoint_of(&self, service: &str, region: &str) -> String {
        match &self.endpoint {
            Some(given) => given.trim_end_matches('/').to_owned(),
            // The China partition has its own domain.
            None if region.starts_with("cn-") => format!("https://{service}.{region}.amazonaws.com.cn"),
            None => format!("https://{service}.{region}.amazonaws.com"),
        }
    }

    /// Returns the credentials, from the standard chain unless the options have them.
    pub(crate) async fn credentials_in(&self, region: &str, http: &HttpClient) -> Option<CachedCredentials> {
        let mut loader = aws_config::defaults(behavior()).http_client(http.clone()).region(region_of(region));
        if let Some((id, secret)) = &self.credentials {
            loader = loader.credentials_provider(Credentials::from_keys(id, secret, None));
        }
        loader.load().await.credentials_provider().map(CachedCredentials::new)
    }
}

impl JsonService {
    /// Creates a client. Sends no request except those that look up credentials.
    #[crate::boxed]
    pub async fn new(protocol: JsonProtocol, region: &str, options: &AwsOptions, http: HttpClient) -> Self {
        let endpoint = options.endpoint_of(protocol.name, region);
        let credentials = options.credentials_in(region, &http).await;
        Self { protocol, region: region.to_owned(), endpoint, credentials, http }
    }

    /// Returns the endpoint of the service.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends one call. Credentials that AWS reports as expired are not used again.
    ///
    /// # Errors
    /// [`ApiError`]
    ///
    /// # Cancellation
    /// Dropping the future drops the call.
    #[crate::boxed]
    pub async fn call(&self, operation: &'static str, body: &Value) -> Result<Value, ApiError> {
        let credentials = self.current().await?;
        let request = self.signed(operation, body.to_string().into(), &credentials)?;
        let answer = self.http.send(request).await.map_err(|error| ApiError::unreachable(&error))?;
        let response_json: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        if answer.status().is_success() && response_json.is_object() {
            return Ok(response_json);
        }
        let text = |name: &str| response_json.get(name).and_then(Value::as_str);
        let code = text("__type").and_then(|code| code.rsplit('#').next()).unwrap_or_default();
        let message = text("message").or_else(|| text("Message")).unwrap_or_default();
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let mut error = ApiError::of_status(answer.status().as_u16(), code, message, retry_after);
        if matches!(code, "ExpiredTokenException" | "ExpiredToken") {
            if let Some(cached) = &self.credentials {
                cached.invalidate_if_cached(&credentials);
            }
            error.verdict = Verdict::Transient;
        }
        Err(error)
    }

    /// Waits until there are credentials for the next call.
    ///
    /// # Errors
    /// [`ApiError`]: denied, unless the failure is temporary.
    ///
    /// # Cancellation
    /// The fetch of credentials continues, for the next call.
    #[crate::boxed]
    pub async fn ready(&self) -> Result<(), ApiError> {
        self.current().await.map(drop)
    }

    async fn current(&self) -> Result<Credentials, ApiError> {
        current(self.credentials.as_ref()).await
    }

    fn signed(
        &self,
        operation: &str,
        body: Bytes,
        credentials: &Credentials,
    ) -> Result<http::Request<Bytes>, ApiError> {
        let target = format!("{}.{operation}", self.protocol.target);
        let uri = format!("{}/", self.endpoint);
        let mut request = http::Request::post(&uri)
            .header("content-type", MEDIA_TYPE)
            .header("x-amz-target", target)
            .body(body)
            .map_err(|error| ApiError::malformed(&super::chain(&error)))?;
        let service = (self.protocol.name, &*self.region);
        signed(&mut request, service, SigningSettings::default(), credentials)?;
        Ok(request)
    }
}

/// Returns the current credentials of a client.
pub(crate) async fn current(credentials: Option<&CachedCredentials>) -> Result<Credentials, ApiError> {
    let none = || {
        ApiError::credentials(&CredentialsError::not_loaded("no credentials provider chain is configured"))
    };
    credentials.ok_or_else(none)?.current().await
}

/// Signs a request to a service in a region (Signature Version 4).
pub(crate) fn signed(
    request: &mut http::Request<Bytes>,
    (service, region): (&str, &str),
    settings: SigningSettings,
    credentials: &Credentials,
) -> Result<(), ApiError> {
    let unsendable = |error: &(dyn std::error::Error + 'static)| ApiError::malformed(&super::chain(error));
    let identity = credentials.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(SystemTime::now())
        .settings(settings)
        .build()
        .map_err(|error| unsendable(&error))?
        .into();
    let uri = request.uri().to_string();
    let headers = request.headers().iter();
    let headers = headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let body = SignableBody::Bytes(request.body());
    let signable = SignableRequest::new(request.method().as_str(), &uri, headers, body);
    let signature = sign(signable.map_err(|error| unsendable(&error))?, &parameters);
    let signature = signature.map_err(|error| unsendable(&error))?;
    signature.into_parts().0.apply_to_request_http1x(request);
    Ok(())
}

impl fmt::Debug for JsonService {
    /// Omits the credentials: they are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonService")
            .field("name", &self.protocol.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// Credentials cached until they expire or AWS reports them as expired, and renewed before they expire. Cheap to clone; clones
/// share the credentials.
#[derive(Clone)]
pub struct CachedCredentials(Arc<ExpiringValue<Credentials>>);

impl fmt::Debug for CachedCredentials {
    /// Omits the credentials: they are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewable")
    }
}

impl CachedCredentials {
    /// Creates a cache of the credentials of `provider`.
    #[must_use]
    pub fn new(provider: SharedCredentialsProvider) -> Self {
        let source = move |_| -> FetchFuture<Credentials> {
            let provider = provider.clone();
            Box::pin(async move {
                let credentials =
                    provider.provide_credentials().await.map_err(|error| credentials_error(&error))?;
                let end = credentials.expiry().unwrap_or_else(|| SystemTime::now() + CREDENTIALS_KEPT);
                Ok((credentials, end))
            })
        };
        Self(Arc::new(ExpiringValue::new(Box::new(source))))
    }

    /// Drops the cached credentials. The next call fetches new ones.
    pub fn forget(&self) {
        self.0.forget(|_| true);
    }

    /// Drops the cached credentials if they are the `refused` ones. When many calls were refused with the same credentials, only
    /// the first triggers a fetch.
    fn invalidate_if_cached(&self, refused: &Credentials) {
        let id = |of: &Credentials| (of.access_key_id().to_owned(), of.session_token().map(str::to_owned));
        self.0.forget(|cached| id(cached) == id(refused));
    }

    async fn current(&self) -> Result<Credentials, ApiError> {
        self.0.current().await
    }
}

/// Converts the SDK's error. A failure of the credentials service may be temporary; a configuration error is not.
fn credentials_error(error: &CredentialsError) -> ApiError {
    match error {
        CredentialsError::ProviderTimedOut(_) | CredentialsError::ProviderError(_) => {
            ApiError::credentials_unavailable(error)
        }
        _ => ApiError::credentials(error),
    }
}

impl ProvideCredentials for CachedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            self.current().await.map_err(CredentialsError::provider_error)
        })
    }
}

/// Sends the SDK's requests through the HTTP client that all clouds share.
impl AwsHttpClient for HttpClient {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for HttpClient {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let client = self.clone();
        HttpConnectorFuture::new(async move {
            let user = |why: &str| ConnectorError::user(why.into());
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let (parts, body) = request.into_parts();
            let body = body.bytes().ok_or_else(|| user("a streaming request body is not supported"))?;
            let request = http::Request::from_parts(parts, Bytes::copy_from_slice(body));
            let response = client.send(request).await.map_err(|error| match error {
                HttpError::NoAnswer(_) => ConnectorError::io(error.into()),
                _ => ConnectorError::user(error.into()),
            })?;
            HttpResponse::try_from(response.map(SdkBody::from))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}
