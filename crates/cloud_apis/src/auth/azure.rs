//! Azure credentials, and access tokens cached until they expire.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{
    AsyncRawResponse, Body, ClientOptions, HttpClient as AzureHttpClient, Request, RetryOptions, Transport,
};
use azure_identity::{
    ClientAssertionCredentialOptions, ClientSecretCredential, ClientSecretCredentialOptions,
    DeveloperToolsCredential, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};

use super::http::{HttpClient, HttpError};
use super::lasting::{ExpiringValue, FetchFuture};
use super::{ApiError, chain};

/// Access tokens of one credential for one scope. Each token is fetched once for all callers, cached until it expires, and renewed
/// before that.
pub struct Tokens {
    lasting: ExpiringValue<AccessToken>,
    scope: String,
}

impl Tokens {
    /// Creates a token cache for `scope`, such as `https://vault.azure.net/.default`.
    #[must_use]
    pub fn new(credential: Arc<dyn TokenCredential>, scope: String) -> Self {
        let of = scope.clone();
        let source = move |refused: Option<AccessToken>| -> FetchFuture<AccessToken> {
            let (credential, scope) = (Arc::clone(&credential), of.clone());
            Box::pin(async move {
                let mut options = TokenRequestOptions::default();
                if let Some(refused) = refused {
                    options.method_options.context.insert(Refused(refused.token));
                }
                let token = credential.get_token(&[&scope], Some(options)).await;
                let token = token.map_err(|error| no_token(&error))?;
                let end = SystemTime::from(token.expires_on);
                Ok((token, end))
            })
        };
        Self { lasting: ExpiringValue::new(Box::new(source)), scope }
    }

    /// Returns a valid token. Waits only if the cache has none. A fetch continues even if its caller stops waiting.
    ///
    /// # Errors
    /// [`ApiError`]: denied, unless the failure is temporary.
    #[crate::boxed]
    pub async fn current(&self) -> Result<AccessToken, ApiError> {
        self.lasting.current().await
    }

    /// Drops the cached token if it is `refused`; the next call fetches a new one. When many calls were refused with the same
    /// token, only the first triggers a fetch.
    pub fn forget(&self, refused: &AccessToken) {
        self.lasting.forget(|cached| cached.token.secret() == refused.token.secret());
    }
}

impl fmt::Debug for Tokens {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Stored in the context of a token request: the token that the service refused before it expired.
struct Refused(Secret);

/// Converts an error of the credential. The failure is temporary if the token service is unreachable or fails itself.
fn no_token(error: &Error) -> ApiError {
    let passes = |error: &Error| match error.kind() {
        ErrorKind::Connection | ErrorKind::Io | ErrorKind::DataConversion => true,
        ErrorKind::HttpResponse { status, .. } => matches!(u16::from(*status), 408 | 429 | 500..),
        _ => false,
    };
    let mut below: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = below {
        if one.downcast_ref().is_some_and(passes) {
            return ApiError::credentials_unavailable(error);
        }
        below = one.source();
    }
    ApiError::credentials(error)
}

/// Returns options with Bulla's HTTP client and without the SDK's retries: the call pool must see every throttling response.
#[must_use]
pub fn client_options(http: &HttpClient) -> ClientOptions {
    ClientOptions {
        transport: Some(Transport::new(Arc::new(http.clone()))),
        retry: RetryOptions::none(),
        ..ClientOptions::default()
    }
}

/// Returns the credentials in the order of Azure's default chain: a client secret or workload identity from the environment, a
/// managed identity, the developer's tools. Sends no request.
///
/// # Errors
/// When the configured credentials are invalid.
pub fn standard(http: &HttpClient) -> Result<Arc<dyn TokenCredential>, Error> {
    let http = http.clone();
    Ok(Arc::new(CredentialSelector::new(Box::new(move || default_credential_chain(&http)))?))
}

fn default_credential_chain(http: &HttpClient) -> Result<Chain, Error> {
    let client_options = || client_options(http);
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut credentials: Chain = Vec::new();
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
    Ok(credentials)
}

type Chain = Vec<Arc<dyn TokenCredential>>;
type MakeChain = Box<dyn Fn() -> Result<Chain, Error> + Send + Sync>;

/// A credential that tries several credentials in turn. Once a credential has returned a token, only this credential is used. The
/// SDK's credentials cache a token until five minutes before it expires, even if a service refused it. A credential that returns a
/// refused token is therefore created again.
struct CredentialSelector {
    make: MakeChain,
    credentials: parking_lot::Mutex<Arc<Chain>>,
    working_index: parking_lot::Mutex<Option<usize>>,
}

impl CredentialSelector {
    fn new(make: MakeChain) -> Result<Self, Error> {
        let credentials = parking_lot::Mutex::new(Arc::new(make()?));
        Ok(Self { make, credentials, working_index: parking_lot::Mutex::new(None) })
    }

