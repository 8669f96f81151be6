//! The permissions that routes require. The matrix tests which callers are authorized.

use http::Method;
use server::access::Permission;
use server::routing::Need;
use server::{State, router};
use store::Clock;

use crate::world::store;

#[tokio::test]
async fn only_listed_routes_are_open_and_changes_need_write_permissions() {
    let (_folder, store) = store().await;
    let state = State::builder(store, Clock::system()).build();
    let (_, routes) = router(&state);
    let open: Vec<_> =
        routes.iter().filter(|route| route.need == Need::Nothing).map(|route| route.path.as_str()).collect();
    // Each route in this list has a comment that explains why it is open.
    let wanted = [
        "/healthz",
        "/readyz",
        "/api/v1/auth/login",
        "/api/v1/auth/callback",
        // The credential is in the body: the code of a link, or the password.
        "/api/v1/auth/sessions",
        // Begins a sign-in with a passkey: it returns a challenge, limited by address, and says nothing about users.
        "/api/v1/auth/sessions/challenge",
        // The agent has no identity yet: the join token in the body is its credential.
        "/api/v1/agent/enroll",
        // The same for a key node.
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
