//! Azure: certificates of Key Vaults, found through Resource Manager, and the Application Gateways that use them.
//!
//! Listings contain expiry, thumbprint and tags; a certificate is read only if it is new or changed. Key Vault stores the
//! intermediate certificates in a secret together with the private key. That secret is not read.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auth::azure::{Tokens, client_options, standard};
use azure_core::credentials::TokenCredential;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::RawResponse;
use azure_core::http::pager::{PagerContinuation, PagerOptions};
use azure_core::time::OffsetDateTime;
use azure_security_keyvault_certificates::models::{
    CertificateClientListCertificatePropertiesOptions, CertificateProperties,
};
use azure_security_keyvault_certificates::{CertificateClient, CertificateClientOptions};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::{StreamExt, stream};
use outbound::Deadline;
use outbound::pool::Verdict;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use x509::UnixTime;

use crate::auth::http::HttpClient;
/// The Azure SDK, whose types [`AzureOptions`] contains.
pub use azure_core as sdk;
pub use clouds::AzureSubscription;
use clouds::ProviderPool;
use clouds::bounded;
use clouds::chain;
use clouds::{
    ApiError, Chain, CloudCertificate, CloudResource, CloudSource, CloudStore, Pools, Provider, Sink,
    SourceError, Use,
};

const MANAGEMENT: &str = "https://management.azure.com";
const VAULTS_API: &str = "2023-07-01";
const GATEWAYS_API: &str = "2024-05-01";
/// Maximum vaults listed per subscription.
const VAULTS_MAX: usize = 10_000;
/// Vaults listed concurrently; each vault has its own quotas.
const VAULTS_AT_ONCE: usize = 64;
/// Certificates on one page: the maximum of Key Vault.
const PAGE: i32 = 25;
/// Maximum certificates processed concurrently in one vault.
const CERTIFICATES_AT_ONCE: usize = 32;

/// Configuration of access to Azure.
#[derive(Clone, Default)]
pub struct AzureOptions {
    /// URL of Resource Manager, if not the one of the public cloud.
    pub management: Option<String>,
    /// Credentials that replace the standard chain.
    pub credential: Option<Arc<dyn TokenCredential>>,
    /// Whether to accept any resource in a vault's authentication challenge, for private clouds and tests. Otherwise a vault that
    /// requests a token for a different resource gets no token.
    pub any_resource: bool,
}

/// Source of the certificates of one Azure subscription.
pub struct AzureSource {
    name: Arc<str>,
    subscription: AzureSubscription,
    management: String,
    any_resource: bool,
    http: HttpClient,
    credential: Arc<dyn TokenCredential>,
    pools: Pools,
    resources: ProviderPool,
    tokens: Tokens,
}

impl AzureSource {
    /// Creates a source for `subscription`. Credentials come from the standard chain: a client secret or workload identity from the
    /// environment, a managed identity, the developer's tools. Sends no request before the first listing.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when the configured credentials are invalid.
    pub fn new(
        subscription: AzureSubscription,
        options: &AzureOptions,
        http: HttpClient,
        pools: Pools,
    ) -> Result<Self, SourceError> {
        let credential = match &options.credential {
            Some(credential) => credential.clone(),
            None => standard(&http).map_err(|error| SourceError::Configuration(chain(&error)))?,
        };
        let name: Arc<str> = subscription.source();
        let resources = pools.of(Provider::Azure, &subscription.subscription);
        let management = options.management.clone().unwrap_or_else(|| MANAGEMENT.to_owned());
        Ok(Self {
            name,
            tokens: Tokens::new(credential.clone(), format!("{management}/.default")),
            management,
            any_resource: options.any_resource,
            subscription,
            http,
            credential,
            pools,
            resources,
        })
    }

    async fn list_all(&self, sink: &Sink, deadline: Deadline) -> Result<(), SourceError> {
        let uses = self.gateways(sink, deadline).map(Arc::new).boxed().shared();
        let vaults = self.vaults(deadline).await?;
        let listings = vaults.into_iter().map(|vault| {
            let uses = uses.clone();
            async move {
                match self.list_vault(&vault, sink, uses, deadline).await {
                    Ok(()) => sink.listed(vault),
                    Err(error) => sink.failed(vault, error),
                }
            }
        });
        let listings: Vec<_> = listings.collect();
        stream::iter(listings).for_each_concurrent(VAULTS_AT_ONCE, |listing| listing).await;
        Ok(())
    }

