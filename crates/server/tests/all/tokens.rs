//! Tokens, roles, and the permissions to manage them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::access::{self, CACHE_LIFETIME};
use server::limit::{LimitOptions, Rate};
use server::{State, router};
use store::Clock;
use tower::ServiceExt;

use crate::world::{Plan, World, now, send, store};

const ME: &str = "/api/v1/auth/me";
const TOKENS: &str = "/api/v1/tokens";

async fn actor(world: &World, token: &str) -> Result<String, String> {
    let answer = send(world.with(token, Method::GET, ME)).await;
    if answer.status == 200 {
        return Ok(answer.json()["actor"].as_str().unwrap().to_owned());
    }
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"bulla\"");
    Err(answer.problem())
}

#[tokio::test]
async fn first_admin_token_is_created_once() {
    let (_folder, store) = store().await;
    let clock = Clock::system();
    // Two servers that start at the same time.
    let (one, two) = tokio::join!(access::bootstrap(&store, &clock), access::bootstrap(&store, &clock));
    let made = [one.unwrap(), two.unwrap()].into_iter().flatten().count();
    assert_eq!(made, 1);
    assert!(access::bootstrap(&store, &clock).await.unwrap().is_none());
    let audit = store.audit_page(&store::AuditFilter::default(), None, 10).await.unwrap().rows;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].actor.as_str(), audit[0].action.as_str()), ("system:bootstrap", "token.create"));
}

#[tokio::test]
async fn token_is_created_rotated_disabled_and_deleted() {
    let world = World::start().await;
    let made =
        world.post(TOKENS, json!({ "name": "ci", "grants": [{ "role": "viewer" }] })).await.expect(201);
    let (token, id) = (made.json()["token"].as_str().unwrap().to_owned(), made.json()["id"].clone());
    assert!(token.starts_with("bulla_") && token.len() == 49, "{token}");
    let location = made.header("location").to_owned();
    assert_eq!(location, format!("{TOKENS}/{}", id.as_str().unwrap()));
    assert_eq!(actor(&world, &token).await.unwrap(), "token:ci");

    // The secret is not returned again.
    let shown = world.get(&location).await.expect(200);
    assert!(!shown.text.contains(&token) && shown.json()["token"].is_null());
    assert_eq!(shown.json()["label"], token[..10]);
    assert!(!world.get(TOKENS).await.expect(200).text.contains(&token));

    // Rotation invalidates the previous secret immediately.
    let rotated = world.post(&format!("{location}/rotate"), Value::Null).await.expect(200);
    let new = rotated.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(actor(&world, &token).await.unwrap_err(), "unauthenticated");
    assert_eq!(actor(&world, &new).await.unwrap(), "token:ci");

    // Disable the token, then enable and rename it.
    let patch = |body: Value| send(world.with(&world.admin, Method::PATCH, &location).json(&body));
    patch(json!({ "enabled": false })).await.expect(200);
    assert!(actor(&world, &new).await.is_err());
    patch(json!({ "enabled": true, "name": "cd" })).await.expect(200);
    assert_eq!(actor(&world, &new).await.unwrap(), "token:cd");

    send(world.with(&world.admin, Method::DELETE, &location)).await.expect(204);
    assert!(actor(&world, &new).await.is_err());
    assert_eq!(world.get(&location).await.expect(404).problem(), "not-found");

    let actions: Vec<_> = world.get("/api/v1/audit?limit=10").await.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            (event["actor"].as_str().unwrap().to_owned(), event["action"].as_str().unwrap().to_owned())
        })
        .collect();
    let by_admin = |action: &str| ("token:first-admin".to_owned(), action.to_owned());
    let wanted = ["token.delete", "token.update", "token.update", "token.rotate", "token.create"];
    assert_eq!(actions[..5], wanted.map(by_admin));
}

#[tokio::test]
async fn token_is_rejected_after_its_expiry() {
    let clock = Clock::manual(now() * 1_000_000);
    let world = World::start_with(Plan { clock: clock.clone(), ..Plan::default() }).await;
    let end = server::time::shown(clock.now_us() + 60_000_000);
    let body = json!({ "name": "brief", "grants": [], "expires_at": end });
    let token =
        world.post(TOKENS, body.clone()).await.expect(201).json()["token"].as_str().unwrap().to_owned();
    assert_eq!(actor(&world, &token).await.unwrap(), "token:brief");
    clock.advance(Duration::from_secs(60));
    // The token is rejected although it is still cached.
    assert!(actor(&world, &token).await.is_err());
    let past = world.post(TOKENS, json!({ "name": "past", "grants": [], "expires_at": end })).await;
    assert_eq!(past.expect(422).problem(), "unprocessable");
}

