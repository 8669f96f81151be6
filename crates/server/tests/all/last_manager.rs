//! The last identity that can manage access cannot lose this permission.

use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::Clock;
use testbed::Database;

use crate::world::{Plan, TestResponse, World, now, send};

/// A server with one admin and a manual clock.
pub(crate) struct Fixture {
    world: World,
    clock: Clock,
}

impl Fixture {
    async fn on(database: Database) -> Self {
        let clock = Clock::manual(now() * 1_000_000);
        let plan = Plan { clock: clock.clone(), database, ..Plan::default() };
        Self { world: World::start_with(plan).await, clock }
    }

    async fn sqlite() -> Self {
        Self::on(Database::sqlite()).await
    }

    async fn postgres() -> Self {
        Self::on(Database::postgres().await).await
    }

    /// Returns the API path of the first admin's token.
    async fn first(&self) -> String {
        let found = self.world.get("/api/v1/tokens").await.expect(200).json();
        let first = found["items"].as_array().unwrap().iter().find(|one| one["name"] == "first-admin");
        format!("/api/v1/tokens/{}", first.unwrap()["id"].as_str().unwrap())
    }

    async fn revision(&self, path: &str) -> String {
        self.world.get(path).await.expect(200).header("etag").to_owned()
    }

    async fn change(&self, method: Method, path: &str, body: Value) -> TestResponse {
        let request = self.world.with(&self.world.admin, method, path);
        send(request.header("if-match", self.revision(path).await).json(&body)).await
    }

    /// Creates a token with this role. Returns its secret and its API path.
    async fn token(&self, name: &str, role: &str, lives: Option<Duration>) -> (String, String) {
        let ends = lives.map(|lives| self.clock.now_us() + i64::try_from(lives.as_micros()).unwrap());
        let grants = json!([{ "role": role, "scope": "any" }]);
        let body = json!({ "name": name, "grants": grants, "expires_at": ends.map(server::time::shown) });
        let made = self.world.post("/api/v1/tokens", body).await.expect(201).json();
        let path = format!("/api/v1/tokens/{}", made["id"].as_str().unwrap());
        (made["token"].as_str().unwrap().to_owned(), path)
    }

    /// Asserts that every way to remove the first admin's access is rejected.
    async fn assert_first_admin_is_protected(&self) {
        let first = self.first().await;
        let soon = server::time::shown(self.clock.now_us() + 3_600_000_000);
        for (method, body) in [
            (Method::PATCH, json!({ "enabled": false })),
            (Method::PATCH, json!({ "grants": [{ "role": "operator", "scope": "any" }] })),
            (Method::PATCH, json!({ "grants": [{ "role": "admin", "scope": "team:core" }] })),
            (Method::PATCH, json!({ "grants": [] })),
            (Method::PATCH, json!({ "expires_at": soon })),
            (Method::DELETE, Value::Null),
        ] {
            let refused = self.change(method, &first, body.clone()).await;
            assert_eq!(refused.status, StatusCode::CONFLICT, "{body}: {refused:?}");
            assert!(refused.text.contains("bulla token create NAME --role admin"), "{refused:?}");
        }
        self.world.get("/api/v1/tokens").await.expect(200);
    }
}

const DAY: Duration = Duration::from_secs(86_400);

