//! Listing Kubernetes certificates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_apis::sources::kubernetes::{KubernetesCluster, KubernetesSource};
use clouds::{Chain, CloudSource, Pools};
use fleet::cloud::Fault;
use fleet::cloud::kubernetes::{KubernetesCloud, KubernetesPlan};

use crate::world::{list, list_within, pools};

fn source(cloud: &KubernetesCloud, pools: &Pools) -> Arc<dyn CloudSource> {
    let config = kube::Config::new(cloud.endpoint().parse().unwrap());
    let cluster = KubernetesCluster { name: "c1".to_owned(), context: None };
    Arc::new(KubernetesSource::with_config(cluster, config, pools).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_finds_every_tls_secret_in_pages_with_its_uses() {
    let cloud = KubernetesCloud::start(&KubernetesPlan::default()).unwrap();
    let sources = [source(&cloud, &pools())];
    let first = list(&sources, HashMap::new()).await;
    assert_eq!(first.failures(), Vec::<String>::new());
    assert_eq!(first.truth(), cloud.truth("c1"));
    let hosts: Vec<_> =
        first.certificates.values().flat_map(|one| &one.used_by).flat_map(|used| &used.hosts).collect();
    assert_eq!(hosts, ["ingress.example", "gateway.example"]);
    let chains = first
        .certificates
        .values()
        .filter(|one| matches!(&one.chain, Chain::Read(chain) if chain.len() == 2));
    assert_eq!(chains.count(), 119);
    let second = list(&sources, first.states()).await;
    assert_eq!((second.read(), second.truth()), (0, cloud.truth("c1")));
}

/// A cluster without the Gateway API answers 404. The listing then finds no gateways and reports no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_without_gateway_api_lists_without_errors() {
    let cloud =
        KubernetesCloud::start(&KubernetesPlan { gateways: false, ..KubernetesPlan::default() }).unwrap();
    let found = list(&[source(&cloud, &pools())], HashMap::new()).await;
    assert_eq!(found.failures(), Vec::<String>::new());
    assert_eq!(found.truth(), cloud.truth("c1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_kept_when_the_cluster_does_not_respond() {
    let cloud = KubernetesCloud::start(&KubernetesPlan::default()).unwrap();
    let sources = [source(&cloud, &pools())];
    let mut states = list(&sources, HashMap::new()).await.states();
    for fault in [Fault::Hanging, Fault::Throttling, Fault::Down, Fault::ExpiredTokens(u32::MAX)] {
        cloud.set_fault(fault);
        let found = list_within(&sources, states, Duration::from_secs(3)).await;
        let listed = found.ended.values().next().unwrap();
        assert!(!listed.failed.is_empty(), "{fault:?}");
        assert_eq!((listed.removed.len(), listed.state.len()), (0, 120), "{fault:?}");
        states = found.states();
    }
}
