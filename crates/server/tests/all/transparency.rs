//! Certificate Transparency over the API.

use ct::monitor::LogLists;
use ct::search::{SearchOptions, SearchService};
use ct::{DomainSet, Issuance, Monitor, MonitorOptions};
use http::{Method, StatusCode};
use outbound::http::{Client, Options};
use outbound::resolve::Resolver;
use serde_json::{Value, json};
use server::Components;

use crate::world::{Plan, World};

/// The monitor does not run in these tests. Its domains are in a separate database from the server's.
async fn world() -> (World, store::Store, tempfile::TempDir) {
    let (folder, database) = crate::world::store().await;
    let clock = store::Clock::system();
    let http = Client::new(&Resolver::with_upstreams(Vec::new()), &Options::default()).unwrap();
    let service = SearchService::new(SearchOptions::crt_sh(), http.clone(), clock.clone());
    let monitor = Monitor::new(
        database.clone(),
        clock,
        vec![service],
        http,
        LogLists::default(),
        MonitorOptions::default(),
    );
    let plan = Plan {
        components: Components { transparency: Some(monitor), ..Components::default() },
        ..Plan::default()
    };
    (World::start_with(plan).await, database, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ct_domain_is_watched_updated_paused_and_deleted() {
    let (world, database, _folder) = world().await;
    let body = json!({"name": "Example.COM.", "issuers": ["Let's Encrypt"]});
    let made = world.post("/api/v1/ct/domains", body.clone()).await.expect(201);
    assert_eq!(made.header("location"), "/api/v1/ct/domains/example.com");
    assert_eq!(made.header("etag"), "\"1\"");
    world.post("/api/v1/ct/domains", body).await.expect(409);
    let path = "/api/v1/ct/domains/example.com";
    let shown = world.get(path).await.expect(200).json();
    assert_eq!((&shown["issuers"], &shown["enabled"]), (&json!(["Let's Encrypt"]), &json!(true)));
    assert_eq!(
        (&shown["searches"][0]["service"], &shown["searches"][0]["state"]),
        (&json!("crt.sh"), &json!("due"))
    );
    world.get("/api/v1/ct/domains/other.example").await.expect(404);

    let send = |method: Method, tag: &'static str, body: Value| {
        let request = world.with(&world.admin, method, path).json(&body);
        crate::world::send(if tag.is_empty() { request } else { request.header("if-match", tag) })
    };
    let changed = json!({"services": ["crt.sh"]});
    send(Method::PUT, "\"7\"", changed.clone()).await.expect(412);
    let answer = send(Method::PUT, "\"1\"", changed).await.expect(200);
    assert_eq!((answer.header("etag"), &answer.json()["issuers"]), ("\"2\"", &json!([])));
    let paused = world.post(&format!("{path}/pause"), json!({})).await.expect(200);
    assert_eq!(paused.json()["enabled"], false);
    world.post(&format!("{path}/run"), json!({})).await.expect(409);
    world.post(&format!("{path}/resume"), json!({})).await.expect(200);
    world.post(&format!("{path}/run"), json!({})).await.expect(204);
    let now_us = store::Clock::system().now_us();
    let node = uuid::Uuid::now_v7();
    let claimed = ct::tables::Ct::of(&database)
        .claim_searches("crt.sh", node, now_us, now_us + 60_000_000, 9)
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
    world.post(&format!("{path}/run"), json!({})).await.expect(409);
    let searches = world.get("/api/v1/ct/searches").await.expect(200).json();
    assert_eq!(searches["items"][0]["state"], "asking");
    assert_eq!(world.get("/api/v1/ct/logs").await.expect(200).json()["items"], json!([]));
    world.delete_log().await;
    send(Method::DELETE, "\"1\"", json!({})).await.expect(412);
    assert_eq!(send(Method::DELETE, "", json!({})).await.status, StatusCode::NO_CONTENT);
    world.get(path).await.expect(404);
}

impl World {
    /// Asserts that deleting an unknown log returns 404, and an invalid ID 400.
    async fn delete_log(&self) {
        for (id, status) in [("ab".repeat(32), 404), ("x".to_owned(), 400)] {
            let request = self.with(&self.admin, Method::DELETE, &format!("/api/v1/ct/logs/{id}"));
            crate::world::send(request).await.expect(status);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_ct_domains_are_rejected_and_viewers_are_read_only() {
    let (world, _, _folder) = world().await;
    for (body, wanted) in [
        (json!({"name": "com"}), "public suffix"),
        (json!({"name": "a b"}), "is not a domain name"),
        (json!({"name": "www.example.com"}), "watch the registered domain"),
        (json!({"name": "example.com", "services": ["logs"]}), "configured"),
        (json!({"name": "example.com", "trust_issuers": true}), "needs a list of allowed issuers"),
        (json!({"name": "example.com", "issuers": [" "]}), "issuers"),
    ] {
        let answer = world.post("/api/v1/ct/domains", body.clone()).await.expect(422);
        assert!(answer.text.contains(wanted), "{body}: {answer:?}");
    }
    let viewer = world.token("v", "viewer", "any").await;
    let request = |method, path| crate::world::send(world.with(&viewer, method, path));
    request(Method::GET, "/api/v1/ct/domains").await.expect(200);
    request(Method::POST, "/api/v1/ct/domains/example.com/run").await.expect(403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ct_issuance_can_be_decided_only_once() {
    let (world, database, _folder) = world().await;
    let authority = fleet::ct::CtAuthority::new(1).unwrap();
    let now = store::Clock::system().now_seconds();
    let domains = DomainSet::compile(["ours.example"], 1).unwrap();
    let found: Vec<_> = ["a.ours.example", "b.ours.example", "c.ours.example"]
        .iter()
        .map(|name| {
            let pair = authority.issue(&[name], now, 90).unwrap();
            let issuance = Issuance::from_der(&pair.certificate);
            ct::ledger::ReportedIssuance::from_search_result(issuance, "ours.example", &domains, "test")
        })
        .collect();
    database
        .write("found", move |tx| Box::pin(ct::ledger::record(tx, found, now * 1_000_000)))
        .await
        .unwrap();
    let list = |query: &'static str| world.get(query);
    let all =
        list("/api/v1/ct/issuances?domain=ours.example&verdict=pending&limit=2").await.expect(200).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    let next = format!("/api/v1/ct/issuances?domain=ours.example&cursor={}", all["next"].as_str().unwrap());
    assert_eq!(world.get(&next).await.expect(200).json()["items"].as_array().unwrap().len(), 1);
    list("/api/v1/ct/issuances?verdict=good").await.expect(400);
    list("/api/v1/ct/issuances?since=soon").await.expect(400);
    let none = list("/api/v1/ct/issuances?since=2999-01-01T00:00:00Z").await.expect(200).json();
    assert_eq!(none["items"], json!([]));

    let id = all["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/ct/issuances/{id}");
    world.post(&format!("{path}/expect"), json!({"reason": " "})).await.expect(422);
    let decided = world.post(&format!("{path}/expect"), json!({"reason": "ours"})).await.expect(200).json();
    assert_eq!(
        (&decided["verdict"], &decided["reason"]["accepted"]["reason"]),
        (&json!("expected"), &json!("ours"))
    );
    world.post(&format!("{path}/acknowledge"), json!({"reason": "late"})).await.expect(409);
    let shown = world.get(&path).await.expect(200).json();
    assert_eq!(shown["domains"], json!(["ours.example"]));
    let nothing = format!("/api/v1/ct/issuances/{}/expect", uuid::Uuid::now_v7());
    world.post(&nothing, json!({"reason": "ours"})).await.expect(404);
}