    async fn vaults(&self, deadline: Deadline) -> Result<Vec<String>, SourceError> {
        if !self.subscription.vaults.is_empty() {
            return Ok(self.subscription.vaults.iter().map(|vault| with_trailing_slash(vault)).collect());
        }
        let path = "Microsoft.KeyVault/vaults";
        let found: Vec<Vault> = self.resources(path, VAULTS_API, deadline).await?;
        Ok(found.into_iter().map(|vault| with_trailing_slash(&vault.properties.vault_uri)).collect())
    }

    /// Returns, for each certificate, the gateways that use the certificate. If the gateways cannot be listed, the result is empty,
    /// and this part of the listing is reported as failed.
    async fn gateways(&self, sink: &Sink, deadline: Deadline) -> HashMap<String, Vec<Use>> {
        let path = "Microsoft.Network/applicationGateways";
        match self.resources::<Gateway>(path, GATEWAYS_API, deadline).await {
            Ok(gateways) => gateway_uses(&gateways),
            Err(error) => {
                sink.failed("applicationGateways", error);
                HashMap::new()
            }
        }
    }

    /// Returns all resources of a kind.
    async fn resources<T: DeserializeOwned>(
        &self,
        kind: &str,
        api: &str,
        deadline: Deadline,
    ) -> Result<Vec<T>, SourceError> {
        let subscription = &self.subscription.subscription;
        let mut next =
            format!("{}/subscriptions/{subscription}/providers/{kind}?api-version={api}", self.management);
        let mut found = Vec::new();
        loop {
            let page: Page<T> =
                self.resources.call("resourcemanager:Read", deadline, || self.get(&next)).await?;
            found.extend(page.value);
            if found.len() > VAULTS_MAX {
                return Err(SourceError::TooMany { what: "resources of one type", max: VAULTS_MAX });
            }
            match page.next_link {
                // The token is sent to no other host.
                Some(link) if link.starts_with(&format!("{}/", self.management)) => next = link,
                Some(link) if !link.is_empty() => {
                    let answer = ApiError::malformed(&format!("unexpected link to the next page: {link}"));
                    return Err(SourceError::Failed { operation: "resourcemanager:Read", answer });
                }
                _ => return Ok(found),
            }
        }
    }

    /// Fetches one page from Resource Manager, which has no official Rust client.
    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, ApiError> {
        let token = self.tokens.current().await?;
        let request = http::Request::get(url)
            .header("authorization", format!("Bearer {}", token.token.secret()))
            .header("accept", "application/json")
            .body(Bytes::new())
            .map_err(|error| ApiError::malformed(&error.to_string()))?;
        let response = self.http.send(request).await.map_err(|error| ApiError::unreachable(&error))?;
        let status = response.status().as_u16();
        if status == 200 {
            return serde_json::from_slice(response.body())
                .map_err(|error| ApiError::malformed(&error.to_string()));
        }
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let mut error = error_from_response(status, response.body(), retry_after);
        if status == 401 {
            self.tokens.forget(&token);
            error.verdict = Verdict::Transient;
        }
        Err(error)
    }

    async fn list_vault(
        &self,
        vault: &str,
        sink: &Sink,
        uses: impl Future<Output = Arc<HashMap<String, Vec<Use>>>> + Clone + Send,
        deadline: Deadline,
    ) -> Result<(), SourceError> {
        let options = CertificateClientOptions {
            client_options: client_options(&self.http),
            verify_challenge_resource: Some(!self.any_resource),
            ..CertificateClientOptions::default()
        };
        let client = CertificateClient::new(vault, self.credential.clone(), Some(options))
            .map_err(|error| SourceError::Configuration(format!("{vault}: {}", chain(&error))))?;
        let pool = self.pools.of(Provider::Azure, vault);
        let mut continuation = None;
        loop {
            let from = continuation.clone();
            let (page, next) =
                pool.call("keyvault:Read", deadline, || fetch_page(&client, from.clone())).await?;
            let certificates: Vec<_> = page
                .iter()
                .map(|properties| one(&client, &pool, vault, sink, properties, uses.clone(), deadline))
                .collect();
            let mut reading = stream::iter(certificates).buffer_unordered(CERTIFICATES_AT_ONCE);
            while let Some(certificate) = reading.next().await {
                if let Some(certificate) = certificate? {
                    sink.seen(vault, certificate).await?;
                }
            }
            continuation = next;
            if continuation.is_none() {
                return Ok(());
            }
        }
    }
}

