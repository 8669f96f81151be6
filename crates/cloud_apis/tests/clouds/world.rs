//! Pools, one HTTP client, and the result of a listing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use cloud_apis::auth::http::HttpClient;
use clouds::{
    Chain, CloudCertificate, CloudSource, Event, Listed, Machine, PoolSettings, Pools, State, start,
};
use fleet::cloud::{Fault, SimulatedCertificate};
use tokio_util::sync::CancellationToken;
use x509::Fingerprint;

/// Timeout of a listing in the tests. None needs a tenth of it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn pools() -> Pools {
    pools_of(PoolSettings::default())
}

pub(crate) fn pools_of(settings: PoolSettings) -> Pools {
    Pools::new(settings, Machine { descriptors: 2_048, database: None }).unwrap()
}

/// Returns the number of operations whose rate was learned from a throttling response.
pub(crate) fn learned(pools: &Pools) -> usize {
    let all = pools.gauges();
    let counts = all.iter().flat_map(|pool| &pool.operations);
    counts.filter(|(_, counts)| counts.learned_per_minute.is_some()).count()
}

/// Pools with high rate limits, for tests that are not about rates.
pub(crate) fn quick_pools() -> Pools {
    pools_of(quick())
}

/// As [`quick_pools`], but with one call at a time.
pub(crate) fn one_at_a_time() -> Pools {
    pools_of(PoolSettings { clouds: Some(1), ..quick() })
}

fn quick() -> PoolSettings {
    let text = r#"{"aws": {"operations": {
        "acm:ListCertificates": {"per_second": 1000}, "acm:GetCertificate": {"per_second": 1000},
        "acm:DescribeCertificate": {"per_second": 1000}, "iam:ListServerCertificates": {"per_second": 1000},
        "acm:ListTagsForCertificate": {"per_second": 1000}, "iam:ListServerCertificateTags": {"per_second": 1000},
        "iam:GetServerCertificate": {"per_second": 1000}, "cloudfront:ListDistributions": {"per_second": 1000},
        "elasticloadbalancing:DescribeLoadBalancers": {"per_second": 1000},
        "elasticloadbalancing:DescribeListeners": {"per_second": 1000},
        "elasticloadbalancing:DescribeListenerCertificates": {"per_second": 1000},
        "apigateway:GetDomainNames": {"per_second": 1000}, "account:ListRegions": {"per_second": 1000}}}}"#;
    serde_json::from_str(text).unwrap()
}

pub(crate) fn http() -> HttpClient {
    HttpClient::new(&[]).unwrap()
}

/// The result of a listing.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) certificates: BTreeMap<(String, String), CloudCertificate>,
    pub(crate) ended: BTreeMap<String, Listed>,
}

pub(crate) async fn list(sources: &[Arc<dyn CloudSource>], states: HashMap<String, State>) -> Found {
    list_within(sources, states, LIMIT).await
}

pub(crate) async fn list_within(
    sources: &[Arc<dyn CloudSource>],
    states: HashMap<String, State>,
    limit: Duration,
) -> Found {
    let mut events = start(sources.to_vec(), states, limit, CancellationToken::new());
    let mut found = Found::default();
    while let Some(event) = events.recv().await {
        match event {
            Event::Certificates { certificates, .. } => {
                assert!(certificates.len() <= 100, "batches are bounded");
                for certificate in certificates {
                    let key =
                        (certificate.resource.store.name().to_owned(), certificate.resource.name.to_string());
                    assert!(found.certificates.insert(key, certificate).is_none(), "none is listed twice");
                }
            }
            Event::Ended(listed) => {
                assert!(found.ended.insert(listed.source.to_string(), *listed).is_none(), "one end each");
            }
        }
    }
    assert_eq!(found.ended.len(), sources.len(), "every source has an end");
    found
}

/// Lists under each fault. Faults that a retry cures change nothing. Under the other faults, every certificate stays known.
pub(crate) async fn survives_faults(
    source: Arc<dyn CloudSource>,
    set_fault: impl Fn(Fault),
    truth: impl Fn() -> Vec<SimulatedCertificate>,
) {
    let sources = [source];
    let mut states = list(&sources, HashMap::new()).await.states();
    for fault in [Fault::ExpiredTokens(1), Fault::HalfPages(1)] {
        set_fault(fault);
        let found = list(&sources, states).await;
        assert_eq!(found.failures(), Vec::<String>::new(), "{fault:?}");
        assert_eq!(found.truth(), truth(), "{fault:?}");
        states = found.states();
    }
    for fault in [Fault::Hanging, Fault::Throttling, Fault::Down] {
        let known = states.values().map(State::len).sum::<usize>();
        assert!(known >= truth().len(), "{fault:?}");
        set_fault(fault);
        let found = list_within(&sources, states, Duration::from_secs(3)).await;
        let listed = found.ended.values().next().unwrap();
        assert!(!listed.failed.is_empty(), "{fault:?}");
        assert_eq!((listed.removed.len(), listed.state.len()), (0, known), "{fault:?}");
        states = found.states();
    }
}

impl Found {
    /// Returns the certificates in the form of the simulated cloud's `truth()`.
    pub(crate) fn truth(&self) -> Vec<SimulatedCertificate> {
        let mut truth: Vec<_> = self
            .certificates
            .values()
            .map(|certificate| {
                let leaf = match &certificate.chain {
                    Chain::Read(chain) => chain.first().map(|der| Fingerprint::of(der)),
                    Chain::Unchanged(chain) => chain.first().copied(),
                    Chain::None(_) => None,
                };
                let mut used_by: Vec<_> = certificate.used_by.iter().map(|used| used.by.clone()).collect();
                used_by.sort();
                SimulatedCertificate {
                    store: certificate.resource.store.name(),
                    name: certificate.resource.name.to_string(),
                    leaf_sha256: leaf.map(|leaf| leaf.to_string()),
                    used_by,
                    tags: certificate.tags.clone().unwrap_or_default(),
                }
            })
            .collect();
        truth.sort();
        truth
    }

    pub(crate) fn states(self) -> HashMap<String, State> {
        self.ended.into_iter().map(|(source, listed)| (source, listed.state)).collect()
    }

    pub(crate) fn read(&self) -> u64 {
        self.ended.values().map(|listed| listed.read).sum()
    }

    /// Returns problems besides the certificates, such as unreadable tags: `PART: error`.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let remarks = self.ended.values().flat_map(|listed| &listed.remarks);
        remarks.map(|(part, error)| format!("{part}: {error}")).collect()
    }

    /// Returns the parts that failed: `PART: error`.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failed = self.ended.values().flat_map(|listed| &listed.failed);
        failed.map(|(part, error)| format!("{part}: {error}")).collect()
    }
}
