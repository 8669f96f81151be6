//! Certification authorities, profiles, issuance and revocation over the API.

use authority::keystore::KeyStore;
use authority::{Authority, AuthorityOptions};
use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use keys::Keyring;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::{Components, State, access, router};
use store::Clock;
use tower::ServiceExt;

use crate::world::{self, issuance, store};

struct Api {
    router: Router,
    admin: String,
    _folder: tempfile::TempDir,
}

impl Api {
    async fn new() -> Self {
        let (folder, store) = store().await;
        let clock = Clock::system();
        let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let options =
            AuthorityOptions { base_url: "http://pki.example".to_owned(), ..AuthorityOptions::default() };
        let authority = Authority::open(store.clone(), keystore, clock.clone(), options).unwrap();
        let issuance = issuance(&authority, &store, &clock);
        let components = Components { issuance: Some(issuance), ..Components::default() };
        let state = State::builder(store, clock).components(components).build();
        Self { router: router(&state).0, admin, _folder: folder }
    }

    async fn send_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Value,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn send_request(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        self.send_as(&self.admin, method, path, body, &[]).await
    }

    /// Creates a token with this role in this scope only.
    async fn token(&self, role: &str, scope: &str) -> String {
        let body = json!({ "name": format!("{role} {scope}"), "grants": [{ "role": role, "scope": scope }] });
        let (status, made) = self.send_request(Method::POST, "/api/v1/tokens", body).await;
        assert_eq!(status, 201, "{made}");
        made["token"].as_str().unwrap().to_owned()
    }

    async fn with_authority(self) -> Self {
        let root = json!({ "name": "root", "subject": "CN=Root" });
        assert_eq!(self.send_request(Method::POST, "/api/v1/authorities", root).await.0, 201);
        let web = json!({ "name": "web-ca", "subject": "CN=Web", "parent": "root" });
        let (status, made) = self.send_request(Method::POST, "/api/v1/authorities", web).await;
        assert_eq!((status, &made["state"], &made["root"]), (201, &json!("active"), &json!(false)), "{made}");
        let profile = json!({ "name": "web", "names": { "dns_allowed": [".example"] } });
        let (status, made) = self.send_request(Method::POST, "/api/v1/profiles", profile).await;
        assert_eq!((status, &made["revision"]), (201, &json!(1)), "{made}");
        self
    }
}

