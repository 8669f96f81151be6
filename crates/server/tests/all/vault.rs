//! The credential store over Vault's API, on both databases.

use std::time::Duration;

use authority::tables::put_team;
use authority::teams::{Owns, Quota};
use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};
use store::Clock;
use testbed::Database;

use crate::world::{Plan, TestResponse, World, now, send};

/// A server with a credential store and a manual clock.
struct CredentialServer {
    world: World,
    clock: Clock,
}

impl CredentialServer {
    async fn sqlite() -> Self {
        Self::with(Plan::default()).await
    }

    async fn postgres() -> Self {
        Self::with(Plan { database: Database::postgres().await, ..Plan::default() }).await
    }

    async fn with(plan: Plan) -> Self {
        let clock = Clock::manual(now() * 1_000_000);
        let world = World::start_with(Plan { clock: clock.clone(), credentials: true, ..plan }).await;
        Self { world, clock }
    }

    fn url(&self, path: &str) -> String {
        let address = self.world.running.as_ref().unwrap().credential_address.unwrap();
        format!("https://{address}{path}")
    }

    /// Creates a request without a token.
    fn bare(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let client = self.world.builder().build().unwrap();
        client.request(Method::from_bytes(method.as_bytes()).unwrap(), self.url(path))
    }

    async fn by(&self, token: &str, method: &str, path: &str, body: Value) -> TestResponse {
        let request = self.bare(method, path);
        let request = if path.starts_with("/v1/") {
            request.header("X-Vault-Token", token)
        } else {
            request.bearer_auth(token)
        };
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = if body.is_null() {
            request
        } else {
            request.header("content-type", kind).body(body.to_string())
        };
        send(request).await
    }

    /// Sends a request with the admin token.
    async fn send_request(&self, method: &str, path: &str, body: Value) -> TestResponse {
        self.by(&self.world.admin, method, path, body).await
    }

    async fn get(&self, path: &str) -> TestResponse {
        self.send_request("GET", path, Value::Null).await
    }

    async fn write(&self, path: &str, fields: Value) -> u64 {
        let answer =
            self.send_request("POST", &format!("/v1/secret/data/{path}"), json!({ "data": fields })).await;
        answer.expect(200).json()["data"]["version"].as_u64().unwrap()
    }

    /// Writes a value over CredHub's API.
    async fn set(&self, name: &str, kind: &str, value: Value) {
        let body = json!({ "name": name, "type": kind, "value": value });
        self.send_request("PUT", "/api/v1/data", body).await.expect(200);
    }

    /// Grants an actor these operations on a path.
    async fn grant(&self, actor: &str, path: &str, operations: &[&str]) {
        let body = json!({ "actor": actor, "path": path, "operations": operations });
        self.send_request("POST", "/api/v2/permissions", body).await.expect(201);
    }
}

testbed::on_both! { super::CredentialServer:
    unauthenticated_and_cross_site_requests_are_rejected
    versions_are_written_read_deleted_and_undeleted
    each_credential_type_is_read_and_written_as_fields
    json_keeps_its_text_in_both_apis
    unauthorized_access_is_denied_whether_or_not_the_secret_exists
    invalid_requests_are_rejected_with_the_reason
    approle_login_returns_a_token_that_is_looked_up_and_revoked
    paths_are_listed_and_custom_metadata_is_stored
    credhub_api_lists_versions_and_restores_deleted_ones
    tokens_are_limited_to_their_paths_in_both_apis
    cursors_reveal_no_names_outside_of_the_paths_of_a_token
    identities_with_names_of_permitted_actors_need_access_to_credentials
    tokens_with_the_former_name_of_an_api_token_are_invalid
}

/// JSON values come back byte for byte, whichever API wrote them.
async fn json_keeps_its_text_in_both_apis(server: CredentialServer) {
    const EXACT: &str = "{\"z\":12345678901234567890123,\"a\":{\"d\":1.10},  \"u\":\"\\u00e9\",\n\"b\":1e2}";
    let send_text = async |method: &str, path: &str, kind: &str, body: String| {
        let (request, admin) = (server.bare(method, path), &server.world.admin);
        let request = match path.starts_with("/v1/") {
            true => request.header("X-Vault-Token", admin),
            false => request.bearer_auth(admin),
        };
        send(request.header("content-type", kind).body(body)).await.expect(200)
    };
    const JSON: &str = "application/json";
    let body = format!("{{\"value\": {EXACT} ,\"name\":\"/one\",\"type\":\"json\"}}");
    let set = send_text("PUT", "/api/v1/data", JSON, body).await;
    let id = set.json()["id"].as_str().unwrap().to_owned();
    let value = format!("\"value\":{EXACT}");
    assert!(set.text.contains(&value), "{}", set.text);
    for path in [format!("/api/v1/data/{id}"), "/api/v1/data?name=/one&current=true".to_owned()] {
        let read = server.get(&path).await.expect(200);
        assert!(read.text.contains(&value), "{path}: {}", read.text);
    }
    let lookup = json!({ "lookups": [["/none", "/one"]] });
    let found = server.send_request("POST", "/api/v1/lookup", lookup).await.expect(200);
    assert!(found.text.contains(&value), "{}", found.text);
    let services = "{\"p\":[{\"x\":1.10,\"credentials\":{\"credhub-ref\":\"/one\"}}]}";
    let done = send_text("POST", "/api/v1/interpolate", JSON, services.to_owned()).await;
    assert_eq!(done.text, services.replace("{\"credhub-ref\":\"/one\"}", EXACT));
    let token =
        server.send_request("POST", "/api/v1/wrap", json!({ "name": "/one" })).await.expect(200).json();
    let unwrapped =
        server.send_request("POST", "/api/v1/unwrap", json!({ "token": token["token"] })).await.expect(200);
    assert!(unwrapped.text.contains(&value), "{}", unwrapped.text);

    let data = format!("\"data\":{EXACT}");
    let read = server.get("/v1/secret/data/one").await.expect(200);
    assert!(read.text.contains(&data), "{}", read.text);
    let body = format!("{{\"options\":{{\"cas\":0}},\"data\": {EXACT}}}");
    send_text("POST", "/v1/secret/data/two", JSON, body).await;
    let read = server.get("/v1/secret/data/two").await.expect(200);
    assert!(read.text.contains(&data), "{}", read.text);
    let read = server.get("/api/v1/data?name=/two&current=true").await.expect(200);
    assert!(read.text.contains(&value), "{}", read.text);
    let patch = "{\"data\":{\"a\":{\"d\":2.50}}}".to_owned();
    send_text("PATCH", "/v1/secret/data/two", "application/merge-patch+json", patch).await;
    let read = server.get("/v1/secret/data/two").await.expect(200);
    let merged = "{\"z\":12345678901234567890123,\"a\":{\"d\":2.50},\"u\":\"\\u00e9\",\"b\":1e2}";
    assert!(read.text.contains(&format!("\"data\":{merged}")), "{}", read.text);
}

