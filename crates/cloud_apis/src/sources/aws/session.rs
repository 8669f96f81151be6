//! Access to one AWS account: credentials, client configuration, and the pools that limit concurrency and retry API calls.

use std::future::Future;

use crate::auth::aws::{AwsOptions, CachedCredentials, behavior, region_of};
use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::sts::AssumeRoleProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_acm::config::IdentityCache;
use aws_sdk_acm::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use outbound::Deadline;
use outbound::pool::Verdict;

use crate::auth::http::HttpClient;
use clouds::AwsAccount;
use clouds::ProviderPool;
use clouds::{ApiError, Pools, Provider, SourceError};

/// Region for requests to global services, and the only region whose ACM certificates CloudFront uses.
pub(super) const GLOBAL_REGION: &str = "us-east-1";

/// Access to one AWS account.
pub(super) struct Session {
    account: String,
    config: SdkConfig,
    credentials: CachedCredentials,
    pools: Pools,
}

/// Access to one region of the account.
pub(super) struct RegionalAccess {
    pub(super) name: String,
    pub(super) config: SdkConfig,
    credentials: CachedCredentials,
    pool: ProviderPool,
}

impl Session {
    pub(super) async fn new(
        account: &AwsAccount,
        options: &AwsOptions,
        http: HttpClient,
        pools: Pools,
    ) -> Self {
        let mut loader = aws_config::defaults(behavior())
            .http_client(http)
            .region(region_of(GLOBAL_REGION))
            // The pool retries: it must see every throttling response.
            .retry_config(RetryConfig::disabled());
        if let Some(endpoint) = &options.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some((id, secret)) = &options.credentials {
            loader = loader.credentials_provider(Credentials::from_keys(id, secret, None));
        }
        let base = loader.load().await;
        let provider = match (&account.role, base.credentials_provider()) {
            (Some(role), _) => SharedCredentialsProvider::new(assume_role(role, account, &base).await),
            (None, Some(provider)) => provider,
            // Unreachable: the loader always has a credential chain. Without one, every call would fail for lack of credentials.
            (None, None) => SharedCredentialsProvider::new(
                AssumeRoleProvider::builder("none").configure(&base).build().await,
            ),
        };
        let credentials = CachedCredentials::new(provider);
        let config = base
            .into_builder()
            .credentials_provider(SharedCredentialsProvider::new(credentials.clone()))
            .identity_cache(IdentityCache::no_cache())
            .build();
        Self { account: account.account.clone(), config, credentials, pools }
    }

    pub(super) fn region(&self, name: &str) -> RegionalAccess {
        RegionalAccess {
            name: name.to_owned(),
            config: self.config.to_builder().region(region_of(name)).build(),
            credentials: self.credentials.clone(),
            pool: self.pools.of(Provider::Aws, &format!("{}/{name}", self.account)),
        }
    }
}

async fn assume_role(role: &str, account: &AwsAccount, base: &SdkConfig) -> AssumeRoleProvider {
    let mut builder = AssumeRoleProvider::builder(role).session_name("bulla").configure(base);
    if let Some(id) = &account.external_id {
        builder = builder.external_id(id);
    }
    builder.build().await
}

impl RegionalAccess {
    /// Calls `operation` through the region's pool.
    pub(super) async fn call<T, E, F>(
        &self,
        operation: &'static str,
        deadline: Deadline,
        mut send: impl FnMut() -> F,
    ) -> Result<T, SourceError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let attempt = || {
            // The SDK's futures have 9 KB each.
            let sending = Box::pin(send());
            async {
                match sending.await {
                    Ok(found) => Ok(found),
                    Err(error) => Err(self.judge(&error)),
                }
            }
        };
        Ok(self.pool.call(operation, deadline, attempt).await?)
    }

    /// Classifies an AWS error. Credentials that AWS reports as expired are not used again.
    fn judge<E: ProvideErrorMetadata + std::error::Error + 'static>(
        &self,
        error: &SdkError<E, HttpResponse>,
    ) -> ApiError {
        match error {
            SdkError::ServiceError(service) => {
                let (raw, meta) = (service.raw(), service.err().meta());
                let code = meta.code().unwrap_or_default();
                let retry_after = raw.headers().get("retry-after");
                let message = meta.message().unwrap_or_default();
                let mut found = ApiError::of_status(raw.status().as_u16(), code, message, retry_after);
                if matches!(code, "ExpiredTokenException" | "ExpiredToken") {
                    self.credentials.forget();
                    found.verdict = Verdict::Transient;
                }
                found
            }
            SdkError::ResponseError(_) => ApiError::malformed(&clouds::chain(error)),
            SdkError::DispatchFailure(failure) if failure.is_io() || failure.is_timeout() => {
                ApiError::unreachable(error)
            }
            SdkError::TimeoutError(_) => ApiError::unreachable(error),
            // Before a request is sent, only the credential lookup can fail.
            _ => ApiError::credentials(error),
        }
    }
}
