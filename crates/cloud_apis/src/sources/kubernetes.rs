//! Kubernetes: secrets of type `kubernetes.io/tls`, and the ingresses and gateways that use them.
//!
//! The API returns secrets only together with their private keys. The parser skips the keys without storing them, and the buffers
//! are overwritten after use.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{BoxFuture, FutureExt};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use outbound::Deadline;
use outbound::http::percent_encoded;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

pub use clouds::KubernetesCluster;
use clouds::ProviderPool;
use clouds::chain;
use clouds::{
    ApiError, Chain, CloudCertificate, CloudResource, CloudSource, CloudStore, Pools, Provider, Sink,
    SourceError, Use,
};
use clouds::{Tags, bounded};

/// Objects on one page. A secret has a megabyte at most.
const PAGE: u32 = 50;
/// Maximum bytes of one page.
const BODY_MAX: usize = 64 << 20;

/// Source of the certificates of one Kubernetes cluster.
pub struct KubernetesSource {
    name: Arc<str>,
    cluster: String,
    client: kube::Client,
    pool: ProviderPool,
}

impl KubernetesSource {
    /// Creates a source for `cluster`, whose configuration is found like kubectl finds it. Sends no request before the first
    /// listing.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when no cluster is configured.
    #[crate::boxed]
    pub async fn new(cluster: KubernetesCluster, pools: &Pools) -> Result<Self, SourceError> {
        let wrong = |error: &(dyn std::error::Error + 'static)| SourceError::Configuration(chain(error));
        let config = match &cluster.context {
            Some(_) => {
                let kubeconfig = Kubeconfig::read().map_err(|error| wrong(&error))?;
                let options =
                    KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
                kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|error| wrong(&error))?
            }
            None => kube::Config::infer().await.map_err(|error| wrong(&error))?,
        };
        Self::with_config(cluster, config, pools)
    }

    /// Creates a source for a cluster with the client configuration `config`.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when the configuration is invalid.
    pub fn with_config(
        cluster: KubernetesCluster,
        config: kube::Config,
        pools: &Pools,
    ) -> Result<Self, SourceError> {
        let client =
            kube::Client::try_from(config).map_err(|error| SourceError::Configuration(chain(&error)))?;
        Ok(Self {
            name: cluster.source(),
            pool: pools.of(Provider::Kubernetes, &cluster.name),
            cluster: cluster.name,
            client,
        })
    }

    async fn list_all(&self, sink: &Sink, deadline: Deadline) -> Result<(), SourceError> {
        let mut uses: HashMap<String, Vec<Use>> = HashMap::new();
        match self.all::<Ingress>("/apis/networking.k8s.io/v1/ingresses", deadline).await {
            Ok(ingresses) => ingresses.iter().for_each(|ingress| self.add_ingress_uses(ingress, &mut uses)),
            Err(error) => sink.failed("ingresses", error),
        }
        match self.all::<Gateway>("/apis/gateway.networking.k8s.io/v1/gateways", deadline).await {
            Ok(gateways) => gateways.iter().for_each(|gateway| self.add_gateway_uses(gateway, &mut uses)),
            Err(error) => sink.failed("gateways", error),
        }
        self.secrets(sink, &uses, deadline).await
    }

    async fn secrets(
        &self,
        sink: &Sink,
        uses: &HashMap<String, Vec<Use>>,
        deadline: Deadline,
    ) -> Result<(), SourceError> {
        const PART: &str = "secrets";
        let path = "/api/v1/secrets?fieldSelector=type%3Dkubernetes.io%2Ftls";
        let mut token = None;
        loop {
            let Some(page) = self.page::<Secret>(path, token.as_deref(), deadline).await? else { break };
            for secret in page.items {
                let name = self.resource(secret.metadata.namespace.as_deref(), &secret.metadata.name);
                let used_by = uses.get(&name).cloned().unwrap_or_default();
                let resource = CloudResource { store: CloudStore::KubernetesSecret, name: name.into() };
                let Metadata { uid, resource_version, labels, .. } = secret.metadata;
                let marker = format!("{uid}/{resource_version}");
                let chain = sink.unchanged(&resource, &marker).unwrap_or_else(|| chain_of(secret.data.get()));
                let tags = Some(bounded(labels.unwrap_or_default()));
                let certificate =
                    CloudCertificate { resource, chain, not_after: None, used_by, tags, marker };
                sink.seen(PART, certificate).await?;
            }
            token = page.metadata.token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        sink.listed(PART);
        Ok(())
    }

    fn resource(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}/{name}", self.cluster, namespace.unwrap_or("default"))
    }

    fn add_ingress_uses(&self, ingress: &Ingress, uses: &mut HashMap<String, Vec<Use>>) {
        let namespace = ingress.metadata.namespace.as_deref();
        let by =
            format!("{}/{}/ingress/{}", self.cluster, namespace.unwrap_or("default"), ingress.metadata.name);
        for tls in &ingress.spec.tls {
            let Some(secret) = &tls.secret_name else { continue };
            let found = Use { by: by.clone(), hosts: tls.hosts.clone() };
            uses.entry(self.resource(namespace, secret)).or_default().push(found);
        }
    }

