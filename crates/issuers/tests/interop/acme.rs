//! Tests of our ACME client with Pebble.

use std::sync::Arc;
use std::time::{Duration, Instant};

use issuers::{IssuerError, Order, Retry};
use keys::KeyRef;
use serde_json::json;
use x509::crl::Reason;
use x509::{Certificate, GeneralName};

use crate::authority_of_tests::request_with;
use crate::pebble::{Pebble, Setup, openssl_verifies};
use crate::world::{World, order};

fn leaf_of(chain: &[Vec<u8>]) -> Certificate {
    Certificate::parse(&chain[0]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_01_issues_with_ari_replacement_and_revocation() {
    let pebble = Pebble::start(Setup { nonce_rejects: 20, ..Setup::default() });
    let world = World::new().await;
    let issuer = world.add("pebble", pebble.config(&["http-01"])).await;
    let message = issuer.test().await.unwrap();
    assert!(message.contains("profiles default, shortlived"), "{message}");
    let delivered =
        issuer.issue(&order("1", &["a.example.test", "b.example.test", "127.0.0.1"])).await.unwrap();
    openssl_verifies(&pebble.issuing_root(0), &delivered.chain);
    let first = leaf_of(&delivered.chain);
    let window = issuer.renewal_window(&first).await.unwrap().unwrap();
    assert!(window.start < window.end && window.end < first.not_after && window.start > first.not_before);
    assert!((60..=86_400).contains(&window.retry_after_seconds));
    let replacing = |key: &str| Order {
        replaces: Some(Arc::clone(&first.der)),
        ..order(key, &["a.example.test", "b.example.test"])
    };
    issuer.issue(&replacing("2")).await.unwrap();
    assert!(pebble.log().contains("is a replacement of"), "the server was told what is replaced");
    // It was replaced before: the server rejects the replacement, and the certificate is issued without it.
    issuer.issue(&replacing("3")).await.unwrap();
    assert!(!pebble.is_revoked(&first));
    issuer.revoke(&first, Reason::Superseded).await.unwrap();
    assert!(pebble.is_revoked(&first));
    issuer.revoke(&first, Reason::Superseded).await.unwrap();
    assert_eq!(pebble.issued(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_alpn_01_issues_for_names_and_addresses() {
    let pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let issuer = world.add("pebble", pebble.config(&["tls-alpn-01"])).await;
    let delivered = issuer.issue(&order("1", &["c.example.test", "127.0.0.1"])).await.unwrap();
    assert_eq!(leaf_of(&delivered.chain).names(), ["c.example.test", "127.0.0.1"]);
    // Listeners are open only while a challenge is pending.
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", pebble.tls_port)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_01_issues_wildcards_and_removes_its_records() {
    let pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let issuer = world.add("pebble", pebble.config(&["http-01", "dns-01"])).await;
    let names = ["w.example.test", "*.w.example.test", "*.v.example.test"];
    let delivered = issuer.issue(&order("1", &names)).await.unwrap();
    openssl_verifies(&pebble.issuing_root(0), &delivered.chain);
    for name in ["_acme-challenge.w.example.test", "_acme-challenge.v.example.test"] {
        assert_eq!(pebble.named.texts(name), [""; 0], "{name}");
    }
    let only_http = world.add("http", pebble.config(&["http-01"])).await;
    let error = only_http.issue(&order("2", &["*.w.example.test"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::Misconfigured { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_needs_external_binding_and_agreed_terms() {
    let mac = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let external = Some(("kid-1".to_owned(), mac.to_owned()));
    let pebble = Pebble::start(Setup { external, ..Setup::default() });
    let world = World::new().await;
    let with = |name: &'static str, eab: serde_json::Value, terms: bool| {
        let mut config = pebble.config(&["http-01"]);
        config["terms_agreed"] = json!(terms);
        if !eab.is_null() {
            config["eab"] = eab;
        }
        world.add(name, config)
    };
    let good = json!({"key_id": "kid-1", "hmac_key": mac});
    let other = mac.replace('z', "a");
    for (name, eab, terms, code) in [
        ("none", serde_json::Value::Null, true, "misconfigured"),
        ("terms", good.clone(), false, "misconfigured"),
        ("unknown", json!({"key_id": "kid-2", "hmac_key": mac}), true, "denied"),
        ("wrong", json!({"key_id": "kid-1", "hmac_key": other}), true, "denied"),
    ] {
        let error = with(name, eab, terms).await.test().await.unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(!error.to_string().contains(mac));
    }
    with("good", good, true).await.issue(&order("1", &["a.example.test"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profile_and_preferred_alternate_chain_are_used() {
    let pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let mut config = pebble.config(&["http-01"]);
    config["preferred_chain"] = json!(pebble.issuing_root_name(1));
    config["verify"] = json!({"roots": pebble.issuing_root(1)});
    let issuer = world.add("pebble", config).await;
    let short = Order { profile: Some("shortlived".to_owned()), ..order("1", &["a.example.test"]) };
    let delivered = issuer.issue(&short).await.unwrap();
    openssl_verifies(&pebble.issuing_root(1), &delivered.chain);
    let leaf = leaf_of(&delivered.chain);
    assert!((518_000..=519_000).contains(&leaf.not_after.since(leaf.not_before)), "six days");
    let unknown = Order { profile: Some("nothing".to_owned()), ..order("2", &["a.example.test"]) };
    let error = issuer.issue(&unknown).await.unwrap_err();
    assert!(error.to_string().contains("default, shortlived"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_order_is_resumed_and_issued_once() {
    let pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let made = world.add("pebble", pebble.config(&["http-01"])).await;
    made.test().await.unwrap();
    let id = world.issuers.find_named("pebble").await.unwrap().unwrap().row.id;
    // The process is killed after increasing times. Another process then retries the order.
    for (at, delay) in [0, 20, 40, 80, 160, 320, 640].into_iter().enumerate() {
        let wish = order(&format!("cut-{at}"), &["a.example.test", "b.example.test"]);
        let before = pebble.issued();
        let issuer = world.other_process().get("pebble").await.unwrap();
        let task = tokio::spawn({
            let wish = wish.clone();
            async move { issuer.issue(&wish).await.map(drop) }
        });
        let begun = async {
            while issuers::tables::ExternalIssuers::of(&world.store)
                .order(id, &wish.key)
                .await
                .unwrap()
                .is_none()
            {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            tokio::time::sleep(Duration::from_millis(delay)).await;
        };
        tokio::time::timeout(Duration::from_secs(30), begun).await.unwrap();
        task.abort();
        let other_process = world.other_process().get("pebble").await.unwrap();
        // The order whose validation was interrupted may have failed on the server. Only the order that yielded the certificate
        // counts.
        let mut url = None;
        let watched = async {
            loop {
                let noted =
                    issuers::tables::ExternalIssuers::of(&world.store).order(id, &wish.key).await.unwrap();
                url = noted.and_then(|row| row.url).or(url.take());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let delivered = tokio::select! {
            delivered = other_process.issue(&wish) => delivered.unwrap(),
            () = watched => unreachable!("it watches until the order is done"),
        };
        assert_eq!(pebble.issued() - before, 1, "cut off after {delay} ms");
        // Killed a second time, between the server's response and its storage.
        if let Some(url) = url {
            let spki = &leaf_of(&delivered.chain).public_key.spki;
            let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, spki);
            let row = issuers::tables::IssuerOrder {
                spki_sha256: hash.as_ref().try_into().unwrap(),
                url: Some(url),
                chain: None,
                created_at_us: world.clock.now_us(),
            };
            issuers::tables::ExternalIssuers::of(&world.store).put_order(id, &wish.key, row).await.unwrap();
            let third = world.other_process().get("pebble").await.unwrap();
            assert_eq!(third.issue(&wish).await.unwrap(), delivered);
            assert_eq!(pebble.issued() - before, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_validation_is_reported_and_can_succeed_later() {
    let pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let mut config = pebble.config(&["http-01"]);
    config["listen"] = json!({});
    let deaf = world.add("deaf", config).await;
    let error = deaf.issue(&order("1", &["a.example.test"])).await.unwrap_err();
    let IssuerError::Unproven { name, reason } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), error.retry()), ("a.example.test", Retry::Backoff));
    assert!(reason.contains("connection"), "{reason}");
    let view = world.issuers.find_named("deaf").await.unwrap().unwrap();
    let new =
        issuers::NewIssuer { name: "deaf".to_owned(), config: pebble.config(&["http-01"]), enabled: true };
    world.issuers.update(view.row.id, view.row.revision, new, "user:test").await.unwrap();
    let hears = world.issuers.get("deaf").await.unwrap();
    hears.issue(&order("1", &["a.example.test"])).await.unwrap();
    let wish = order("2", &["missing.elsewhere.test"]);
    assert!(matches!(hears.issue(&wish).await, Err(IssuerError::Unproven { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_is_registered_again_with_the_same_key() {
    let mut pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let mut config = pebble.config(&["http-01"]);
    config["verify"] = json!({});
    let issuer = world.add("pebble", config).await;
    issuer.issue(&order("1", &["a.example.test"])).await.unwrap();
    let id = world.issuers.find_named("pebble").await.unwrap().unwrap().row.id;
    let account = || async {
        issuers::tables::ExternalIssuers::of(&world.store).get(id).await.unwrap().unwrap().account.unwrap()
    };
    let before = account().await;
    pebble.restart();
    issuer.issue(&order("2", &["a.example.test"])).await.unwrap();
    assert_eq!(account().await.key, before.key);
    // Another process finds the account in the database.
    let other_process = world.other_process().get("pebble").await.unwrap();
    other_process.issue(&order("3", &["a.example.test"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_is_revoked_only_by_its_own_key_or_account() {
    let pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let ours = world.add("ours", pebble.config(&["http-01"])).await;
    let key = keys::PrivateKey::generate(keys::KeyType::P256).unwrap();
    let names = vec![GeneralName::parse("a.example.test").unwrap()];
    let wish =
        Order { csr_der: request_with(&key, &["a.example.test"]), names, ..order("1", &["a.example.test"]) };
    let leaf = leaf_of(&ours.issue(&wish).await.unwrap().chain);
    let other: KeyRef = Arc::new(keys::PrivateKey::generate(keys::KeyType::P256).unwrap());
    let refused = ours.revoke_with_key(&leaf, other, Reason::KeyCompromise).await.unwrap_err();
    assert!(matches!(refused, IssuerError::Denied { .. }), "{refused}");
    let stranger = world.add("stranger", pebble.config(&["http-01"])).await;
    assert!(stranger.revoke(&leaf, Reason::KeyCompromise).await.is_err());
    assert!(!pebble.is_revoked(&leaf));
    stranger.revoke_with_key(&leaf, Arc::new(key), Reason::KeyCompromise).await.unwrap();
    assert!(pebble.is_revoked(&leaf));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_acme_server_is_reported_unavailable() {
    let pebble = Pebble::start(Setup::default());
    let world = World::new().await;
    let issuer = world.add("pebble", pebble.config(&["http-01"])).await;
    drop(pebble);
    let hurried =
        Order { deadline: Instant::now() + Duration::from_secs(5), ..order("1", &["a.example.test"]) };
    let error = issuer.issue(&hurried).await.unwrap_err();
    assert!(matches!(error, IssuerError::Unavailable { .. }), "{error}");
}
