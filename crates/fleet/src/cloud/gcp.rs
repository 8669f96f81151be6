//! Simulated Google Cloud: Certificate Manager and Compute Engine of one project.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::server::{Cloud, Gate};
use super::{
    CertificateFactory, CloudBehavior, CloudRequest, Fault, MintedCertificate, OperationCounts, Quota, Reply,
    Server, SimulatedCertificate, page, rfc3339,
};
use crate::FleetError;
use crate::key_kind::KeyKind;

/// Quota of a service: 300 requests per minute. A throttling response has `Retry-After: 60`.
const QUOTA: Quota = Quota { per_second: None, per_minute: Some(300), retry_after: Some(60) };
const LOCATIONS: [&str; 3] = ["global", "europe-west1", "us-central1"];

/// Contents of a simulated Google Cloud project: its certificates in two services.
#[derive(Clone, Debug)]
pub struct GcpPlan {
    /// Id of the simulated project.
    pub project: String,
    /// Certificates in Certificate Manager, in three locations. The first is used by a certificate map, the last is still being
    /// issued.
    pub managed: usize,
    /// SSL certificates in Compute Engine, global and in one region.
    pub classic: usize,
    /// Delays, page sizes, quotas and throttling of the simulated cloud.
    pub manners: CloudBehavior,
}

impl Default for GcpPlan {
    fn default() -> Self {
        Self { project: "fleet".to_owned(), managed: 12, classic: 5, manners: CloudBehavior::default() }
    }
}

struct StoredCertificate {
    name: String,
    minted: Option<MintedCertificate>,
    updated: i64,
    /// Labels in Certificate Manager; certificates in Compute Engine have none.
    labels: BTreeMap<String, String>,
}

struct Contents {
    project: String,
    managed: Vec<StoredCertificate>,
    classic: Vec<StoredCertificate>,
    /// Locations that are currently unreachable.
    unreachable: Vec<String>,
}

struct Gcp(Arc<Mutex<Contents>>);

/// A running simulated cloud. Stops when dropped.
pub struct GcpCloud {
    server: Server,
    contents: Arc<Mutex<Contents>>,
}

impl GcpCloud {
    /// Creates all certificates and starts serving.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn start(plan: &GcpPlan) -> Result<Self, FleetError> {
        let factory = CertificateFactory::new()?;
        let project = &plan.project;
        let mut managed = Vec::new();
        for index in 0..plan.managed {
            let location = LOCATIONS[index % LOCATIONS.len()];
            let name = format!("projects/{project}/locations/{location}/certificates/c{index}");
            let waits = plan.managed > 2 && index == plan.managed - 1;
            let kind = if index % 2 == 0 { KeyKind::P256 } else { KeyKind::Rsa2048 };
            let names = vec![format!("g{index}.example")];
            let minted = if waits { None } else { Some(factory.mint(names, kind, 10 + index as i64)?) };
            managed.push(StoredCertificate {
                name,
                minted,
                updated: 1_790_000_000,
                labels: super::tags_of(index),
            });
        }
        let mut classic = Vec::new();
        for index in 0..plan.classic {
            let scope = if index % 2 == 0 { "global" } else { "regions/europe-west1" };
            let name = format!("projects/{project}/{scope}/sslCertificates/s{index}");
            let minted = Some(factory.mint(vec![format!("s{index}.example")], KeyKind::P256, 40)?);
            classic.push(StoredCertificate { name, minted, updated: 1_790_000_000, labels: BTreeMap::new() });
        }
        let contents = Contents { project: project.clone(), managed, classic, unreachable: Vec::new() };
        let contents = Arc::new(Mutex::new(contents));
        let server = Server::start(Gcp(contents.clone()), plan.manners.clone(), None)?;
        Ok(Self { server, contents })
    }

    /// Returns the URL of the fake server, which serves both Certificate Manager and Compute Engine.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// Sets the fault of all further requests.
    pub fn set_fault(&self, fault: Fault) {
        self.server.set_fault(fault);
    }

    /// Makes these locations unreachable from now on: responses omit their certificates and list the locations as unreachable.
    pub fn set_unreachable(&self, locations: &[&str]) {
        self.contents.lock().unreachable = locations.iter().map(|location| (*location).to_owned()).collect();
    }

    /// Returns the counters by operation and project.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, String), OperationCounts> {
        self.server.counts()
    }

    /// Returns the number of connections and of requests so far.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        self.server.traffic()
    }

    /// Returns all certificates, including those in unreachable locations.
    #[must_use]
    pub fn truth(&self) -> Vec<SimulatedCertificate> {
        let contents = self.contents.lock();
        let truth = |stored: &StoredCertificate, store, used_by| SimulatedCertificate {
            store,
            name: stored.name.clone(),
            leaf_sha256: stored.minted.as_ref().map(MintedCertificate::sha256),
            used_by,
            tags: stored.labels.clone(),
        };
        let map = map_name(&contents.project);
        let managed = contents.managed.iter().enumerate().map(|(index, stored)| {
            truth(stored, "gcp-certificate-manager", (index == 0).then(|| map.clone()).into_iter().collect())
        });
        let classic = contents.classic.iter().map(|stored| truth(stored, "gcp-compute", Vec::new()));
        let mut truth: Vec<_> = managed.chain(classic).collect();
        truth.sort();
        truth
    }
}

