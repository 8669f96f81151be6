//! The credential store on the console's router: a browser session has the permissions of its identity and no others.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::access::{PROOF_LIFETIME, SessionOptions};
use store::Clock;
use tower::ServiceExt;

use crate::logging_in::Scene;
use crate::signing_in::{link, signed_in};
use crate::world::{Plan, World, now, send};

/// Sends a request with these headers.
async fn send_request(
    store: &Router,
    (method, path): (Method, &str),
    headers: &[(&str, &str)],
    body: Option<Value>,
) -> (StatusCode, Value) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let answer = store.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let status = answer.status();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn browser_session_has_the_credential_permissions_of_its_identity() {
    let scene =
        Scene::start_plan(SessionOptions::default(), Plan { credentials: true, ..Plan::default() }).await;
    let (mut browser, _) = scene.log_in().await;
    let me = scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.json();
    let (cookie, csrf) = (browser.line(), me["csrf_token"].as_str().unwrap());
    let actor = me["actor"].as_str().unwrap().to_owned();
    let store = server::credential_router_for_pages(&scene.world.state);

    let admin = format!("Bearer {}", scene.world.admin);
    let admin = [("authorization", admin.as_str())];
    let password = |name: &str, value: &str| json!({ "name": name, "type": "password", "value": value });
    for name in ["/a/x", "/b/x"] {
        let put =
            send_request(&store, (Method::PUT, "/api/v1/data"), &admin, Some(password(name, "one"))).await;
        assert_eq!(put.0, StatusCode::OK, "{}", put.1);
    }
    let grant = json!({ "path": "/a/*", "actor": actor, "operations": ["read", "write"] });
    let given = send_request(&store, (Method::POST, "/api/v2/permissions"), &admin, Some(grant)).await;
    assert!(given.0.is_success(), "{}", given.1);

    let session = [("cookie", cookie.as_str()), ("sec-fetch-site", "same-origin")];
    let read = |name: &str| format!("/api/v1/data?current=true&name={name}");
    let (status, found) = send_request(&store, (Method::GET, &read("/a/x")), &session, None).await;
    assert_eq!((status, &found["data"][0]["value"]), (StatusCode::OK, &json!("one")), "{found}");
    assert_eq!(
        send_request(&store, (Method::GET, &read("/b/x")), &session, None).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        send_request(&store, (Method::GET, &read("/a/x")), &[], None).await.0,
        StatusCode::UNAUTHORIZED
    );

    // A change requires the CSRF token of the session and a same-origin request.
    let put = (Method::PUT, "/api/v1/data");
    let changed = send_request(&store, put.clone(), &session, Some(password("/a/x", "two"))).await;
    assert_eq!(changed.0, StatusCode::FORBIDDEN, "{}", changed.1);
    let elsewhere = [("cookie", cookie.as_str()), ("x-csrf-token", csrf), ("sec-fetch-site", "cross-site")];
    let changed = send_request(&store, put.clone(), &elsewhere, Some(password("/a/x", "two"))).await;
    assert_eq!(changed.0, StatusCode::FORBIDDEN, "{}", changed.1);
    let own = [("cookie", cookie.as_str()), ("x-csrf-token", csrf), ("sec-fetch-site", "same-origin")];
    let changed = send_request(&store, put.clone(), &own, Some(password("/a/x", "two"))).await;
    assert_eq!(changed.0, StatusCode::OK, "{}", changed.1);
    let changed = send_request(&store, put, &own, Some(password("/b/x", "two"))).await;
    assert!(changed.0.is_client_error(), "{}", changed.1);
    let (_, unchanged) = send_request(&store, (Method::GET, &read("/b/x")), &admin, None).await;
    assert_eq!(unchanged["data"][0]["value"], "one");

    // The credential listener accepts no session cookies.
    let address = scene.world.running.as_ref().unwrap().credential_address.unwrap();
    let url = format!("https://{address}{}", read("/a/x"));
    let client = scene.world.builder().build().unwrap();
    send(client.get(url).header("cookie", &cookie)).await.expect(401);
}