async fn unauthenticated_and_cross_site_requests_are_rejected(server: CredentialServer) {
    let mode = json!({ "read_only_mode": true });
    send(server.bare("POST", "/management").json(&mode)).await.expect(401);
    let viewer = server.world.token("v", "viewer", "any").await;
    server.by(&viewer, "POST", "/management", mode.clone()).await.expect(403);
    assert_eq!(send(server.bare("GET", "/management")).await.expect(200).json()["read_only_mode"], false);
    // Unauthenticated requests from pages of other sites are rejected before any processing.
    let form = || server.bare("POST", "/oauth/token").body("grant_type=password&username=v&password=w");
    send(form().header("content-type", "application/x-www-form-urlencoded")).await.expect(401);
    for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        for path in ["/management", "/oauth/token", "/api/v1/data", "/v1/secret/data/a"] {
            let answer = send(server.bare("POST", path).header(name, value).json(&mode)).await.expect(403);
            assert!(answer.text.contains("web page"), "{path}: {answer:?}");
        }
        let enrol = server.world.builder().build().unwrap();
        for path in ["/api/v1/agent/enroll", "/.well-known/est/simpleenroll"] {
            let url = format!("https://{}{path}", server.world.address);
            let answer = send(enrol.post(url).header(name, value).json(&mode)).await.expect(403);
            assert!(answer.text.contains("another site"), "{path}: {answer:?}");
        }
    }
    server.by(&server.world.admin.clone(), "POST", "/management", mode).await.expect(200);
}

async fn versions_are_written_read_deleted_and_undeleted(server: CredentialServer) {
    let data = "/v1/secret/data/team/db";
    assert_eq!(server.write("team/db", json!({ "user": "u", "deep": { "a": 1 } })).await, 1);
    let cas = |cas: Value| json!({ "options": { "cas": cas }, "data": { "user": "v" } });
    let refused = server.send_request("POST", data, cas(json!(0))).await.expect(400).json();
    assert_eq!(refused["errors"][0], "check-and-set parameter did not match the current version");
    assert_eq!(
        server.send_request("PUT", data, cas(json!(1))).await.expect(200).json()["data"]["version"],
        2
    );
    assert_eq!(
        server.send_request("PUT", data, cas(json!("2"))).await.expect(200).json()["data"]["version"],
        3
    );
    let fresh = server.send_request("POST", "/v1/secret/data/new", cas(json!(0))).await.expect(200).json();
    assert_eq!(fresh["data"]["version"], 1);
    // A patch keeps the fields that it does not name. CredHub's clients see the credential as JSON.
    let patch = json!({ "data": { "more": [1], "user": null } });
    assert_eq!(
        server.send_request("PATCH", data, patch.clone()).await.expect(200).json()["data"]["version"],
        4
    );
    let stale = json!({ "options": { "cas": 2 }, "data": { "x": 1 } });
    server.send_request("PATCH", data, stale).await.expect(400);
    let credhub = server.get("/api/v1/data?name=/team/db&current=true").await.expect(200).json();
    assert_eq!(
        (&credhub["data"][0]["type"], &credhub["data"][0]["value"]),
        (&json!("json"), &json!({ "more": [1] }))
    );
    let read = server.get(data).await.expect(200).json();
    assert_eq!(read["data"]["data"], json!({ "more": [1] }));
    let about = &read["data"]["metadata"];
    assert_eq!(
        (&about["version"], &about["destroyed"], &about["deletion_time"]),
        (&json!(4), &json!(false), &json!(""))
    );
    for field in ["request_id", "lease_id", "renewable", "lease_duration", "wrap_info", "warnings", "auth"] {
        assert!(read.get(field).is_some(), "{field}");
    }
    assert_eq!(
        server.get(&format!("{data}?version=1")).await.expect(200).json()["data"]["data"]["user"],
        "u"
    );
    let shape = server.get("/v1/secret/subkeys/team/db?version=1").await.expect(200).json();
    assert_eq!(shape["data"]["subkeys"], json!({ "user": null, "deep": { "a": null } }));

    // A deleted version returns 404 with its metadata, and can be restored.
    server.clock.advance(Duration::from_secs(1));
    server.send_request("DELETE", data, Value::Null).await.expect(204);
    let deleted = server.get(data).await.expect(404).json();
    assert_eq!(
        (&deleted["data"]["data"], &deleted["data"]["metadata"]["version"]),
        (&Value::Null, &json!(4))
    );
    assert_ne!(deleted["data"]["metadata"]["deletion_time"], "");
    server.send_request("PATCH", data, patch).await.expect(404);
    server
        .send_request("POST", "/v1/secret/undelete/team/db", json!({ "versions": ["4"] }))
        .await
        .expect(204);
    server.get(data).await.expect(200);
    server.send_request("POST", "/v1/secret/delete/team/db", json!({ "versions": [1, 2] })).await.expect(204);
    server.get(&format!("{data}?version=2")).await.expect(404);
    server.send_request("PUT", "/v1/secret/destroy/team/db", json!({ "versions": [2, 4] })).await.expect(204);
    // The server does not return an older version instead of a destroyed one.
    let deleted = server.get(data).await.expect(404).json();
    assert_eq!(deleted["data"]["metadata"]["destroyed"], true);
    let metadata = server.get("/v1/secret/metadata/team/db").await.expect(200).json()["data"].clone();
    assert_eq!((&metadata["current_version"], &metadata["oldest_version"]), (&json!(4), &json!(1)));
    let destroyed: Vec<bool> =
        (1..=4).map(|n| metadata["versions"][n.to_string()]["destroyed"].as_bool().unwrap()).collect();
    assert_eq!(destroyed, [false, true, false, true]);
    assert_ne!(metadata["versions"]["1"]["deletion_time"], "");
    assert_eq!(server.write("team/db", json!({ "user": "w" })).await, 5, "a number is given once");
    let unknown = server.get(&format!("{data}?version=6")).await.expect(404).json();
    assert_eq!(unknown, json!({ "errors": [] }));
    // Deletes the whole credential. It can be restored over CredHub's API.
    server.send_request("DELETE", "/v1/secret/metadata/team/db", Value::Null).await.expect(204);
    assert_eq!(server.get(data).await.expect(404).json(), json!({ "errors": [] }));
    server.send_request("DELETE", "/v1/secret/metadata/team/db", Value::Null).await.expect(204);
    server.send_request("DELETE", data, Value::Null).await.expect(204);
    server.send_request("POST", "/api/v1/undelete", json!({ "name": "/team/db" })).await.expect(200);
    assert_eq!(server.get(data).await.expect(200).json()["data"]["metadata"]["version"], 5);
}

