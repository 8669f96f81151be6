//! Watches over the API.

use http::{Method, StatusCode};
use inventory::watch::{ScanEnvironment, WatchOptions, WatchSpec, Watches};
use outbound::resolve::Resolver;
use scan::{Observation, ScanOptions, Scanner, TargetOptions, Targets, Trusted};
use serde_json::json;
use server::Components;

use crate::world::{Plan, World};

/// A kit that probes nothing: no runner runs in these tests.
struct Still;

impl ScanEnvironment for Still {
    fn targets(&self, spec: &WatchSpec) -> Result<Targets, String> {
        Targets::of_network(&spec.targets, TargetOptions::default()).map_err(|error| error.to_string())
    }

    fn scanner(&self, _: &WatchSpec) -> Result<Scanner, String> {
        let resolver = Resolver::with_upstreams(Vec::new());
        Scanner::new(ScanOptions::default(), resolver, Trusted::trusting_none())
            .map_err(|error| error.to_string())
    }

    fn scan_parameters(&self, _: &WatchSpec) -> String {
        "{}".to_owned()
    }

    fn detail(&self, _: &Observation) -> String {
        "{}".to_owned()
    }
}

/// The watches are in a separate database from the server's.
async fn world() -> (World, store::Store, tempfile::TempDir) {
    let (folder, database) = crate::world::store().await;
    let watches = Watches::new(database.clone(), store::Clock::system(), Still, WatchOptions::default());
    let plan = Plan {
        components: Components { watches: Some(watches), ..Components::default() },
        ..Plan::default()
    };
    (World::start_with(plan).await, database, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_is_created_updated_paused_and_deleted() {
    let (world, database, _folder) = world().await;
    let body = json!({"name": "edge", "targets": ["a.example", "10.0.0.0/24:8443"], "interval_s": 3600,
        "jitter_s": 60, "group": "prod"});
    let made = world.post("/api/v1/watches", body.clone()).await.expect(201);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), format!("/api/v1/watches/{id}"));
    assert_eq!(made.header("etag"), "\"1\"");
    world.post("/api/v1/watches", body.clone()).await.expect(409);
    let by_name = world.get("/api/v1/watches/edge").await.expect(200).json();
    assert_eq!((&by_name["id"], &by_name["state"]), (&json!(id), &json!("due")));
    assert_eq!(by_name["targets"], json!(["a.example", "10.0.0.0/24:8443"]));
    assert_eq!(world.get("/api/v1/watches").await.expect(200).json()["items"].as_array().unwrap().len(), 1);
    world.get("/api/v1/watches/other").await.expect(404);

    let send = |method: Method, path: String, tag: &'static str, body: serde_json::Value| {
        let request = world.with(&world.admin, method, &path).json(&body);
        crate::world::send(if tag.is_empty() { request } else { request.header("if-match", tag) })
    };
    let path = format!("/api/v1/watches/{id}");
    let changed = json!({"name": "edge-2", "targets": ["b.example"], "interval_s": 7200});
    send(Method::PUT, path.clone(), "\"7\"", changed.clone()).await.expect(412);
    let answer = send(Method::PUT, path.clone(), "\"1\"", changed).await.expect(200);
    assert_eq!((answer.header("etag"), &answer.json()["jitter_s"]), ("\"2\"", &json!(0)));

    let paused = world.post(&format!("{path}/pause"), json!({})).await.expect(200);
    assert_eq!(paused.json()["state"], "paused");
    world.post(&format!("{path}/run"), json!({})).await.expect(409);
    world.post(&format!("{path}/resume"), json!({})).await.expect(200);
    world.post(&format!("{path}/run"), json!({})).await.expect(204);
    // A node claims the run.
    let now_us = store::Clock::system().now_us();
    let claimed = inventory::tables::Watches::of(&database)
        .claim(uuid::Uuid::now_v7(), now_us, now_us + 60_000_000, 1)
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
    let running = world.get(&path).await.expect(200).json();
    assert_eq!(running["state"], "running");
    assert!(running["running_since"].is_string(), "{running}");
    world.post(&format!("{path}/run"), json!({})).await.expect(409);

    send(Method::DELETE, path.clone(), "\"1\"", json!({})).await.expect(412);
    assert_eq!(send(Method::DELETE, path.clone(), "", json!({})).await.status, StatusCode::NO_CONTENT);
    world.get(&path).await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_watches_are_rejected_and_viewers_are_read_only() {
    let (world, _, _folder) = world().await;
    let post = async |change: serde_json::Value| {
        let mut body = json!({"name": "edge", "targets": ["a.example"], "interval_s": 3600});
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        world.post("/api/v1/watches", body).await
    };
    for (change, wanted) in [
        (json!({"targets": ["/etc/passwd"]}), "write a host"),
        (json!({"targets": ["@/etc/passwd"]}), "write a host"),
        (json!({"targets": ["-"]}), "write a host"),
        (json!({"targets": []}), "at least one target or source"),
        (json!({"sources": ["aws"]}), "no clouds or clusters"),
        (json!({"interval_s": 1}), "60 to"),
        (json!({"jitter_s": 3601}), "the jitter must not exceed the interval"),
        (json!({"name": "a b"}), "a name must have"),
    ] {
        let answer = post(change.clone()).await.expect(422);
        assert!(answer.text.contains(wanted), "{change}: {answer:?}");
    }
    assert!(!post(json!({"password_file": "/etc/passwd"})).await.status.is_success());
    // A viewer can list watches but not run them.
    let viewer = world.token("v", "viewer", "any").await;
    let scan_parameters = |method, path| crate::world::send(world.with(&viewer, method, path));
    scan_parameters(Method::GET, "/api/v1/watches").await.expect(200);
    scan_parameters(Method::POST, "/api/v1/watches/edge/run").await.expect(403);
}
