//! Azure: the credentials that there are, and tokens, kept as long as they are good.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{
    AsyncRawResponse, Body, ClientOptions, HttpClient as AzureHttpClient, Request, RetryOptions, Transport,
};
use azure_core::time::{Duration as AzureDuration, OffsetDateTime};
use azure_identity::{
    ClientAssertionCredentialOptions, ClientSecretCredential, ClientSecretCredentialOptions,
    DeveloperToolsCredential, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};

use super::http::{HttpClient, HttpError};
use super::{ApiError, chain};

/// A token with less left than this is not begun with.
const TOKEN_SPARE: AzureDuration = AzureDuration::seconds(60);

/// Tokens of one credential for one scope, fetched once for all who ask and kept until shortly before their end.
pub struct Tokens {
    credential: Arc<dyn TokenCredential>,
    scope: String,
    kept: tokio::sync::Mutex<Option<AccessToken>>,
}

impl Tokens {
    /// Tokens for `scope`: `https://vault.azure.net/.default`.
    #[must_use]
    pub fn new(credential: Arc<dyn TokenCredential>, scope: String) -> Self {
        Self { credential, scope, kept: tokio::sync::Mutex::default() }
    }

    /// One that is good.
    ///
    /// # Errors
    /// [`ApiError`], denied.
    pub async fn current(&self) -> Result<AccessToken, ApiError> {
        let mut kept = self.kept.lock().await;
        if let Some(token) = &*kept
            && OffsetDateTime::now_utc() + TOKEN_SPARE < token.expires_on
        {
            return Ok(token.clone());
        }
        let token = self.credential.get_token(&[&self.scope], None).await;
        let token = token.map_err(|error| ApiError::credentials(&error))?;
        *kept = Some(token.clone());
        Ok(token)
    }

    /// Another one with the next call, where `refused` is the one that is kept: of many whose calls were refused with one token,
    /// the first fetches the next.
    pub async fn forget(&self, refused: &AccessToken) {
        let mut kept = self.kept.lock().await;
        if kept.as_ref().is_some_and(|token| token.token.secret() == refused.token.secret()) {
            *kept = None;
        }
    }
}

impl fmt::Debug for Tokens {
    /// Says nothing of the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Our client, and no tries of the SDK's own: whoever asks must see every throttling answer.
#[must_use]
pub fn client_options(http: &HttpClient) -> ClientOptions {
    ClientOptions {
        transport: Some(Transport::new(Arc::new(http.clone()))),
        retry: RetryOptions::none(),
        ..ClientOptions::default()
    }
}

/// The credentials that there are, in the order of Azure's own default chain: a client secret or workload identity in the
/// environment, a managed identity, the developer's tools. Asks nobody.
///
/// # Errors
/// When credentials are configured and wrong.
pub fn standard(http: &HttpClient) -> Result<Arc<dyn TokenCredential>, Error> {
    let client_options = || client_options(http);
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut credentials: Vec<Arc<dyn TokenCredential>> = Vec::new();
    if let (Some(tenant), Some(client), Some(secret)) =
        (variable("AZURE_TENANT_ID"), variable("AZURE_CLIENT_ID"), variable("AZURE_CLIENT_SECRET"))
    {
        let options = ClientSecretCredentialOptions { client_options: client_options() };
        credentials.push(ClientSecretCredential::new(&tenant, client, Secret::new(secret), Some(options))?);
    }
    if variable("AZURE_FEDERATED_TOKEN_FILE").is_some() {
        let credential_options = ClientAssertionCredentialOptions { client_options: client_options() };
        let options = WorkloadIdentityCredentialOptions { credential_options, ..Default::default() };
        credentials.push(WorkloadIdentityCredential::new(Some(options))?);
    }
    let options = ManagedIdentityCredentialOptions { client_options: client_options(), ..Default::default() };
    credentials.push(ManagedIdentityCredential::new(Some(options))?);
    credentials.push(DeveloperToolsCredential::new(None)?);
    Ok(Arc::new(Standard { credentials, works: parking_lot::Mutex::new(None) }))
}

/// The first of several credentials that gives a token; from then on only that one.
struct Standard {
    credentials: Vec<Arc<dyn TokenCredential>>,
    works: parking_lot::Mutex<Option<usize>>,
}

impl fmt::Debug for Standard {
    /// Says nothing of the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Standard")
    }
}

#[async_trait]
impl TokenCredential for Standard {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let works = *self.works.lock();
        if let Some(index) = works {
            return self.credentials[index].get_token(scopes, options).await;
        }
        let mut why = Vec::new();
        for (index, credential) in self.credentials.iter().enumerate() {
            match credential.get_token(scopes, options.clone()).await {
                Ok(token) => {
                    *self.works.lock() = Some(index);
                    return Ok(token);
                }
                Err(error) => why.push(chain(&error)),
            }
        }
        Err(Error::with_message(ErrorKind::Credential, why.join("; ")))
    }
}

/// The SDK's requests go over the client for all clouds.
#[async_trait]
impl AzureHttpClient for HttpClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let other = |why: String| Error::with_message(ErrorKind::Other, why);
        let mut builder =
            http::Request::builder().method(request.method().as_ref()).uri(request.url().as_str());
        for (name, value) in request.headers().iter() {
            builder = builder.header(name.as_str(), value.as_str());
        }
        let Body::Bytes(body) = request.body().clone() else {
            return Err(other("a body that comes in pieces".to_owned()));
        };
        let request = builder.body(body).map_err(|error| other(error.to_string()))?;
        let response = self.send(request).await.map_err(|error| {
            let kind = if matches!(error, HttpError::NoAnswer(_)) { ErrorKind::Io } else { ErrorKind::Other };
            Error::new(kind, error)
        })?;
        let mut headers = Headers::new();
        for (name, value) in response.headers() {
            headers.insert(name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned());
        }
        let status = response.status().as_u16().into();
        Ok(AsyncRawResponse::from_bytes(status, headers, response.into_body()))
    }
}
