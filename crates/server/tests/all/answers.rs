//! Common properties of all responses: problem documents, headers, ETags, idempotency, the OpenAPI document, metrics, events.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, send};

const TOKENS: &str = "/api/v1/tokens";

#[tokio::test]
async fn error_responses_are_problem_documents_with_expected_status() {
    let world = World::start().await;
    let with = |method: Method, path: &str| world.with(&world.admin, method, path);
    let json_type = ("content-type", "application/json");
    let id = "/api/v1/tokens/00000000-0000-0000-0000-000000000000";
    for (request, status, kind) in [
        (with(Method::GET, "/nowhere"), 404, "not-found"),
        (with(Method::GET, "/api/v1/nothing"), 404, "not-found"),
        (with(Method::GET, id), 404, "not-found"),
        (with(Method::GET, "/api/v1/tokens/7"), 400, "bad-request"),
        (with(Method::PUT, TOKENS), 405, "method-not-allowed"),
        (with(Method::OPTIONS, TOKENS), 405, "method-not-allowed"),
        (with(Method::POST, TOKENS).body("{}"), 415, "unsupported-media-type"),
        (with(Method::POST, TOKENS).header(json_type.0, json_type.1).body("{"), 400, "bad-request"),
        (with(Method::POST, TOKENS).json(&json!({ "name": "x" })), 422, "unprocessable"),
        (
            with(Method::POST, TOKENS).json(&json!({ "name": "x", "grants": [], "y": 1 })),
            422,
            "unprocessable",
        ),
        (with(Method::POST, TOKENS).json(&json!({ "name": " ", "grants": [] })), 422, "unprocessable"),
        (
            with(Method::POST, TOKENS).json(&json!({ "name": "x", "grants": [{ "role": "king" }] })),
            422,
            "unprocessable",
        ),
        (with(Method::POST, TOKENS).json(&json!({ "name": "first-admin", "grants": [] })), 409, "conflict"),
        (with(Method::GET, "/api/v1/tokens?limit=0"), 400, "bad-request"),
        (with(Method::GET, "/api/v1/tokens?limit=x"), 400, "bad-request"),
        (with(Method::GET, "/api/v1/tokens?cursor=x"), 400, "bad-request"),
        (with(Method::GET, "/api/v1/audit?from=yesterday"), 400, "bad-request"),
        (with(Method::GET, TOKENS).header("if-none-match", "x"), 400, "bad-request"),
        (world.bare(Method::GET, TOKENS), 401, "unauthenticated"),
        (world.bare(Method::GET, TOKENS).basic_auth("a", Some("b")), 401, "unauthenticated"),
        (world.with("bulla_none", Method::GET, TOKENS), 401, "unauthenticated"),
        (world.with("other_none", Method::GET, TOKENS), 401, "unauthenticated"),
    ] {
        let shown = format!("{request:?}");
        let answer = send(request).await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (status, kind),
            "{shown}: {answer:?}"
        );
    }
    assert_eq!(send(with(Method::PUT, TOKENS)).await.header("allow"), "GET,HEAD,POST");
}

#[tokio::test]
async fn responses_have_security_headers_and_the_server_version() {
    let world = World::start().await;
    for path in ["/healthz", "/nowhere", TOKENS] {
        let answer = send(world.bare(Method::GET, path).header("origin", "https://evil.example")).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("content-security-policy"), "default-src 'none'; frame-ancestors 'none'");
        assert_eq!(answer.header("bulla-version"), env!("CARGO_PKG_VERSION"));
        assert!(answer.header("strict-transport-security").starts_with("max-age="));
        assert!(answer.headers.contains_key("x-request-id"));
        // No CORS header allows other sites to read the response.
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control-")));
    }
}

#[tokio::test]
async fn matching_if_none_match_returns_304() {
    let world = World::start().await;
    let first = world.get(TOKENS).await.expect(200);
    let tag = first.header("etag").to_owned();
    assert!(tag.starts_with('"'), "strong: {tag}");
    let get_if_none_match =
        |tag: &str| send(world.with(&world.admin, Method::GET, TOKENS).header("if-none-match", tag));
    let same = get_if_none_match(&tag).await.expect(304);
    assert!(same.text.is_empty() && same.header("etag") == tag);
    get_if_none_match(&format!("\"x\", W/{tag}")).await.expect(304);
    world.token("another", "viewer", "any").await;
    get_if_none_match(&tag).await.expect(200);
}

