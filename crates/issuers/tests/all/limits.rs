//! Tests of breaker, rate limit, concurrency, health and metrics of issuers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use issuers::{Breaker, IssuerError};
use serde_json::json;
use store::Clock;

use super::authority_of_tests::{Leaf, TestCa};
use super::fake::{Fake, RecordedRequest, Response};
use super::world::{World, order};

const START_US: i64 = 1_800_000_000 * 1_000_000;

/// Starts a service that is healthy when the test says so.
async fn service(well: &Arc<AtomicUsize>, pause: Duration) -> Fake {
    let now = x509::UnixTime(START_US / 1_000_000);
    let ca = TestCa::root("Service", now);
    let well = Arc::clone(well);
    Fake::start(move |request: &RecordedRequest| {
        if well.load(Ordering::SeqCst) == 0 {
            return Response::new(500, "ill");
        }
        let csr = request.json()["csr"].as_str().unwrap().to_owned();
        let csr = x509::csr::CertificateRequest::from_pem_or_der(csr.as_bytes()).unwrap();
        let pem = x509::pem::encode("CERTIFICATE", &ca.sign(&Leaf::of(&csr.der, now)));
        Response::json(200, &json!({ "chain": format!("{pem}{}", ca.pem()) })).after(pause)
    })
    .await
}

fn config(fake: &Fake, limits: serde_json::Value) -> serde_json::Value {
    json!({"type": "webhook", "url": fake.url("/"), "secret": "0123456789abcdef", "limits": limits})
}

#[tokio::test]
async fn failing_issuer_is_paused_probed_and_resumed_even_after_a_restart() {
    let clock = Clock::manual(START_US);
    let world = World::with(clock.clone(), Vec::new()).await;
    let well = Arc::new(AtomicUsize::new(0));
    let fake = service(&well, Duration::ZERO).await;
    let limits = json!({"failures_max": 3, "rest_seconds": 60, "rest_max_seconds": 600});
    let issuer = world.add("service", config(&fake, limits)).await;
    for _ in 0..3 {
        let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
        assert!(matches!(error, IssuerError::Unavailable { .. }), "{error}");
    }
    let deferred = |error: IssuerError| match error {
        IssuerError::Deferred { retry_after, .. } => retry_after,
        other => panic!("{other}"),
    };
    let rest = deferred(issuer.issue(&order("k", &["a.example"])).await.unwrap_err());
    assert!((30..=60).contains(&rest.as_secs()), "{rest:?}");
    assert_eq!(fake.seen().len(), 3, "nothing was sent");
    // The state survives a restart.
    let row = world.issuers.find_named("service").await.unwrap().unwrap().row;
    assert!(matches!(row.health.breaker, Breaker::Open { .. }), "{:?}", row.health);
    assert_eq!(row.health.last_error_code.as_deref(), Some("unavailable"));
    assert_eq!(row.health.last_error_at_us, Some(START_US));
    let restarted = world.other_process().get("service").await.unwrap();
    deferred(restarted.issue(&order("k", &["a.example"])).await.unwrap_err());
    // One probe after the pause fails, so the pause doubles.
    clock.advance(rest);
    assert!(matches!(issuer.issue(&order("k", &["a.example"])).await, Err(IssuerError::Unavailable { .. })));
    let rest = deferred(issuer.issue(&order("k", &["a.example"])).await.unwrap_err());
    assert!((60..=120).contains(&rest.as_secs()), "{rest:?}");
    assert_eq!(fake.seen().len(), 4);
    // The issuer is healthy again.
    well.store(1, Ordering::SeqCst);
    clock.advance(rest);
    issuer.issue(&order("k", &["a.example"])).await.unwrap();
    issuer.issue(&order("k2", &["a.example"])).await.unwrap();
    let health = world.issuers.find_named("service").await.unwrap().unwrap().row.health;
    assert!(matches!(health.breaker, Breaker::Closed { failures: 0 }), "{health:?}");
    assert_eq!(health.last_success_at_us, Some(clock.now_us()));
    let counts = world.issuers.counts();
    assert_eq!(counts[0].0, "service");
    let of = |code| counts[0].1.outcomes.get(code).copied();
    assert_eq!((of("unavailable"), of("held"), of("issued")), (Some(4), Some(2), Some(2)));
}

#[tokio::test]
async fn orders_per_minute_are_rate_limited() {
    let clock = Clock::manual(START_US);
    let world = World::with(clock.clone(), Vec::new()).await;
    let fake = service(&Arc::new(AtomicUsize::new(1)), Duration::ZERO).await;
    let issuer = world.add("service", config(&fake, json!({"per_minute": 6, "burst": 2}))).await;
    for at in 0..2 {
        issuer.issue(&order(&format!("k{at}"), &["a.example"])).await.unwrap();
    }
    let error = issuer.issue(&order("k2", &["a.example"])).await.unwrap_err();
    assert_eq!(error.retry(), issuers::Retry::After(Duration::from_secs(10)), "{error}");
    clock.advance(Duration::from_secs(10));
    issuer.issue(&order("k2", &["a.example"])).await.unwrap();
    // A certificate that was delivered before is not counted.
    let wish = order("k3", &["a.example"]);
    clock.advance(Duration::from_secs(10));
    let first = issuer.issue(&wish).await.unwrap();
    assert_eq!(issuer.issue(&wish).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_orders_are_limited() {
    let world = World::with(Clock::manual(START_US), Vec::new()).await;
    let fake = service(&Arc::new(AtomicUsize::new(1)), Duration::from_millis(500)).await;
    let issuer = world.add("service", config(&fake, json!({"concurrency": 2}))).await;
    let tasks = (0..8).map(|at| {
        let issuer = Arc::clone(&issuer);
        tokio::spawn(async move { issuer.issue(&order(&format!("k{at}"), &["a.example"])).await.map(drop) })
    });
    let done = AtomicBool::new(false);
    let work = async {
        let results = futures_util::future::join_all(tasks).await;
        done.store(true, Ordering::SeqCst);
        results
    };
    let watch = async {
        // The number of concurrent requests, sampled while the eight orders run.
        let mut most = 0;
        while !done.load(Ordering::SeqCst) {
            most = most.max(fake.under_way());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        most
    };
    let (results, most) = tokio::join!(work, watch);
    for result in results {
        result.unwrap().unwrap();
    }
    assert_eq!(fake.seen().len(), 8);
    assert_eq!(most, 2);
}
