//! Changes to objects that decide whether issuance needs approval (gates) need approval themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::tables::{TargetSettings, insert_target};
use agent::{Agents, AgentsParts};
use authority::Authority;
use authority::principal::Principal;
use authority::profile::Profile;
use authority::tree::NewCa;
use enrollment::AuthorityCertifier;
use futures_util::FutureExt;
use http::Method;
use lifecycle::managed::NewCertificate;
use lifecycle::{Lifecycle, LifecycleOptions};
use serde_json::{Value, json};
use server::Components;
use server::access::uri_identity_key;
use store::{SecurityKey, Store};
use testbed::Database;
use uuid::Uuid;
use webauthn::approval::ApprovalSignature;

use crate::parts::Parts;
use crate::security_keys::{self, PRESENT, SoftKey, VERIFIED};
use crate::signing_in::Tab;
use crate::world::{Plan, TestResponse, World, issuance, send};

/// A server with a profile `vip` that requires approval, and with all kinds of gates.
struct House {
    world: World,
    store: Store,
    authority: Authority,
    lifecycle: Lifecycle,
    /// The token of another person with the approver role.
    bob: String,
}

fn profile(name: &str, suffix: &str) -> Profile {
    let names = serde_json::from_value(json!({ "dns_allowed": [suffix] })).unwrap();
    Profile::for_servers(name, names)
}

impl House {
    async fn sqlite() -> Self {
        Self::on(Database::sqlite()).await
    }

    async fn postgres() -> Self {
        Self::on(Database::postgres().await).await
    }

    async fn on(database: Database) -> Self {
        Self::with(database, false).await
    }

    /// Returns a server whose configuration may require signatures of approvers.
    async fn with(database: Database, signed_approvals: bool) -> Self {
        let store = database.open().await;
        let Parts { clock, keystore, authority, issuers, lifecycle } =
            Parts::on(&store, LifecycleOptions::default()).await;
        let agents = Agents::new(AgentsParts {
            store: store.clone(),
            keystore: keystore.clone(),
            clock: clock.clone(),
            work: Arc::new(lifecycle.clone()),
            certify: Arc::new(AuthorityCertifier::agents(authority.clone())),
            identity: Arc::new(uri_identity_key),
            ca_pem: String::new().into(),
        });
        let components = Components {
            issuance: Some(issuance(&authority, &store, &clock)),
            certificates: Some(lifecycle.clone()),
            issuers: Some(issuers),
            agents: Some(agents),
            keystore: Some(keystore),
            ..Components::default()
        };
        let world = World::start_with(Plan {
            components,
            database,
            state: Box::new(move |state| state.signed_approvals(signed_approvals)),
            ..Plan::default()
        })
        .await;
        let bob = world.token("bob", "approver", "any").await;
        Self { world, store, authority, lifecycle, bob }
    }

    /// Makes the profile `vip` require this number of approvals.
    async fn guard(&self, approvals: u32) {
        let vip = Profile { requires_approval: true, approvals, ..profile("vip", ".vip.example") };
        self.authority.put_profile(vip, None, "test").await.unwrap();
    }

    async fn send_request(&self, method: Method, path: &str, body: &Value) -> TestResponse {
        let request = self.world.with(&self.world.admin, method, path);
        send(if body.is_null() { request } else { request.json(body) }).await
    }

    async fn approve(&self, token: &str, change: &Value, plan: &Value) -> TestResponse {
        let path = format!("/api/v1/changes/{}/approve", change["id"].as_str().unwrap());
        send(self.world.with(token, Method::POST, &path).json(&json!({ "plan_sha256": plan }))).await
    }

    async fn shown(&self, path: &str) -> Value {
        let mut shown = self.world.get(path).await.expect(200).json();
        // Reading with a token changes its `last_used_at`.
        shown.as_object_mut().unwrap().remove("last_used_at");
        shown
    }
}

const VIP: &str = "/api/v1/profiles/vip";