#[tokio::test]
async fn stale_if_match_returns_412() {
    let world = World::start().await;
    world.token("ci", "viewer", "any").await;
    let id = world.get(TOKENS).await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("{TOKENS}/{id}");
    let tag = world.get(&path).await.header("etag").to_owned();
    assert_eq!(tag, "\"1\"");
    // The ETag of a partial response is accepted in `If-Match`.
    let narrow = world.get(&format!("{path}?fields=name")).await.expect(200);
    assert_eq!(narrow.json(), json!({ "name": "ci" }));
    let patch = |tag: &str, name: &str| {
        let request = world.with(&world.admin, Method::PATCH, &path).header("if-match", tag);
        send(request.json(&json!({ "name": name })))
    };
    assert_eq!(patch(narrow.header("etag"), "ci-2").await.expect(200).header("etag"), "\"2\"");
    let stale = patch(&tag, "ci-3").await.expect(412);
    assert_eq!((stale.problem().as_str(), stale.header("etag")), ("precondition-failed", "\"2\""));
    patch("W/\"2\"", "ci-3").await.expect(412);
    patch("*", "ci-3").await.expect(200);
    let delete = |tag: &str| send(world.with(&world.admin, Method::DELETE, &path).header("if-match", tag));
    delete("\"2\"").await.expect(412);
    delete("\"3\"").await.expect(204);
}

#[tokio::test]
async fn repeated_idempotency_key_returns_the_stored_response() {
    let world = World::start().await;
    let body = json!({ "name": "alice", "subject": "1", "issuer": "https://i.example" });
    let post = |token: &str, key: &str, body: &Value| {
        send(world.with(token, Method::POST, "/api/v1/users").header("idempotency-key", key).json(body))
    };
    let admin = world.admin.clone();
    let first = post(&admin, "k1", &body).await.expect(201);
    let later = post(&admin, "k1", &body).await.expect(201);
    assert_eq!(first.json(), later.json());
    assert_eq!(first.header("location"), later.header("location"));
    assert_eq!((first.header("etag"), later.header("idempotency-replayed")), (later.header("etag"), "true"));
    // Error responses are repeated too.
    let taken = post(&admin, "k2", &body).await.expect(409);
    assert_eq!(post(&admin, "k2", &body).await.expect(409).json()["detail"], taken.json()["detail"]);
    // The same key with another body is rejected. The same key of another caller is independent.
    let other = json!({ "name": "bob", "subject": "2", "issuer": "https://i.example" });
    assert_eq!(post(&admin, "k1", &other).await.expect(422).problem(), "idempotency-mismatch");
    let second = world.token("second", "admin", "any").await;
    post(&second, "k1", &other).await.expect(201);
    let users = world.get("/api/v1/users").await.json()["items"].as_array().unwrap().len();
    assert_eq!(users, 2);
    // Concurrent requests with the same key: one is executed, the others get its response or a conflict error.
    let body = json!({ "name": "carol", "subject": "3", "issuer": "https://i.example" });
    let answers = futures_util::future::join_all((0..8).map(|_| post(&admin, "k3", &body))).await;
    for answer in answers {
        let good = answer.status == 201 || answer.problem() == "idempotency-under-way";
        assert!(good, "{answer:?}");
    }
    post(&admin, "", &body).await.expect(400);
}

#[tokio::test]
async fn responses_with_secrets_are_not_replayed() {
    let world = World::start().await;
    let body = json!({ "name": "ci", "grants": [] });
    let post =
        || send(world.with(&world.admin, Method::POST, TOKENS).header("idempotency-key", "k").json(&body));
    post().await.expect(201);
    assert_eq!(post().await.expect(409).problem(), "idempotency-secret");
}

#[tokio::test]
async fn cursor_pagination_returns_each_item_once() {
    let world = World::start().await;
    for name in ["a", "b", "c", "d"] {
        world.token(name, "viewer", "any").await;
    }
    let (mut names, mut path) = (Vec::new(), format!("{TOKENS}?limit=2&fields=name"));
    loop {
        let page = world.get(&path).await.expect(200).json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("{TOKENS}?limit=2&fields=name&cursor={next}");
    }
    assert_eq!(names, ["a", "b", "c", "d", "first-admin"]);
    // A cursor of another listing is rejected.
    let next = world.get(&format!("{TOKENS}?limit=1")).await.json()["next"].as_str().unwrap().to_owned();
    world.get(&format!("/api/v1/users?cursor={next}")).await.expect(400);
}

#[tokio::test]
async fn audit_log_is_listed_exported_and_verified_over_the_api() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        world.token(name, "viewer", "any").await;
    }
    let all = world.get("/api/v1/audit").await.json()["items"].as_array().unwrap().clone();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0]["details"]["name"], "c", "newest first");
    let resource = all[1]["resource"].as_str().unwrap();
    let of = world.get(&format!("/api/v1/audit?resource={resource}&action=token.create")).await.json();
    assert_eq!(of["items"].as_array().unwrap().len(), 1);
    let none = world.get("/api/v1/audit?actor=user:nobody").await.json();
    assert_eq!(none, json!({ "items": [], "next": null }));
    let before = world.get("/api/v1/audit?before=2020-01-01T00:00:00Z").await.json();
    assert!(before["items"].as_array().unwrap().is_empty());

    let export = world.get("/api/v1/audit/export").await.expect(200);
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, all);

    let verified = world.post("/api/v1/audit/verify", Value::Null).await.expect(200).json();
    assert_eq!((verified["good"].clone(), verified["events"].clone()), (json!(true), json!(4)));
}