async fn last_admin_cannot_be_disabled_or_deleted(fixture: Fixture) {
    fixture.assert_first_admin_is_protected().await;
    // Changes that remove no access are accepted.
    let first = fixture.first().await;
    fixture
        .change(Method::PATCH, &first, json!({ "name": "first-admin", "enabled": true }))
        .await
        .expect(200);
    // None of these replaces the admin: fewer permissions, a narrow scope, a short lifetime, no way to log in, disabled.
    fixture.token("operator", "operator", None).await;
    fixture.token("break-glass", "admin", Some(DAY)).await;
    let narrow = json!({ "name": "narrow", "grants": [{ "role": "admin", "scope": "team:core" }] });
    fixture.world.post("/api/v1/tokens", narrow).await.expect(201);
    let person = json!({ "name": "ann", "grants": [{ "role": "admin", "scope": "any" }] });
    let person = fixture.world.post("/api/v1/users", person).await.expect(201).json();
    let person = format!("/api/v1/users/{}", person["id"].as_str().unwrap());
    let known = json!({ "name": "bob", "subject": "bob", "issuer": "https://issuer.example",
        "grants": [{ "role": "admin", "scope": "any" }] });
    fixture.world.post("/api/v1/users", known).await.expect(201);
    let (_, disabled) = fixture.token("disabled", "admin", None).await;
    fixture.change(Method::PATCH, &disabled, json!({ "enabled": false })).await.expect(200);
    fixture.assert_first_admin_is_protected().await;

    // With a password the user can log in, and replaces the token as the last admin.
    let password = fixture.world.with(&fixture.world.admin, Method::PUT, &format!("{person}/password"));
    send(password.json(&json!({ "password": "correct horse battery staple" }))).await.expect(204);
    let (other, path) = fixture.token("other", "admin", Some(90 * DAY)).await;
    fixture.change(Method::DELETE, &person, Value::Null).await.expect(204);
    let disable = send(
        fixture
            .world
            .with(&other, Method::PATCH, &first)
            .header("if-match", fixture.revision(&first).await)
            .json(&json!({ "enabled": false })),
    );
    disable.await.expect(200);
    let delete = send(fixture.world.with(&other, Method::DELETE, &path).header("if-match", "\"1\"")).await;
    delete.expect(409);
}

/// A custom role with `access.manage` is protected like `admin`.
async fn role_of_the_last_admin_cannot_be_deleted_or_lose_access_management(fixture: Fixture) {
    let role = "/api/v1/roles/managers";
    let permissions = json!({ "permissions": ["access.manage", "access.read", "job.read"] });
    let put = fixture.world.with(&fixture.world.admin, Method::PUT, role).json(&permissions);
    send(put).await.expect(201);
    let (manager, _) = fixture.token("manager", "managers", None).await;
    let first = fixture.first().await;
    fixture
        .change(Method::PATCH, &first, json!({ "grants": [{ "role": "managers", "scope": "any" }] }))
        .await
        .expect(200);
    let change = async |method: Method, path: &str, body: Value| {
        let etag = send(fixture.world.with(&manager, Method::GET, path)).await.expect(200);
        let request = fixture.world.with(&manager, method, path);
        send(request.header("if-match", etag.header("etag")).json(&body)).await
    };
    change(Method::PUT, role, json!({ "permissions": ["job.read"] })).await.expect(409);
    change(Method::DELETE, role, Value::Null).await.expect(409);
    change(Method::PUT, role, json!({ "permissions": ["access.manage", "access.read"] })).await.expect(200);
    change(Method::DELETE, &first, Value::Null).await.expect(204);
}

/// If all admins disable themselves at the same time, one remains enabled.
async fn concurrent_disabling_of_all_admins_leaves_one(fixture: Fixture) {
    const ADMINS: usize = 8;
    let mut admins = Vec::new();
    for number in 0..ADMINS {
        admins.push(fixture.token(&format!("admin-{number}"), "admin", None).await);
    }
    admins.push((fixture.world.admin.clone(), fixture.first().await));
    for (token, path) in &admins {
        send(fixture.world.with(token, Method::GET, path)).await.expect(200);
    }
    let disabled = admins.iter().map(|(token, path)| {
        let request = fixture.world.with(token, Method::PATCH, path).header("if-match", "\"1\"");
        send(request.json(&json!({ "enabled": false })))
    });
    let answers = join_all(disabled).await;
    let refused: Vec<usize> =
        (0..answers.len()).filter(|at| answers[*at].status == StatusCode::CONFLICT).collect();
    assert_eq!(refused.len(), 1, "{answers:?}");
    let done = answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
    assert_eq!(done, ADMINS, "{answers:?}");
    let (token, path) = &admins[refused[0]];
    send(fixture.world.with(token, Method::GET, path)).await.expect(200);
}

testbed::on_both! { crate::last_manager::Fixture: last_admin_cannot_be_disabled_or_deleted role_of_the_last_admin_cannot_be_deleted_or_lose_access_management concurrent_disabling_of_all_admins_leaves_one }