testbed::on_both! {
    super::House:
    guarded_profile_change_requires_approval_and_is_applied_as_shown
    change_is_void_when_its_object_was_modified
    token_for_a_guarded_profile_is_usable_after_approval
    change_requires_the_number_of_approvals_of_the_profile
    every_route_that_changes_a_guarded_object_requires_approval
    profile_of_the_same_ca_by_another_name_requires_approval
}

async fn guarded_profile_change_requires_approval_and_is_applied_as_shown(house: House) {
    house.guard(1).await;
    let before = house.shown(VIP).await;
    let mut weaker = before.clone();
    weaker["requires_approval"] = json!(false);
    let answer = house.send_request(Method::PUT, VIP, &weaker).await.expect(202);
    let change = answer.json();
    assert_eq!(answer.header("location"), format!("/api/v1/changes/{}", change["id"].as_str().unwrap()));
    assert_eq!((&change["object"], &change["profiles"]), (&json!("profile/vip"), &json!(["vip"])));
    let difference = json!([{ "name": "/requires_approval", "before": ["true"], "after": ["false"] }]);
    assert_eq!(change["changes"], difference);
    assert_eq!(house.shown(VIP).await, before, "nothing is changed yet");

    let plan = &change["plan_sha256"];
    let own = house.approve(&house.world.admin, &change, plan).await.expect(403);
    assert!(own.text.contains("the same person as you"), "{own:?}");
    house.approve(&house.bob, &change, &json!("00".repeat(32))).await.expect(409);
    // The rejected approvals changed nothing.
    assert_eq!(house.shown(VIP).await, before);
    let applied = house.approve(&house.bob, &change, plan).await.expect(200).json();
    assert_eq!((&applied["state"], &applied["approvers"]), (&json!("applied"), &json!(["token:bob"])));
    let after = house.shown(VIP).await;
    assert_eq!(after["requires_approval"], false);
    house.approve(&house.bob, &change, plan).await.expect(409);
    let audit = house.world.get("/api/v1/audit?resource=profile/vip").await.expect(200).json();
    assert_eq!(audit["items"][0]["actor"], "token:first-admin", "the change is hers: {audit}");
    let path = format!("/api/v1/audit?resource=change/{}", change["id"].as_str().unwrap());
    let audit = house.world.get(&path).await.expect(200).json();
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|item| item["action"].as_str().unwrap()).collect();
    for action in ["change.request", "change.approve", "change.apply"] {
        assert!(actions.contains(&action), "{actions:?}");
    }
    // The changed profile no longer requires approval.
    house.send_request(Method::PUT, VIP, &before).await.expect(200);
}

async fn change_is_void_when_its_object_was_modified(house: House) {
    house.guard(1).await;
    let before = house.shown(VIP).await;
    let mut changes = Vec::new();
    for days in [30, 60] {
        let mut other = before.clone();
        other["validity"]["default_seconds"] = json!(days * 86_400);
        changes.push(house.send_request(Method::PUT, VIP, &other).await.expect(202).json());
    }
    house.approve(&house.bob, &changes[0], &changes[0]["plan_sha256"]).await.expect(200);
    let void = house.approve(&house.bob, &changes[1], &changes[1]["plan_sha256"]).await.expect(409);
    assert!(void.text.contains("void"), "{void:?}");
    let path = format!("/api/v1/changes/{}", changes[1]["id"].as_str().unwrap());
    assert_eq!(house.shown(&path).await["state"], "void");
    assert_eq!(house.shown(VIP).await["validity"]["default_seconds"], 30 * 86_400);
    // A rejected change is not applied.
    let deleted = house.send_request(Method::DELETE, VIP, &Value::Null).await.expect(202).json();
    assert!(deleted["changes"].as_array().unwrap().iter().all(|change| change["after"] == json!([])));
    let reject = format!("/api/v1/changes/{}/reject", deleted["id"].as_str().unwrap());
    let rejected =
        send(house.world.with(&house.bob, Method::POST, &reject).json(&json!({ "note": "no" }))).await;
    assert_eq!(rejected.expect(200).json()["state"], "rejected");
    house.approve(&house.bob, &deleted, &deleted["plan_sha256"]).await.expect(409);
    house.shown(VIP).await;
}