impl CloudSource for AzureSource {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn provider(&self) -> Provider {
        Provider::Azure
    }

    fn list<'a>(&'a self, sink: &'a Sink, deadline: Deadline) -> BoxFuture<'a, Result<(), SourceError>> {
        self.list_all(sink, deadline).boxed()
    }
}

type VaultPage = (Vec<CertificateProperties>, Option<PagerContinuation>);

/// Fetches one page with a new pager: the SDK's pager ends after an error.
async fn fetch_page(
    client: &CertificateClient,
    from: Option<PagerContinuation>,
) -> Result<VaultPage, ApiError> {
    let options = CertificateClientListCertificatePropertiesOptions {
        include_pending: Some(true),
        maxresults: Some(PAGE),
        method_options: PagerOptions { continuation: from, ..PagerOptions::default() },
    };
    let pager =
        client.list_certificate_properties(Some(options)).map_err(|error| from_azure_error(&error))?;
    let mut pages = pager.into_pages();
    let Some(page) = pages.next().await else { return Ok((Vec::new(), None)) };
    let page = page.and_then(|page| page.into_model()).map_err(|error| from_azure_error(&error))?;
    let next = pages.continuation().cloned();
    Ok((page.value, next))
}

async fn one(
    client: &CertificateClient,
    pool: &ProviderPool,
    vault: &str,
    sink: &Sink,
    properties: &CertificateProperties,
    uses: impl Future<Output = Arc<HashMap<String, Vec<Use>>>>,
    deadline: Deadline,
) -> Result<Option<CloudCertificate>, SourceError> {
    let id = properties.id.as_deref().unwrap_or_default();
    let Some(name) = name_of(id) else { return Ok(None) };
    let resource_name: Arc<str> = format!("{vault}certificates/{name}").into();
    let resource = CloudResource { store: CloudStore::AzureKeyVault, name: resource_name.clone() };
    let marker = marker(properties);
    let chain = match (sink.unchanged(&resource, &marker), &properties.x509_thumbprint) {
        (Some(chain), _) => chain,
        (None, None) => Chain::None("the certificate is still being issued".to_owned()),
        (None, Some(_)) => {
            let read = || async {
                let found = client.get_certificate(name, None).await.and_then(|found| found.into_model());
                found.map_err(|error| from_azure_error(&error))
            };
            match pool.call("keyvault:Read", deadline, read).await?.cer {
                Some(der) if !der.is_empty() => Chain::Read(vec![der]),
                _ => Chain::None("the certificate is still being issued".to_owned()),
            }
        }
    };
    let expires = properties.attributes.as_ref().and_then(|attributes| attributes.expires);
    let not_after = expires.map(|time| UnixTime(time.unix_timestamp()));
    let used_by = uses.await.get(&*resource_name.to_ascii_lowercase()).cloned().unwrap_or_default();
    let tags = Some(bounded(properties.tags.clone().unwrap_or_default()));
    Ok(Some(CloudCertificate { resource, chain, not_after, used_by, tags, marker }))
}

/// Returns a text that changes with each new version, and when a version is enabled or disabled.
fn marker(properties: &CertificateProperties) -> String {
    let attributes = properties.attributes.as_ref();
    let updated =
        attributes.and_then(|attributes| attributes.updated).map_or(0, OffsetDateTime::unix_timestamp);
    let enabled = attributes.and_then(|attributes| attributes.enabled).unwrap_or(true);
    let thumbprint = properties.x509_thumbprint.as_deref().unwrap_or_default();
    format!("{}/{updated}/{enabled}", HEXLOWER.encode(thumbprint))
}

/// Returns the certificate name from `https://VAULT/certificates/NAME[/VERSION]`.
fn name_of(id: &str) -> Option<&str> {
    let (_, rest) = id.split_once("/certificates/")?;
    rest.split('/').next().filter(|name| !name.is_empty())
}