async fn each_credential_type_is_read_and_written_as_fields(server: CredentialServer) {
    server.set("/t/value", "value", json!("v")).await;
    server.set("/t/password", "password", json!("p")).await;
    server.set("/t/list", "json", json!([1])).await;
    server.set("/t/user", "user", json!({ "username": "u", "password": "p" })).await;
    server.set("/t/ssh", "ssh", json!({ "public_key": "ssh-rsa AAAA", "private_key": "x" })).await;
    let make = json!({
        "name": "/t/ca", "type": "certificate",
        "parameters": { "common_name": "ca", "is_ca": true, "key_type": "p256" },
    });
    server.send_request("POST", "/api/v1/data", make).await.expect(200);
    let mut read = Vec::new();
    for at in ["value", "password", "list", "user", "ssh", "ca"] {
        let answer = server.get(&format!("/v1/secret/data/T/{at}")).await.expect(200).json();
        read.push(answer["data"]["data"].clone());
    }
    assert_eq!(read[..3], [json!({ "value": "v" }), json!({ "password": "p" }), json!({ "value": [1] })]);
    assert_eq!((&read[3]["username"], &read[3]["password"]), (&json!("u"), &json!("p")));
    assert!(read[3]["password_hash"].as_str().unwrap().starts_with("$6$"));
    assert_eq!(read[4]["public_key"], "ssh-rsa AAAA");
    assert!(read[5]["certificate"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE"));
    // The fields can be written back as they were read, as `vault kv rollback` does. A patch works too.
    assert_eq!(server.write("t/user", read[3].clone()).await, 2);
    let patch = json!({ "data": { "password": "q" } });
    server.send_request("PATCH", "/v1/secret/data/t/user", patch).await.expect(200);
    let user =
        server.get("/api/v1/data?name=/t/user&current=true").await.expect(200).json()["data"][0].clone();
    assert_eq!(
        (&user["type"], &user["value"]["username"], &user["value"]["password"]),
        (&json!("user"), &json!("u"), &json!("q"))
    );
    assert_eq!(server.write("t/password", json!({ "password": "next" })).await, 2);
    // Fields that do not match the type are rejected, and the error lists the valid fields.
    for (at, fields, hint) in [
        ("password", json!({ "value": "x" }), "its fields are password"),
        ("user", json!({ "username": "u", "password": "p", "more": "x" }), "username, password"),
        ("ssh", json!({}), "public_key, private_key"),
    ] {
        let path = format!("/v1/secret/data/t/{at}");
        let refused = server.send_request("POST", &path, json!({ "data": fields })).await.expect(400).json();
        assert!(refused["errors"][0].as_str().unwrap().contains(hint), "{refused}");
    }
}

async fn unauthorized_access_is_denied_whether_or_not_the_secret_exists(server: CredentialServer) {
    let denied = json!({ "errors": ["permission denied"] });
    server.write("a/secret", json!({ "k": "v" })).await;
    server.set("/a/typed", "password", json!("p")).await;
    let reader = server.world.token("reader", "viewer", "any").await;
    server.grant("uaa-client:reader", "/a/*", &["read"]).await;
    let bare = send(server.bare("GET", "/v1/secret/data/a/secret")).await;
    assert_eq!(bare.expect(403).json(), denied);
    for token in ["wrong", "bulla_wrong", "x.y.z", &"x".repeat(9_000)] {
        assert_eq!(
            server.by(token, "GET", "/v1/secret/data/a/secret", Value::Null).await.expect(403).json(),
            denied
        );
    }
    let bearer = server.bare("GET", "/v1/secret/data/a/secret").bearer_auth(&reader);
    assert_eq!(send(bearer).await.expect(200).json()["data"]["data"]["k"], "v");
    let by = async |method: &str, path: &str, body: Value| server.by(&reader, method, path, body).await;
    let none = Value::Null;
    assert_eq!(
        by("GET", "/v1/secret/data/a/none", none.clone()).await.expect(404).json(),
        json!({ "errors": [] })
    );
    for path in ["/v1/secret/data/b/none", "/v1/secret/metadata/b/none", "/v1/secret/subkeys/b/none"] {
        assert_eq!(by("GET", path, none.clone()).await.expect(403).json(), denied, "{path}");
    }
    // The response is the same for an existing value, so it does not reveal the value's existence.
    server.write("b/there", json!({ "k": "v" })).await;
    assert_eq!(by("GET", "/v1/secret/data/b/there", none.clone()).await.expect(403).json(), denied);
    // With read permission only, changes are rejected, and the response does not reveal the type.
    let fields = json!({ "data": { "k": "w" } });
    let versions = json!({ "versions": [1] });
    for (method, path, body) in [
        ("POST", "/v1/secret/data/a/secret", fields.clone()),
        ("POST", "/v1/secret/data/a/typed", fields.clone()),
        ("PATCH", "/v1/secret/data/a/secret", fields.clone()),
        ("POST", "/v1/secret/data/b/there", fields.clone()),
        ("POST", "/v1/secret/data/b/none", fields),
        ("DELETE", "/v1/secret/data/a/secret", none.clone()),
        ("POST", "/v1/secret/delete/a/secret", versions.clone()),
        ("POST", "/v1/secret/undelete/a/secret", versions.clone()),
        ("PUT", "/v1/secret/destroy/a/secret", versions),
        ("DELETE", "/v1/secret/metadata/a/secret", none.clone()),
        ("POST", "/v1/secret/metadata/a/secret", json!({ "custom_metadata": { "a": "b" } })),
    ] {
        assert_eq!(by(method, path, body).await.expect(403).json(), denied, "{method} {path}");
    }
    assert_eq!(
        by("LIST", "/v1/secret/metadata", none.clone()).await.expect(200).json()["data"]["keys"],
        json!(["a/"])
    );
    assert_eq!(
        by("LIST", "/v1/secret/metadata/b", none.clone()).await.expect(404).json(),
        json!({ "errors": [] })
    );
    // A client certificate authenticates like a token.
    let identity = json!({
        "name": "deployer", "match": "dns:deployer.example", "grants": [{ "role": "viewer", "scope": "any" }],
    });
    server.world.post("/api/v1/client-certificates", identity).await.expect(201);
    server.grant("certificate:deployer", "/a/*", &["read"]).await;
    let leaf = server.world.ca.leaf(&["deployer.example"]);
    let client = server.world.builder().identity(leaf.identity()).build().unwrap();
    send(client.get(server.url("/v1/secret/data/a/secret"))).await.expect(200);
    send(client.get(server.url("/v1/secret/data/b/there"))).await.expect(403);
}

async fn invalid_requests_are_rejected_with_the_reason(server: CredentialServer) {
    server.write("a", json!({ "k": "v" })).await;
    let long = format!("/v1/secret/data/{}", "x".repeat(1_024));
    let data = |data: Value| json!({ "data": data });
    for (method, path, body, status, why) in [
        ("GET", "/v1/secret/data/a%2f..%2fb", Value::Null, 400, ".. is not allowed as a part of a name"),
        ("GET", "/v1/secret/data/a//b", Value::Null, 400, "empty"),
        ("GET", "/v1/secret/data//a", Value::Null, 400, "empty"),
        ("GET", "/v1/secret/data/a/", Value::Null, 400, "empty"),
        ("GET", "/v1/secret/metadata/a/", Value::Null, 400, "empty"),
        ("GET", "/v1/secret/data/a%20b", Value::Null, 400, "' '"),
        ("GET", "/v1/secret/data/a%ff", Value::Null, 400, "UTF-8"),
        ("GET", long.as_str(), Value::Null, 400, "1025 characters"),
        ("GET", "/v1/secret/data/a?version=x", Value::Null, 400, "version is not a number"),
        ("GET", "/v1/secret/data/a?version=-1", Value::Null, 400, "version is not a number"),
        ("POST", "/v1/secret/data/a", json!({}), 400, "no data provided"),
        ("POST", "/v1/secret/data/a", data(json!([1])), 400, "data is not a JSON object. hint: {\"data\":"),
        ("POST", "/v1/secret/data/a", json!([1]), 400, "the body is not a JSON object"),
        ("POST", "/v1/secret/data/a", json!({ "data": {}, "options": { "cas": -1 } }), 400, "cas"),
        ("POST", "/v1/secret/delete/a", json!({}), 400, "no version number"),
        ("POST", "/v1/secret/destroy/a", json!({ "versions": ["x"] }), 400, "no version number"),
        ("POST", "/v1/secret/undelete/a", json!({ "versions": vec![1; 1_001] }), 400, "no version number"),
        ("POST", "/v1/secret/metadata/a", json!({ "cas_required": true }), 400, "options.cas"),
        ("POST", "/v1/secret/metadata/a", json!({ "max_versions": 3 }), 400, "credentials.retention"),
        (
            "POST",
            "/v1/secret/metadata/a",
            json!({ "custom_metadata": { "a": 1 } }),
            400,
            "an object of strings",
        ),
        ("POST", "/v1/secret/metadata/none", json!({ "custom_metadata": {} }), 400, "write a version first"),
        ("POST", "/v1/secret/config", json!({}), 405, "unsupported operation"),
        ("GET", "/v1/secret/metadata", Value::Null, 405, "unsupported operation"),
        ("BREW", "/v1/secret/metadata/a", Value::Null, 405, "unsupported operation"),
        ("GET", "/v1/kv/data/a", Value::Null, 404, "no handler for route"),
        ("GET", "/v1/sys/internal/ui/mounts/kv/a", Value::Null, 403, "permission denied"),
    ] {
        let answer = server.send_request(method, path, body).await;
        let text = answer.json()["errors"][0].as_str().unwrap_or_default().to_owned();
        assert!(answer.status.as_u16() == status && text.contains(why), "{method} {path}: {answer:?}");
    }
    let large = data(json!({ "k": "x".repeat(1 << 20) }));
    server.send_request("POST", "/v1/secret/data/a", large).await.expect(413);
    let patch = server.bare("PATCH", "/v1/secret/data/a").bearer_auth(&server.world.admin);
    send(patch.json(&data(json!({ "k": "w" })))).await.expect(415);
    let wrapped = server.bare("GET", "/v1/secret/data/a").bearer_auth(&server.world.admin);
    let wrapped = send(wrapped.header("X-Vault-Wrap-TTL", "60")).await.expect(400);
    assert!(!wrapped.text.contains("\"k\""), "{wrapped:?}");
    // Requests with a namespace are rejected, also on paths without secrets. Only the root namespace exists.
    for (namespace, method, path, status) in [
        ("team-a", "GET", "/v1/secret/data/a", 400),
        ("team-a/", "POST", "/v1/secret/data/a", 400),
        ("admin/team-a", "GET", "/v1/sys/health", 400),
        ("root", "GET", "/v1/secret/metadata/a", 200),
        ("/", "GET", "/v1/sys/health", 200),
    ] {
        let request = server.bare(method, path).bearer_auth(&server.world.admin);
        let request = request.header("X-Vault-Namespace", namespace).json(&data(json!({ "k": "n" })));
        let answer = send(request).await.expect(status);
        assert_eq!(answer.text.contains("VAULT_NAMESPACE"), status == 400, "{answer:?}");
    }
    // In read-only mode all writes are rejected and all reads work.
    let mode = |on: bool| server.send_request("POST", "/management", json!({ "read_only_mode": on }));
    mode(true).await.expect(200);
    server.send_request("POST", "/v1/secret/data/a", data(json!({}))).await.expect(503);
    for (method, path) in [
        ("PUT", "/v1/secret/data/a"),
        ("PATCH", "/v1/secret/data/a"),
        ("DELETE", "/v1/secret/data/a"),
        ("POST", "/v1/secret/metadata/a"),
        ("DELETE", "/v1/secret/metadata/a"),
        ("POST", "/v1/secret/destroy/a"),
        ("POST", "/v1/secret"),
        ("POST", "/v1/sys/mounts"),
    ] {
        server.send_request(method, path, json!({ "versions": [1] })).await.expect(503);
    }
    server.get("/v1/secret/data/a").await.expect(200);
    server.send_request("LIST", "/v1/secret/metadata", Value::Null).await.expect(200);
    mode(false).await.expect(200);
}

async fn approle_login_returns_a_token_that_is_looked_up_and_revoked(server: CredentialServer) {
    let secret = server.world.token("eso", "viewer", "any").await;
    let login = async |role: &str, secret: &str| {
        let body = json!({ "role_id": role, "secret_id": secret }).to_string();
        // curl sends JSON with the content type of a form.
        let request = server.bare("POST", "/v1/auth/approle/login");
        send(request.header("content-type", "application/x-www-form-urlencoded").body(body)).await
    };
    for (role, text) in [("eso", "wrong"), ("other", secret.as_str()), ("eso", "bulla_x"), ("", "")] {
        let refused = login(role, text).await.expect(400).json();
        assert!(refused["errors"][0].as_str().unwrap().starts_with("invalid role or secret ID"), "{refused}");
    }
    let auth = login("eso", &secret).await.expect(200).json()["auth"].clone();
    let token = auth["client_token"].as_str().unwrap();
    assert_eq!((&auth["lease_duration"], &auth["renewable"]), (&json!(3_600), &json!(false)));
    server.clock.advance(Duration::from_secs(600));
    let own = "/v1/auth/token/lookup-self";
    let about = server.by(token, "GET", own, Value::Null).await.expect(200).json()["data"].clone();
    assert_eq!((&about["ttl"], &about["display_name"]), (&json!(3_000), &json!("uaa-client:eso")));
    assert_eq!((&about["type"], &about["id"]), (&json!("service"), &json!(token)));
    let about = server.by(&secret, "POST", own, Value::Null).await.expect(200).json()["data"].clone();
    assert_eq!((&about["ttl"], &about["expire_time"]), (&json!(0), &Value::Null));
    let renewed = server.by(token, "POST", "/v1/auth/token/renew-self", Value::Null).await.expect(400).json();
    assert!(renewed["errors"][0].as_str().unwrap().starts_with("lease is not renewable"));
    // The login token has the credential permissions of its API token.
    server.write("eso/a", json!({ "k": "v" })).await;
    server.by(token, "GET", "/v1/secret/data/eso/a", Value::Null).await.expect(403);
    server.grant("uaa-client:eso", "/eso/*", &["read"]).await;
    server.by(token, "GET", "/v1/secret/data/eso/a", Value::Null).await.expect(200);
    server.by(&secret, "POST", "/v1/auth/token/revoke-self", Value::Null).await.expect(400);
    // Token revocation and login also work in read-only mode.
    let mode = |on: bool| server.send_request("POST", "/management", json!({ "read_only_mode": on }));
    mode(true).await.expect(200);
    server.by(token, "POST", "/v1/auth/token/revoke-self", Value::Null).await.expect(204);
    login("eso", &secret).await.expect(200);
    mode(false).await.expect(200);
    server.by(token, "GET", own, Value::Null).await.expect(403);
    let second = login("eso", &secret).await.expect(200).json()["auth"]["client_token"].clone();
    server.clock.advance(Duration::from_secs(3_600));
    server.by(second.as_str().unwrap(), "GET", own, Value::Null).await.expect(403);
    // Health and seal status need no authentication.
    let health = send(server.bare("GET", "/v1/sys/health")).await.expect(200).json();
    assert_eq!((&health["initialized"], &health["sealed"]), (&json!(true), &json!(false)));
    assert_eq!(send(server.bare("GET", "/v1/sys/seal-status")).await.expect(200).json()["sealed"], false);
    send(server.bare("GET", "/v1/sys/mounts")).await.expect(403);
    let mounts = server.get("/v1/sys/mounts").await.expect(200).json();
    assert_eq!(mounts["data"]["secret/"]["options"]["version"], "2");
    let visible = server.get("/v1/sys/internal/ui/mounts").await.expect(200).json();
    assert_eq!(visible["data"]["secret"]["secret/"]["type"], "kv");
    for path in ["secret", "secret/", "secret/team/db"] {
        let mount = server.get(&format!("/v1/sys/internal/ui/mounts/{path}")).await.expect(200).json();
        assert_eq!(
            (&mount["data"]["path"], &mount["data"]["options"]["version"]),
            (&json!("secret/"), &json!("2"))
        );
    }
    assert_eq!(server.get("/v1/secret/config").await.expect(200).json()["data"]["max_versions"], 0);
}

async fn paths_are_listed_and_custom_metadata_is_stored(server: CredentialServer) {
    for at in ["top", "Team/db", "team/db/replica", "team/web"] {
        server.write(at, json!({ "k": "v" })).await;
    }
    let keys = async |method: &str, path: &str| {
        server.send_request(method, path, Value::Null).await.expect(200).json()["data"]["keys"].clone()
    };
    assert_eq!(keys("LIST", "/v1/secret/metadata").await, json!(["Team/", "top"]));
    assert_eq!(keys("GET", "/v1/secret/metadata/?list=true").await, json!(["Team/", "top"]));
    for (method, path) in [
        ("LIST", "/v1/secret/metadata/team"),
        ("LIST", "/v1/secret/metadata/team/"),
        ("GET", "/v1/secret/metadata/TEAM?list=true"),
        ("GET", "/v1/secret/metadata/team/?list=true"),
    ] {
        assert_eq!(keys(method, path).await, json!(["db", "db/", "web"]), "{method} {path}");
    }
    // Custom metadata is copied to every new version, and is the same as CredHub's metadata.
    let metadata = "/v1/secret/metadata/top";
    let noted = async || server.get(metadata).await.expect(200).json()["data"]["custom_metadata"].clone();
    assert_eq!(noted().await, Value::Null);
    let notes = json!({ "custom_metadata": { "owner": "a", "tier": "1" }, "max_versions": 0, "delete_version_after": "0s" });
    server.send_request("POST", metadata, notes).await.expect(204);
    server.write("top", json!({ "k": "w" })).await;
    assert_eq!(noted().await, json!({ "owner": "a", "tier": "1" }));
    let read = server.get("/v1/secret/data/top").await.expect(200).json();
    assert_eq!(read["data"]["metadata"]["custom_metadata"]["owner"], "a");
    let patch = json!({ "custom_metadata": { "owner": "b", "tier": null } });
    server.send_request("PATCH", metadata, patch).await.expect(204);
    let credhub = server.get("/api/v1/data?name=/top&current=true").await.expect(200).json();
    assert_eq!(credhub["data"][0]["metadata"], json!({ "owner": "b" }));
    server.send_request("POST", metadata, json!({})).await.expect(204);
    assert_eq!(noted().await, json!({ "owner": "b" }), "what is not named stays");
    // Concurrent patches are all applied.
    let patches = (0..8).map(|number| {
        let patch = json!({ "custom_metadata": { format!("n{number}"): "x" } });
        server.send_request("PATCH", metadata, patch)
    });
    for done in futures_util::future::join_all(patches).await {
        done.expect(204);
    }
    assert_eq!(noted().await.as_object().unwrap().len(), 9);
    let body = json!({ "name": "/top", "type": "json", "value": {}, "metadata": { "n": 1 } });
    server.send_request("PUT", "/api/v1/data", body).await.expect(200);
    assert_eq!(noted().await, json!({ "n": "1" }), "texts, whatever they were");
}

async fn credhub_api_lists_versions_and_restores_deleted_ones(server: CredentialServer) {
    for value in ["one", "two"] {
        server.set("/c/x", "value", json!(value)).await;
    }
    let short = json!({ "name": "/c/x", "type": "value", "value": "three", "ttl_seconds": 60 });
    server.send_request("PUT", "/api/v1/data", short).await.expect(200);
    let versions = async || server.get("/api/v1/versions?name=/c/x").await.expect(200).json();
    let listed = versions().await;
    assert_eq!((&listed["name"], &listed["type"]), (&json!("/c/x"), &json!("value")));
    assert_eq!(listed["versions"][0]["number"], 3);
    assert!(
        listed["versions"][0]["expires_at"].is_string() && listed["versions"][1].get("expires_at").is_none()
    );
    assert!(!listed.to_string().contains("three"), "no values: {listed}");
    // Vault clients see the expiry of a version as its `deletion_time`.
    let read = server.get("/v1/secret/data/c/x").await.expect(200).json();
    assert_ne!(read["data"]["metadata"]["deletion_time"], "");
    let change = |change: &'static str, numbers: Value| {
        server.send_request(
            "POST",
            "/api/v1/versions",
            json!({ "name": "/c/x", "versions": numbers, "change": change }),
        )
    };
    change("delete", json!([1, 3])).await.expect(204);
    let listed = versions().await;
    assert!(
        listed["versions"][0]["deleted_at"].is_string() && listed["versions"][0]["kept_until"].is_string()
    );
    server.get("/api/v1/data?name=/c/x&current=true").await.expect(404);
    change("undelete", json!([3])).await.expect(204);
    server.get("/api/v1/data?name=/c/x&current=true").await.expect(200);
    change("destroy", json!([1])).await.expect(204);
    assert_eq!(versions().await["versions"].as_array().unwrap().len(), 2);
    for (what, numbers) in [
        ("remove", json!([1])),
        ("delete", json!([])),
        ("delete", json!("1")),
        ("delete", json!(vec![1; 1_001])),
    ] {
        change(what, numbers).await.expect(400);
    }
    server.send_request("DELETE", "/api/v1/data?name=/c/x", Value::Null).await.expect(204);
    server.get("/api/v1/versions?name=/c/x").await.expect(404);
    let deleted = server.get("/api/v1/deleted").await.expect(200).json()["credentials"][0].clone();
    assert_eq!((&deleted["name"], &deleted["type"]), (&json!("/c/x"), &json!("value")));
    let days = |field: &str| deleted[field].as_str().unwrap()[8..10].to_owned();
    assert_ne!(days("kept_until"), days("deleted_at"));
    let reader = server.world.token("reader", "viewer", "any").await;
    let name = json!({ "name": "/c/x" });
    assert_eq!(
        server.by(&reader, "GET", "/api/v1/deleted", Value::Null).await.expect(200).json()["credentials"],
        json!([])
    );
    server.by(&reader, "POST", "/api/v1/undelete", name.clone()).await.expect(404);
    server.set("/c/x", "password", json!("in its place")).await;
    let taken = server.send_request("POST", "/api/v1/undelete", name.clone()).await.expect(409).json();
    assert!(taken["error"].as_str().unwrap().contains("is taken"), "{taken}");
    server.send_request("DELETE", "/api/v1/data?name=/c/x", Value::Null).await.expect(204);
    server.send_request("POST", "/api/v1/undelete", name).await.expect(200);
    let back = server.get("/api/v1/data?name=/c/x&current=true").await.expect(200).json();
    assert_eq!(back["data"][0]["value"], "in its place", "the last deleted");
}

/// A grant with `path:` and the paths of a team limit a token on both APIs. Permissions of the credential store do not widen these
/// limits.
async fn tokens_are_limited_to_their_paths_in_both_apis(server: CredentialServer) {
    for team in ["a", "b"] {
        let owns = Owns { paths: vec![format!("/{team}")], ..Owns::default() };
        let put = server.world.state.store().write("test", move |tx| {
            let owns = owns.clone();
            async move { put_team(tx, team, &owns, Quota::default(), 1).await }.boxed()
        });
        assert_eq!(put.await.unwrap(), None);
    }
    for path in ["a/x", "b/x", "c/x"] {
        server.write(path, json!({ "k": "v" })).await;
    }
    let token = async |role: &str, scope: &str, name: &str| {
        let body = json!({ "name": name, "grants": [{ "role": role, "scope": scope }] });
        let made = server.world.post("/api/v1/tokens", body).await.expect(201);
        made.json()["token"].as_str().unwrap().to_owned()
    };
    let by_path = token("admin", "team:a,path:/a/*", "by-path").await;
    let by_team = token("admin", "team:a", "by-team").await;
    let permitted = token("viewer", "team:a", "permitted").await;
    let narrow = token("viewer", "path:/c/*", "narrow").await;
    for name in ["permitted", "narrow"] {
        server.grant(&format!("uaa-client:{name}"), "/*", &["read", "write", "delete", "read_acl"]).await;
    }
    for (token, reached) in [
        (&by_path, [true, false, false]),
        (&by_team, [true, false, false]),
        (&permitted, [true, false, true]),
        (&narrow, [false, false, true]),
    ] {
        let seen: Vec<&str> = ["a", "b", "c"]
            .into_iter()
            .zip(reached)
            .filter_map(|(team, reached)| reached.then_some(team))
            .collect();
        for (team, reached) in ["a", "b", "c"].into_iter().zip(reached) {
            let data = format!("/v1/secret/data/{team}/x");
            let get = server.by(token, "GET", &data, Value::Null).await;
            assert_eq!(get.status, if reached { 200 } else { 403 }, "{team}: {get:?}");
            let set = server.by(token, "POST", &data, json!({ "data": { "k": "w" } })).await;
            assert_eq!(set.status, if reached { 200 } else { 403 }, "{team}: {set:?}");
            let new = format!("/v1/secret/data/{team}/new-{}", &token[6..14]);
            let made = server.by(token, "POST", &new, json!({ "data": { "k": "w" } })).await;
            assert_eq!(made.status, if reached { 200 } else { 403 }, "{team}: {made:?}");
            let name = format!("/api/v1/data?name=/{team}/x");
            let get = server.by(token, "GET", &name, Value::Null).await;
            assert_eq!(get.status, if reached { 200 } else { 404 }, "{team}: {get:?}");
            let of_admin = server.send_request("GET", &name, Value::Null).await.expect(200).json();
            let id = format!("/api/v1/data/{}", of_admin["data"][0]["id"].as_str().unwrap());
            let get = server.by(token, "GET", &id, Value::Null).await;
            assert_eq!(get.status, if reached { 200 } else { 404 }, "{team}: {get:?}");
            if !reached {
                let deleted = server.by(token, "DELETE", &name, Value::Null).await;
                assert_eq!(deleted.status, 404, "{team}: {deleted:?}");
                let body =
                    json!({ "actor": "uaa-client:x", "path": format!("/{team}/*"), "operations": ["read"] });
                let given = server.by(token, "POST", "/api/v2/permissions", body).await;
                assert!(given.status.is_client_error(), "{team}: {given:?}");
            }
        }
        let found = server.by(token, "GET", "/api/v1/data?path=/", Value::Null).await.expect(200).json();
        let mut teams: Vec<&str> = found["credentials"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["name"].as_str().unwrap().get(1..2).unwrap())
            .collect();
        teams.sort_unstable();
        teams.dedup();
        assert_eq!(teams, seen, "{found}");
        let listed = server.by(token, "LIST", "/v1/secret/metadata/", Value::Null).await.expect(200).json();
        let wanted: Vec<String> = seen.iter().map(|team| format!("{team}/")).collect();
        assert_eq!(listed["data"]["keys"], json!(wanted), "{listed}");
    }
    // Operations on the whole store are rejected for tokens with limited paths.
    server.by(&by_team, "POST", "/management", json!({ "read_only_mode": true })).await.expect(403);
}

async fn cursors_reveal_no_names_outside_of_the_paths_of_a_token(server: CredentialServer) {
    for path in ["/0/*", "/a/*", "/b/*"] {
        let policy = json!({ "path": path, "every_s": 86_400 });
        server.send_request("PUT", "/api/v1/rotation-policies", policy).await.expect(200);
    }
    let body = json!({ "name": "a", "grants": [{ "role": "admin", "scope": "path:/a/*" }] });
    let made = server.world.post("/api/v1/tokens", body).await.expect(201).json();
    let token = made["token"].as_str().unwrap();
    let listed = server.by(token, "GET", "/api/v1/rotation-policies?limit=1", Value::Null).await;
    let listed = listed.expect(200).json();
    let paths: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|item| &item["path"]).collect();
    assert_eq!((paths, &listed["next"]), (vec![&json!("/a/*")], &Value::Null), "{listed}");
    let all = server.get("/api/v1/rotation-policies?limit=2").await.expect(200).json();
    let next = format!("/api/v1/rotation-policies?limit=2&cursor={}", all["next"].as_str().unwrap());
    assert_eq!(server.get(&next).await.expect(200).json()["items"][0]["path"], "/b/*");
}