async fn token_for_a_guarded_profile_is_usable_after_approval(house: House) {
    house.guard(1).await;
    let body = |name: &str, role: &str, scope: &str| json!({ "name": name, "grants": [{ "role": role, "scope": scope }] });
    // Read-only tokens and tokens for another profile need no approval.
    for (name, role, scope) in [("sees", "viewer", "any"), ("other", "issuer", "profile:web")] {
        house.send_request(Method::POST, "/api/v1/tokens", &body(name, role, scope)).await.expect(201);
    }
    let carl = body("carl", "approver", "profile:vip");
    let change = house.send_request(Method::POST, "/api/v1/tokens", &carl).await.expect(202).json();
    let secret = change["token"].as_str().unwrap();
    let list = || send(house.world.with(secret, Method::GET, "/api/v1/changes"));
    list().await.expect(401);
    let path = format!("/api/v1/changes/{}", change["id"].as_str().unwrap());
    let shown = house.world.get(&path).await.expect(200);
    assert!(!shown.text.contains(secret), "the secret is in the first answer only");
    house.approve(&house.bob, &change, &change["plan_sha256"]).await.expect(200);
    // The failed authentication is cached for two seconds at most, and the cache is cleared when access changes.
    list().await.expect(200);

    // Rotating Bob's token requires approval, so nobody can take over his identity.
    let tokens = house.world.get("/api/v1/tokens").await.expect(200).json();
    let bobs = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "bob").unwrap();
    let rotate = format!("/api/v1/tokens/{}/rotate", bobs["id"].as_str().unwrap());
    let rotated = house.send_request(Method::POST, &rotate, &Value::Null).await.expect(202).json();
    let stolen = rotated["token"].as_str().unwrap();
    send(house.world.with(stolen, Method::GET, "/api/v1/changes")).await.expect(401);
    send(house.world.with(&house.bob, Method::GET, "/api/v1/changes")).await.expect(200);
}

async fn change_requires_the_number_of_approvals_of_the_profile(house: House) {
    let carl = house.world.token("carl", "approver", "any").await;
    let dora = house.world.token("dora", "approver", "profile:web").await;
    house.guard(2).await;
    let mut weaker = house.shown(VIP).await;
    weaker["approvals"] = json!(1);
    let change = house.send_request(Method::PUT, VIP, &weaker).await.expect(202).json();
    assert_eq!((&change["approvals_given"], &change["approvals_needed"]), (&json!(0), &json!(2)));
    let plan = &change["plan_sha256"];
    house.approve(&dora, &change, plan).await.expect(404);
    let half = house.approve(&house.bob, &change, plan).await.expect(200).json();
    assert_eq!((&half["state"], &half["approvals_given"]), (&json!("open"), &json!(1)));
    let repeated = house.approve(&house.bob, &change, plan).await.expect(409);
    assert!(repeated.text.contains("2 different people"), "{repeated:?}");
    assert_eq!(house.shown(VIP).await["approvals"], 2);
    let whole = house.approve(&carl, &change, plan).await.expect(200).json();
    assert_eq!(whole["state"], "applied");
    assert_eq!(house.shown(VIP).await["approvals"], 1);
}

