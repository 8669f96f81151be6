//! What routes need, by their kind. Who is let in is the matrix's business.

use http::Method;
use server::access::Permission;
use server::routing::Need;
use server::{State, router};
use store::Clock;

use crate::world::store;

#[tokio::test]
async fn few_routes_need_nobody_and_changes_need_more_than_reading() {
    let (_folder, store) = store().await;
    let state = State::builder(store, Clock::system()).build();
    let (_, routes) = router(&state);
    let open: Vec<_> =
        routes.iter().filter(|route| route.need == Need::Nothing).map(|route| route.path.as_str()).collect();
    // Anyone who adds one here says why it may be called by anybody.
    let wanted = [
        "/healthz",
        "/readyz",
        "/api/v1/auth/login",
        "/api/v1/auth/callback",
        // The code of a link, or the password, in the body is the credential.
        "/api/v1/auth/sessions",
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
