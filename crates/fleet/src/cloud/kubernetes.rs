//! Simulated Kubernetes API server: TLS secrets, ingresses and gateways.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::server::{Cloud, Gate};
use super::{
    CertificateFactory, CloudBehavior, CloudRequest, Fault, MintedCertificate, OperationCounts, Quota, Reply,
    Server, SimulatedCertificate, page,
};
use crate::FleetError;
use crate::key_kind::KeyKind;

/// Placeholder for the private key in each simulated secret. Tests can search any output for this text.
pub const PRIVATE_KEY: &str = "-----BEGIN PRIVATE KEY----- nobody may read this";

/// Contents of a simulated Kubernetes cluster: its secrets and supported APIs.
#[derive(Clone, Debug)]
pub struct KubernetesPlan {
    /// Number of TLS secrets, in three namespaces; there are as many secrets of another type. The first is used by an ingress, the
    /// second by a gateway, the last contains no certificate.
    pub secrets: usize,
    /// Whether the Gateway API is installed.
    pub gateways: bool,
    /// Delays, page sizes, quotas and throttling of the API server.
    pub manners: CloudBehavior,
}

impl Default for KubernetesPlan {
    fn default() -> Self {
        Self { secrets: 120, gateways: true, manners: CloudBehavior::default() }
    }
}

struct StoredCertificate {
    namespace: String,
    name: String,
    minted: Option<MintedCertificate>,
    version: u64,
    labels: BTreeMap<String, String>,
}

struct Contents {
    secrets: Vec<StoredCertificate>,
    gateways: bool,
}

struct Kubernetes(Arc<Mutex<Contents>>);

/// A running simulated cluster. Stops when dropped.
pub struct KubernetesCloud {
    server: Server,
    contents: Arc<Mutex<Contents>>,
}

impl KubernetesCloud {
    /// Creates all certificates and starts serving.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn start(plan: &KubernetesPlan) -> Result<Self, FleetError> {
        let factory = CertificateFactory::new()?;
        let mut secrets = Vec::new();
        for index in 0..plan.secrets {
            let empty = plan.secrets > 3 && index == plan.secrets - 1;
            let names = vec![format!("k{index}.example")];
            let minted = if empty {
                None
            } else {
                Some(factory.mint(names, KeyKind::P256, 30 + index as i64 % 60)?)
            };
            let namespace = format!("ns{}", index % 3);
            secrets.push(StoredCertificate {
                namespace,
                name: format!("tls-{index}"),
                minted,
                version: 1_000 + index as u64,
                labels: super::tags_of(index),
            });
        }
        let contents = Arc::new(Mutex::new(Contents { secrets, gateways: plan.gateways }));
        let server = Server::start(Kubernetes(contents.clone()), plan.manners.clone(), None)?;
        Ok(Self { server, contents })
    }

    /// Returns the endpoint of the API server.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// Sets the fault of all further requests.
    pub fn set_fault(&self, fault: Fault) {
        self.server.set_fault(fault);
    }

    /// Returns the counters by operation.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, String), OperationCounts> {
        self.server.counts()
    }

    /// Returns the certificates that a scanner should find in a cluster called `cluster`.
    #[must_use]
    pub fn truth(&self, cluster: &str) -> Vec<SimulatedCertificate> {
        let contents = self.contents.lock();
        let mut truth: Vec<_> = contents
            .secrets
            .iter()
            .enumerate()
            .map(|(index, stored)| {
                let used_by = match index {
                    0 => vec![format!("{cluster}/{}/ingress/web", stored.namespace)],
                    1 if contents.gateways => vec![format!("{cluster}/{}/gateway/edge", stored.namespace)],
                    _ => Vec::new(),
                };
                SimulatedCertificate {
                    store: "kubernetes-secret",
                    name: format!("{cluster}/{}/{}", stored.namespace, stored.name),
                    leaf_sha256: stored.minted.as_ref().map(MintedCertificate::sha256),
                    used_by,
                    tags: stored.labels.clone(),
                }
            })
            .collect();
        truth.sort();
        truth
    }
}