async fn profile_of_the_same_ca_by_another_name_requires_approval(house: House) {
    let second = NewCa::root("second", "CN=Second");
    house.authority.create_root(&second, "test").await.unwrap();
    let root = house.authority.ca("root").await.unwrap().id.to_string();
    let of = |ca: &str, profile: Profile| Profile { ca: Some(ca.to_owned()), ..profile };
    let vip = Profile { requires_approval: true, ..profile("vip", ".vip.example") };
    house.authority.put_profile(of("root", vip), None, "test").await.unwrap();
    let ghost = of("ghost", profile("ghost", ".vip.example"));
    let put = async |new: &Profile| {
        let body = serde_json::to_value(new).unwrap();
        house.send_request(Method::POST, "/api/v1/profiles", &body).await
    };
    for ca in ["root", root.as_str(), "ghost"] {
        let answer = put(&of(ca, profile("loose", ".vip.example"))).await;
        assert_eq!(answer.status, 202, "{ca}: {answer:?}");
    }
    put(&of("second", profile("loose", ".vip.example"))).await.expect(201);
    // A profile of a CA that does not exist issued nothing before.
    house.authority.put_profile(ghost.clone(), None, "test").await.unwrap();
    let body = serde_json::to_value(Profile { ca: None, ..ghost }).unwrap();
    house.send_request(Method::PUT, "/api/v1/profiles/ghost", &body).await.expect(202);
}