/// Operations that a session may perform only within 15 minutes after its last confirmation, and operations without this limit.
#[tokio::test]
async fn session_needs_recent_confirmation_to_reveal_or_change_credentials() {
    let clock = Clock::manual(now() * 1_000_000);
    let plan = Plan { clock: clock.clone(), credentials: true, ..Plan::default() };
    let world = World::start_with(plan).await;
    let store = server::credential_router_for_pages(&world.state);
    let tab = signed_in(&world, &world.admin).await;
    let own = [
        ("cookie", tab.cookie.as_str()),
        ("x-csrf-token", tab.csrf.as_str()),
        ("sec-fetch-site", "same-origin"),
    ];
    let make = |name: &str| {
        let parameters = json!({ "common_name": name, "is_ca": true, "self_sign": true });
        json!({ "name": name, "type": "certificate", "parameters": parameters })
    };
    let (status, ca) = send_request(&store, (Method::POST, "/api/v1/data"), &own, Some(make("/a/ca"))).await;
    assert_eq!(status, StatusCode::OK, "{ca}");
    let id = ca["id"].as_str().unwrap();
    let (_, listed) = send_request(&store, (Method::GET, "/api/v1/certificates"), &own, None).await;
    let certificate = listed["certificates"][0]["id"].as_str().unwrap();
    let reveals = [
        "/api/v1/data?name=/a/ca".to_owned(),
        "/api/v1/data/?current=true&name=/a/ca".to_owned(),
        "/api/v1/data?name=%2Fa%2Fca&path=/a".to_owned(),
        format!("/api/v1/data/{id}"),
        format!("/api/v1/certificates/{certificate}/versions"),
    ];
    let permission = json!({ "path": "/a/b", "actor": "uaa-client:x", "operations": ["read"] });
    let changes = [
        (Method::PUT, "/api/v1/data", json!({ "name": "/a/x", "type": "password", "value": "one" })),
        (Method::POST, "/api/v1/data", make("/a/ca")),
        (Method::POST, "/api/v1/regenerate", json!({ "name": "/a/ca" })),
        (Method::POST, "/api/v1/lookup", json!({ "lookups": [["/a/ca"]] })),
        (Method::POST, "/api/v1/wrap", json!({ "name": "/a/ca" })),
        (Method::POST, "/api/v2/permissions", permission),
        (Method::DELETE, "/api/v1/data?name=/a/ca", Value::Null),
    ];
    for path in &reveals {
        let (status, shown) = send_request(&store, (Method::GET, path), &own, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {shown}");
        assert!(shown.to_string().contains("PRIVATE KEY"), "{path}: {shown}");
    }

    clock.advance(PROOF_LIFETIME);
    let unproved = |path: &str, (status, problem): (StatusCode, Value)| {
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}: {problem}");
        let kind = problem["type"].as_str().unwrap_or_default();
        assert!(kind.ends_with("/reauthentication-required"), "{path}: {problem}");
        assert!(!problem.to_string().contains("PRIVATE KEY"), "{path}: {problem}");
    };
    // More requests than the limit for failed authentication: they do not count as failures.
    for path in reveals.iter().cycle().take(200) {
        unproved(path, send_request(&store, (Method::GET, path), &own, None).await);
    }
    for (method, path, body) in changes {
        unproved(path, send_request(&store, (method, path), &own, Some(body)).await);
    }
    // Names, versions and permissions reveal no values. A token authenticates each request.
    for path in
        ["data?path=/a", "data?name-like=ca", "versions?name=/a/ca", "certificates", "access?name=/a/ca"]
    {
        let path = format!("/api/v1/{path}");
        let (status, found) = send_request(&store, (Method::GET, &path), &own, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {found}");
    }
    let admin = format!("Bearer {}", world.admin);
    for path in &reveals {
        let (status, _) = send_request(&store, (Method::GET, path), &[("authorization", &admin)], None).await;
        assert_eq!(status, StatusCode::OK, "{path}");
    }

    let code = link(&world, &world.admin).await["code"].clone();
    tab.send_request(&world, Method::POST, "/api/v1/auth/sessions/confirm", json!({ "code": code }))
        .await
        .expect(200);
    assert_eq!(send_request(&store, (Method::GET, &reveals[0]), &own, None).await.0, StatusCode::OK);
    let deleted = send_request(&store, (Method::DELETE, "/api/v1/data?name=/a/ca"), &own, None).await;
    assert_eq!(deleted.0, StatusCode::NO_CONTENT, "{}", deleted.1);
}
