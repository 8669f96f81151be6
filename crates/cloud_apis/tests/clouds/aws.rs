//! AWS.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud_apis::auth::http::HttpClient;
use cloud_apis::sources::aws::{AwsAccount, AwsOptions, AwsSource};
use clouds::{Chain, CloudSource, Pools};
use fleet::cloud::aws::{ACCESS_KEY, AwsCloud, AwsPlan, no_quotas};
use fleet::cloud::{Fault, Manners, Quota};

use crate::world::{Found, http, list, list_within, one_at_a_time, pools, quick_pools};

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

/// Two accounts, two regions, pages of five: every certificate, whatever its key, with whatever uses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_certificate_of_every_account_and_region_is_found_with_its_uses() {
    let manners = Manners { page_max: 5, quotas: no_quotas(), ..Manners::default() };
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

/// What is listed as it was is not read again; what was renewed is, and what was deleted is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_new_or_changed_is_read_again() {
    let manners = Manners { quotas: no_quotas(), ..Manners::default() };
    let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
    let (pools, http) = (quick_pools(), http());
    let sources = sources(&cloud, &pools, &http).await;
    let first = list(&sources, HashMap::new()).await;
    assert_eq!(first.read(), 2 * 11 + 3);
    let asked_at_first = http.counts().requests;
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
    let (got, asked) = (gets(&cloud), described(&cloud));
    let second = list(&sources, first.states()).await;
    assert_eq!((second.read(), gets(&cloud), described(&cloud)), (0, got, asked), "nothing changed");
    assert_eq!(second.truth(), cloud.truth(), "and everything is known all the same, uses included");
    let (renewed, sha256) = cloud.renew_one().unwrap().unwrap();
    let deleted = cloud.delete_one().unwrap();
    let third = list(&sources, second.states()).await;
    assert_eq!((third.read(), gets(&cloud)), (1, got + 1));
    assert_eq!(third.truth(), cloud.truth());
    assert!(third.truth().iter().any(|one| one.name == renewed && one.leaf_sha256.as_ref() == Some(&sha256)));
    let gone: Vec<_> =
        third.ended.values().flat_map(|listed| &listed.gone).map(|place| place.name.to_string()).collect();
    assert_eq!(gone, [deleted]);
    // At worst the first listing asked everything at once; the others asked for less, over what was open.
    let counts = http.counts();
    assert!(
        counts.connections <= asked_at_first && asked_at_first < counts.requests,
        "connections are kept: {counts:?}"
    );
}

/// How often an operation was answered, over all accounts and regions.
fn answered(cloud: &AwsCloud, operation: &str) -> u64 {
    cloud.counts().iter().filter(|((name, _), _)| *name == operation).map(|(_, n)| n.taken).sum()
}

/// Tags are asked for once for what is new, then only for what has changed: a change of the tags alone is noticed with the
/// next change of the certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_are_read_of_what_is_new_or_changed() {
    let manners = Manners { quotas: no_quotas(), ..Manners::default() };
    let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
    let sources = sources(&cloud, &quick_pools(), &http()).await;
    let asked =
        || (answered(&cloud, "ListTagsForCertificate"), answered(&cloud, "ListServerCertificateTags"));
    let first = list(&sources, HashMap::new()).await;
    assert_eq!((first.truth(), asked()), (cloud.truth(), (2 * 12, 3)));
    let tagged =
        |found: &Found| -> Vec<_> { found.ended.values().flat_map(|listed| listed.tagged.clone()).collect() };
    let new = tagged(&first);
    assert!(!new.is_empty() && new.iter().all(|one| one.before.is_none() && !one.tags.is_empty()), "{new:?}");

    let arn = cloud.tag_one(&[("team", "bank"), ("empty", "")]).unwrap();
    let second = list(&sources, first.states()).await;
    assert_eq!((asked(), tagged(&second)), ((2 * 12, 3), Vec::new()), "nothing is new");
    assert_ne!(second.truth(), cloud.truth(), "AWS does not say that tags have changed");

    let (renewed, _) = cloud.renew_one().unwrap().unwrap();
    assert_eq!(renewed, arn);
    let third = list(&sources, second.states()).await;
    assert_eq!((third.truth(), asked()), (cloud.truth(), (2 * 12 + 1, 3)));
    let changed = tagged(&third);
    assert_eq!(changed.len(), 1);
    assert_eq!((&*changed[0].place.name, changed[0].tags["team"].as_str()), (arn.as_str(), "bank"));
}

