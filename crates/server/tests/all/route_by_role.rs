//! Every route, with nobody and with every role.

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use secrecy::ExposeSecret;
use serde_json::json;
use server::access::{self, BUILT_IN_ROLES, Permission};
use server::limit::LimitOptions;
use server::routing::{Need, RouteInfo};
use server::{State, router};
use store::Clock;
use tower::ServiceExt;

use crate::world::store;

async fn status(router: &Router, route: &RouteInfo, token: Option<&str>) -> u16 {
    let path = route.path.replace("{id}", "00000000-0000-7000-8000-000000000000");
    // What is left is names; none of them names anything.
    let path: String = path
        .split('/')
        .map(|part| if part.starts_with('{') { "-none-" } else { part })
        .collect::<Vec<_>>()
        .join("/");
    let mut request = Request::builder().method(&route.method).uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    // No body: whoever is let in fails later than at the door.
    router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
}

async fn token(router: &Router, admin: &str, name: &str, scope: &str) -> String {
    let body = json!({ "name": format!("{name}-{scope}"), "grants": [{ "role": name, "scope": scope }] });
    let request = Request::post("/api/v1/tokens")
        .header("authorization", format!("Bearer {admin}"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice::<serde_json::Value>(&body).unwrap()["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_route_lets_in_whom_it_should() {
    let (_folder, store) = store().await;
    let clock = Clock::system();
    let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
    let limits = LimitOptions::unlimited();
    let state = State::builder(store, clock).limits(limits).build();
    let (router, routes) = router(&state);
    assert!(routes.len() > 30, "the routes are listed: {}", routes.len());
    let mut faults = Vec::new();
    for role in BUILT_IN_ROLES {
        for scope in ["any", "team:a"] {
            let token = token(&router, &admin, role.name, scope).await;
            for route in &routes {
                let got = status(&router, route, Some(&token)).await;
                let allowed = match route.need {
                    Need::Nothing | Need::Caller => true,
                    Need::Permission(permission) => {
                        role.permissions.has(permission) && (scope == "any" || route.scoped)
                    }
                };
                // A scoped route may refuse the thing at hand to who holds the permission elsewhere.
                let good = match (allowed, scope) {
                    (true, "any") => got != 401 && got != 403,
                    (true, _) => got != 401,
                    (false, _) => got == 403,
                };
                if !good {
                    faults
                        .push(format!("{} {} as {} in {scope}: {got}", route.method, route.path, role.name));
                }
            }
        }
    }
    for route in &routes {
        for token in [None, Some("bulla_nobody"), Some("nonsense")] {
            let got = status(&router, route, token).await;
            let good = if route.need == Need::Nothing { got != 401 && got != 403 } else { got == 401 };
            if !good {
                faults.push(format!("{} {} as nobody: {got}", route.method, route.path));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn few_routes_need_nobody_and_changes_need_more_than_reading() {
    let (_folder, store) = store().await;
    let state = State::builder(store, Clock::system()).build();
    let (_, routes) = router(&state);
    let open: Vec<_> =
        routes.iter().filter(|route| route.need == Need::Nothing).map(|route| route.path.as_str()).collect();
    // Whoever adds one here says why it may be called by anybody.
    let wanted = [
        "/healthz",
        "/readyz",
        "/api/v1/auth/login",
        "/api/v1/auth/callback",
        // An agent that is not yet one: the enrolment token in the body is its credential.
        "/api/v1/agent/enroll",
        // A node likewise.
        "/api/v1/key-nodes/enroll",
    ];
    let unexpected: Vec<_> = open.iter().filter(|path| !wanted.contains(path)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    for route in &routes {
        let Need::Permission(permission) = route.need else { continue };
        let reads = permission.name().ends_with(".read");
        let changes = matches!(route.method, Method::PUT | Method::PATCH | Method::DELETE);
        assert!(!(reads && changes), "{} {} needs no more than {permission}", route.method, route.path);
    }
    assert!(routes.iter().any(|route| route.need == Need::Permission(Permission::AuditVerify)));
}