#[tokio::test]
async fn certificate_is_issued_listed_and_revoked_over_the_api() {
    let api = Api::new().await.with_authority().await;
    let path = "/api/v1/profiles/web/certificates";
    let body = json!({ "csr": world::request_for("a.example") });
    let key = [("idempotency-key", "order-1")];
    let (status, issued) = api.send_as(&api.admin, Method::POST, path, body.clone(), &key).await;
    assert_eq!(status, 201, "{issued}");
    let (status, repeated) = api.send_as(&api.admin, Method::POST, path, body, &key).await;
    assert_eq!((status, &repeated), (201, &issued));
    assert_eq!(issued["chain"].as_str().unwrap().matches("BEGIN CERTIFICATE").count(), 2);
    let id = issued["id"].as_str().unwrap();
    for name in [id, issued["fingerprint"].as_str().unwrap()] {
        let (status, shown) =
            api.send_request(Method::GET, &format!("/api/v1/issued/{name}"), Value::Null).await;
        assert_eq!((status, &shown["status"]), (200, &json!("good")));
        assert_eq!((&shown["names"], &shown["source"]), (&json!(["a.example"]), &json!("api")));
    }
    let (_, listed) =
        api.send_request(Method::GET, "/api/v1/issued?profile=web&name=example", Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);

    let bad = json!({ "csr": world::request_for("a.other") });
    let (status, refused) = api.send_request(Method::POST, path, bad).await;
    assert_eq!((status, &refused["names"][0]["name"]), (422, &json!("a.other")), "{refused}");
    assert!(refused["type"].as_str().unwrap().ends_with("/names-not-allowed"));
    assert_eq!(api.send_request(Method::POST, path, json!({ "csr": "nonsense" })).await.0, 422);
    let mut forged = world::request_for("a.example").into_bytes();
    let middle = forged.len() / 2;
    forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
    let forged = json!({ "csr": String::from_utf8(forged).unwrap() });
    assert_eq!(api.send_request(Method::POST, path, forged).await.0, 422, "the key must be held");

    let revoke = "/api/v1/revocations";
    let (status, done) =
        api.send_request(Method::POST, revoke, json!({ "reason": "superseded", "certificate": id })).await;
    assert_eq!((status, &done["count"]), (200, &json!(1)), "{done}");
    let (_, shown) = api.send_request(Method::GET, &format!("/api/v1/issued/{id}"), Value::Null).await;
    assert_eq!((&shown["status"], &shown["revocation_reason"]), (&json!("revoked"), &json!("superseded")));
    let serial = json!({ "ca": "web-ca", "serial": issued["serial"] });
    let (_, done) =
        api.send_request(Method::POST, revoke, json!({ "reason": "keyCompromise", "serial": serial })).await;
    assert_eq!(done["count"], 1);
    for (body, status) in [
        (json!({ "reason": "superseded" }), 422),
        (json!({ "reason": "superseded", "certificate": id, "key": shown["spki_sha256"] }), 422),
        (json!({ "reason": "boredom", "certificate": id }), 422),
        (json!({ "reason": "superseded", "filter": {} }), 422),
        (json!({ "reason": "superseded", "certificate": uuid::Uuid::new_v4() }), 404),
        (json!({ "reason": "superseded", "filter": { "profile": "web" } }), 200),
    ] {
        assert_eq!(api.send_request(Method::POST, revoke, body.clone()).await.0, status, "{body}");
    }

    let (_, issued) =
        api.send_request(Method::POST, path, json!({ "csr": world::request_for("b.example") })).await;
    let (status, done) =
        api.send_request(Method::POST, "/api/v1/blocked-keys", json!({ "certificate": issued["id"] })).await;
    assert_eq!((status, &done["count"]), (200, &json!(1)));
    let (_, shown) = api
        .send_request(Method::GET, &format!("/api/v1/issued/{}", issued["id"].as_str().unwrap()), Value::Null)
        .await;
    let blocked_key_path = format!("/api/v1/blocked-keys/{}", shown["spki_sha256"].as_str().unwrap());
    assert_eq!(api.send_request(Method::GET, &blocked_key_path, Value::Null).await.1["blocked"], true);
}

