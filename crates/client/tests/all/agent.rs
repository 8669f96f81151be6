//! Requests that an agent forwards, and its handling of the responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use client::{Change, Limits};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::until;
use tokio::sync::Semaphore;

use crate::store::{FakeStore, ReceivedRequest, TIMEOUT, found, send_request};

fn is_lookup(received: &ReceivedRequest) -> bool {
    received.path == "/api/v1/lookup"
}

#[tokio::test]
async fn path_traversal_outside_the_allowed_routes_is_rejected() {
    let store = FakeStore::start(|_| async { (200, json!({})) }.boxed());
    let socket = store.agent(&store.client(Limits::default())).await;
    let out = [
        "/v1/auth/token/lookup-self",
        "/oauth/token",
        "/api/../v1/auth/token/lookup-self",
        "/api/%2e%2e/oauth/token",
        "/api/.%2E/oauth/token",
        "/api/..\\management",
        "/api/v1/../../management",
        "/info/../oauth/token",
        "//api/v1/data",
    ];
    for path in out {
        assert_eq!(send_request(&socket, "GET", path, "").await.0, 404, "{path}");
    }
    assert!(store.received().is_empty(), "{:?}", store.received());
    // An allowed path is forwarded in its normalized form.
    for path in ["/api/v1/certificates?name=/a%20b", "/api/v2/../v1/permissions?path=/a/../b", "/info"] {
        assert_eq!(send_request(&socket, "GET", path, "").await.0, 200, "{path}");
    }
    let received: Vec<_> = store.received().into_iter().map(|received| received.path).collect();
    assert_eq!(received, ["/api/v1/certificates?name=/a%20b", "/api/v1/permissions?path=/a/../b", "/info"]);
    assert!(store.received().iter().all(|received| received.token.as_deref() == Some("Bearer own-token")));
}