fn problem(status: u16, reason: &str) -> Reply {
    Reply::json(
        status,
        &json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": status}),
    )
}

impl Cloud for Kubernetes {
    fn answer(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        if request.expired {
            return problem(401, "Unauthorized");
        }
        let quota = Quota { per_second: Some(50), per_minute: None, retry_after: Some(1) };
        if let Err(quota) = gate.enter(request, "List", "cluster", quota) {
            return problem(429, "TooManyRequests").retry_after(quota);
        }
        let contents = self.0.lock();
        match request.path.as_str() {
            "/api/v1/secrets" => contents.secrets(request, gate),
            "/apis/networking.k8s.io/v1/ingresses" => contents.ingresses(),
            "/apis/gateway.networking.k8s.io/v1/gateways" if contents.gateways => contents.gateways(),
            _ => problem(404, "NotFound"),
        }
    }
}

impl Contents {
    /// Lists secrets. Without the field selector, secrets of other types are included, like in a real API server.
    fn secrets(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        let only_tls =
            request.query.get("fieldSelector").is_some_and(|selector| selector == "type=kubernetes.io/tls");
        let mut all: Vec<Value> = self.secrets.iter().map(StoredCertificate::secret).collect();
        if !only_tls {
            let opaque = json!({"metadata": {"name": "opaque", "namespace": "ns0", "uid": "o", "resourceVersion": "1"},
                "type": "Opaque", "data": {"password": "c2VjcmV0"}});
            all.extend(std::iter::repeat_n(opaque, self.secrets.len()));
        }
        let requested_size = request.query.get("limit").and_then(|limit| limit.parse().ok());
        let token = request.query.get("continue").map(String::as_str);
        let Some((some, next)) = page(&all, token, requested_size, usize::MAX, gate.page_max()) else {
            return problem(410, "Expired");
        };
        Reply::json(
            200,
            &json!({"kind": "SecretList", "apiVersion": "v1", "items": some,
                "metadata": {"resourceVersion": "5000", "continue": next.unwrap_or_default()}}),
        )
    }

    fn ingresses(&self) -> Reply {
        let items: Vec<Value> = self
            .secrets
            .iter()
            .take(1)
            .map(|stored| {
                json!({"metadata": {"name": "web", "namespace": stored.namespace},
                    "spec": {"tls": [{"hosts": ["ingress.example"], "secretName": stored.name}]}})
            })
            .collect();
        Reply::json(200, &json!({"kind": "IngressList", "metadata": {}, "items": items}))
    }

    fn gateways(&self) -> Reply {
        let items: Vec<Value> = self
            .secrets
            .iter()
            .skip(1)
            .take(1)
            .map(|stored| {
                json!({"metadata": {"name": "edge", "namespace": stored.namespace}, "spec": {"listeners": [
                    {"name": "http", "port": 80},
                    {"name": "https", "hostname": "gateway.example",
                        "tls": {"certificateRefs": [{"kind": "Secret", "name": stored.name}]}}]}})
            })
            .collect();
        Reply::json(200, &json!({"kind": "GatewayList", "metadata": {}, "items": items}))
    }
}

impl StoredCertificate {
    fn secret(&self) -> Value {
        let mut data = json!({"tls.key": STANDARD.encode(PRIVATE_KEY)});
        if let Some(minted) = &self.minted {
            data["tls.crt"] = STANDARD.encode(minted.chain_pem()).into();
        }
        let mut metadata = json!({"name": self.name, "namespace": self.namespace,
            "uid": format!("uid-{}", self.name), "resourceVersion": self.version.to_string()});
        // The API omits empty labels.
        if !self.labels.is_empty() {
            metadata["labels"] = json!(self.labels);
        }
        json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": data})
    }
}