#[tokio::test]
async fn token_revoked_on_another_server_is_rejected_within_five_seconds() {
    let (_folder, store) = store().await;
    let clock = Clock::system();
    let first = access::bootstrap(&store, &clock).await.unwrap().unwrap();
    let admin = secrecy::ExposeSecret::expose_secret(&first).to_owned();
    // Two servers on one database.
    let state = || State::builder(store.clone(), clock.clone()).build();
    let (first_router, second_router) = (router(&state()).0, router(&state()).0);
    let send_request = |router: &axum::Router, token: &str, method: Method, path: String, body: Value| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"));
        let body = if body.is_null() { axum::body::Body::empty() } else { body.to_string().into() };
        router.clone().oneshot(request.body(body).unwrap())
    };
    let new = json!({ "name": "reader", "grants": [{ "role": "viewer" }] });
    let made = send_request(&first_router, &admin, Method::POST, TOKENS.to_owned(), new).await.unwrap();
    assert_eq!(made.status(), 201);
    let made = made.into_body().collect().await.unwrap().to_bytes();
    let made: Value = serde_json::from_slice(&made).unwrap();
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let status = |router: &axum::Router| {
        let answer = send_request(router, token, Method::GET, ME.to_owned(), Value::Null);
        async { answer.await.unwrap().status().as_u16() }
    };
    assert_eq!((status(&first_router).await, status(&second_router).await), (200, 200));
    let deleted = send_request(&first_router, &admin, Method::DELETE, format!("{TOKENS}/{id}"), Value::Null)
        .await
        .unwrap();
    assert_eq!(deleted.status(), 204);
    assert_eq!(status(&first_router).await, 401, "at once where it was revoked");
    assert!(CACHE_LIFETIME <= Duration::from_secs(5));
    tokio::time::pause();
    tokio::time::advance(CACHE_LIFETIME).await;
    tokio::time::resume();
    assert_eq!(status(&second_router).await, 401);
}