async fn identities_with_names_of_permitted_actors_need_access_to_credentials(server: CredentialServer) {
    server.set("/x", "value", json!("secret")).await;
    server.grant("uaa-client:gone", "/*", &["read"]).await;
    server.grant("uaa-user:ann", "/*", &["read"]).await;
    server.grant("user:bea", "/*", &["read"]).await;
    server.grant("certificate:laptop", "/*", &["read"]).await;
    let role = json!({ "permissions": ["access.manage", "access.read"] });
    send(server.world.with(&server.world.admin, Method::PUT, "/api/v1/roles/people").json(&role))
        .await
        .expect(201);
    let manager = server.world.token("manager", "people", "any").await;
    let post = async |token: &str, path: &str, body: Value| {
        send(server.world.with(token, Method::POST, path).json(&body)).await
    };
    let new = |name: &str| json!({ "name": name, "grants": [] });
    for (path, body) in [
        ("/api/v1/tokens", new("gone")),
        // A token also logs in as a user with its name.
        ("/api/v1/tokens", new("ann")),
        ("/api/v1/users", new("bea")),
        (
            "/api/v1/client-certificates",
            json!({ "name": "laptop", "match": "dns:laptop.example", "grants": [] }),
        ),
    ] {
        let refused = post(&manager, path, body.clone()).await.expect(403);
        assert!(refused.text.contains("credential.manage"), "{path}: {refused:?}");
    }
    let other = post(&manager, "/api/v1/tokens", new("other")).await.expect(201).json();
    let renamed = format!("/api/v1/tokens/{}", other["id"].as_str().unwrap());
    let rename = json!({ "name": "gone" });
    send(server.world.with(&manager, Method::PATCH, &renamed).json(&rename)).await.expect(403);
    let token = other["token"].as_str().unwrap();
    server.by(token, "GET", "/api/v1/data?name=/x", Value::Null).await.expect(404);
    // An administrator has access to all credentials anyway.
    send(server.world.with(&server.world.admin, Method::PATCH, &renamed).json(&rename)).await.expect(200);
    server.by(token, "GET", "/api/v1/data?name=/x", Value::Null).await.expect(200);
}