fn map_name(project: &str) -> String {
    format!("projects/{project}/locations/global/certificateMaps/web")
}

fn problem(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(status, &json!({"error": {"code": status, "message": message, "status": code}}))
}

impl Cloud for Gcp {
    fn answer(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        if request.expired {
            return problem(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.");
        }
        let contents = self.0.lock();
        let compute = request.path.starts_with("/compute/");
        let operation = if compute { "Compute" } else { "CertificateManager" };
        if let Err(quota) = gate.enter(request, operation, &contents.project, QUOTA) {
            return problem(429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'API requests'.")
                .retry_after(quota);
        }
        match request.path.rsplit('/').next().unwrap_or_default() {
            "certificates" => contents.certificates(request, gate),
            "certificateMaps" => {
                Reply::json(200, &json!({"certificateMaps": [{"name": map_name(&contents.project)}]}))
            }
            "certificateMapEntries" => contents.entries(),
            "sslCertificates" if compute => contents.ssl_certificates(request, gate),
            _ => problem(404, "NOT_FOUND", "not found"),
        }
    }
}

impl Contents {
    fn certificates(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        let out = |name: &str| {
            self.unreachable.iter().any(|location| name.contains(&format!("/locations/{location}/")))
        };
        let all: Vec<Value> = self
            .managed
            .iter()
            .filter(|stored| !out(&stored.name))
            .map(|stored| {
                let mut item = json!({"name": stored.name, "scope": "DEFAULT",
                    "updateTime": rfc3339(x509::UnixTime(stored.updated)), "labels": stored.labels});
                if let Some(minted) = &stored.minted {
                    item["pemCertificate"] = minted.chain_pem().into();
                    item["sanDnsnames"] = json!(minted.names);
                    item["expireTime"] = rfc3339(minted.not_after).into();
                    item["selfManaged"] = json!({});
                }
                item
            })
            .collect();
        let unreachable: Vec<String> = self
            .unreachable
            .iter()
            .map(|location| format!("projects/{}/locations/{location}", self.project))
            .collect();
        let requested_size = request.query.get("pageSize").and_then(|size| size.parse().ok());
        let token = request.query.get("pageToken").map(String::as_str).filter(|token| !token.is_empty());
        let Some((some, next)) = page(&all, token, requested_size, 100, gate.page_max().min(100)) else {
            return problem(400, "INVALID_ARGUMENT", "page token");
        };
        Reply::json(
            200,
            &json!({"certificates": some, "nextPageToken": next.unwrap_or_default(), "unreachable": unreachable}),
        )
    }

    fn entries(&self) -> Reply {
        let first: Vec<&str> = self.managed.iter().take(1).map(|stored| stored.name.as_str()).collect();
        Reply::json(
            200,
            &json!({"certificateMapEntries": [{"name": format!("{}/certificateMapEntries/e", map_name(&self.project)),
                "certificates": first, "hostname": "map.example"}]}),
        )
    }

    fn ssl_certificates(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        let requested_size = request.query.get("maxResults").and_then(|size| size.parse().ok());
        let token = request.query.get("pageToken").map(String::as_str).filter(|token| !token.is_empty());
        let Some((some, next)) = page(&self.classic, token, requested_size, 500, gate.page_max().min(500))
        else {
            return problem(400, "INVALID_ARGUMENT", "page token");
        };
        let mut items: BTreeMap<String, Value> = BTreeMap::new();
        for (index, stored) in some.iter().enumerate() {
            let Some(minted) = &stored.minted else { continue };
            let scope = if stored.name.contains("/global/") { "global" } else { "regions/europe-west1" };
            let list = items.entry(scope.to_owned()).or_insert_with(|| json!({"sslCertificates": []}));
            let certificate = json!({"id": (1_000 + index).to_string(), "name": stored.name.rsplit('/').next(),
                "certificate": minted.chain_pem(), "creationTimestamp": "2026-10-01T00:00:00.000-07:00",
                "expireTime": rfc3339(minted.not_after), "type": "SELF_MANAGED"});
            if let Some(all) = list["sslCertificates"].as_array_mut() {
                all.push(certificate);
            }
        }
        Reply::json(
            200,
            &json!({"items": items, "nextPageToken": next, "kind": "compute#sslCertificateAggregatedList"}),
        )
    }
}
