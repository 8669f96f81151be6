//! Listing Azure certificates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::{Duration as AzureDuration, OffsetDateTime};
use cloud_apis::auth::http::HttpClient;
use cloud_apis::sources::azure::{AzureOptions, AzureSource, AzureSubscription};
use clouds::{CloudSource, Pools};
use fleet::cloud::azure::{AzureCloud, AzurePlan, SUBSCRIPTION};
use fleet::cloud::{CloudBehavior, Quota};

use crate::world::{learned, list, pools, survives_faults};

/// A credential whose tokens the simulated cloud accepts.
struct Tokens(Arc<AzureCloud>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

#[async_trait::async_trait]
impl TokenCredential for Tokens {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        Ok(AccessToken::new(self.0.token(), OffsetDateTime::now_utc() + AzureDuration::hours(1)))
    }
}

pub(crate) fn source(cloud: &Arc<AzureCloud>, pools: &Pools) -> (Arc<dyn CloudSource>, HttpClient) {
    let http = HttpClient::new(&[cloud.root()]).unwrap();
    let options = AzureOptions {
        management: Some(cloud.management()),
        credential: Some(Arc::new(Tokens(cloud.clone()))),
        any_resource: true,
    };
    let subscription = AzureSubscription { subscription: SUBSCRIPTION.to_owned(), vaults: Vec::new() };
    let source = AzureSource::new(subscription, &options, http.clone(), pools.clone()).unwrap();
    (Arc::new(source), http)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_finds_every_certificate_and_reads_each_once() {
    // Vaults in pages of one, certificates in pages of 25.
    let cloud = Arc::new(AzureCloud::start(&AzurePlan { vaults: 3, ..AzurePlan::default() }).unwrap());
    let (source, http) = source(&cloud, &pools());
    let sources = [source];
    let first = list(&sources, HashMap::new()).await;
    assert_eq!(first.failures(), Vec::<String>::new());
    assert_eq!(first.truth(), cloud.truth());
    assert_eq!(first.read(), 3 * 29);
    let hosts: Vec<_> =
        first.certificates.values().flat_map(|one| &one.used_by).flat_map(|used| &used.hosts).collect();
    assert_eq!(hosts, ["gw.example"; 3]);
    let second = list(&sources, first.states()).await;
    assert_eq!((second.read(), second.truth()), (0, cloud.truth()));
    let sha256 = cloud.renew_one().unwrap();
    let third = list(&sources, second.states()).await;
    assert_eq!((third.read(), third.truth()), (1, cloud.truth()));
    assert!(third.truth().iter().any(|one| one.leaf_sha256 == sha256));
    assert!(cloud.counts().values().all(|counts| counts.throttled == 0));
    let counts = http.counts();
    assert!(counts.connections * 2 < counts.requests, "connections are kept: {counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_of_a_vault_is_obeyed_and_lowers_the_rate() {
    // The vault throttles one call, however fast the calls come.
    let quota = Quota { retry_after: Some(2), ..Quota::default() };
    let manners = CloudBehavior {
        quotas: vec![("KeyVault", quota)],
        throttled_calls: vec![("KeyVault", 5)],
        ..CloudBehavior::default()
    };
    let cloud =
        Arc::new(AzureCloud::start(&AzurePlan { vaults: 1, manners, ..AzurePlan::default() }).unwrap());
    let (pools, began) = (pools(), Instant::now());
    let found = list(&[source(&cloud, &pools).0], HashMap::new()).await;
    assert_eq!(found.truth(), cloud.truth());
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    let counts = cloud.counts();
    let (_, vault) = counts.iter().find(|((operation, _), _)| *operation == "KeyVault").unwrap();
    assert_eq!((vault.throttled, learned(&pools)), (1, 1), "{vault:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_survives_expired_tokens_truncated_pages_and_outages() {
    let cloud = Arc::new(AzureCloud::start(&AzurePlan::default()).unwrap());
    survives_faults(source(&cloud, &pools()).0, |fault| cloud.set_fault(fault), || cloud.truth()).await;
}
