//! Listing Google Cloud certificates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud_apis::sources::gcp::{GcpOptions, GcpProject, GcpSource};
use clouds::{CloudSource, Pools};
use fleet::cloud::gcp::{GcpCloud, GcpPlan};
use fleet::cloud::{CloudBehavior, Quota};
use google_cloud_auth::credentials::anonymous::Builder as Anonymous;

use crate::world::{list, pools, survives_faults};

pub(crate) async fn source(cloud: &GcpCloud, project: &str, pools: &Pools) -> Arc<dyn CloudSource> {
    let options =
        GcpOptions { endpoint: Some(cloud.endpoint()), credentials: Some(Anonymous::new().build()) };
    let project = GcpProject { project: project.to_owned() };
    Arc::new(GcpSource::new(project, &options, pools).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_finds_every_certificate_of_both_services_in_pages() {
    let manners = CloudBehavior { page_max: 4, ..CloudBehavior::default() };
    let cloud = GcpCloud::start(&GcpPlan { manners, ..GcpPlan::default() }).unwrap();
    let sources = [source(&cloud, "fleet", &pools()).await];
    let first = list(&sources, HashMap::new()).await;
    assert_eq!(first.failures(), Vec::<String>::new());
    assert_eq!(first.truth(), cloud.truth());
    let hosts: Vec<_> =
        first.certificates.values().flat_map(|one| &one.used_by).flat_map(|used| &used.hosts).collect();
    assert_eq!(hosts, ["map.example"]);
    let second = list(&sources, first.states()).await;
    assert_eq!((second.read(), second.truth()), (0, cloud.truth()));
    assert!(cloud.counts().values().all(|counts| counts.throttled == 0));
}

/// An unreachable location is reported. Its certificates are not treated as deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_location_is_reported_and_keeps_its_certificates() {
    let cloud = GcpCloud::start(&GcpPlan::default()).unwrap();
    let sources = [source(&cloud, "fleet", &pools()).await];
    let first = list(&sources, HashMap::new()).await;
    cloud.set_unreachable(&["europe-west1"]);
    let second = list(&sources, first.states()).await;
    let listed = second.ended.values().next().unwrap();
    let failed: Vec<&str> = listed.failed.iter().map(|(part, _)| part.as_str()).collect();
    assert_eq!(failed, ["certificate-manager/europe-west1"]);
    assert_eq!((listed.removed.len(), listed.state.len(), listed.certificates), (0, 17, 13));
}

/// The official client does not retry by itself. The pool retries when the quota's minute is over. This test shortens the minute:
/// one call is throttled, and its response asks for two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_obeyed() {
    let quota = Quota { retry_after: Some(2), ..Quota::default() };
    let manners = CloudBehavior {
        quotas: vec![("CertificateManager", quota)],
        throttled_calls: vec![("CertificateManager", 3)],
        page_max: 2,
        ..CloudBehavior::default()
    };
    let cloud = GcpCloud::start(&GcpPlan { manners, ..GcpPlan::default() }).unwrap();
    let began = Instant::now();
    let found = list(&[source(&cloud, "fleet", &pools()).await], HashMap::new()).await;
    assert_eq!(found.truth(), cloud.truth());
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    let counts = cloud.counts();
    let (_, manager) = counts.iter().find(|((operation, _), _)| *operation == "CertificateManager").unwrap();
    assert_eq!(manager.throttled, 1, "{manager:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_survives_expired_tokens_truncated_pages_and_outages() {
    let cloud = GcpCloud::start(&GcpPlan::default()).unwrap();
    let source = source(&cloud, "fleet", &pools()).await;
    survives_faults(source, |fault| cloud.set_fault(fault), || cloud.truth()).await;
}
