//! Listing AWS certificates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud_apis::auth::http::HttpClient;
use cloud_apis::sources::aws::{AwsAccount, AwsOptions, AwsSource};
use clouds::{Chain, CloudSource, Pools};
use fleet::cloud::aws::{ACCESS_KEY, AwsCloud, AwsPlan, unlimited_quotas};
use fleet::cloud::{CloudBehavior, Fault, Quota};

use crate::world::{Found, http, learned, list, list_within, one_at_a_time, pools, quick_pools};

pub(crate) async fn sources(cloud: &AwsCloud, pools: &Pools, http: &HttpClient) -> Vec<Arc<dyn CloudSource>> {
    let options = AwsOptions {
        endpoint: Some(cloud.endpoint()),
        credentials: Some((ACCESS_KEY.to_owned(), "secret".to_owned())),
    };
    let mut sources: Vec<Arc<dyn CloudSource>> = Vec::new();
    for account in cloud.accounts() {
        let role = Some(AwsCloud::role(&account));
        let account = AwsAccount { account, role, external_id: None, regions: Vec::new() };
        let source = AwsSource::new(account, &options, http.clone(), pools.clone()).await.unwrap();
        sources.push(Arc::new(source));
    }
    sources
}

async fn list_once(cloud: &AwsCloud, pools: &Pools) -> Found {
    list(&sources(cloud, pools, &http()).await, HashMap::new()).await
}

/// Two accounts, two regions, pages of five. The listing finds every certificate, with any key type, and the resources that use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_finds_every_certificate_in_all_accounts_and_regions() {
    let manners = CloudBehavior { page_max: 5, quotas: unlimited_quotas(), ..CloudBehavior::default() };
    let cloud = AwsCloud::start(&AwsPlan { accounts: 2, manners, ..AwsPlan::default() }).unwrap();
    let found = list_once(&cloud, &quick_pools()).await;
    assert_eq!(found.failures(), Vec::<String>::new());
    assert_eq!(found.truth(), cloud.truth());
    let waiting = found.certificates.values().filter(|one| matches!(one.chain, Chain::None(_))).count();
    assert_eq!(waiting, 4, "one in each region of each account still waits for its validation");
    let hosts: Vec<_> =
        found.certificates.values().flat_map(|one| &one.used_by).flat_map(|used| &used.hosts).collect();
    for host in ["web0.us-east-1.elb.example", "www.example", "api.us-east-2.example"] {
        assert!(hosts.iter().any(|found| *found == host), "{host} of {hosts:?}");
    }
}

/// Unchanged certificates are not read again. Renewed certificates are read again, and deleted certificates are reported as gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_reads_only_new_and_changed_certificates_again() {
    let manners = CloudBehavior { quotas: unlimited_quotas(), ..CloudBehavior::default() };
    let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
    let (pools, http) = (quick_pools(), http());
    let sources = sources(&cloud, &pools, &http).await;
    let first = list(&sources, HashMap::new()).await;
    assert_eq!(first.read(), 2 * 11 + 3);
    let first_requests = http.counts().requests;
    let gets = |cloud: &AwsCloud| -> u64 {
        let counts = cloud.counts();
        counts
            .iter()
            .filter(|((name, _), _)| name.contains("Get") && name.contains("Cert"))
            .map(|(_, n)| n.taken)
            .sum()
    };
    let described = |cloud: &AwsCloud| -> u64 {
        cloud
            .counts()
            .iter()
            .filter(|((name, _), _)| *name == "DescribeCertificate")
            .map(|(_, n)| n.taken)
            .sum()
    };
    let (got, requested) = (gets(&cloud), described(&cloud));
    let second = list(&sources, first.states()).await;
    assert_eq!((second.read(), gets(&cloud), described(&cloud)), (0, got, requested), "nothing changed");
    assert_eq!(second.truth(), cloud.truth(), "and everything is known all the same, uses included");
    let (renewed, sha256) = cloud.renew_one().unwrap().unwrap();
    let deleted = cloud.delete_one().unwrap();
    let third = list(&sources, second.states()).await;
    assert_eq!((third.read(), gets(&cloud)), (1, got + 1));
    assert_eq!(third.truth(), cloud.truth());
    assert!(third.truth().iter().any(|one| one.name == renewed && one.leaf_sha256.as_ref() == Some(&sha256)));
    let removed: Vec<_> = third
        .ended
        .values()
        .flat_map(|listed| &listed.removed)
        .map(|resource| resource.name.to_string())
        .collect();
    assert_eq!(removed, [deleted]);
    // In the worst case, the first listing started all calls concurrently. Later listings made fewer calls, on open connections.
    let counts = http.counts();
    assert!(
        counts.connections <= first_requests && first_requests < counts.requests,
        "connections are kept: {counts:?}"
    );
}