#[tokio::test]
async fn profile_updates_require_the_current_revision_and_approval() {
    let api = Api::new().await.with_authority().await;
    let (status, mut shown) = api.send_request(Method::GET, "/api/v1/profiles/web", Value::Null).await;
    assert_eq!((status, &shown["validity"]["default_seconds"]), (200, &json!(4_060_800)));
    shown["requires_approval"] = json!(true);
    let put = |tag: &'static str, body: Value| {
        let api = &api;
        async move {
            api.send_as(&api.admin, Method::PUT, "/api/v1/profiles/web", body, &[("if-match", tag)]).await
        }
    };
    assert_eq!(put("\"7\"", shown.clone()).await.0, 412);
    let (status, changed) = put("\"1\"", shown.clone()).await;
    assert_eq!((status, &changed["revision"]), (200, &json!(2)), "what was shown is sent back: {changed}");
    let (status, refused) = api
        .send_request(
            Method::POST,
            "/api/v1/profiles/web/certificates",
            json!({ "csr": world::request_for("a.example") }),
        )
        .await;
    assert_eq!(
        (status, refused["type"].as_str().unwrap().rsplit('/').next()),
        (409, Some("approval-required"))
    );
    shown["name"] = json!("other");
    assert_eq!(put("\"2\"", shown.clone()).await.0, 422, "no renaming");
    let twice = json!({ "name": "web", "names": { "dns_allowed": ["."] } });
    assert_eq!(api.send_request(Method::POST, "/api/v1/profiles", twice).await.0, 409);
    let (status, refused) = api
        .send_request(Method::POST, "/api/v1/profiles", json!({ "name": "x", "names": { "dns": [] } }))
        .await;
    assert!(
        status == 422 && refused["detail"].as_str().unwrap().contains("unknown field `dns`"),
        "{refused}"
    );
    // The profile now requires approval, so its deletion requires approval too.
    let (status, change) = api.send_request(Method::DELETE, "/api/v1/profiles/web", Value::Null).await;
    assert_eq!((status, &change["action"]), (202, &json!("profile.delete")), "{change}");
    assert_eq!(api.send_request(Method::GET, "/api/v1/profiles/web", Value::Null).await.0, 200);
    assert_eq!(
        api.send_request(
            Method::POST,
            "/api/v1/profiles",
            json!({ "name": "fleeting", "names": { "dns_allowed": ["."] } })
        )
        .await
        .0,
        202
    );
    let apart = json!({ "name": "apart", "names": { "ip_allowed": ["192.0.2.0/24"] } });
    assert_eq!(api.send_request(Method::POST, "/api/v1/profiles", apart).await.0, 201);
    assert_eq!(api.send_request(Method::DELETE, "/api/v1/profiles/apart", Value::Null).await.0, 204);
    assert_eq!(api.send_request(Method::GET, "/api/v1/profiles/apart", Value::Null).await.0, 404);
}

#[tokio::test]
async fn profile_scope_limits_issuance_reads_and_revocation() {
    let api = Api::new().await.with_authority().await;
    let other = json!({ "name": "other", "names": { "dns_allowed": [".example"] } });
    assert_eq!(api.send_request(Method::POST, "/api/v1/profiles", other).await.0, 201);
    let token = api.token("operator", "profile:web").await;
    let send = |method: Method, path: String, body: Value| {
        let (api, token) = (&api, &token);
        async move { api.send_as(token, method, &path, body, &[]).await }
    };
    let csr = || json!({ "csr": world::request_for("a.example") });
    let (status, mine) = send(Method::POST, "/api/v1/profiles/web/certificates".into(), csr()).await;
    assert_eq!(status, 201, "{mine}");
    assert_eq!(send(Method::POST, "/api/v1/profiles/other/certificates".into(), csr()).await.0, 403);
    let (_, theirs) = api.send_request(Method::POST, "/api/v1/profiles/other/certificates", csr()).await;
    let at = |issued: &Value| format!("/api/v1/issued/{}", issued["id"].as_str().unwrap());
    assert_eq!(send(Method::GET, at(&mine), Value::Null).await.0, 200);
    assert_eq!(send(Method::GET, at(&theirs), Value::Null).await.0, 404);
    assert_eq!(send(Method::GET, "/api/v1/issued".into(), Value::Null).await.0, 403);
    assert_eq!(send(Method::GET, "/api/v1/issued?profile=web".into(), Value::Null).await.0, 200);
    assert_eq!(send(Method::GET, "/api/v1/issued?profile=other".into(), Value::Null).await.0, 403);
    let (_, profiles) = send(Method::GET, "/api/v1/profiles".into(), Value::Null).await;
    assert_eq!(profiles["items"].as_array().unwrap().len(), 1);
    for (body, status) in [
        (json!({ "reason": "superseded", "certificate": theirs["id"] }), 404),
        (json!({ "reason": "superseded", "certificates": [mine["id"]] }), 403),
        (json!({ "reason": "superseded", "filter": { "name": "a.example" } }), 403),
        (json!({ "reason": "superseded", "filter": { "profile": "other" } }), 403),
        (json!({ "reason": "superseded", "filter": { "profile": "web" } }), 200),
    ] {
        assert_eq!(send(Method::POST, "/api/v1/revocations".into(), body.clone()).await.0, status, "{body}");
    }
}

