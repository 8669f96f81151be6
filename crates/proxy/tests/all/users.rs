//! Authenticated users: their leaf keys, log lines and limits.

use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use http_relay::access_log::AccessLog;
use proxy::mint::LeafKeySharing;
use proxy::{Action, Token};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::world::{Client, TIMEOUT, Upstream, World, authority, exchange, head, leaf};

fn token(name: &str) -> Token {
    let digest = digest(&SHA256, format!("token-of-{name}").as_bytes());
    Token { name: name.to_owned(), digest: digest.as_ref().try_into().unwrap() }
}

/// Returns the response to `user` for `name` at `target`, or `None` if the handshake failed.
async fn request_as(world: &World, user: &str, target: &str, name: &str) -> Option<String> {
    let mut stream = world.tcp().await;
    let request = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer token-of-{user}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let response = head(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let client = Client::fresh(&world.root);
    let mut stream = client.0.connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await.ok()?;
    Some(exchange(&mut stream, &format!("GET /{user} HTTP/1.1\r\nHost: {name}\r\n\r\n")).await)
}

/// Returns the leaf that `user` receives for `name`, or the leaf of an unauthenticated client.
async fn shown(
    world: &World,
    client: &Client,
    user: Option<&str>,
    name: &str,
) -> std::io::Result<x509::Certificate> {
    let mut stream = world.tcp().await;
    let who = user.map(|user| format!("Proxy-Authorization: Bearer token-of-{user}\r\n")).unwrap_or_default();
    let request = format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n{who}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let response = head(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    Ok(leaf(&client.0.connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await?))
}

/// Returns the public key of a leaf.
fn spki(leaf: &x509::Certificate) -> Vec<u8> {
    leaf.public_key.spki.to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_has_a_separate_leaf_key() {
    let (_, root) = authority();
    let world = World::new(&root, |options| {
        options.access.tokens = vec![token("alice"), token("bob")];
        options.leaf_keys = LeafKeySharing::ByUser;
    })
    .await;
    let client = Client::fresh(&world.root);
    let of = async |user, name| shown(&world, &client, Some(user), name).await.unwrap();
    let (alice, bob) = (of("alice", "a.example").await, of("bob", "a.example").await);
    assert_ne!(alice.fingerprint, bob.fingerprint, "one's leaf is not shown to the other");
    assert_ne!(spki(&alice), spki(&bob));
    assert_eq!(spki(&of("alice", "b.example").await), spki(&alice));
    assert_eq!(of("alice", "a.example").await.fingerprint, alice.fingerprint, "it is held");
    assert_eq!(world.running.store().counts().minted, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_clients_share_the_process_leaf_key() {
    let (_, root) = authority();
    let world = World::new(&root, |options| options.leaf_keys = LeafKeySharing::ByUser).await;
    let client = Client::fresh(&world.root);
    let of = async |name| shown(&world, &client, None, name).await.unwrap();
    assert_eq!(spki(&of("a.example").await), spki(&of("b.example").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_has_a_separate_rsa_key_from_the_stock() {
    let (_, root) = authority();
    let world = World::new(&root, |options| {
        options.access.tokens = vec![token("alice"), token("bob")];
        options.leaf_keys = LeafKeySharing::ByUser;
    })
    .await;
    let of = async |user, name| {
        // One client for each user: a shared client would resume the other user's session.
        let client = Client::without_ecdsa(&world.root);
        let began = Instant::now();
        loop {
            // The proxy generates no key during a request. The first keys are ready soon.
            match shown(&world, &client, Some(user), name).await {
                Ok(leaf) => return leaf,
                Err(error) => assert!(began.elapsed() < TIMEOUT, "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let (alice, bob) = (of("alice", "a.example").await, of("bob", "a.example").await);
    assert_eq!((alice.public_key.bits, bob.public_key.bits), (2_048, 2_048));
    assert_ne!(spki(&alice), spki(&bob));
    assert_eq!(spki(&of("alice", "b.example").await), spki(&alice));
}

/// Waits for `count` lines of an access log, and returns them.
async fn lines(log: &Path, count: usize) -> Vec<serde_json::Value> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        if text.lines().count() >= count && text.ends_with('\n') {
            return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        assert!(began.elapsed() < TIMEOUT, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_logged_and_have_separate_new_name_limits() {
    let upstream = Upstream::for_all().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let world = World::new(&upstream.root, |options| {
        options.access.tokens = vec![token("alice"), token("bob")];
        options.requests.access_log = Some(AccessLog::File(log.clone()));
        (options.new_names_per_minute, options.new_names_burst) = (1, 1);
    })
    .await;
    let target = format!("127.0.0.1:{}", upstream.address.port());
    let is_served = async |user, name| request_as(&world, user, &target, name).await.is_some();
    assert!(is_served("alice", "a.example").await);
    assert!(!is_served("alice", "b.example").await, "one name, and she had it");
    assert!(is_served("bob", "b.example").await, "from the same address, and he had none");
    assert!(is_served("alice", "b.example").await, "it is no new one any more");
    let lines = lines(&log, 3).await;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut users: Vec<_> = lines.iter().map(|line| (text(&line["user"]), text(&line["path"]))).collect();
    users.sort();
    let wanted = ["alice", "alice", "bob"].map(|user| (user.to_owned(), format!("/{user}")));
    assert_eq!(users, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_is_logged_with_user_and_server_name() {
    let upstream = Upstream::for_all().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let world = World::new(&upstream.root, |options| {
        options.access.tokens = vec![token("alice")];
        options.requests.access_log = Some(AccessLog::File(log.clone()));
        options.rules.add(&["localhost".to_owned()], Action::Tunnel).unwrap();
    })
    .await;
    let target = format!("127.0.0.1:{}", upstream.address.port());
    // This client does not trust the upstream's certificate.
    assert!(request_as(&world, "alice", &target, "localhost").await.is_none());
    let line = &lines(&log, 1).await[0];
    assert_eq!(
        (&line["user"], &line["method"], &line["host"], &line["server_name"]),
        (&"alice".into(), &"CONNECT".into(), &target.replace("127.0.0.1", "localhost").into(), &().into())
    );
}