#[tokio::test]
async fn cached_callers_are_authenticated_without_sql_statements() {
    let (_folder, store) = store().await;
    let clock = Clock::system();
    let first = access::bootstrap(&store, &clock).await.unwrap().unwrap();
    let token = secrecy::ExposeSecret::expose_secret(&first).to_owned();
    let routes = router(&State::builder(store.clone(), clock).build()).0;
    let status = async || {
        let request = http::Request::get(ME).header("authorization", format!("Bearer {token}"));
        let request = request.body(axum::body::Body::empty()).unwrap();
        routes.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(status().await, 200);
    let before = store.statements_sent();
    // The caller is cached for a few seconds. With the paused clock the entry stays valid on a slow machine.
    tokio::time::pause();
    for _ in 0..20 {
        assert_eq!(status().await, 200);
    }
    assert_eq!(store.statements_sent(), before);
}

#[tokio::test]
async fn last_use_of_tokens_is_written_by_upkeep() {
    let world = World::start().await;
    let used = |listing: Value| listing["items"][0]["last_used_at"].clone();
    assert!(used(world.get(TOKENS).await.json()).is_null());
    world.state.access().upkeep().await.unwrap();
    assert!(used(world.get(TOKENS).await.json()).is_string());
}

#[tokio::test]
async fn access_managers_cannot_grant_more_than_they_hold() {
    let world = World::start().await;
    let role = json!({ "permissions": ["access.manage", "access.read", "certificate.read"] });
    send(world.with(&world.admin, Method::PUT, "/api/v1/roles/gatekeeper").json(&role)).await.expect(201);
    let keeper = world.token("keeper", "gatekeeper", "any").await;
    let first = world.get(TOKENS).await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let post = |path: &str, body: Value| send(world.with(&keeper, Method::POST, path).json(&body));

    // A token with fewer permissions can be created.
    let body = json!({ "name": "less", "grants": [{ "role": "gatekeeper", "scope": "team:a" }] });
    post(TOKENS, body).await.expect(201);
    // More permissions are rejected: for a token, a user, a client certificate, and a custom role.
    let admin = json!([{ "role": "admin", "scope": "team:a" }]);
    for (path, body) in [
        (TOKENS, json!({ "name": "x", "grants": admin })),
        ("/api/v1/users", json!({ "name": "x", "subject": "x", "issuer": "https://i", "grants": admin })),
        ("/api/v1/client-certificates", json!({ "name": "x", "match": "dns:x.example", "grants": admin })),
    ] {
        assert_eq!(post(path, body).await.expect(403).problem(), "forbidden");
    }
    let more = json!({ "permissions": ["certificate.read", "key.rotate"] });
    send(world.with(&keeper, Method::PUT, "/api/v1/roles/own").json(&more)).await.expect(403);
    send(world.with(&keeper, Method::PUT, "/api/v1/roles/gatekeeper").json(&more)).await.expect(403);
    // Identities with more permissions cannot be changed: their secret would give access to these permissions.
    post(&format!("{TOKENS}/{first}/rotate"), Value::Null).await.expect(403);
    let path = format!("{TOKENS}/{first}");
    send(world.with(&keeper, Method::PATCH, &path).json(&json!({ "enabled": false }))).await.expect(403);
    send(world.with(&keeper, Method::DELETE, &path)).await.expect(403);
    assert_eq!(actor(&world, &world.admin).await.unwrap(), "token:first-admin");
}

#[tokio::test]
async fn custom_roles_are_created_changed_and_deleted() {
    let world = World::start().await;
    let path = "/api/v1/roles/scraper";
    let put = |permissions: Value, if_match: Option<String>| {
        let mut request =
            world.with(&world.admin, Method::PUT, path).json(&json!({ "permissions": permissions }));
        if let Some(tag) = if_match {
            request = request.header("if-match", tag);
        }
        send(request)
    };
    put(json!(["metrics.read"]), Some("\"1\"".to_owned())).await.expect(412);
    let made = put(json!(["metrics.read"]), None).await.expect(201);
    let tag = made.header("etag").to_owned();
    let token = world.token("prometheus", "scraper", "any").await;
    let scrape = || send(world.with(&token, Method::GET, "/metrics"));
    scrape().await.expect(200);
    // The change applies immediately.
    put(json!(["job.read"]), Some(tag.clone())).await.expect(200);
    assert_eq!(scrape().await.expect(403).json()["permission"], "metrics.read");
    assert_eq!(put(json!([]), Some(tag)).await.expect(412).problem(), "precondition-failed");
    put(json!(["metrics.write"]), None).await.expect(422);
    send(world.with(&world.admin, Method::DELETE, path)).await.expect(204);
    scrape().await.expect(403);
    for built_in in ["admin", "viewer"] {
        let path = format!("/api/v1/roles/{built_in}");
        let body = json!({ "permissions": [] });
        send(world.with(&world.admin, Method::PUT, &path).json(&body)).await.expect(409);
        send(world.with(&world.admin, Method::DELETE, &path)).await.expect(409);
    }
    let names: Vec<_> =
        world.get("/api/v1/roles?fields=name").await.json()["items"].as_array().unwrap().clone();
    assert!(names.contains(&json!({ "name": "auditor" })) && !names.contains(&json!({ "name": "scraper" })));
}

#[tokio::test]
async fn excess_requests_and_failed_authentication_return_429() {
    let limits = LimitOptions {
        caller: Some(Rate::new(1, 3)),
        failures: Some(Rate::new(1, 2)),
        ..LimitOptions::unlimited()
    };
    let world =
        World::start_with(Plan { state: Box::new(move |state| state.limits(limits)), ..Plan::default() })
            .await;
    // One more request is allowed per second: the test sends far more, also on a slow machine.
    let allowed = |burst: usize, began: Instant| burst + 1 + began.elapsed().as_secs() as usize;
    let began = Instant::now();
    let answer = world.get(ME).await.expect(200);
    assert_eq!(answer.header("ratelimit-limit"), "3");
    let answers = join_all((0..50).map(|_| world.get(ME))).await;
    let (refused, good): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 429);
    assert!(good.iter().all(|answer| answer.status == 200), "{good:?}");
    assert!(good.len() < allowed(3, began), "a burst of three: {}", good.len());
    let refused = refused.first().expect("a burst of three, fifty more");
    assert_eq!((refused.problem().as_str(), refused.header("retry-after")), ("rate-limited", "1"));
    // Failed authentication attempts are rate-limited.
    let guess = || send(world.with("bulla_guess", Method::GET, ME));
    let began = Instant::now();
    assert_eq!([guess().await.status, guess().await.status].map(|status| status.as_u16()), [401, 401]);
    let statuses = join_all((0..50).map(|_| guess())).await;
    let (throttled, unauthorized): (Vec<_>, Vec<_>) =
        statuses.iter().partition(|answer| answer.status == 429);
    assert!(unauthorized.iter().all(|answer| answer.status == 401), "{unauthorized:?}");
    assert!(
        2 + unauthorized.len() <= allowed(2, began) && !throttled.is_empty(),
        "a burst of two: {}",
        unauthorized.len()
    );
}
