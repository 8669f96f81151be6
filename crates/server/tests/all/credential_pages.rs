//! The credential store for pages of the server's process: a browser's session may there what its identity may, and no more.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::access::SessionOptions;
use tower::ServiceExt;

use crate::logging_in::Scene;
use crate::world::{Plan, send};

/// Asks with headers of a browser or a program.
async fn ask(
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
async fn a_session_may_what_its_identity_may() {
    let scene =
        Scene::start_plan(SessionOptions::default(), Plan { credentials: true, ..Plan::default() }).await;
    let (mut browser, _) = scene.log_in().await;
    let me = scene.ask(&mut browser, Method::GET, "/api/v1/auth/me", None).await.json();
    let (cookie, csrf) = (browser.line(), me["csrf_token"].as_str().unwrap());
    let actor = format!("uaa-{}", me["actor"].as_str().unwrap());
    let store = server::credential_router_for_pages(&scene.world.state);

    let admin = format!("Bearer {}", scene.world.admin);
    let admin = [("authorization", admin.as_str())];
    let password = |name: &str, value: &str| json!({ "name": name, "type": "password", "value": value });
    for name in ["/a/x", "/b/x"] {
        let put = ask(&store, (Method::PUT, "/api/v1/data"), &admin, Some(password(name, "one"))).await;
        assert_eq!(put.0, StatusCode::OK, "{}", put.1);
    }
    let grant = json!({ "path": "/a/*", "actor": actor, "operations": ["read", "write"] });
    let given = ask(&store, (Method::POST, "/api/v2/permissions"), &admin, Some(grant)).await;
    assert!(given.0.is_success(), "{}", given.1);

    let session = [("cookie", cookie.as_str()), ("sec-fetch-site", "same-origin")];
    let read = |name: &str| format!("/api/v1/data?current=true&name={name}");
    let (status, found) = ask(&store, (Method::GET, &read("/a/x")), &session, None).await;
    assert_eq!((status, &found["data"][0]["value"]), (StatusCode::OK, &json!("one")), "{found}");
    assert_eq!(ask(&store, (Method::GET, &read("/b/x")), &session, None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(&store, (Method::GET, &read("/a/x")), &[], None).await.0, StatusCode::UNAUTHORIZED);

    // A change needs the session's token, from a page of this site.
    let put = (Method::PUT, "/api/v1/data");
    let changed = ask(&store, put.clone(), &session, Some(password("/a/x", "two"))).await;
    assert_eq!(changed.0, StatusCode::FORBIDDEN, "{}", changed.1);
    let elsewhere = [("cookie", cookie.as_str()), ("x-csrf-token", csrf), ("sec-fetch-site", "cross-site")];
    let changed = ask(&store, put.clone(), &elsewhere, Some(password("/a/x", "two"))).await;
    assert_eq!(changed.0, StatusCode::FORBIDDEN, "{}", changed.1);
    let own = [("cookie", cookie.as_str()), ("x-csrf-token", csrf), ("sec-fetch-site", "same-origin")];
    let changed = ask(&store, put.clone(), &own, Some(password("/a/x", "two"))).await;
    assert_eq!(changed.0, StatusCode::OK, "{}", changed.1);
    let changed = ask(&store, put, &own, Some(password("/b/x", "two"))).await;
    assert!(changed.0.is_client_error(), "{}", changed.1);
    let (_, kept) = ask(&store, (Method::GET, &read("/b/x")), &admin, None).await;
    assert_eq!(kept["data"][0]["value"], "one");

    // The listener knows no sessions.
    let address = scene.world.running.as_ref().unwrap().credential_address.unwrap();
    let url = format!("https://{address}{}", read("/a/x"));
    let client = scene.world.builder().build().unwrap();
    send(client.get(url).header("cookie", &cookie)).await.expect(401);
}