/// The behavior of a route that writes a gate, once a profile that requires approval depends on the gate.
enum Route {
    /// The change waits for approval. Contains the path and the request body.
    Waits(String, Value),
    /// The change grants nothing and needs no approval. Contains the reason.
    Free(#[expect(dead_code, reason = "for the reader")] &'static str),
}

/// The areas of the API whose routes write gates.
const AREAS: [&str; 8] =
    ["profiles", "roles", "tokens", "users", "client-certificates", "issuers", "targets", "policies"];

#[tokio::test]
async fn an_approval_is_signed_where_the_configuration_requires_it() {
    let house = House::with(Database::sqlite(), true).await;
    let world = &house.world;
    let ann = security_keys::user(world, "ann", "admin").await;
    let tab = Tab::of(&security_keys::password(world, "ann").await.expect(201));
    let mut key = SoftKey::new(7);
    security_keys::register(world, &tab, &ann, &key).await.expect(201);
    house.guard(1).await;
    let mut weaker = house.shown(VIP).await;
    weaker["requires_approval"] = json!(false);
    let change = house.send_request(Method::PUT, VIP, &weaker).await.expect(202).json();
    let plan = change["plan_sha256"].as_str().unwrap();
    let refused = house.approve(&house.bob, &change, &change["plan_sha256"]).await.expect(403);
    assert!(refused.text.contains("sign the plan"), "{refused:?}");

    let path = format!("/api/v1/changes/{}", change["id"].as_str().unwrap());
    let challenge = async |plan: &str| {
        let path = format!("{path}/challenge");
        security_keys::send_request(world, &tab, Method::POST, &path, json!({ "plan_sha256": plan }))
            .await
            .expect(201)
            .json()
    };
    let approve = async |mut body: Value, plan: Option<&str>| {
        if let Some(plan) = plan {
            body["plan_sha256"] = plan.into();
        }
        security_keys::send_request(world, &tab, Method::POST, &format!("{path}/approve"), body).await
    };
    // The signature of another plan approves neither this plan nor the other.
    let other = "00".repeat(32);
    let signed = key.get(&challenge(&other).await, VERIFIED, Some(&ann));
    approve(signed, Some(plan)).await.expect(409);
    let signed = key.get(&challenge(&other).await, VERIFIED, Some(&ann));
    approve(signed, None).await.expect(409);
    // A key that can verify its user must do so; of one that cannot, presence suffices.
    let signed = key.get(&challenge(plan).await, PRESENT, Some(&ann));
    approve(signed, Some(plan)).await.expect(401);
    let mut weak = SoftKey::new(8);
    let stored = SecurityKey { user_verified: false, ..weak.stored(ann.parse().unwrap()) };
    security_keys::insert(world, stored).await;
    let signed = weak.get(&challenge(&other).await, PRESENT, Some(&ann));
    approve(signed, None).await.expect(409);
    let signed = key.get(&challenge(plan).await, VERIFIED, Some(&ann));
    let applied = approve(signed.clone(), Some(plan)).await.expect(200).json();
    approve(signed, Some(plan)).await.expect(401);
    assert_eq!((&applied["state"], &applied["approvers"]), (&json!("applied"), &json!(["user:ann"])));
    let own: Vec<&Value> =
        applied["signatures"].as_array().unwrap().iter().filter(|one| one["plan_sha256"] == plan).collect();
    assert_eq!((own.len(), &own[0]["actor"]), (1, &json!("user:ann")));
    // The stored signature is verified without the server.
    let stored: ApprovalSignature = serde_json::from_value(own[0]["signature"].clone()).unwrap();
    let id: Uuid = change["id"].as_str().unwrap().parse().unwrap();
    let hash: x509::Fingerprint = plan.parse().unwrap();
    assert_eq!(stored.verify(id.into_bytes(), *hash.as_bytes(), "user:ann"), Ok(true));
    assert!(stored.verify(id.into_bytes(), [0; 32], "user:ann").is_err());
    let audit = world.get("/api/v1/audit?action=approval.sign").await.json();
    assert_eq!(audit["items"][0]["details"]["signature"], own[0]["signature"]);
}

#[tokio::test]
async fn approvals_from_before_signatures_were_required_do_not_count() {
    let house = House::with(Database::sqlite(), true).await;
    let world = &house.world;
    let mut people = Vec::new();
    for (name, number) in [("ann", 7), ("carl", 8)] {
        let id = security_keys::user(world, name, "admin").await;
        let tab = Tab::of(&security_keys::password(world, name).await.expect(201));
        let key = SoftKey::new(number);
        security_keys::register(world, &tab, &id, &key).await.expect(201);
        people.push((id, tab, key));
    }
    house.guard(2).await;
    let mut weaker = house.shown(VIP).await;
    (weaker["requires_approval"], weaker["approvals"]) = (json!(false), json!(1));
    let change = house.send_request(Method::PUT, VIP, &weaker).await.expect(202).json();
    let (id, plan) = (change["id"].as_str().unwrap(), change["plan_sha256"].as_str().unwrap());
    // Ann approves as before the setting.
    let (uuid, hash) = (id.parse().unwrap(), plan.parse::<x509::Fingerprint>().unwrap());
    let ann = Principal::from_actor("user:ann");
    house.authority.approve_change(uuid, Some(*hash.as_bytes()), None, &ann).await.unwrap();

    let mut sign = async |person: usize| {
        let (user, tab, key) = &mut people[person];
        let path = format!("/api/v1/changes/{id}");
        let body = json!({ "plan_sha256": plan });
        let challenge =
            security_keys::send_request(world, tab, Method::POST, &format!("{path}/challenge"), body).await;
        let signed = key.get(&challenge.expect(201).json(), VERIFIED, Some(user));
        security_keys::send_request(world, tab, Method::POST, &format!("{path}/approve"), signed).await
    };
    let refused = sign(1).await.expect(409);
    assert!(
        refused.text.contains("did not sign the plan") && refused.text.contains("user:ann"),
        "{refused:?}"
    );
    assert_eq!(house.shown(VIP).await["requires_approval"], true);
    // Her approval counts once she signs too; a second signature is a second approval.
    let completed = sign(0).await.expect(200).json();
    assert_eq!((&completed["state"], &completed["approvals_given"]), (&json!("open"), &json!(1)));
    sign(0).await.expect(409);
    assert_eq!(sign(1).await.expect(200).json()["state"], "applied");
}

async fn every_route_that_changes_a_guarded_object_requires_approval(house: House) {
    let routes = gates(&house).await;
    house.guard(1).await;
    let (_, all) = server::router(&house.world.state);
    let mut seen = 0;
    for route in &all {
        if !AREAS.contains(&route.area) || route.method == Method::GET {
            continue;
        }
        let name = format!("{} {}", route.method, route.path);
        let known = routes.get(name.as_str()).unwrap_or_else(|| {
            panic!("{name} writes a gate: it goes through `Gates::write` and has a line in this test")
        });
        seen += 1;
        let Route::Waits(path, body) = known else { continue };
        let answer = house.send_request(route.method.clone(), path, body).await;
        assert_eq!(answer.status, 202, "{name} {body}: {answer:?}");
        let change = answer.json();
        assert_eq!(change["state"], "open", "{name}: {change}");
        assert!(!change["changes"].as_array().unwrap().is_empty(), "{name}: {change}");
    }
    assert_eq!(seen, routes.len(), "every line of this test is a route");
    // None of the pending changes has been applied.
    let policy = house.shown("/api/v1/policies/two").await;
    assert_eq!(policy["policy"]["requires_approval"], true);
    assert_eq!(house.shown("/api/v1/roles/plain").await["permissions"], json!(["profile.read"]));
    let names = |list: Value| {
        let items = list["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let tokens = names(house.world.get("/api/v1/tokens").await.json());
    assert_eq!(tokens, ["bob", "first-admin", "plain"]);
    assert_eq!(names(house.world.get("/api/v1/users").await.json()), ["ann"]);
    assert_eq!(names(house.world.get("/api/v1/issuers").await.json()), ["outside"]);
    assert_eq!(names(house.world.get("/api/v1/targets").await.json()), ["web"]);
}

/// Creates one gate of each kind that `vip` depends on, before any profile requires approval.
async fn gates(house: &House) -> BTreeMap<&'static str, Route> {
    let made = async |path: &str, body: Value| {
        let made = house.send_request(Method::POST, path, &body).await.expect(201).json();
        format!("{path}/{}", made["id"].as_str().unwrap_or_default())
    };
    let admin = json!([{ "role": "admin", "scope": "any" }]);
    let new = |name: &str| json!({ "name": name, "grants": admin });
    let user = |name: &str| json!({ "name": name, "subject": name, "issuer": "https://idp.example", "grants": admin });
    let laptop =
        |name: &str| json!({ "name": name, "match": format!("dns:{name}.example"), "grants": admin });
    let token = made("/api/v1/tokens", new("plain")).await;
    let ann = made("/api/v1/users", user("ann")).await;
    let certificate = made("/api/v1/client-certificates", laptop("laptop")).await;
    let role = json!({ "permissions": ["profile.read"] });
    house.send_request(Method::PUT, "/api/v1/roles/plain", &role).await.expect(201);
    let webhook =
        json!({ "type": "webhook", "url": "http://127.0.0.1:1/", "secret": "the first of two secrets" });
    let issuer = made("/api/v1/issuers", json!({ "name": "outside", "config": webhook })).await;
    let two = json!({ "name": "two", "policy": { "requires_approval": true } });
    house.send_request(Method::POST, "/api/v1/policies", &two).await.expect(201);
    let target = target(house).await;

    let waits = |path: &str, body: Value| Route::Waits(path.to_owned(), body);
    let renamed = json!({ "name": "renamed" });
    let elsewhere =
        json!({ "type": "webhook", "url": "http://127.0.0.1:2/", "secret": "the second of two secrets" });
    let role = json!({ "permissions": ["approval.decide"] });
    let evading = serde_json::to_value(profile("loose", ".example")).unwrap();
    let weaker = serde_json::to_value(profile("vip", ".vip.example")).unwrap();
    let files = json!({ "name": "elsewhere", "agent": Uuid::nil(),
        "target": { "type": "files", "key": { "path": "/tmp/a.key", "mode": "0644" }, "fullchain": "/tmp/a.pem" } });
    BTreeMap::from([
        // Another profile for the same names that does not require approval.
        ("POST /api/v1/profiles", waits("/api/v1/profiles", evading)),
        ("PUT /api/v1/profiles/{name}", waits(VIP, weaker)),
        ("DELETE /api/v1/profiles/{name}", waits(VIP, Value::Null)),
        ("PUT /api/v1/roles/{name}", waits("/api/v1/roles/plain", role)),
        ("DELETE /api/v1/roles/{name}", Route::Free("grants that name the role give nothing then")),
        ("POST /api/v1/tokens", waits("/api/v1/tokens", new("second"))),
        ("PATCH /api/v1/tokens/{id}", waits(&token, renamed.clone())),
        ("POST /api/v1/tokens/{id}/rotate", waits(&format!("{token}/rotate"), Value::Null)),
        ("DELETE /api/v1/tokens/{id}", Route::Free("takes away")),
        ("POST /api/v1/users", waits("/api/v1/users", user("eve"))),
        ("PATCH /api/v1/users/{id}", waits(&ann, json!({ "email": "eve@a.example" }))),
        ("DELETE /api/v1/users/{id}", Route::Free("takes away")),
        ("DELETE /api/v1/users/{id}/sessions", Route::Free("takes away")),
        (
            "PUT /api/v1/users/{id}/password",
            waits(&format!("{ann}/password"), json!({ "password": "correct horse battery staple" })),
        ),
        ("POST /api/v1/users/{id}/security-keys/challenge", Route::Free("users add their own keys")),
        ("POST /api/v1/users/{id}/security-keys", Route::Free("users add their own keys")),
        (
            "DELETE /api/v1/users/{id}/security-keys/{key}",
            Route::Free("takes away; the password is still needed"),
        ),
        ("POST /api/v1/client-certificates", waits("/api/v1/client-certificates", laptop("eve"))),
        ("PATCH /api/v1/client-certificates/{id}", waits(&certificate, renamed)),
        ("DELETE /api/v1/client-certificates/{id}", Route::Free("takes away")),
        // An issuer with a name that certificates of `vip` refer to.
        ("POST /api/v1/issuers", waits("/api/v1/issuers", json!({ "name": "gone", "config": elsewhere }))),
        ("PATCH /api/v1/issuers/{id}", waits(&issuer, json!({ "config": elsewhere }))),
        ("DELETE /api/v1/issuers/{id}", waits(&issuer, Value::Null)),
        ("POST /api/v1/issuers/{id}/test", Route::Free("the rewrite changes nothing")),
        ("POST /api/v1/targets", Route::Free("no certificate goes to a target that is new")),
        ("PUT /api/v1/targets/{id}", waits(&target, files)),
        ("DELETE /api/v1/targets/{id}", waits(&target, Value::Null)),
        ("POST /api/v1/policies", Route::Free("a new policy loosens nothing")),
        ("PUT /api/v1/policies/{name}", waits("/api/v1/policies/two", json!({ "policy": {} }))),
        ("DELETE /api/v1/policies/{name}", waits("/api/v1/policies/two", Value::Null)),
    ])
}

/// Creates a target of a `vip` certificate with the issuer `outside`. Another certificate refers to a deleted issuer.
async fn target(house: &House) -> String {
    house.authority.put_profile(profile("vip", ".vip.example"), None, "test").await.unwrap();
    let id = Uuid::now_v7();
    let settings = TargetSettings {
        name: "web".to_owned(),
        agent: Uuid::nil(),
        kind: "files".to_owned(),
        config: json!({ "type": "files", "key": { "path": "/etc/a.key", "mode": "0640" }, "fullchain": "/etc/a.pem" })
            .to_string(),
        secrets: None,
    };
    let insert = house
        .store
        .write("target", move |tx| async move { insert_target(tx, id, &settings, 1).await }.boxed());
    assert!(insert.await.unwrap());
    for (name, issuer) in [("a.vip.example", "outside"), ("b.vip.example", "gone")] {
        let mut new = NewCertificate::new(&[name], "vip");
        new.issue = false;
        house.lifecycle.create(new, "test").await.unwrap();
        let targets = json!([{ "kind": "deploy", "target": id, "agent": Uuid::nil() }]).to_string();
        let update = house.store.write("managed", move |tx| {
            async move {
                let statement =
                    "-- managed\nUPDATE managed_certificates SET issuer = ?2, targets = ?3 WHERE name = ?1";
                tx.execute(statement, vec![name.into(), issuer.into(), targets.into()]).await
            }
            .boxed()
        });
        assert_eq!(update.await.unwrap(), 1);
    }
    format!("/api/v1/targets/{id}")
}