#[tokio::test]
async fn event_stream_delivers_live_events_and_resumes_from_last_event_id() {
    let world = World::start().await;
    let emit = |kind: &'static str, number: i64| {
        let event = store::NewEvent {
            at_us: 0,
            kind,
            subject: format!("x/{number}"),
            body: json!({ "n": number }).to_string(),
        };
        world.state.store().write("test", move |tx| async move { store::emit(tx, vec![event]).await }.boxed())
    };
    emit("test.before", 0).await.unwrap();
    let follow = |path: &str, since: Option<String>| {
        let mut request = world.with(&world.admin, Method::GET, path);
        if let Some(id) = since {
            request = request.header("last-event-id", id);
        }
        request.send()
    };
    let mut live = follow("/api/v1/events", None).await.unwrap();
    let mut some = follow("/api/v1/events?kind=other.", None).await.unwrap();
    assert_eq!(live.headers()["content-type"], "text/event-stream");
    emit("test.done", 1).await.unwrap();
    emit("other.done", 2).await.unwrap();
    let text = read(&mut live, "other.done").await;
    assert!(!text.contains("test.before") && text.contains("event: test.done"), "{text}");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data, json!({ "at": "1970-01-01T00:00:00Z", "subject": "x/1", "body": { "n": 1 } }));
    assert!(!read(&mut some, "other.done").await.contains("test.done"));
    // A second subscriber resumes after the first event.
    let id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    let mut later = follow("/api/v1/events", Some(id)).await.unwrap();
    emit("test.later", 3).await.unwrap();
    let text = read(&mut later, "test.later").await;
    let kinds: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(kinds, ["other.done", "test.later"], "none lost, none twice");
    // An unreadable body of a known kind is sent unchanged.
    let (kind, subject, body) = ("agent.offline", "agent/1".to_owned(), "not JSON".to_owned());
    let event = store::NewEvent { at_us: 0, kind, subject, body };
    let put = world
        .state
        .store()
        .write("test", move |tx| async move { store::emit(tx, vec![event]).await }.boxed());
    put.await.unwrap();
    let text = read(&mut later, "agent.offline").await;
    assert!(text.contains(r#""body":"not JSON""#), "{text}");
    assert_eq!(follow("/api/v1/events", Some("x".to_owned())).await.unwrap().status(), 400);
}

async fn read(response: &mut reqwest::Response, until: &str) -> String {
    let mut text = String::new();
    while !(text.contains(until) && text.ends_with("\n\n")) {
        let part = response.chunk().await.unwrap().expect("the stream goes on");
        text.push_str(&String::from_utf8_lossy(&part));
    }
    text
}

#[tokio::test]
async fn openapi_document_is_version_3_1_and_all_references_resolve() {
    let world = World::start().await;
    let answer = send(world.bare(Method::GET, "/openapi.json")).await.expect(200);
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let what = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{what} has no id"));
            assert!(ids.insert(id.to_owned()), "{what}: {id} is taken");
            assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{what}");
            assert!(operation["tags"][0].is_string() && operation["security"].is_array(), "{what}");
            assert_eq!(
                operation["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"],
                "#/components/schemas/Problem",
                "{what}"
            );
        }
    }
    for reference in references(&document) {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => {
            let own = members.get("$ref").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(members.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn metrics_are_labelled_by_route_template_and_require_permission() {
    let world = World::start().await;
    let id = uuid::Uuid::nil();
    world.get(&format!("{TOKENS}/{id}")).await.expect(404);
    send(world.bare(Method::GET, "/metrics")).await.expect(401);
    let agent = world.token("agent", "agent", "any").await;
    send(world.with(&agent, Method::GET, "/metrics")).await.expect(403);
    let text = world.get("/metrics").await.expect(200).text;
    for line in [
        "bulla_server_request_duration_seconds_count{method=\"GET\",route=\"/api/v1/tokens/{id}\",status=\"404\"} 1",
        "bulla_server_refusals_total{kind=\"unauthenticated\"} 1",
        "bulla_server_refusals_total{kind=\"forbidden\"} 1",
        "bulla_server_connections{kind=\"tls\"}",
        "bulla_tasks_live{kind=\"server-connection\"}",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains(&id.to_string()));
}

#[tokio::test]
async fn health_and_readiness_need_no_authentication() {
    let world = World::start().await;
    for path in ["/healthz", "/readyz", "/healthz?probe=1"] {
        let answer = send(world.bare(Method::GET, path)).await.expect(200);
        assert_eq!(answer.json(), json!({ "status": "ok" }));
    }
}

#[tokio::test]
async fn head_returns_the_headers_of_get_without_a_body() {
    let world = World::start().await;
    let get = world.get(TOKENS).await.expect(200);
    let head = send(world.with(&world.admin, Method::HEAD, TOKENS)).await.expect(200);
    assert_eq!((head.text.as_str(), head.header("etag")), ("", get.header("etag")));
}