/// Returns how often an operation was answered, over all accounts and regions.
fn answered(cloud: &AwsCloud, operation: &str) -> u64 {
    cloud.counts().iter().filter(|((name, _), _)| *name == operation).map(|(_, n)| n.taken).sum()
}

/// Tags are read once for each new certificate, and again when the certificate changes. A change of the tags alone is noticed with
/// the next change of the certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_are_read_only_for_new_and_changed_certificates() {
    let manners = CloudBehavior { quotas: unlimited_quotas(), ..CloudBehavior::default() };
    let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
    let sources = sources(&cloud, &quick_pools(), &http()).await;
    let requested =
        || (answered(&cloud, "ListTagsForCertificate"), answered(&cloud, "ListServerCertificateTags"));
    let first = list(&sources, HashMap::new()).await;
    assert_eq!((first.truth(), requested()), (cloud.truth(), (2 * 12, 3)));
    let tagged =
        |found: &Found| -> Vec<_> { found.ended.values().flat_map(|listed| listed.tagged.clone()).collect() };
    let new = tagged(&first);
    assert!(!new.is_empty() && new.iter().all(|one| one.before.is_none() && !one.tags.is_empty()), "{new:?}");

    let arn = cloud.replace_first_tags(&[("team", "bank"), ("empty", "")]).unwrap();
    let second = list(&sources, first.states()).await;
    assert_eq!((requested(), tagged(&second)), ((2 * 12, 3), Vec::new()), "nothing is new");
    assert_ne!(second.truth(), cloud.truth(), "AWS does not say that tags have changed");

    let (renewed, _) = cloud.renew_one().unwrap().unwrap();
    assert_eq!(renewed, arn);
    let third = list(&sources, second.states()).await;
    assert_eq!((third.truth(), requested()), (cloud.truth(), (2 * 12 + 1, 3)));
    let changed = tagged(&third);
    assert_eq!(changed.len(), 1);
    assert_eq!((&*changed[0].resource.name, changed[0].tags["team"].as_str()), (arn.as_str(), "bank"));
}

/// Without permission to read tags, everything else is listed. The missing permission is reported once per region, not once per
/// certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_tag_permission_is_reported_once_per_region() {
    let manners = CloudBehavior { quotas: unlimited_quotas(), ..CloudBehavior::default() };
    let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
    cloud.deny(&["ListTagsForCertificate", "ListServerCertificateTags"]);
    let sources = sources(&cloud, &quick_pools(), &http()).await;
    let found = list(&sources, HashMap::new()).await;
    assert_eq!(found.failures(), Vec::<String>::new());
    let mut remarks = found.remarks();
    remarks.sort();
    assert_eq!(remarks.len(), 3, "{remarks:?}");
    assert!(remarks[0].starts_with("iam tags: iam:ListServerCertificateTags is not allowed"), "{remarks:?}");
    assert!(
        remarks[2].starts_with("us-east-2/acm tags: acm:ListTagsForCertificate is not allowed"),
        "{remarks:?}"
    );
    let bare = |truth: Vec<fleet::cloud::SimulatedCertificate>| -> Vec<_> {
        truth
            .into_iter()
            .map(|one| fleet::cloud::SimulatedCertificate { tags: Default::default(), ..one })
            .collect()
    };
    assert_eq!(found.truth(), bare(cloud.truth()), "everything else is there");

    // Tags are read as soon as the permission is granted, although no certificate has changed.
    cloud.deny(&[]);
    let found = list(&sources, found.states()).await;
    assert_eq!((found.truth(), found.remarks()), (cloud.truth(), Vec::new()));
    assert_eq!(found.read(), 0, "the certificates were known");
}

/// Sequential calls share one connection, however long the listing. Another connection opens only while the HTTP library has not
/// yet released the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_calls_reuse_one_connection() {
    let manners = CloudBehavior { quotas: unlimited_quotas(), ..CloudBehavior::default() };
    let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
    let (pools, http) = (one_at_a_time(), http());
    let sources = sources(&cloud, &pools, &http).await;
    let first = list(&sources, HashMap::new()).await;
    let second = list(&sources, first.states()).await;
    assert_eq!(second.truth(), cloud.truth());
    let counts = http.counts();
    assert!(counts.requests > 40, "{counts:?}");
    assert!(counts.connections * 10 <= counts.requests, "{counts:?}");
}