/// Converts the id of a certificate's secret, `https://VAULT/secrets/NAME[/VERSION]`, to the name of the certificate's resource.
fn certificate_name_of_secret(id: &str) -> Option<String> {
    let (vault, rest) = id.split_once("/secrets/")?;
    let name = rest.split('/').next().filter(|name| !name.is_empty())?;
    Some(format!("{vault}/certificates/{name}").to_ascii_lowercase())
}

fn with_trailing_slash(vault: &str) -> String {
    format!("{}/", vault.trim_end_matches('/'))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    value: Vec<T>,
    #[serde(default)]
    next_link: Option<String>,
}

#[derive(Deserialize)]
struct Vault {
    properties: VaultProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VaultProperties {
    vault_uri: String,
}

#[derive(Deserialize)]
struct Gateway {
    id: String,
    properties: GatewayProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayProperties {
    #[serde(default)]
    ssl_certificates: Vec<GatewayCertificate>,
    #[serde(default)]
    http_listeners: Vec<Listener>,
}

#[derive(Deserialize)]
struct GatewayCertificate {
    id: String,
    properties: GatewayCertificateProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayCertificateProperties {
    #[serde(default)]
    key_vault_secret_id: Option<String>,
}

#[derive(Deserialize)]
struct Listener {
    properties: ListenerProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListenerProperties {
    #[serde(default)]
    ssl_certificate: Option<Reference>,
    #[serde(default)]
    host_name: Option<String>,
    #[serde(default)]
    host_names: Vec<String>,
}

#[derive(Deserialize)]
struct Reference {
    id: String,
}

fn gateway_uses(gateways: &[Gateway]) -> HashMap<String, Vec<Use>> {
    let mut uses: HashMap<String, Vec<Use>> = HashMap::new();
    for gateway in gateways {
        for certificate in &gateway.properties.ssl_certificates {
            let secret = certificate.properties.key_vault_secret_id.as_deref();
            let Some(resource) = secret.and_then(certificate_name_of_secret) else { continue };
            let listens = |listener: &&Listener| {
                let own = listener.properties.ssl_certificate.as_ref();
                own.is_some_and(|own| own.id.eq_ignore_ascii_case(&certificate.id))
            };
            let hosts = gateway.properties.http_listeners.iter().filter(listens).flat_map(|listener| {
                listener.properties.host_name.iter().chain(&listener.properties.host_names).cloned()
            });
            let found = Use { by: gateway.id.clone(), hosts: hosts.collect() };
            uses.entry(resource).or_default().push(found);
        }
    }
    uses
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorDetail,
}

#[derive(Default, Deserialize)]
struct ErrorDetail {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

fn error_from_response(status: u16, body: &[u8], retry_after: Option<&str>) -> ApiError {
    let answer: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    ApiError::of_status(status, &answer.error.code, &answer.error.message, retry_after)
}

fn from_azure_error(error: &Error) -> ApiError {
    match error.kind() {
        ErrorKind::HttpResponse { status, error_code, raw_response } => {
            let raw: Option<&RawResponse> = raw_response.as_deref();
            let retry_after = raw.and_then(|raw| raw.headers().get_optional_string(&"retry-after".into()));
            let code = error_code.as_deref().unwrap_or_default();
            ApiError::of_status(u16::from(*status), code, &chain(error), retry_after.as_deref())
        }
        ErrorKind::Credential => ApiError::credentials(error),
        ErrorKind::DataConversion => ApiError::malformed(&chain(error)),
        ErrorKind::Io | ErrorKind::Connection => ApiError::unreachable(error),
        // The SDK reports a truncated body without a specific error kind.
        ErrorKind::Other => ApiError::malformed(&chain(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_url_maps_to_certificate_url() {
        for (secret, resource) in [
            ("https://V.vault.azure.net/secrets/web", Some("https://v.vault.azure.net/certificates/web")),
            (
                "https://v.vault.azure.net/secrets/web/0123",
                Some("https://v.vault.azure.net/certificates/web"),
            ),
            ("https://v.vault.azure.net/keys/web", None),
            ("", None),
        ] {
            assert_eq!(certificate_name_of_secret(secret).as_deref(), resource, "{secret}");
        }
        assert_eq!(name_of("https://v.vault.azure.net/certificates/web/0123"), Some("web"));
        assert_eq!(name_of("https://v.vault.azure.net/certificates/"), None);
    }
}
