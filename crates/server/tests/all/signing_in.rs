//! Logging in to the console with one-time links, and the browser sessions that they start.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use futures_util::FutureExt;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use server::access::{self, SessionOptions};
use server::limit::{LimitOptions, SignInRates, SlowRate};
use server::routing::{Need, NonApiAccess};
use store::Clock;
use tower::ServiceExt;

use crate::logging_in::Scene;
use crate::world::{Plan, TestResponse, World, now, send};

const LINKS: &str = "/api/v1/auth/links";
const SESSIONS: &str = "/api/v1/auth/sessions";
const ME: &str = "/api/v1/auth/me";

/// Starts a server with a manual clock.
async fn world() -> (World, Clock) {
    let clock = Clock::manual(now() * 1_000_000);
    let world = World::start_with(Plan { clock: clock.clone(), ..Plan::default() }).await;
    (world, clock)
}

/// A browser with a session.
#[derive(Clone)]
pub(crate) struct Tab {
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Tab {
    pub(crate) fn of(answer: &TestResponse) -> Self {
        let cookie = answer.header("set-cookie");
        let (cookie, attributes) = cookie.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
        assert!(cookie.starts_with("__Host-bulla="), "{cookie}");
        Self { cookie: cookie.to_owned(), csrf: answer.json()["csrf_token"].as_str().unwrap().to_owned() }
    }

    async fn get(&self, world: &World, path: &str) -> TestResponse {
        send(world.bare(Method::GET, path).header("cookie", &self.cookie)).await
    }

    pub(crate) async fn send_request(
        &self,
        world: &World,
        method: Method,
        path: &str,
        body: Value,
    ) -> TestResponse {
        let request = world.bare(method, path).header("cookie", &self.cookie);
        send(request.header("x-csrf-token", &self.csrf).json(&body)).await
    }
}

/// Returns a sign-in request from a page of the server itself.
fn signing_in(world: &World, body: &Value) -> reqwest::RequestBuilder {
    let request = world.bare(Method::POST, SESSIONS).header("origin", format!("https://{}", world.address));
    request.header("sec-fetch-site", "same-origin").json(body)
}

pub(crate) async fn link(world: &World, token: &str) -> Value {
    let request = world.with(token, Method::POST, LINKS).json(&json!({}));
    send(request).await.expect(201).json()
}

async fn code(world: &World, token: &str) -> Value {
    json!({ "code": link(world, token).await["code"] })
}

pub(crate) async fn signed_in(world: &World, token: &str) -> Tab {
    Tab::of(&send(signing_in(world, &code(world, token).await)).await.expect(201))
}

async fn actions(world: &World, actor: &str) -> Vec<String> {
    let audit = world.get(&format!("/api/v1/audit?actor={actor}")).await.json();
    let events = audit["items"].as_array().unwrap().iter();
    events.map(|event| event["action"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn sign_in_link_works_once_with_the_permissions_of_its_token() {
    let (world, _) = world().await;
    let viewer = world.token("looker", "viewer", "any").await;
    let made = link(&world, &viewer).await;
    let code = made["code"].as_str().unwrap();
    assert_eq!(made["url"], format!("https://{}/console/sign-in#code={code}", world.address));
    let body = json!({ "code": code });

    // Only one of several concurrent browsers is signed in.
    let tries = (0..8).map(|_| send(signing_in(&world, &body)));
    let answers = futures_util::future::join_all(tries).await;
    let (good, bad): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|one| one.status == StatusCode::CREATED);
    assert_eq!((good.len(), bad.len()), (1, 7));
    assert!(
        bad.iter().all(|one| one.problem() == "unauthenticated" && !one.headers.contains_key("set-cookie"))
    );
    let tab = Tab::of(&good[0]);
    let me = tab.get(&world, ME).await.expect(200).json();
    assert_eq!((me["actor"].as_str(), me["kind"].as_str()), (Some("token:looker"), Some("token")));
    assert_eq!(
        (me["csrf_token"].as_str(), me["session"]["method"].as_str()),
        (Some(tab.csrf.as_str()), Some("link"))
    );
    // The session has the permissions of the token and no others.
    let by_token = send(world.with(&viewer, Method::GET, ME)).await.json();
    assert_eq!((&me["granted"], &by_token["session"]), (&by_token["granted"], &Value::Null));
    tab.get(&world, "/api/v1/tokens").await.expect(403);
    // Without the session's CSRF token the logout is rejected.
    let logout = "/api/v1/auth/logout";
    send(world.bare(Method::POST, logout).header("cookie", &tab.cookie)).await.expect(403);
    tab.send_request(&world, Method::POST, logout, json!({})).await.expect(200);
    tab.get(&world, ME).await.expect(401);
    send(signing_in(&world, &body)).await.expect(401);
    assert_eq!(actions(&world, "token:looker").await, ["session.end", "session.begin", "session.link"]);
    let audit = world.get("/api/v1/audit").await.text;
    assert!(!audit.contains(code), "no secret in the audit log");
}

#[tokio::test]
async fn first_admin_token_signs_in_by_a_link_created_on_the_host() {
    let (world, clock) = world().await;
    let token = SecretString::from(world.admin.as_str());
    let made = access::sign_in_link(&world.store, &clock, &token).await.unwrap().unwrap();
    let body = json!({ "code": made.code.expose_secret() });
    let tab = Tab::of(&send(signing_in(&world, &body)).await.expect(201));
    assert_eq!(tab.get(&world, ME).await.json()["actor"], "token:first-admin");
    let role = json!({ "permissions": ["job.read"] });
    tab.send_request(&world, Method::PUT, "/api/v1/roles/looker", role).await.expect(201);
    let nobody = SecretString::from("bulla_nobody");
    assert!(access::sign_in_link(&world.store, &clock, &nobody).await.unwrap().is_none());
}

#[tokio::test]
async fn sign_in_links_expire_and_the_ninth_invalidates_the_first() {
    let (world, clock) = world().await;
    let body = code(&world, &world.admin).await;
    clock.advance(Duration::from_secs(599));
    let late = code(&world, &world.admin).await;
    clock.advance(Duration::from_secs(1));
    send(signing_in(&world, &body)).await.expect(401);
    send(signing_in(&world, &late)).await.expect(201);

    let short = |seconds: u64| {
        send(world.with(&world.admin, Method::POST, LINKS).json(&json!({ "lifetime_s": seconds })))
    };
    let made = short(10).await.expect(201).json();
    clock.advance(Duration::from_secs(10));
    send(signing_in(&world, &json!({ "code": made["code"] }))).await.expect(401);
    for seconds in [0, 9, 601] {
        assert!(short(seconds).await.expect(422).text.contains("10 to 600 seconds"));
    }
    // The ninth link invalidates the first.
    let mut codes = Vec::new();
    for _ in 0..9 {
        clock.advance(Duration::from_millis(1));
        codes.push(code(&world, &world.admin).await);
    }
    send(signing_in(&world, &codes[0])).await.expect(401);
    for code in &codes[1..] {
        send(signing_in(&world, code)).await.expect(201);
    }
    for bad in
        [json!({ "code": "" }), json!({ "code": "x".repeat(129) }), json!({}), json!({ "code": "x", "y": 1 })]
    {
        assert_eq!(send(signing_in(&world, &bad)).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
    }
}

#[tokio::test]
async fn sign_in_requires_a_same_origin_request() {
    let (world, _) = world().await;
    let body = code(&world, &world.admin).await;
    let own = format!("https://{}", world.address);
    let send_request = |headers: &[(&str, &str)]| {
        let mut request = world.bare(Method::POST, SESSIONS).json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(request)
    };
    for bad in [
        &[][..],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", own.as_str()), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
    ] {
        let refused = send_request(bad).await.expect(403);
        assert_eq!(refused.problem(), "forbidden", "{bad:?}");
        assert!(!refused.headers.contains_key("set-cookie"), "{bad:?}");
    }
    // The rejected requests did not use up the code.
    send_request(&[("origin", own.as_str())]).await.expect(201);
}

#[tokio::test]
async fn sign_in_replaces_the_cookie_and_ends_the_previous_session() {
    let (world, _) = world().await;
    let first = signed_in(&world, &world.admin).await;
    // A cookie value that the browser sent is never reused for the new session.
    for planted in ["__Host-bulla=planted", first.cookie.as_str()] {
        let request = signing_in(&world, &code(&world, &world.admin).await).header("cookie", planted);
        let tab = Tab::of(&send(request).await.expect(201));
        assert_ne!(tab.cookie, planted);
        tab.get(&world, ME).await.expect(200);
        send(world.bare(Method::GET, ME).header("cookie", planted)).await.expect(401);
    }
    first.get(&world, ME).await.expect(401);
}

#[tokio::test]
async fn session_ends_when_its_token_is_disabled_deleted_rotated_or_expired() {
    let (world, clock) = world().await;
    let names = ["disabled", "removed", "rotated", "expired"];
    for name in names {
        let body = json!({
            "name": name, "grants": [{ "role": "viewer", "scope": "any" }],
            "expires_at": (name == "expired").then(|| server::time::shown(clock.now_us() + 60_000_000)),
        });
        let made = world.post("/api/v1/tokens", body).await.expect(201).json();
        let token = made["token"].as_str().unwrap();
        let path = format!("/api/v1/tokens/{}", made["id"].as_str().unwrap());
        let (tab, unused) = (signed_in(&world, token).await, code(&world, token).await);
        tab.get(&world, ME).await.expect(200);
        let change = |method, path: &str| world.with(&world.admin, method, path).header("if-match", "\"1\"");
        match name {
            "disabled" => {
                send(change(Method::PATCH, &path).json(&json!({ "enabled": false }))).await.expect(200)
            }
            "removed" => send(change(Method::DELETE, &path)).await.expect(204),
            "rotated" => send(change(Method::POST, &format!("{path}/rotate"))).await.expect(200),
            _ => {
                clock.advance(Duration::from_secs(61));
                world.get(ME).await
            }
        };
        assert_eq!(tab.get(&world, ME).await.status, StatusCode::UNAUTHORIZED, "{name}");
        assert_eq!(send(signing_in(&world, &unused)).await.status, StatusCode::UNAUTHORIZED, "{name}");
    }
}

#[tokio::test]
async fn session_by_a_session_link_inherits_permissions_and_expiry() {
    let options = SessionOptions { absolute: Duration::from_secs(3_600), ..SessionOptions::default() };
    let scene = Scene::start_plan(options, Plan::default()).await;
    let (mut browser, answer) = scene.log_in().await;
    answer.expect(303);
    let me = scene.send_request(&mut browser, Method::GET, ME, None).await.json();
    let csrf = me["csrf_token"].as_str().unwrap();
    scene.clock.advance(Duration::from_secs(1_800));
    let request = scene.world.bare(Method::POST, LINKS).header("cookie", browser.line());
    let made = send(request.header("x-csrf-token", csrf).json(&json!({}))).await.expect(201).json();
    let answer = send(signing_in(&scene.world, &json!({ "code": made["code"] }))).await.expect(201);
    let other = answer.json();
    assert_eq!((&other["actor"], &other["granted"]), (&me["actor"], &me["granted"]));
    assert_eq!(other["session"]["expires_at"], me["session"]["expires_at"]);
    assert_eq!(other["session"]["confirmed_at"], me["session"]["confirmed_at"]);
    assert_eq!(other["session"]["confirmed_until"], Value::Null);
}

#[tokio::test]
async fn logout_everywhere_ends_all_sessions_and_links_of_the_identity() {
    let (world, _) = world().await;
    let (first, second) = (signed_in(&world, &world.admin).await, signed_in(&world, &world.admin).await);
    let viewer = world.token("looker", "viewer", "any").await;
    let (other, unused) = (signed_in(&world, &viewer).await, code(&world, &world.admin).await);
    let sessions = first.get(&world, SESSIONS).await.expect(200).json();
    let listed = sessions["items"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{sessions}");
    assert_eq!(listed.iter().filter(|one| one["current"] == true).count(), 1, "{sessions}");
    assert!(listed.iter().all(|one| one["method"] == "link" && one["address"] == "127.0.0.1"), "{sessions}");

    // Without the CSRF token the request is rejected.
    send(world.bare(Method::DELETE, SESSIONS).header("cookie", &first.cookie)).await.expect(403);
    let done = first.send_request(&world, Method::DELETE, SESSIONS, json!({})).await.expect(200);
    assert_eq!(done.json()["ended"], 2);
    assert!(done.header("set-cookie").starts_with("__Host-bulla=; "), "{done:?}");
    for tab in [&first, &second] {
        tab.get(&world, ME).await.expect(401);
    }
    send(signing_in(&world, &unused)).await.expect(401);
    other.get(&world, ME).await.expect(200);
    assert_eq!(world.get(SESSIONS).await.expect(200).json()["items"], json!([]));
}

/// Checks dangerous operations, and some that are not dangerous.
#[tokio::test]
async fn dangerous_operations_require_recent_confirmation() {
    let (world, clock) = world().await;
    let tab = signed_in(&world, &world.admin).await;
    let me = tab.get(&world, ME).await.json();
    assert_eq!(me["session"]["confirmed_until"], server::time::shown(clock.now_us() + 900_000_000));
    let role = || {
        tab.send_request(&world, Method::PUT, "/api/v1/roles/looker", json!({ "permissions": ["job.read"] }))
    };
    clock.advance(Duration::from_secs(899));
    role().await.expect(201);
    clock.advance(Duration::from_secs(1));
    let dangerous = [
        (Method::PUT, "/api/v1/roles/other"),
        (Method::POST, "/api/v1/tokens"),
        (Method::DELETE, "/api/v1/users/00000000-0000-7000-8000-000000000000"),
        (Method::POST, "/api/v1/authorities"),
        (Method::POST, "/api/v1/revocations"),
        (Method::POST, "/api/v1/certificates/revoke"),
        (Method::POST, "/api/v1/certificates/00000000-0000-7000-8000-000000000000/export"),
        (Method::POST, "/api/v1/blocked-keys"),
        (Method::POST, "/api/v1/master-key/rotate"),
    ];
    for (method, path) in dangerous.clone() {
        let refused = tab.send_request(&world, method, path, json!({})).await.expect(403);
        assert_eq!(refused.problem(), "reauthentication-required", "{path}");
        assert!(refused.json()["hint"].as_str().unwrap().contains("/api/v1/auth/sessions/confirm"));
    }
    // Reads and requests with a token need no confirmation.
    tab.get(&world, "/api/v1/tokens").await.expect(200);
    for (method, path) in dangerous.clone() {
        let answer = send(world.with(&world.admin, method, path).json(&json!({}))).await;
        assert_ne!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    // A session cannot be confirmed by a link that it created itself.
    let own = tab.send_request(&world, Method::POST, LINKS, json!({})).await.expect(201).json();
    let confirm = |code: &Value| {
        tab.send_request(&world, Method::POST, "/api/v1/auth/sessions/confirm", json!({ "code": code }))
    };
    confirm(&own["code"]).await.expect(409);
    let other = Tab::of(&send(signing_in(&world, &json!({ "code": own["code"] }))).await.expect(201));
    let refused = other.send_request(&world, Method::PUT, "/api/v1/roles/other", json!({})).await.expect(403);
    assert_eq!(refused.problem(), "reauthentication-required");
    // A link of another identity does not confirm the session either.
    let viewer = world.token("looker", "viewer", "any").await;
    confirm(&link(&world, &viewer).await["code"]).await.expect(401);

    let fresh = link(&world, &world.admin).await["code"].clone();
    let me = confirm(&fresh).await.expect(200).json();
    assert_eq!(me["csrf_token"], tab.csrf.as_str());
    assert_eq!(me["session"]["confirmed_at"], server::time::shown(clock.now_us()));
    assert_ne!(role().await.status, StatusCode::FORBIDDEN);
    confirm(&fresh).await.expect(401);
    assert!(actions(&world, "token:first-admin").await.contains(&"session.confirm".to_owned()));
    // A token cannot be confirmed.
    let body = json!({ "code": "x" });
    send(world.with(&world.admin, Method::POST, "/api/v1/auth/sessions/confirm").json(&body))
        .await
        .expect(409);
}

const PASSWORD: &str = "correct horse battery staple";

/// Creates a user with a password and without an OIDC identity.
async fn person(world: &World, name: &str, role: &str) -> String {
    let body = json!({ "name": name, "grants": [{ "role": role, "scope": "any" }] });
    let made = world.post("/api/v1/users", body).await.expect(201).json();
    assert_eq!(made["label"], "local");
    let path = format!("/api/v1/users/{}", made["id"].as_str().unwrap());
    let put = world.with(&world.admin, Method::PUT, &format!("{path}/password"));
    send(put.json(&json!({ "password": PASSWORD }))).await.expect(204);
    path
}

/// Starts a server whose password rate limits do not refill during the test.
async fn limited(rates: SignInRates) -> World {
    let limits = LimitOptions { sign_in: rates, ..LimitOptions::default() };
    World::start_with(Plan { state: Box::new(move |state| state.limits(limits)), ..Plan::default() }).await
}

fn rate(burst: u32) -> SlowRate {
    SlowRate { every: Duration::from_secs(86_400), burst }
}

#[tokio::test]
async fn user_signs_in_with_a_password_and_changes_it() {
    let world = limited(SignInRates { pair: rate(50), address: rate(100), name: rate(100) }).await;
    let path = person(&world, "ann", "admin").await;
    let sign_in =
        |name: &str, password: &str| send(signing_in(&world, &json!({ "name": name, "password": password })));
    let tab = Tab::of(&sign_in("ann", PASSWORD).await.expect(201));
    let me = tab.get(&world, ME).await.json();
    assert_eq!(
        (me["actor"].as_str(), me["session"]["method"].as_str()),
        (Some("user:ann"), Some("password"))
    );
    // The response is the same for a wrong password, an unknown name, and a user without a password.
    let bob = json!({ "name": "bob", "grants": [{ "role": "viewer", "scope": "any" }] });
    world.post("/api/v1/users", bob).await.expect(201);
    let mut answers = Vec::new();
    for (name, password) in
        [("ann", "wrong"), ("nobody", PASSWORD), ("bob", PASSWORD), ("token:first-admin", PASSWORD)]
    {
        let refused = sign_in(name, password).await.expect(401);
        assert!(!refused.headers.contains_key("set-cookie"));
        let mut document = refused.json();
        document["instance"] = Value::Null;
        answers.push(document);
    }
    assert!(answers.windows(2).all(|two| two[0] == two[1]), "{answers:?}");
    for bad in [
        json!({ "name": "ann" }),
        json!({ "password": PASSWORD }),
        json!({ "name": "ann", "password": PASSWORD, "code": "x" }),
        json!({ "name": "ann", "password": "x".repeat(257) }),
    ] {
        assert_eq!(send(signing_in(&world, &bad)).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
    }

    // Changing one's own password ends the other sessions and keeps this one.
    let other = Tab::of(&sign_in("ann", PASSWORD).await.expect(201));
    let own = format!("{path}/password");
    for short in ["eleven char", ""] {
        tab.send_request(&world, Method::PUT, &own, json!({ "password": short })).await.expect(422);
    }
    tab.send_request(&world, Method::PUT, &own, json!({ "password": "another good password" }))
        .await
        .expect(204);
    tab.get(&world, ME).await.expect(200);
    other.get(&world, ME).await.expect(401);
    sign_in("ann", PASSWORD).await.expect(401);
    sign_in("ann", "another good password").await.expect(201);

    // A session is confirmed by the password of its user.
    let confirm = |password: &str| {
        tab.send_request(
            &world,
            Method::POST,
            "/api/v1/auth/sessions/confirm",
            json!({ "password": password }),
        )
    };
    confirm(PASSWORD).await.expect(401);
    confirm("another good password").await.expect(200);

    // A user with fewer permissions cannot set the password of a user with more.
    let manager = world.token("manager", "viewer", "any").await;
    let put = send(world.with(&manager, Method::PUT, &own).json(&json!({ "password": PASSWORD }))).await;
    assert_eq!(put.expect(403).problem(), "forbidden");
    let role = json!({ "permissions": ["access.manage"] });
    send(world.with(&world.admin, Method::PUT, "/api/v1/roles/managers").json(&role)).await.expect(201);
    let manager = world.token("second", "managers", "any").await;
    let put = send(world.with(&manager, Method::PUT, &own).json(&json!({ "password": PASSWORD }))).await;
    assert!(put.expect(403).text.contains("exceeds your own permissions"));

    // A disabled user cannot sign in.
    let patch = world.with(&world.admin, Method::PATCH, &path).header("if-match", "\"1\"");
    send(patch.json(&json!({ "enabled": false }))).await.expect(200);
    tab.get(&world, ME).await.expect(401);
    sign_in("ann", "another good password").await.expect(401);
    let audit = world.get("/api/v1/audit").await.text;
    assert!(audit.contains("user.password") && !audit.contains("argon2"), "{audit}");
    let refusals = async || world.get("/api/v1/audit?action=session.refuse").await.text;
    testbed::until_async("the refusal is in the audit log", async || refusals().await.contains("ann")).await;
}

#[tokio::test]
async fn password_sign_in_attempts_are_rate_limited() {
    let world = limited(SignInRates { pair: rate(3), address: rate(8), name: rate(100) }).await;
    person(&world, "ann", "viewer").await;
    person(&world, "bob", "viewer").await;
    let sign_in =
        |name: &str, password: &str| send(signing_in(&world, &json!({ "name": name, "password": password })));
    for _ in 0..3 {
        sign_in("ann", "wrong").await.expect(401);
    }
    // Even the correct password is rejected.
    let refused = sign_in("ann", PASSWORD).await.expect(429);
    assert!(refused.header("retry-after").parse::<u64>().unwrap() > 0);
    // Another user can sign in from the same address until the limit of the address is reached.
    sign_in("bob", PASSWORD).await.expect(201);
    for name in ["nobody-1", "nobody-2", "nobody-3"] {
        sign_in(name, PASSWORD).await.expect(401);
    }
    sign_in("bob", PASSWORD).await.expect(429);
    // Sign-in links are not limited.
    signed_in(&world, &world.admin).await;
}

/// An event stream ends with its session, or when its token loses the permission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_streams_end_when_the_reader_loses_access() {
    let world = World::start().await;
    let (tab, other) = (signed_in(&world, &world.admin).await, signed_in(&world, &world.admin).await);
    let role = json!({ "permissions": ["event.read"] });
    send(world.with(&world.admin, Method::PUT, "/api/v1/roles/followers").json(&role)).await.expect(201);
    let token = world.token("follower", "followers", "any").await;
    let viewer = world.token("looker", "viewer", "any").await;
    let narrowed = signed_in(&world, &token).await;
    let by_session =
        |tab: &Tab| world.bare(Method::GET, "/api/v1/events").header("cookie", &tab.cookie).send();
    let by_token = |token: &str| world.with(token, Method::GET, "/api/v1/events").send();
    let mut ending = vec![
        by_session(&tab).await.unwrap(),
        by_session(&other).await.unwrap(),
        by_session(&narrowed).await.unwrap(),
        by_token(&token).await.unwrap(),
    ];
    let mut viewer_stream = by_token(&viewer).await.unwrap();
    assert!(ending.iter().chain([&viewer_stream]).all(|stream| stream.status() == StatusCode::OK));

    tab.send_request(&world, Method::DELETE, SESSIONS, json!({})).await.expect(200);
    let role = json!({ "permissions": ["job.read"] });
    send(world.with(&world.admin, Method::PUT, "/api/v1/roles/followers").json(&role)).await.expect(200);
    for stream in &mut ending {
        let end = async { while stream.chunk().await.unwrap().is_some() {} };
        tokio::time::timeout(testbed::TIMEOUT, end).await.expect("the stream ends");
    }
    // A stream with remaining access receives the next event.
    let made = async { viewer_stream.chunk().await.unwrap().expect("the stream goes on") };
    let event =
        store::NewEvent { at_us: 0, kind: "test.done", subject: "x/1".to_owned(), body: "{}".to_owned() };
    let put = world.store.write("test", move |tx| async move { store::emit(tx, vec![event]).await }.boxed());
    put.await.unwrap();
    tokio::time::timeout(testbed::TIMEOUT, made).await.expect("an event");
}

/// Every unsafe route rejects a session cookie without the CSRF token, because another site can make a browser send the cookie.
#[tokio::test]
async fn unsafe_requests_with_a_session_cookie_require_the_csrf_token() {
    let plan = Plan {
        state: Box::new(|state| state.limits(LimitOptions::unlimited())),
        credentials: true,
        ..Plan::default()
    };
    let world = World::start_with(plan).await;
    let (tab, stranger) = (signed_in(&world, &world.admin).await, signed_in(&world, &world.admin).await);
    let (api, routes) = server::router(&world.state);
    let pages = server::credential_router_for_pages(&world.state);
    let of_api = routes.iter().filter(|route| route.need != Need::Nothing);
    let of_pages = server::credential_operations();
    let of_pages = of_pages.iter().filter(|one| {
        !matches!(one.need, NonApiAccess::Nothing | NonApiAccess::OwnCredential)
            && !["/v1/", "/oauth/"].iter().any(|face| one.path.starts_with(face))
    });
    let all = of_api.map(|route| (&api, &route.method, &route.path));
    let all = all.chain(of_pages.map(|one| (&pages, &one.method, &one.path)));
    let mut attempts = 0;
    for (router, method, path) in all.filter(|(_, method, _)| **method != Method::GET) {
        for csrf in [None, Some(&stranger.csrf)] {
            let request = Request::builder().method(method).uri(path.replace(['{', '}'], ""));
            let mut request =
                request.header("cookie", &tab.cookie).header("content-type", "application/json");
            if let Some(csrf) = csrf {
                request = request.header("x-csrf-token", csrf);
            }
            request = request.extension(authority::Peer::at([127, 0, 0, 1].into()));
            let answer = router.clone().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
            let status = answer.status();
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&text);
            assert!(
                status == StatusCode::FORBIDDEN && text.contains("X-CSRF-Token"),
                "{method} {path}: {status} {text}"
            );
            attempts += 1;
        }
    }
    assert!(attempts > 200, "{attempts}");
    tab.get(&world, ME).await.expect(200);
}