/// At the documented rates, the cloud throttles no operation of any account. It allows twice these rates, because requests that were
/// sent on time may arrive together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_quotas_are_not_exceeded() {
    let twice = |operation: &str| Quota::per_second(if operation == "ListCertificates" { 2 } else { 20 });
    let quotas = unlimited_quotas().into_iter().map(|(operation, _)| (operation, twice(operation))).collect();
    let manners = CloudBehavior { quotas, ..CloudBehavior::default() };
    let cloud = AwsCloud::start(&AwsPlan { acm: 30, manners, ..AwsPlan::default() }).unwrap();
    let began = Instant::now();
    let found = list_once(&cloud, &pools()).await;
    assert_eq!(found.truth(), cloud.truth());
    for ((operation, account), counts) in cloud.counts() {
        assert_eq!(counts.throttled, 0, "{operation} of {account}: {counts:?}");
    }
    // 29 certificates of one region at nine requests per second.
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

/// The client learns the rate from the first throttling response. The cloud throttles one call, however fast the calls come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lower_quota_is_learned_from_the_first_throttling_response() {
    let manners = CloudBehavior {
        quotas: unlimited_quotas(),
        throttled_calls: vec![("GetCertificate", 4)],
        ..CloudBehavior::default()
    };
    let cloud = AwsCloud::start(&AwsPlan { regions: 1, acm: 16, manners, ..AwsPlan::default() }).unwrap();
    let pools = pools();
    let found = list_once(&cloud, &pools).await;
    assert_eq!(found.truth(), cloud.truth(), "nothing is lost by being throttled");
    let counts = cloud.counts();
    let (_, gets) = counts.iter().find(|((operation, _), _)| *operation == "GetCertificate").unwrap();
    assert_eq!(gets.throttled, 1, "{gets:?}");
    assert_eq!(learned(&pools), 1, "{:?}", pools.gauges());
}

/// Tokens that expire early are fetched again. Truncated pages are requested again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_tokens_and_truncated_pages_are_retried() {
    for fault in [Fault::ExpiredTokens(1), Fault::HalfPages(2)] {
        let manners = CloudBehavior { quotas: unlimited_quotas(), ..CloudBehavior::default() };
        let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
        let (pools, http) = (quick_pools(), http());
        let sources = sources(&cloud, &pools, &http).await;
        // Lists once, so that there is a token to expire.
        let before = list(&sources, HashMap::new()).await;
        assert_eq!(before.failures(), Vec::<String>::new());
        cloud.set_fault(fault);
        let found = list(&sources, HashMap::new()).await;
        assert_eq!(found.failures(), Vec::<String>::new(), "{fault:?}");
        assert_eq!(found.truth(), cloud.truth(), "{fault:?}");
    }
}

/// A cloud that is down, hangs or throttles everything is reported as failed. No certificate is treated as deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_kept_when_the_cloud_does_not_respond() {
    let manners = CloudBehavior { quotas: unlimited_quotas(), ..CloudBehavior::default() };
    let cloud = AwsCloud::start(&AwsPlan { regions: 1, manners, ..AwsPlan::default() }).unwrap();
    let (pools, http) = (quick_pools(), http());
    let sources = sources(&cloud, &pools, &http).await;
    let mut states = list(&sources, HashMap::new()).await.states();
    let known = states.values().next().unwrap().len();
    for fault in [Fault::Hanging, Fault::Throttling, Fault::Down] {
        cloud.set_fault(fault);
        let found = list_within(&sources, states, Duration::from_secs(3)).await;
        assert!(!found.failures().is_empty(), "{fault:?}");
        let listed = found.ended.values().next().unwrap();
        assert_eq!((listed.removed.len(), listed.state.len()), (0, known), "{fault:?}");
        states = found.states();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_role_assumption_is_reported_as_access_denied() {
    let cloud = AwsCloud::start(&AwsPlan::default()).unwrap();
    let options = AwsOptions {
        endpoint: Some(cloud.endpoint()),
        credentials: Some(("AKIANOBODY".to_owned(), "secret".to_owned())),
    };
    let account = cloud.accounts().remove(0);
    let role = Some(AwsCloud::role(&account));
    let account = AwsAccount { account, role, external_id: None, regions: Vec::new() };
    let source = AwsSource::new(account, &options, http(), pools()).await.unwrap();
    let found = list(&[Arc::new(source)], HashMap::new()).await;
    let failures = found.failures().join("; ");
    assert!(
        failures.contains("account:ListRegions is not allowed") && failures.contains("AccessDenied"),
        "{failures}"
    );
}
