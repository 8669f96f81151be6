//! The agent on TCP, as Concourse uses it: a search for each path, then a read.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use client::{Limits, TlsAgent, TlsAgentOptions};
use futures_util::FutureExt;
use http::StatusCode;
use keys::Secret;
use serde_json::{Value, json};
use testbed::until;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::store::{FakeStore, Feed, ReceivedRequest, StubResponse, TIMEOUT};

/// The agent's own token. Clients log in with it.
const TOKEN: &str = "bulla_own";

const PIPELINES: usize = 10;
const SECRETS: usize = 20;

/// Creates a certificate for 127.0.0.1, and its key.
fn certificate(folder: &Path) -> (Vec<u8>, String) {
    let mut openssl = Command::new("openssl");
    let run = openssl.current_dir(folder).args(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out own.pem -subj /CN=agent \
         -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -days 2"
            .split_whitespace(),
    );
    let output =
        run.output().unwrap_or_else(|error| panic!("needs openssl: apt-get install -y openssl ({error})"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    (read("own.pem"), String::from_utf8(read("key.pem")).unwrap())
}

/// An agent, and a client that trusts it.
struct World {
    url: String,
    http: reqwest::Client,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl World {
    async fn start(store: &FakeStore, token: &str) -> Self {
        // Values that are not followed would be read again after a millisecond.
        let limits = Limits {
            ttl: Duration::from_millis(1),
            negative_ttl: Duration::from_millis(1),
            ..Limits::default()
        };
        let (certificate, key) = certificate(store.path("").as_path());
        let root = reqwest::Certificate::from_pem(&certificate).unwrap();
        let options = TlsAgentOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            certificate,
            key: Secret::new(key),
            token: Secret::new(token),
            cache_file: Some(store.path("cache")),
        };
        let agent = TlsAgent::bind(store.following(token, limits), options).await.unwrap();
        let url = format!("https://{}", agent.address().unwrap());
        let stop = CancellationToken::new();
        let serving = tokio::spawn(agent.serve(stop.clone()));
        let http = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
        Self { url, http, stop, serving }
    }

    async fn stop(self) {
        drop(self.http);
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, self.serving).await.unwrap().unwrap();
    }

    /// Logs in as CredHub's Go library does: at the server that `/info` names.
    async fn log_in(&self, secret: &str) -> Result<String, StatusCode> {
        let info: Value =
            self.http.get(format!("{}/info", self.url)).send().await.unwrap().json().await.unwrap();
        let form =
            [("grant_type", "client_credentials"), ("client_id", "concourse"), ("client_secret", secret)];
        let url = format!("{}/oauth/token", info["auth-server"]["url"].as_str().unwrap());
        let answer = self.http.post(url).form(&form).send().await.unwrap();
        if !answer.status().is_success() {
            return Err(answer.status());
        }
        Ok(answer.json::<Value>().await.unwrap()["access_token"].as_str().unwrap().to_owned())
    }

    async fn get(&self, token: &str, query: &[(&str, &str)]) -> (StatusCode, Value) {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = self.http.get(format!("{}/api/v1/data?{}", self.url, query.join("&")));
        let answer = request.bearer_auth(token).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    /// Resolves `((secret))` as Concourse does: first the pipeline's path, then the team's.
    async fn resolve(&self, token: &str, pipeline: usize, secret: usize) -> Option<String> {
        for path in [format!("/concourse/main/p{pipeline}/s{secret}"), format!("/concourse/main/s{secret}")] {
            let (status, found) = self.get(token, &[("name-like", &path)]).await;
            assert_eq!(status, StatusCode::OK, "{found}");
            if found["credentials"].as_array().unwrap().is_empty() {
                continue;
            }
            let (status, read) = self.get(token, &[("current", "true"), ("name", &path)]).await;
            assert_eq!(status, StatusCode::OK, "{read}");
            return Some(read["data"][0]["value"].as_str().unwrap().to_owned());
        }
        None
    }

    async fn pass(&self, token: &str) {
        for pipeline in 0..PIPELINES {
            for secret in 0..SECRETS {
                let wanted = if secret % 2 == 0 {
                    format!("/concourse/main/p{pipeline}/s{secret}")
                } else {
                    format!("/concourse/main/s{secret}")
                };
                assert_eq!(self.resolve(token, pipeline, secret).await, Some(format!("canary of {wanted}")));
            }
        }
    }
}

/// Secrets with an even number belong to the pipeline, odd ones to the team. Each has a neighbor with a longer name. While
/// `revoked`, there are none.
fn concourse(received: &ReceivedRequest, revoked: bool) -> StubResponse {
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    let answer = |names: &Value| {
        let name = names[0].as_str().unwrap();
        let number: usize = name.rsplit_once("/s")?.1.parse().ok()?;
        let is_present = !revoked && number.is_multiple_of(2) == name.contains("/p");
        is_present.then(|| {
            json!({
                "name": name, "type": "value", "id": "01939e5c-0000-7000-8000-000000000001", "metadata": null,
                "version_created_at": "2026-11-21T05:00:00Z", "value": format!("canary of {name}"),
            })
        })
    };
    let results: Vec<Option<Value>> = body["lookups"].as_array().unwrap().iter().map(answer).collect();
    (200, json!({ "results": results }))
}

fn store() -> (FakeStore, Feed, Arc<AtomicBool>) {
    let revoked = Arc::new(AtomicBool::new(false));
    let is_revoked = Arc::clone(&revoked);
    let (store, feed) = FakeStore::start_with_events(move |received| {
        let revoked = is_revoked.load(SeqCst);
        async move { concourse(&received, revoked) }.boxed()
    });
    (store, feed, revoked)
}

#[tokio::test]
async fn second_pass_is_served_from_the_cache_even_without_the_store() {
    let (store, feed, _) = store();
    let world = World::start(&store, TOKEN).await;
    let token = world.log_in(TOKEN).await.unwrap();
    world.pass(&token).await;
    let mut first = store.received().len();
    assert!(first > 0);
    // On a slow machine, the first answers may come before the stream of changes begins. These are stale at once.
    let began = std::time::Instant::now();
    loop {
        world.pass(&token).await;
        let now = store.received().len();
        if std::mem::replace(&mut first, now) == now {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "not all of it is in the cache");
    }
    feed.offline();
    world.pass(&token).await;
    // The agent has no answer for a new name.
    assert_eq!(
        world.get(&token, &[("name-like", "/concourse/main/p99/s2")]).await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    // A restarted agent has the cache of the previous one.
    world.stop().await;
    let file = std::fs::read(store.path("cache")).unwrap();
    assert!(!file.windows(6).any(|part| part == b"canary"), "it is sealed");
    let world = World::start(&store, TOKEN).await;
    let token = world.log_in(TOKEN).await.unwrap();
    world.pass(&token).await;
    assert_eq!(store.received().len(), first);
    world.stop().await;
    // The cache file is unusable with another token.
    let world = World::start(&store, "bulla_other").await;
    let token = world.log_in("bulla_other").await.unwrap();
    let (status, _) = world.get(&token, &[("name-like", "/concourse/main/p1/s2")]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    feed.back();
    until_found(&world, &token).await;
    world.stop().await;
}

async fn until_found(world: &World, token: &str) {
    let began = std::time::Instant::now();
    while world.get(token, &[("name-like", "/concourse/main/p1/s2")]).await.0 != StatusCode::OK {
        assert!(began.elapsed() < TIMEOUT, "the store is back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn revoked_access_clears_the_cache_even_without_the_store() {
    let (store, feed, revoked) = store();
    let world = World::start(&store, TOKEN).await;
    let token = world.log_in(TOKEN).await.unwrap();
    assert!(world.resolve(&token, 1, 2).await.is_some());
    revoked.store(true, SeqCst);
    assert!(world.resolve(&token, 1, 2).await.is_some(), "nobody has told of it");
    let before = store.lookups();
    feed.send("access", r#"{"changed":true}"#);
    let began = std::time::Instant::now();
    while world.resolve(&token, 1, 2).await.is_some() {
        assert!(began.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(store.lookups() > before);
    // A change of one name is followed as well.
    revoked.store(false, SeqCst);
    assert!(world.resolve(&token, 1, 2).await.is_none());
    feed.send("credential.changed", r#"{"name":"/concourse/main/p1/s2"}"#);
    let began = std::time::Instant::now();
    while world.resolve(&token, 1, 2).await.is_none() {
        assert!(began.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    feed.send("access", r#"{"changed":true}"#);
    feed.offline();
    let path = "/concourse/main/p1/s2";
    let began = std::time::Instant::now();
    while world.get(&token, &[("name-like", path)]).await.0 != StatusCode::SERVICE_UNAVAILABLE {
        assert!(began.elapsed() < TIMEOUT, "the cache is cleared");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The cache file is cleared too.
    let file = store.path("cache");
    let size = || std::fs::metadata(&file).map_or(0, |file| file.len());
    until("the cleared cache is written", || (1..200).contains(&size())).await;
    world.stop().await;
}

#[tokio::test]
async fn only_clients_with_the_agent_token_are_answered() {
    let (store, _feed, _) = store();
    let world = World::start(&store, TOKEN).await;
    assert_eq!(world.log_in("wrong").await, Err(StatusCode::UNAUTHORIZED));
    let token = world.log_in(TOKEN).await.unwrap();
    assert_ne!(token, TOKEN);
    for (shown, wanted) in [(token.as_str(), 200), (TOKEN, 200), ("", 401), ("wrong", 401)] {
        let (status, body) = world.get(shown, &[("name-like", "/concourse/main/p1/s2")]).await;
        assert_eq!(status.as_u16(), wanted, "{body}");
        if wanted == 401 {
            assert_eq!(body["error"], "access_token_expired", "clients log in again at nothing else");
        }
    }
    let none = world.http.get(format!("{}/api/v1/data?name-like=/a", world.url)).send().await.unwrap();
    assert_eq!(none.status(), StatusCode::UNAUTHORIZED);
    let longer = world.get(&token, &[("name-like", "/concourse/main/p1/s")]).await;
    assert_eq!(longer.1["credentials"], json!([]), "a part of a name is no name");
    world.stop().await;
}
