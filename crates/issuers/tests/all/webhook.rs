//! Tests of a webhook service as issuer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use issuers::{IssuerError, Order, Retry};
use serde_json::{Value, json};
use x509::csr::CertificateRequest;
use x509::{Certificate, UnixTime};

use super::authority_of_tests::{Leaf, TestCa};
use super::fake::{Fake, RecordedRequest, Response};
use super::world::{World, order};

const SECRET: &str = "a shared secret of some length";

fn config(fake: &Fake) -> Value {
    json!({"type": "webhook", "url": fake.url("/issue"), "revoke_url": fake.url("/revoke"), "secret": SECRET})
}

/// Verifies the signature as the service does, implemented only from the documentation.
fn is_signed(request: &RecordedRequest) -> bool {
    let Some((time, signature)) =
        request.header("x-bulla-timestamp").zip(request.header("x-bulla-signature"))
    else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let covered = [time.as_bytes(), b".", &request.body].concat();
    let hex = signature.strip_prefix("v1=").unwrap();
    let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap();
    hmac::verify(&key, &covered, &bytes).is_ok()
}

fn chain_for(ca: &TestCa, request: &RecordedRequest, now: UnixTime) -> Value {
    let csr =
        CertificateRequest::from_pem_or_der(request.json()["csr"].as_str().unwrap().as_bytes()).unwrap();
    let leaf = x509::pem::encode("CERTIFICATE", &ca.sign(&Leaf::of(&csr.der, now)));
    json!({ "chain": format!("{leaf}{}", ca.pem()) })
}