#[tokio::test]
async fn error_for_one_credential_does_not_mark_the_store_unavailable() {
    let answers = |received: ReceivedRequest| async move {
        let broken = received.body.windows(7).any(|part| part == b"/broken");
        match is_lookup(&received) {
            true if broken => (200, json!({ "results": [{ "error": "it cannot be opened" }] })),
            true => found(&received, "v"),
            false => (503, json!({ "error": "read only" })),
        }
    };
    let store = FakeStore::start(move |received| answers(received).boxed());
    let client = store.client(Limits { deadline: TIMEOUT, ..Limits::default() });
    let socket = store.agent(&client).await;
    let refused = client.get("/broken").await;
    assert_eq!(
        refused.unwrap_err(),
        client::Error::Refused { status: 500, text: "it cannot be opened".to_owned() }
    );
    client.get("/a").await.unwrap();
    assert_eq!(send_request(&socket, "PUT", "/api/v1/data", r#"{"name":"/x","value":"1"}"#).await.0, 503);
    client.get("/b").await.unwrap();
    let (status, _) = send_request(&socket, "GET", "/api/v1/data?name=/c&current=true", "").await;
    assert_eq!((status, store.lookups()), (200, 4));
}

#[tokio::test]
async fn failing_store_gets_few_requests_for_a_batch_lookup() {
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let answers = move |received: ReceivedRequest| {
        let broken = is_broken.load(SeqCst);
        async move { if broken { (500, json!({ "error": "broken" })) } else { found(&received, "v") } }
            .boxed()
    };
    let store = FakeStore::start(answers);
    let limits = Limits { ttl: Duration::ZERO, revalidate: Duration::ZERO, ..Limits::default() };
    let client = store.client(limits);
    let lists = |part: &str| (0..100).map(|n| vec![format!("/{part}/{n}")]).collect::<Vec<_>>();
    assert!(client.lookup_many(&lists("known")).await.iter().all(Result::is_ok));
    broken.store(true, SeqCst);
    let before = store.lookups();
    let known = client.lookup_many(&lists("known")).await;
    assert!(known.iter().all(Result::is_ok), "from the cache: {known:?}");
    let unknown = client.lookup_many(&lists("unknown")).await;
    let unavailable = client::Error::Unavailable("broken".to_owned());
    assert!(unknown.iter().all(|answer| answer.as_ref().err() == Some(&unavailable)), "{unknown:?}");
    // Splitting the batch in halves would need 398 requests.
    let received = store.lookups() - before;
    assert!((2..40).contains(&received), "{received}");
}

/// Many rounds, because the sending task runs on another thread, at any moment of the queueing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_lookups_are_combined_into_one_request() {
    let store = FakeStore::start(|received| async move { found(&received, "v") }.boxed());
    let client = store.client(Limits::default());
    for round in 0..200 {
        let lists: Vec<_> = (0..20).map(|n| vec![format!("/{round}/{n}")]).collect();
        assert!(client.lookup_many(&lists).await.iter().all(Result::is_ok));
        assert_eq!(store.lookups(), round + 1);
    }
}

#[tokio::test]
async fn write_has_a_longer_deadline_than_a_read() {
    let answers = |received: ReceivedRequest| async move {
        if received.method == "PUT" {
            // Waits for the whole deadline of a read.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        (200, json!({}))
    };
    let store = FakeStore::start(move |received| answers(received).boxed());
    let client = store.client(Limits { deadline: Duration::from_secs(1), ..Limits::default() });
    let socket = store.agent(&client).await;
    let put = send_request(&socket, "PUT", "/api/v1/data", r#"{"name":"/x","value":"1"}"#).await;
    assert_eq!(put.0, 200, "{}", put.1);
}

#[tokio::test]
async fn unanswered_write_is_reported_as_a_change() {
    let store = FakeStore::start(|_| async { panic!("the connection breaks") }.boxed());
    let client = store.client(Limits::default());
    let socket = store.agent(&client).await;
    let mut changes = client.changes();
    assert_eq!(send_request(&socket, "PUT", "/api/v1/data", r#"{"name":"/x","value":"1"}"#).await.0, 503);
    let change = tokio::time::timeout(TIMEOUT, changes.next()).await.unwrap();
    assert_eq!(change, Change::Name(client::Name::parse("/x").unwrap()));
}

#[tokio::test]
async fn failed_write_keeps_the_cached_value_readable() {
    // Without a value the store drops the connection.
    let value = Arc::new(Mutex::new(Some("old")));
    let now = Arc::clone(&value);
    let answers = move |received: ReceivedRequest| {
        let value = *now.lock();
        async move { value.map_or_else(|| panic!("the connection breaks"), |value| found(&received, value)) }
            .boxed()
    };
    let store = FakeStore::start(answers);
    let client = store.client(Limits::default());
    let socket = store.agent(&client).await;
    let read = async || send_request(&socket, "GET", "/api/v1/data?name=/a&current=true", "").await;
    assert_eq!(read().await.0, 200);
    *value.lock() = None;
    for _ in 0..3 {
        assert_eq!(
            send_request(&socket, "PUT", "/api/v1/data", r#"{"name":"/a","value":"new"}"#).await.0,
            503
        );
        let (status, body) = read().await;
        assert!(status == 200 && body.contains(r#""value":"old""#), "{status} {body}");
    }
    *value.lock() = Some("new");
    let began = Instant::now();
    while !read().await.1.contains(r#""value":"new""#) {
        assert!(began.elapsed() < TIMEOUT, "it is not asked for anew");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn certificate_read_works_when_only_lookups_succeed() {
    let answers = |received: ReceivedRequest| async move {
        if !is_lookup(&received) {
            return (502, json!({ "error": "a proxy's" }));
        }
        let (status, mut document) = found(&received, "");
        document["results"][0]["type"] = "certificate".into();
        document["results"][0]["value"] = json!({ "certificate": "PEM" });
        (status, document)
    };
    let store = FakeStore::start(move |received| answers(received).boxed());
    let socket = store.agent(&store.client(Limits::default())).await;
    let (status, body) = send_request(&socket, "GET", "/api/v1/data?name=/c&current=true", "").await;
    assert_eq!(status, 200, "{body}");
    let document: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(document.pointer("/data/0/value/certificate"), Some(&json!("PEM")));
}

#[tokio::test]
async fn read_after_a_change_does_not_join_an_earlier_request() {
    let (changed, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
    let (is_changed, opened) = (Arc::clone(&changed), Arc::clone(&gate));
    let answers = move |received: ReceivedRequest| {
        let (changed, gate) = (Arc::clone(&is_changed), Arc::clone(&opened));
        async move {
            if !is_lookup(&received) {
                changed.store(true, SeqCst);
                return (200, json!({}));
            }
            if changed.load(SeqCst) {
                return found(&received, "new");
            }
            let response = found(&received, "old");
            gate.acquire().await.unwrap().forget();
            response
        }
        .boxed()
    };
    let store = FakeStore::start(answers);
    let client = store.client(Limits { deadline: TIMEOUT, ..Limits::default() });
    let socket = store.agent(&client).await;
    let before = tokio::spawn({
        let client = client.clone();
        async move { client.get("/a").await }
    });
    until("the first question", || store.lookups() == 1).await;
    assert_eq!(send_request(&socket, "PUT", "/api/v1/data", r#"{"name":"/a","value":"new"}"#).await.0, 200);
    let after = client.get("/a").await.unwrap();
    let text = |credential: &client::Credential| credential.text(&[]).unwrap().expose().to_owned();
    assert_eq!(text(&after), "new");
    gate.add_permits(1);
    assert_eq!(text(&before.await.unwrap().unwrap()), "old");
    assert_eq!(text(&client.get("/a").await.unwrap()), "new", "the later answer is the one that is kept");
}

#[tokio::test]
async fn unavailable_store_is_not_queried_for_every_stale_read() {
    let (offline, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_offline, count) = (Arc::clone(&offline), Arc::clone(&received));
    let answers = move |received: ReceivedRequest| {
        count.fetch_add(1, SeqCst);
        let offline = is_offline.load(SeqCst);
        async move { if offline { (503, json!({ "error": "away" })) } else { found(&received, "v") } }.boxed()
    };
    let store = FakeStore::start(answers);
    let limits = Limits { ttl: Duration::from_millis(1), revalidate: TIMEOUT * 10, ..Limits::default() };
    let client = store.client(limits);
    client.get("/a").await.unwrap();
    offline.store(true, SeqCst);
    let began = received.load(SeqCst);
    let mut answered = 0;
    let end = tokio::time::Instant::now() + Duration::from_secs(3);
    // On a slow machine too, there are far more reads than allowed queries.
    while tokio::time::Instant::now() < end || answered < 100 {
        client.get("/a").await.unwrap();
        answered += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // The budget allows ten retries at most, and there is one query after each pause.
    let received = received.load(SeqCst) - began;
    assert!((1..40).contains(&received) && answered > received, "{received} of {answered}");
}
