//! Grants and roles in the database that this version cannot read: damaged, or written by a newer version.

use http::Method;
use serde_json::{Value, json};
use store::{AccessChange, IdentityKind, IdentitySettings, RoleChange};

use crate::world::{World, send};

const ME: &str = "/api/v1/auth/me";
const TOKENS: &str = "/api/v1/tokens";

/// Stores the permissions of a role without validation.
async fn store_role(world: &World, name: &str, permissions: &str) {
    let role = RoleChange {
        name: name.to_owned(),
        description: String::new(),
        permissions: permissions.to_owned(),
        revision: None,
        at_us: 1,
    };
    let stored = world.state.store().write("test", move |tx| {
        let role = role.clone();
        Box::pin(async move { store::put_role(tx, &role).await })
    });
    assert_eq!(stored.await.unwrap(), AccessChange::Done);
}

/// Creates a token with the role `viewer`, then stores these grants without validation. Returns its secret and its API path.
async fn token_with(world: &World, name: &str, grants: &str) -> (String, String) {
    let body = json!({ "name": name, "grants": [{ "role": "viewer" }] });
    let made = world.post(TOKENS, body).await.expect(201);
    let id = made.json()["id"].as_str().unwrap().parse().unwrap();
    let settings = IdentitySettings {
        name: name.to_owned(),
        email: None,
        grants: grants.to_owned(),
        enabled: true,
        expires_at_us: None,
    };
    let stored = world.state.store().write("test", move |tx| {
        let settings = settings.clone();
        Box::pin(async move { store::update_identity(tx, id, IdentityKind::Token, 1, &settings).await })
    });
    assert_eq!(stored.await.unwrap(), AccessChange::Done);
    (made.json()["token"].as_str().unwrap().to_owned(), format!("{TOKENS}/{id}"))
}

/// Creates a token with the role. Returns its secret and its API path.
async fn token_of(world: &World, name: &str, role: &str) -> (String, String) {
    let body = json!({ "name": name, "grants": [{ "role": role }] });
    let made = world.post(TOKENS, body).await.expect(201).json();
    (made["token"].as_str().unwrap().to_owned(), format!("{TOKENS}/{}", made["id"].as_str().unwrap()))
}

#[tokio::test]
async fn identity_with_unreadable_grants_is_rejected_and_reported() {
    let world = World::start().await;
    let cases = [
        ("damaged", r#"[{"role":"viewer""#),
        ("unknown scope", r#"[{"role":"viewer"},{"role":"viewer","scope":"galaxy:x"}]"#),
    ];
    for (name, grants) in cases {
        let (token, path) = token_with(&world, name, grants).await;
        for response in
            [send(world.with(&token, Method::GET, ME)).await, world.get(&path).await, world.get(TOKENS).await]
        {
            assert_eq!(response.status, 500, "{name}: {response:?}");
            let detail = response.json()["detail"].as_str().unwrap().to_owned();
            let id = path.rsplit('/').next().unwrap();
            assert!(detail.contains("access_identities.grants") && detail.contains(id), "{name}: {detail}");
        }

        // Recovery: an admin stores the grants again, or deletes the token.
        let patch = |body: Value| send(world.with(&world.admin, Method::PATCH, &path).json(&body));
        patch(json!({ "name": "other" })).await.expect(500);
        patch(json!({ "grants": [{ "role": "viewer" }] })).await.expect(200);
        send(world.with(&token, Method::GET, ME)).await.expect(200);
        world.get(TOKENS).await.expect(200);
    }
    let (_, path) = token_with(&world, "gone", "nonsense").await;
    send(world.with(&world.admin, Method::DELETE, &path)).await.expect(204);
    world.get(TOKENS).await.expect(200);
}

#[tokio::test]
async fn unreadable_role_grants_nothing_and_only_admins_can_change_it() {
    let cases = [("damaged", "certificate.read"), ("newer", r#"["audit.read","moon.read"]"#)];
    for (role, permissions) in cases {
        let world = World::start().await;
        store_role(&world, role, permissions).await;
        let (token, token_path) = token_of(&world, role, role).await;
        send(world.with(&token, Method::GET, "/api/v1/audit")).await.expect(403);
        let path = format!("/api/v1/roles/{role}");
        for path in [&path, "/api/v1/roles"] {
            let shown = world.get(path).await.expect(500);
            let detail = shown.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("access_roles.permissions") && detail.contains(role), "{detail}");
        }

        // For a newer version the role may hold any permission, so an access manager can neither grant nor change it.
        let body = json!({ "permissions": ["access.read", "access.manage", "audit.read"] });
        let manager_role = format!("/api/v1/roles/manager-{role}");
        send(world.with(&world.admin, Method::PUT, &manager_role).json(&body)).await.expect(201);
        let (manager, _) = token_of(&world, &format!("m-{role}"), &format!("manager-{role}")).await;
        let given = json!({ "name": format!("mine-{role}"), "grants": [{ "role": role }] });
        send(world.with(&manager, Method::POST, TOKENS).json(&given)).await.expect(403);
        send(world.with(&manager, Method::POST, &format!("{token_path}/rotate"))).await.expect(403);
        let body = json!({ "permissions": ["audit.read"] });
        send(world.with(&manager, Method::PUT, &path).json(&body)).await.expect(403);
        send(world.with(&manager, Method::DELETE, &path)).await.expect(403);

        // An admin stores the role again.
        send(world.with(&world.admin, Method::PUT, &path).json(&body)).await.expect(200);
        send(world.with(&token, Method::GET, "/api/v1/audit")).await.expect(200);
        world.get("/api/v1/roles").await.expect(200);
    }
}