    fn add_gateway_uses(&self, gateway: &Gateway, uses: &mut HashMap<String, Vec<Use>>) {
        let own = gateway.metadata.namespace.as_deref();
        let by = format!("{}/{}/gateway/{}", self.cluster, own.unwrap_or("default"), gateway.metadata.name);
        for listener in &gateway.spec.listeners {
            for secret in listener.tls.iter().flat_map(|tls| &tls.certificate_refs) {
                if secret.kind.as_deref().is_some_and(|kind| kind != "Secret") {
                    continue;
                }
                let found = Use { by: by.clone(), hosts: listener.hostname.iter().cloned().collect() };
                let namespace = secret.namespace.as_deref().or(own);
                uses.entry(self.resource(namespace, &secret.name)).or_default().push(found);
            }
        }
    }

    /// Returns all objects of a kind; an empty list if the cluster does not know the kind.
    async fn all<T: DeserializeOwned>(&self, path: &str, deadline: Deadline) -> Result<Vec<T>, SourceError> {
        let (mut found, mut token) = (Vec::new(), None);
        while let Some(page) = self.page::<T>(&format!("{path}?"), token.as_deref(), deadline).await? {
            found.extend(page.items);
            if found.len() > clouds::CERTIFICATES_PER_SOURCE_MAX {
                let max = clouds::CERTIFICATES_PER_SOURCE_MAX;
                return Err(SourceError::TooMany { what: "objects of one kind", max });
            }
            token = page.metadata.token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        Ok(found)
    }

    async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
        token: Option<&str>,
        deadline: Deadline,
    ) -> Result<Option<List<T>>, SourceError> {
        let mut path = format!("{path}&limit={PAGE}");
        if let Some(token) = token {
            path.push_str("&continue=");
            path.extend(percent_encoded(token));
        }
        let found = self.pool.call("kubernetes:Read", deadline, || self.get(&path)).await;
        match found {
            Ok(page) => Ok(Some(page)),
            Err(outbound::pool::CallError::Failed { source, .. }) if source.code == "NotFound" => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<List<T>, ApiError> {
        let request = http::Request::get(path.replace("?&", "?"))
            .header("accept", "application/json")
            .body(Body::empty())
            .map_err(|error| ApiError::malformed(&error.to_string()))?;
        let response = self.client.send(request).await.map_err(|error| from_kube_error(&error))?;
        let status = response.status().as_u16();
        let header = response.headers().get("retry-after");
        let retry_after = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
        let body = body.map_err(|error| ApiError::unreachable(&*error))?;
        let body = Zeroizing::new(Vec::from(body.to_bytes()));
        if status == 200 {
            return serde_json::from_slice(&body).map_err(|error| ApiError::malformed(&error.to_string()));
        }
        let answer: StatusBody = serde_json::from_slice(&body).unwrap_or_default();
        Err(ApiError::of_status(status, &answer.reason, &answer.message, retry_after.as_deref()))
    }
}

impl CloudSource for KubernetesSource {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn provider(&self) -> Provider {
        Provider::Kubernetes
    }

    fn list<'a>(&'a self, sink: &'a Sink, deadline: Deadline) -> BoxFuture<'a, Result<(), SourceError>> {
        self.list_all(sink, deadline).boxed()
    }
}

fn chain_of(pem: Option<&str>) -> Chain {
    let Some(pem) = pem.and_then(|text| STANDARD.decode(text).ok()) else {
        return Chain::None("the secret has no tls.crt".to_owned());
    };
    let chain: Vec<Vec<u8>> = x509::pem::certificates(&pem).map(|(_, der)| der).collect();
    if chain.is_empty() {
        Chain::None("tls.crt of the secret holds no certificate".to_owned())
    } else {
        Chain::Read(chain)
    }
}

fn from_kube_error(error: &kube::Error) -> ApiError {
    match error {
        kube::Error::Auth(_) => ApiError::credentials(error),
        _ => ApiError::unreachable(error),
    }
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    labels: Option<Tags>,
}

/// The public fields of a secret: `tls.key` is skipped, not read.
#[derive(Deserialize)]
struct Secret {
    metadata: Metadata,
    #[serde(default)]
    data: SecretData,
}

#[derive(Default, Deserialize)]
struct SecretData {
    #[serde(default, rename = "tls.crt")]
    certificate: Option<String>,
}

impl SecretData {
    fn get(&self) -> Option<&str> {
        self.certificate.as_deref()
    }
}

#[derive(Deserialize)]
struct Ingress {
    metadata: Metadata,
    #[serde(default)]
    spec: IngressSpec,
}

#[derive(Default, Deserialize)]
struct IngressSpec {
    #[serde(default)]
    tls: Vec<IngressTls>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IngressTls {
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    secret_name: Option<String>,
}

#[derive(Deserialize)]
struct Gateway {
    metadata: Metadata,
    #[serde(default)]
    spec: GatewaySpec,
}

#[derive(Default, Deserialize)]
struct GatewaySpec {
    #[serde(default)]
    listeners: Vec<GatewayListener>,
}

#[derive(Deserialize)]
struct GatewayListener {
    #[serde(default)]
    hostname: Option<String>,
    #[serde(default)]
    tls: Option<GatewayTls>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayTls {
    #[serde(default)]
    certificate_refs: Vec<SecretReference>,
}

#[derive(Deserialize)]
struct SecretReference {
    #[serde(default)]
    kind: Option<String>,
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
struct StatusBody {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}