#[tokio::test]
async fn signed_webhook_order_is_answered_immediately() {
    let world = World::new().await;
    let now = world.now();
    let ca = TestCa::root("Service", now);
    let fake = Fake::start(move |request| match request.path.as_str() {
        "/issue" if is_signed(request) => Response::json(200, &chain_for(&ca, request, now)),
        "/revoke" if is_signed(request) => Response::new(204, ""),
        _ => Response::new(401, "who are you?"),
    })
    .await;
    let issuer = world.add("service", config(&fake)).await;
    let delivered = issuer.issue(&order("job-7", &["a.example"])).await.unwrap();
    let request = &fake.seen()[0];
    assert_eq!((request.method.as_str(), request.header("idempotency-key")), ("POST", Some("job-7")));
    assert_eq!(request.json()["names"], json!(["a.example"]));
    let leaf = Certificate::parse(&delivered.chain[0]).unwrap();
    issuer.revoke(&leaf, x509::crl::Reason::Superseded).await.unwrap();
    assert_eq!(fake.seen()[1].json()["reason"], json!("superseded"));
    let other = world
        .add("wrong", json!({"type": "webhook", "url": fake.url("/issue"), "secret": "x".repeat(20)}))
        .await;
    let error = other.issue(&order("job-8", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn pending_webhook_order_is_polled_and_resumed_after_a_crash() {
    let world = World::new().await;
    let now = world.now();
    let ca = TestCa::root("Service", now);
    let ready = Arc::new(AtomicUsize::new(0));
    let (polls, posted) = (Arc::clone(&ready), parking_lot::Mutex::new(None));
    let fake = Fake::start(move |request| match request.method.as_str() {
        "POST" => {
            *posted.lock() = Some(chain_for(&ca, request, now));
            Response::new(202, "").header("location", "/orders/1").header("retry-after", "0")
        }
        _ if !is_signed(request) => Response::new(401, ""),
        _ if polls.load(Ordering::SeqCst) == 0 => Response::new(202, "").header("retry-after", "0"),
        _ => Response::json(200, posted.lock().as_ref().unwrap()),
    })
    .await;
    let issuer = world.add("service", config(&fake)).await;
    let wish = order("job-1", &["a.example"]);
    let hurried = Order { deadline: Instant::now() + Duration::from_secs(5), ..wish.clone() };
    let error = issuer.issue(&hurried).await.unwrap_err();
    assert!(matches!(error, IssuerError::TimedOut { .. }), "{error}");
    ready.store(1, Ordering::SeqCst);
    let other_process = world.other_process().get("service").await.unwrap();
    other_process.issue(&wish).await.unwrap();
    let posts = fake.seen().iter().filter(|request| request.method == "POST").count();
    assert_eq!(posts, 1, "the order was not placed twice");
    assert!(fake.seen().iter().filter(|request| request.path == "/orders/1").count() >= 2);
}

#[tokio::test]
async fn webhook_error_responses_map_to_error_codes() {
    let wait = |seconds| Retry::After(Duration::from_secs(seconds));
    let table: Vec<(Response, &str, Retry)> = vec![
        (Response::json(422, &json!({"reason": "not that name"})), "refused", Retry::Never),
        (Response::new(403, ""), "denied", Retry::Backoff),
        (Response::new(429, "").header("retry-after", "120"), "rate_limited", wait(120)),
        (Response::new(503, "").header("retry-after", "7"), "unavailable", wait(7)),
        (Response::new(500, "boom"), "unavailable", Retry::Backoff),
        (Response::new(200, "not json"), "unavailable", Retry::Backoff),
        (Response::json(200, &json!({"chain": "no pem"})), "unavailable", Retry::Backoff),
        (Response::new(200, vec![b' '; 2 << 20]), "unavailable", Retry::Backoff),
        (Response::new(202, ""), "unavailable", Retry::Backoff),
        (
            Response::new(202, "").header("location", "http://127.0.0.1:1/elsewhere"),
            "unavailable",
            Retry::Backoff,
        ),
        (
            Response::new(307, "").header("location", "http://127.0.0.1:1/elsewhere"),
            "unavailable",
            Retry::Backoff,
        ),
    ];
    let world = World::new().await;
    for (at, (answer, code, retry)) in table.into_iter().enumerate() {
        let fake = Fake::start(move |_| answer.clone()).await;
        let issuer = world.add(&format!("service-{at}"), config(&fake)).await;
        let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
        assert_eq!((error.code(), error.retry()), (code, retry), "answer {at}: {error}");
        assert!(!error.to_string().contains(SECRET));
    }
}

#[tokio::test]
async fn slow_webhook_times_out_and_a_stopped_one_is_unavailable() {
    let world = World::new().await;
    let fake = Fake::start(|_| Response::new(200, "").after(Duration::from_secs(600))).await;
    let issuer = world.add("slow", config(&fake)).await;
    let hurried =
        Order { deadline: Instant::now() + Duration::from_millis(300), ..order("k", &["a.example"]) };
    assert!(matches!(issuer.issue(&hurried).await, Err(IssuerError::TimedOut { .. })));
    let closed_url = fake.url("/issue");
    drop(fake);
    let issuer = world.add("down", json!({"type": "webhook", "url": closed_url, "secret": SECRET})).await;
    let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn wrong_certificate_from_a_webhook_is_rejected_and_not_stored() {
    let world = World::new().await;
    let now = world.now();
    let ca = TestCa::root("Service", now);
    let honest = Arc::new(AtomicUsize::new(0));
    let state = Arc::clone(&honest);
    let fake = Fake::start(move |request| {
        if state.load(Ordering::SeqCst) == 1 {
            return Response::json(200, &chain_for(&ca, request, now));
        }
        let mut leaf = Leaf::of(&order("x", &["a.example"]).csr_der, now);
        leaf.names.push(x509::GeneralName::Dns("evil.example".to_owned()));
        let pem = x509::pem::encode("CERTIFICATE", &ca.sign(&leaf));
        Response::json(200, &json!({ "chain": format!("{pem}{}", ca.pem()) }))
    })
    .await;
    let issuer = world.add("service", config(&fake)).await;
    let wish = order("job", &["a.example"]);
    let error = issuer.issue(&wish).await.unwrap_err();
    assert!(matches!(error, IssuerError::Lying { .. }), "{error}");
    honest.store(1, Ordering::SeqCst);
    issuer.issue(&wish).await.unwrap();
}