#[tokio::test]
async fn certification_authorities_are_created_set_default_and_retired() {
    let api = Api::new().await.with_authority().await;
    let (_, listed) = api.send_request(Method::GET, "/api/v1/authorities", Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    let outside = json!({ "name": "outside", "subject": "CN=Outside", "external": true });
    let (status, pending) = api.send_request(Method::POST, "/api/v1/authorities", outside).await;
    assert_eq!((status, &pending["state"]), (201, &json!("pending")));
    assert!(pending["request"].as_str().unwrap().contains("BEGIN CERTIFICATE REQUEST"));
    let at = format!("/api/v1/authorities/{}", pending["id"].as_str().unwrap());
    assert_eq!(api.send_request(Method::GET, &at, Value::Null).await.1["state"], "pending");
    let (_, web) = api.send_request(Method::GET, "/api/v1/authorities/web-ca", Value::Null).await;
    let foreign = json!({ "certificates": web["certificate"] });
    assert_eq!(
        api.send_request(Method::PUT, &format!("{at}/certificate"), foreign).await.0,
        422,
        "another key's"
    );
    assert_eq!(api.send_request(Method::DELETE, &format!("{at}/request"), Value::Null).await.0, 204);
    assert_eq!(api.send_request(Method::GET, &at, Value::Null).await.0, 404);
    let second = json!({ "name": "second", "subject": "CN=Second" });
    assert_eq!(api.send_request(Method::POST, "/api/v1/authorities", second.clone()).await.0, 201);
    assert_eq!(api.send_request(Method::POST, "/api/v1/authorities", second).await.0, 409);
    let by = json!({ "by": "second" });
    assert_eq!(
        api.send_request(Method::POST, "/api/v1/authorities/web-ca/cross-signatures", by).await.0,
        201
    );
    let (status, _) = api.send_request(Method::GET, "/api/v1/authorities?limit=500", Value::Null).await;
    assert_eq!(status, 200, "every listing takes a limit");
    let (status, refused) = api.send_request(Method::GET, "/api/v1/authorities?limt=5", Value::Null).await;
    assert_eq!((status, &refused["hint"]), (400, &json!("did you mean limit?")), "{refused}");
    assert_eq!(web["default"], true, "the first one, though there is a second");
    let (status, chosen) =
        api.send_request(Method::POST, "/api/v1/authorities/second/default", Value::Null).await;
    assert_eq!((status, &chosen["default"]), (200, &json!(true)), "{chosen}");
    assert_eq!(
        api.send_request(Method::GET, "/api/v1/authorities/web-ca", Value::Null).await.1["default"],
        false
    );
    let retire = "/api/v1/authorities/web-ca/retire";
    assert_eq!(api.send_request(Method::POST, retire, json!({})).await.1["state"], "retiring");
    let (status, refused) = api
        .send_request(
            Method::POST,
            "/api/v1/profiles/web/certificates",
            json!({ "csr": world::request_for("a.example"), "ca": "web-ca" }),
        )
        .await;
    assert_eq!(status, 409, "{refused}");
    assert_eq!(api.send_request(Method::POST, retire, json!({ "force": true })).await.1["state"], "retired");
    assert_eq!(api.send_request(Method::POST, retire, json!({})).await.0, 409);
    let wrong = json!({ "name": "x", "subject": "CN=X", "parent": "nobody" });
    assert_eq!(api.send_request(Method::POST, "/api/v1/authorities", wrong).await.0, 404);
    let import = json!({ "name": "taken in", "certificates": web["certificate"], "key": "nonsense" });
    assert_eq!(api.send_request(Method::POST, "/api/v1/authorities/import", import).await.0, 422);
}