    async fn fetch_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let credentials = Arc::clone(&self.credentials.lock());
        let working_index = *self.working_index.lock();
        if let Some(credential) = working_index.and_then(|index| credentials.get(index)) {
            return credential.get_token(scopes, options).await;
        }
        let mut why = Vec::new();
        for (index, credential) in credentials.iter().enumerate() {
            match credential.get_token(scopes, options.clone()).await {
                Ok(token) => {
                    *self.working_index.lock() = Some(index);
                    return Ok(token);
                }
                Err(error) => why.push(chain(&error)),
            }
        }
        Err(Error::with_message(ErrorKind::Credential, why.join("; ")))
    }
}

impl fmt::Debug for CredentialSelector {
    /// Omits the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Standard")
    }
}

#[async_trait]
impl TokenCredential for CredentialSelector {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let refused = options.as_ref().and_then(|options| options.method_options.context.value::<Refused>());
        let refused = refused.map(|refused| refused.0.secret().to_owned());
        let token = self.fetch_token(scopes, options.clone()).await?;
        if refused.is_none_or(|refused| refused != token.token.secret()) {
            return Ok(token);
        }
        let recreated = (self.make)()?;
        *self.credentials.lock() = Arc::new(recreated);
        self.fetch_token(scopes, options).await
    }
}

/// Sends the SDK's requests through the HTTP client that all clouds share.
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
            return Err(other("a streaming request body is not supported".to_owned()));
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use azure_core::time::{Duration, OffsetDateTime};

    use super::*;

    /// A credential that always returns the token it was created with, like the caching credentials of the SDK.
    #[derive(Debug)]
    struct Keeps(u32);

    #[async_trait]
    impl TokenCredential for Keeps {
        async fn get_token(
            &self,
            _: &[&str],
            _: Option<TokenRequestOptions<'_>>,
        ) -> azure_core::Result<AccessToken> {
            let end = OffsetDateTime::now_utc() + Duration::hours(1);
            Ok(AccessToken::new(format!("token-{}", self.0), end))
        }
    }

    #[tokio::test]
    async fn rejected_token_is_not_returned_again() {
        let made = AtomicU32::new(0);
        let make = move || -> Result<Chain, Error> {
            let one: Arc<dyn TokenCredential> = Arc::new(Keeps(made.fetch_add(1, Relaxed)));
            Ok(vec![one])
        };
        let tokens =
            Tokens::new(Arc::new(CredentialSelector::new(Box::new(make)).unwrap()), "scope".to_owned());
        let first = tokens.current().await.unwrap();
        assert_eq!(tokens.current().await.unwrap().token.secret(), first.token.secret());
        // Ten calls that were refused with the same token each report it.
        (0..10).for_each(|_| tokens.forget(&first));
        assert_eq!(tokens.current().await.unwrap().token.secret(), "token-1");
        tokens.forget(&first);
        assert_eq!(tokens.current().await.unwrap().token.secret(), "token-1", "and one new one only");
    }

    #[test]
    fn transient_errors_are_distinguished_from_permanent_errors() {
        let io = || Error::with_message(ErrorKind::Io, "reset");
        let status = |status: u16| {
            let status = azure_core::http::StatusCode::from(status);
            let kind = ErrorKind::HttpResponse { status, error_code: None, raw_response: None };
            Error::with_error(ErrorKind::Credential, kind.into_error(), "no token")
        };
        for (error, passes) in [
            (io(), true),
            (Error::with_error(ErrorKind::Credential, io(), "no token"), true),
            (status(503), true),
            (status(429), true),
            (status(401), false),
            (Error::with_message(ErrorKind::Credential, "no secret"), false),
        ] {
            let mapped = no_token(&error);
            assert_eq!((mapped.denied, mapped.code.as_str()), (!passes, "credentials"), "{error}");
        }
    }
}