async fn tokens_with_the_former_name_of_an_api_token_are_invalid(server: CredentialServer) {
    server.set("/x", "value", json!("secret")).await;
    server.grant("uaa-user:before", "/*", &["read"]).await;
    let body = json!({ "name": "before", "grants": [] });
    let made = server.world.post("/api/v1/tokens", body).await.expect(201).json();
    let (id, secret) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let login = async |form: String| {
        let request = server.bare("POST", "/oauth/token").body(form);
        send(request.header("content-type", "application/x-www-form-urlencoded")).await
    };
    let tokens =
        login(format!("grant_type=password&username=before&password={secret}")).await.expect(200).json();
    let access = tokens["access_token"].as_str().unwrap();
    let refresh =
        format!("grant_type=refresh_token&refresh_token={}", tokens["refresh_token"].as_str().unwrap());
    server.by(access, "GET", "/api/v1/data?name=/x", Value::Null).await.expect(200);
    login(refresh.clone()).await.expect(200);
    let path = format!("/api/v1/tokens/{id}");
    let rename = json!({ "name": "after" });
    send(server.world.with(&server.world.admin, Method::PATCH, &path).json(&rename)).await.expect(200);
    server.by(access, "GET", "/api/v1/data?name=/x", Value::Null).await.expect(401);
    login(refresh).await.expect(401);
}