/// Credentials that may not read tags list everything else, and that is said once for a region, not for a certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_that_may_not_be_read_fail_nothing_and_are_said_once() {
    let manners = Manners { quotas: no_quotas(), ..Manners::default() };
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
    let bare = |truth: Vec<fleet::cloud::CloudTruth>| -> Vec<_> {
        truth.into_iter().map(|one| fleet::cloud::CloudTruth { tags: Default::default(), ..one }).collect()
    };
    assert_eq!(found.truth(), bare(cloud.truth()), "everything else is there");

    // As soon as they may be read they are, although no certificate has changed.
    cloud.deny(&[]);
    let found = list(&sources, found.states()).await;
    assert_eq!((found.truth(), found.remarks()), (cloud.truth(), Vec::new()));
    assert_eq!(found.read(), 0, "the certificates were known");
}

/// What is asked one after the other goes over one connection, however long the listing; over another where the HTTP
/// library was not yet done with the one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_at_a_time_keeps_its_connection() {
    let manners = Manners { quotas: no_quotas(), ..Manners::default() };
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

/// With the documented rates nothing is ever throttled, whatever is counted how.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_quotas_are_kept() {
    let cloud = AwsCloud::start(&AwsPlan { acm: 30, ..AwsPlan::default() }).unwrap();
    let began = Instant::now();
    let found = list_once(&cloud, &pools()).await;
    assert_eq!(found.truth(), cloud.truth());
    for ((operation, whose), counts) in cloud.counts() {
        assert_eq!(counts.throttled, 0, "{operation} of {whose}: {counts:?}");
    }
    // 29 certificates of a region at nine a second.
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

/// A quota a third of the documented one: learned from the first throttling answer, and met no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_quota_is_learned_from_the_first_throttling_answer() {
    let quotas = vec![("GetCertificate", Quota::per_second(3))];
    let manners = Manners { quotas, ..Manners::default() };
    let cloud = AwsCloud::start(&AwsPlan { regions: 1, acm: 16, manners, ..AwsPlan::default() }).unwrap();
    let found = list_once(&cloud, &pools()).await;
    assert_eq!(found.truth(), cloud.truth(), "nothing is lost by being throttled");
    let counts = cloud.counts();
    let (_, gets) = counts.iter().find(|((operation, _), _)| *operation == "GetCertificate").unwrap();
    assert!(gets.throttled > 0, "{gets:?}");
    assert_eq!(gets.throttled_later, 0, "{gets:?}");
}

/// Tokens that end before their time are fetched again, half pages are asked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_tokens_and_half_pages_heal() {
    for fault in [Fault::ExpiredTokens(1), Fault::HalfPages(2)] {
        let manners = Manners { quotas: no_quotas(), ..Manners::default() };
        let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
        let (pools, http) = (quick_pools(), http());
        let sources = sources(&cloud, &pools, &http).await;
        // So that there is a token to expire.
        let before = list(&sources, HashMap::new()).await;
        assert_eq!(before.failures(), Vec::<String>::new());
        cloud.set_fault(fault);
        let found = list(&sources, HashMap::new()).await;
        assert_eq!(found.failures(), Vec::<String>::new(), "{fault:?}");
        assert_eq!(found.truth(), cloud.truth(), "{fault:?}");
    }
}

/// A cloud that is down, hangs or throttles everything: told as that, and nothing is taken to be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_does_not_answer_loses_nothing() {
    let manners = Manners { quotas: no_quotas(), ..Manners::default() };
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
        assert_eq!((listed.gone.len(), listed.state.len()), (0, known), "{fault:?}");
        states = found.states();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_not_be_assumed_is_told_as_that() {
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
