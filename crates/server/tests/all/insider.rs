//! An operator of one team tries to reach objects of another team, and to evade approval.

use authority::keystore::KeyStore;
use authority::profile::Profile;
use credentials::{Credentials, CredentialsOptions};
use http::Method;
use keys::Keyring;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::routes::credhub::{CredHub, CredHubOptions, UaaOptions};
use server::{Components, access};
use store::Clock;
use testbed::Database;
use uuid::Uuid;

use crate::teams::{CERTIFICATES, House, csr};
use crate::world::{Plan, TestResponse, World, send};

impl House {
    /// Creates a profile for names below `example`, for which another person must approve.
    async fn guarded_profile(&self, name: &str) {
        self.profile_of_example(name, true).await;
    }

    /// Returns the token of a second administrator.
    async fn second(&self) -> String {
        let second = access::break_glass(&self.store, &Clock::system(), "a test").await.unwrap();
        second.expose_secret().to_owned()
    }

    /// Creates a managed certificate, and returns its ID.
    async fn certificate(&self, body: &Value) -> String {
        let made = self.post(&self.admin, CERTIFICATES, body).await.expect(201).json();
        made["id"].as_str().unwrap().to_owned()
    }

    /// Waits for an open approval that is not `before`.
    async fn open_approval(&self, before: Option<&str>) -> Value {
        testbed::until_some("an approval", async || {
            let open = self.get(&self.admin, "/api/v1/approvals").await.expect(200).json();
            let id = open["items"][0]["id"].as_str().filter(|id| Some(*id) != before)?;
            Some(self.get(&self.admin, &format!("/api/v1/approvals/{id}")).await.expect(200).json())
        })
        .await
    }

    async fn approve(&self, token: &str, approval: &Value) -> TestResponse {
        let path = format!("/api/v1/approvals/{}/approve", approval["id"].as_str().unwrap());
        self.post(token, &path, &json!({ "plan_sha256": approval["plan_sha256"] })).await
    }

    async fn patch(&self, token: &str, id: &str, body: &Value) -> TestResponse {
        send(self.request_as(token, Method::PATCH, &format!("{CERTIFICATES}/{id}")).json(body)).await
    }

    /// Ends the deployments of a certificate, whose agents do not exist.
    async fn cancel_deployments(&self, id: &str) {
        let jobs = self.get(&self.admin, &format!("{CERTIFICATES}/{id}/jobs")).await.expect(200).json();
        for job in jobs["items"].as_array().unwrap() {
            if job["kind"] == "deployment" && job["finished_at"].is_null() {
                let path = format!("/api/v1/jobs/{}/cancel", job["id"].as_str().unwrap());
                self.post(&self.admin, &path, &Value::Null).await.expect(204);
            }
        }
    }
}

fn field(approval: &Value, name: &str) -> Value {
    let plan = approval["plan"].as_array().unwrap();
    let found = plan.iter().find(|field| field["name"] == name);
    found.unwrap_or_else(|| panic!("the plan has no {name}: {approval}"))["values"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_the_default_ca_voids_approvals() {
    let house = House::new(Database::sqlite()).await;
    house.guarded_profile("vip").await;
    let second = house.second().await;
    let intermediate = json!({ "name": "second", "subject": "CN=Second" });
    house.post(&house.admin, "/api/v1/authorities", &intermediate).await.expect(201);
    let id = house.certificate(&json!({ "names": ["x.example"], "profile": "vip" })).await;
    let first = house.open_approval(None).await;
    assert!(field(&first, "ca")[0].as_str().unwrap().starts_with("issuing "), "{first}");

    house.post(&house.admin, "/api/v1/authorities/second/default", &Value::Null).await.expect(200);
    let void = house.approve(&second, &first).await.expect(409);
    assert!(void.text.contains("the plan changed") || void.text.contains("already void"), "{void:?}");
    let next = house.open_approval(first["id"].as_str()).await;
    assert!(field(&next, "ca")[0].as_str().unwrap().starts_with("second "), "{next}");
    assert_ne!(first["plan_sha256"], next["plan_sha256"]);
    house.approve(&second, &next).await.expect(200);
    house.until(&id, "status", |status| status == "active").await;
    let issued = house.get(&house.admin, "/api/v1/issued?profile=vip").await.expect(200).json();
    let ca = house.get(&house.admin, "/api/v1/authorities/second").await.expect(200).json();
    assert_eq!(issued["items"][0]["ca"], ca["id"]);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_of_a_guarded_certificate_leaves_the_server_only_as_approved() {
    let house = House::new(Database::sqlite()).await;
    house.guarded_profile("vip").await;
    let (second, operator) = (house.second().await, house.operator_of_everything().await);
    let (one, two) = (house.target("one").await, house.target("two").await);
    let id = house.certificate(&json!({ "names": ["x.example"], "profile": "vip", "targets": [one] })).await;
    let first = house.open_approval(None).await;
    house.approve(&second, &first).await.expect(200);
    house.until(&id, "status", |status| status == "deploying").await;
    house.cancel_deployments(&id).await;
    house.until(&id, "status", |status| status == "active").await;
    let path = format!("{CERTIFICATES}/{id}");
    let (deploy, export) = (format!("{path}/deploy"), format!("{path}/export"));
    let refused = |answer: TestResponse, hint: &str| {
        let answer = answer.expect(409);
        assert_eq!(answer.problem(), "approval-required");
        assert!(answer.text.contains(hint), "{answer:?}");
    };

    // Nobody exports the key, and everybody who may see the certificate gets its chain.
    for token in [&operator, &house.admin] {
        refused(house.post(token, &export, &json!({ "format": "pem" })).await, "Deploy the certificate");
    }
    house.get(&operator, &format!("{path}/chain")).await.expect(200);
    // The approved target gets the key again.
    house.post(&operator, &deploy, &Value::Null).await.expect(202);
    house.cancel_deployments(&id).await;
    // A new target does not, and neither does another agent.
    house.patch(&operator, &id, &json!({ "targets": [one, two] })).await.expect(200);
    refused(house.post(&operator, &deploy, &Value::Null).await, "renew");
    // The rules of the version stay those under which it was issued, also after another person approved another profile.
    let other = house.patch(&operator, &id, &json!({ "profile": "shared" })).await.expect(202).json();
    house.approve_change(&second, &other).await;
    assert_eq!(house.get(&operator, &path).await.expect(200).json()["profile"], "shared");
    refused(house.post(&operator, &deploy, &Value::Null).await, "renew");
    refused(house.post(&operator, &export, &json!({ "format": "pem" })).await, "Deploy the certificate");
    house.patch(&operator, &id, &json!({ "profile": "vip" })).await.expect(200);

    // A renewal asks for approval of the new targets.
    house.post(&operator, &format!("{path}/renew"), &Value::Null).await.expect(202);
    let next = house.open_approval(first["id"].as_str()).await;
    assert_eq!(field(&next, "targets").as_array().unwrap().len(), 2);
    house.approve(&second, &next).await.expect(200);
    house.until(&id, "status", |status| status == "deploying").await;
    house.cancel_deployments(&id).await;
    house.until(&id, "status", |status| status == "active").await;
    house.post(&operator, &deploy, &Value::Null).await.expect(202);
    house.end().await;
}

/// Another person guards a profile after its certificates were issued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_issued_before_approval_was_required_is_not_released_after_another_profile_was_chosen() {
    let house = House::new(Database::sqlite()).await;
    let vip = house.profile_of_example("vip", false).await;
    let second = house.second().await;
    let operator = house.token("operator", "any").await;
    let target = house.target("one").await;
    let mut ids = Vec::new();
    for name in ["stays.example", "left.example"] {
        let new = json!({ "names": [name], "profile": "vip" });
        let id = house.certificate(&new).await;
        house.until(&id, "status", |status| status == "active").await;
        ids.push(id);
    }
    let export = async |id: &str| {
        house.post(&operator, &format!("{CERTIFICATES}/{id}/export"), &json!({ "format": "pem" })).await
    };
    // The second certificate leaves the profile before it is guarded.
    house.patch(&operator, &ids[1], &json!({ "profile": "shared" })).await.expect(200);
    for id in &ids {
        export(id).await.expect(200);
    }
    let resource_path = "/api/v1/profiles/vip";
    let guarded = Profile { requires_approval: true, ..vip };
    send(
        house
            .request_as(&house.admin, Method::PUT, resource_path)
            .json(&serde_json::to_value(guarded).unwrap()),
    )
    .await
    .expect(200);

    for id in &ids {
        let refused = export(id).await.expect(409);
        assert_eq!(refused.problem(), "approval-required");
        // A new target gets no key either.
        let changed = house.patch(&operator, id, &json!({ "targets": [target] })).await.expect(200);
        assert_eq!(changed.json()["targets"].as_array().unwrap().len(), 1);
        let deploy = format!("{CERTIFICATES}/{id}/deploy");
        assert_eq!(
            house.post(&operator, &deploy, &Value::Null).await.expect(409).problem(),
            "approval-required"
        );
    }
    // The first certificate leaves the guarded profile only with approval. Its key stays guarded.
    let change = house.patch(&operator, &ids[0], &json!({ "profile": "shared" })).await.expect(202).json();
    assert_eq!(
        (&change["object"], &change["profiles"], &change["changes"]),
        (
            &json!(format!("certificate/{}", ids[0])),
            &json!(["vip"]),
            &json!([{ "name": "/profile", "before": ["\"vip\""], "after": ["\"shared\""] }])
        )
    );
    let resource_path = format!("/api/v1/changes/{}", change["id"].as_str().unwrap());
    house.post(&operator, &format!("{resource_path}/approve"), &json!({})).await.expect(403);
    house.approve_change(&second, &change).await;
    export(&ids[0]).await.expect(409);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_that_requires_approval_is_removed_from_a_certificate_with_approval_only() {
    let house = House::new(Database::sqlite()).await;
    let second = house.second().await;
    let operator = house.token("operator", "any").await;
    let policies = [
        ("named", json!({ "requires_approval": true })),
        ("tagged", json!({ "requires_approval": true, "applies_to": { "tags": { "tier": "one" } } })),
    ];
    for (name, policy) in &policies {
        let new = json!({ "name": name, "policy": policy });
        house.post(&house.admin, "/api/v1/policies", &new).await.expect(201);
    }
    let new = json!({ "names": ["x.example"], "profile": "shared", "issue": false });
    let cases = [
        (json!({ "policy": "named" }), json!({ "policy": null }), json!({ "policy": null })),
        (json!({ "tags": { "tier": "one" } }), json!({ "tags": {} }), json!({ "tags_unset": ["tier"] })),
    ];
    for (number, (has, patch, many)) in cases.iter().enumerate() {
        let mut new = new.clone();
        new["name"] = json!(format!("certificate {number}"));
        new.as_object_mut().unwrap().extend(has.as_object().unwrap().clone());
        let id = house.certificate(&new).await;
        let path = format!("{CERTIFICATES}/{id}");
        let before = house.get(&operator, &path).await.expect(200).json();
        // Together with many others it is refused.
        let mut body = json!({ "select": { "ids": [id] } });
        body.as_object_mut().unwrap().extend(many.as_object().unwrap().clone());
        let report =
            house.post(&operator, &format!("{CERTIFICATES}/reassign"), &body).await.expect(200).json();
        assert_eq!((&report["done"], &report["refused"]), (&json!(0), &json!(1)), "{report}");
        // Alone it waits.
        let change = house.patch(&operator, &id, patch).await.expect(202).json();
        assert_eq!(change["profiles"], json!([]), "a policy applies to every profile");
        assert_eq!(house.get(&operator, &path).await.expect(200).json(), before);
        house.approve_change(&second, &change).await;
        let after = house.get(&operator, &path).await.expect(200).json();
        assert_eq!((&after["policy"], &after["tags"]), (&Value::Null, &json!({})));
        // What lifts nothing needs no approval.
        house.patch(&operator, &id, &json!({ "notes": "x", "policy": "named" })).await.expect(200);
        house.patch(&operator, &id, &json!({ "tags": { "tier": "two" } })).await.expect(200);
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_by_ca_do_not_show_which_cas_exist() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    let team = house.token("operator", "team:a").await;
    let request_as = async |token: &str, ca: &str| {
        house.get(token, &format!("/api/v1/issued?profile=web-a&ca={ca}")).await
    };
    let revoke = async |ca: &str| {
        let body = json!({ "filter": { "profile": "web-a", "ca": ca }, "reason": "superseded" });
        house.post(&team, "/api/v1/revocations", &body).await.expect(200).json()
    };
    let (other, none) = (request_as(&team, "root").await, request_as(&team, "nothing").await);
    assert_eq!(anonymous(&other.expect(200), "root"), anonymous(&none.expect(200), "nothing"));
    assert_eq!(revoke("root").await["count"], revoke("nothing").await["count"]);
    // A caller who may see CAs learns that a name is wrong.
    request_as(&house.admin, "nothing").await.expect(404);
    house.end().await;
}

impl House {
    /// Creates a profile for names below `example`, and returns it.
    async fn profile_of_example(&self, name: &str, requires_approval: bool) -> Profile {
        let names = json!({ "dns_allowed": [{ "suffix": "example", "wildcards": true }] });
        let profile = Profile::for_servers(name, serde_json::from_value(names).unwrap());
        let profile = Profile { requires_approval, ..profile };
        let body = serde_json::to_value(&profile).unwrap();
        self.post(&self.admin, "/api/v1/profiles", &body).await.expect(201);
        profile
    }

    /// Approves a change of a gate.
    async fn approve_change(&self, token: &str, change: &Value) {
        let path = format!("/api/v1/changes/{}/approve", change["id"].as_str().unwrap());
        self.post(token, &path, &json!({ "plan_sha256": change["plan_sha256"] })).await.expect(200);
    }

    /// Returns a token of an operator. A grant over a guarded profile needs approval.
    async fn operator_of_everything(&self) -> String {
        let grants = json!([{ "role": "operator", "scope": "any" }]);
        let new = json!({ "name": "operator of everything", "grants": grants });
        let made = self.post(&self.admin, "/api/v1/tokens", &new).await.expect(202).json();
        self.approve_change(&self.second().await, &made).await;
        made["token"].as_str().unwrap().to_owned()
    }
}

/// Returns the answer without its instance, and with `ID` in place of the ID.
fn anonymous(answer: &TestResponse, id: &str) -> Value {
    let mut problem = answer.json();
    problem["instance"] = Value::Null;
    serde_json::from_str(&problem.to_string().replace(id, "ID")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_another_team_are_answered_like_missing_ones() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    let mut tokens = Vec::new();
    for role in ["operator", "approver", "admin"] {
        tokens.push(house.token(role, "team:a").await);
        tokens.push(house.token(role, "profile:shared").await);
        tokens.push(house.token(role, "target:host-a").await);
    }
    let operator = house.token("operator", "team:a,name:*.a.example").await;
    let request = csr("x.b.example", "x.b.example");
    let issue = "/api/v1/profiles/web-b/certificates";
    let issued = house.post(&house.admin, issue, &request).await.expect(201).json();
    let managed =
        house.certificate(&json!({ "names": ["y.b.example"], "profile": "web-b", "issue": false })).await;
    house.guarded_profile("vip").await;
    house.certificate(&json!({ "names": ["z.b.example"], "profile": "vip", "team": "b" })).await;
    let approval = house.open_approval(None).await["id"].as_str().unwrap().to_owned();
    let mut changed = house.get(&house.admin, "/api/v1/profiles/vip").await.expect(200).json();
    changed["names"]["max"] = json!(7);
    let change =
        send(house.request_as(&house.admin, Method::PUT, "/api/v1/profiles/vip").json(&changed)).await;
    let change = change.expect(202).json()["id"].as_str().unwrap().to_owned();

    let (text, nowhere) = (|value: &Value| value.as_str().unwrap().to_owned(), Uuid::now_v7().to_string());
    let (issued, fingerprint) = (text(&issued["id"]), text(&issued["fingerprint"]));
    let missing_print = "ab".repeat(32);
    let revocation = |id: &str| json!({ "certificate": id, "reason": "superseded" });
    let empty = |_: &str| json!({});
    let format = |_: &str| json!({ "format": "pem" });
    type Body<'a> = &'a dyn Fn(&str) -> Value;
    let routes: [(&str, &str, Body<'_>, &str, &str); 17] = [
        ("GET", "/api/v1/issued/{}", &empty, &issued, &nowhere),
        ("GET", "/api/v1/issued/{}", &empty, &fingerprint, &missing_print),
        ("POST", "/api/v1/revocations", &revocation, &issued, &nowhere),
        ("POST", "/api/v1/revocations", &revocation, &fingerprint, &missing_print),
        ("GET", "/api/v1/certificates/{}", &empty, &managed, &nowhere),
        ("POST", "/api/v1/certificates/{}/renew", &empty, &managed, &nowhere),
        ("POST", "/api/v1/certificates/{}/export", &format, &managed, &nowhere),
        ("GET", "/api/v1/approvals/{}", &empty, &approval, &nowhere),
        ("POST", "/api/v1/approvals/{}/approve", &empty, &approval, &nowhere),
        ("POST", "/api/v1/approvals/{}/reject", &empty, &approval, &nowhere),
        ("GET", "/api/v1/changes/{}", &empty, &change, &nowhere),
        ("POST", "/api/v1/changes/{}/approve", &empty, &change, &nowhere),
        ("POST", "/api/v1/changes/{}/reject", &empty, &change, &nowhere),
        ("GET", "/api/v1/profiles/{}", &empty, "web-b", "nothing"),
        (
            "POST",
            "/api/v1/profiles/{}/certificates",
            &|_| csr("x.b.example", "x.b.example"),
            "web-b",
            "nothing",
        ),
        ("GET", "/api/v1/certificates/{}/versions", &empty, &managed, &nowhere),
        ("GET", "/api/v1/certificates/{}/jobs", &empty, &managed, &nowhere),
    ];
    for token in &tokens {
        for (method, path, body, theirs, missing) in &routes {
            let request_as = async |id: &str| {
                let request = house.request_as(token, method.parse().unwrap(), &path.replace("{}", id));
                send(if *method == "GET" { request } else { request.json(&body(id)) }).await
            };
            let (other, none) = (request_as(theirs).await, request_as(missing).await);
            assert!(matches!(other.status.as_u16(), 403 | 404), "{method} {path}: {other:?}");
            assert_eq!(other.status, none.status, "{method} {path}: {other:?} {none:?}");
            assert_eq!(anonymous(&other, theirs), anonymous(&none, missing), "{method} {path}");
        }
    }
    // Profiles and issuers that a new or changed certificate names.
    let new = |profile: &str, issuer: &str| json!({ "names": ["x.a.example"], "profile": profile, "issuer": issuer, "team": "a", "issue": false });
    let made = house.post(&operator, CERTIFICATES, &new("web-a", "internal")).await.expect(201).json();
    for body in [|name: &str| json!({ "profile": name }), |name: &str| json!({ "issuer": name })] {
        let (theirs, missing) = (body("web-b"), body("nothing"));
        let id = made["id"].as_str().unwrap();
        let (other, none) = (
            house.patch(&operator, id, &theirs).await.expect(403),
            house.patch(&operator, id, &missing).await.expect(403),
        );
        assert_eq!(anonymous(&other, "web-b"), anonymous(&none, "nothing"));
    }
    let other = house.post(&operator, CERTIFICATES, &new("web-b", "internal")).await.expect(403);
    let none = house.post(&operator, CERTIFICATES, &new("nothing", "internal")).await.expect(403);
    assert_eq!(anonymous(&other, "web-b"), anonymous(&none, "nothing"));
    // A caller who sees the object learns which permission is missing.
    let viewer = house.token("viewer", "any").await;
    house.post(&viewer, &format!("{CERTIFICATES}/{managed}/renew"), &Value::Null).await.expect(403);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_other_teams_are_not_names_of_certificates() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    let operator = house.token("operator", "team:a").await;
    house.certificate(&json!({ "names": ["x.b.example"], "profile": "web-b", "issue": false })).await;
    let own = json!({ "names": ["x.a.example"], "profile": "web-a", "team": "a", "issue": false });
    let id = house.post(&operator, CERTIFICATES, &own).await.expect(201).json()["id"].clone();
    let id = id.as_str().unwrap();
    // One answer for a name in use and for a free name of another team.
    for name in ["x.b.example", "free.b.example", "FREE.b.example."] {
        let new = json!({ "name": name, "names": ["y.a.example"], "profile": "web-a", "team": "a", "issue": false });
        house.post(&operator, CERTIFICATES, &new).await.expect(403);
        house.patch(&operator, id, &json!({ "name": name })).await.expect(403);
    }
    house.patch(&operator, id, &json!({ "name": "shop" })).await.expect(200);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_for_targets_list_nothing_of_others() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    house.guarded_profile("vip").await;
    let (a, b) = (house.target("host-a").await, house.target("host-b").await);
    for (team, target) in [("a", &a), ("b", &b)] {
        let name = format!("x.{team}.example");
        let body =
            json!({ "names": [name], "profile": format!("web-{team}"), "team": team, "targets": [target] });
        let id = house.certificate(&body).await;
        house.until(&id, "status", |status| status == "deploying").await;
        house
            .certificate(&json!({ "names": [format!("y.{team}.example")], "profile": "vip", "team": team }))
            .await;
    }
    house.open_approval(None).await;
    let scopes = ["target:host-a", "target:host-*", "team:a,target:host-a", "profile:web-a,target:host-a"];
    let lists = [
        "/api/v1/certificates?limit=500",
        "/api/v1/certificates?limit=500&count=true",
        "/api/v1/certificates/groups?by=profile",
        "/api/v1/certificates/facets?by=team,profile",
        "/api/v1/issued?profile=web-b",
        "/api/v1/issued?profile=web-a",
        "/api/v1/profiles",
        "/api/v1/changes",
        "/api/v1/enrolments",
        "/api/v1/approvals",
        "/api/v1/jobs",
        "/api/v1/targets",
        "/api/v1/agents",
        "/api/v1/revocations",
        "/api/v1/series?team=b",
        "/api/v1/series",
        "/api/v1/search?q=b.example",
        "/api/v1/search?q=example",
        "/api/v1/search?q=host",
        "/api/v1/audit",
    ];
    for role in ["viewer", "operator", "approver"] {
        for scope in scopes {
            let grants = json!([{ "role": role, "scope": scope }]);
            let new = json!({ "name": format!("{role} {scope}"), "grants": grants });
            let made = house.post(&house.admin, "/api/v1/tokens", &new).await;
            let waits = made.status == 202;
            let made = made.json();
            if waits {
                let path = format!("/api/v1/changes/{}/approve", made["id"].as_str().unwrap());
                house.post(&house.second().await, &path, &json!({})).await.expect(200);
            }
            let token = made["token"].as_str().unwrap();
            for list in lists {
                let answer = house.get(token, list).await;
                let seen = answer.status == 200
                    && ["b.example", "web-b", "host-b", "\"b\"", "vip"]
                        .iter()
                        .any(|text| answer.text.contains(text));
                assert!(!seen, "{role} {scope} {list}: {answer:?}");
            }
        }
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_name_no_ca_but_that_of_their_profile() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    let issuer = house.token("issuer", "team:a").await;
    let path = "/api/v1/profiles/web-a/certificates";
    let with = |ca: &str| {
        let mut body = csr("x.a.example", "x.a.example");
        body["ca"] = json!(ca);
        body
    };
    let (other, none) =
        (house.post(&issuer, path, &with("root")).await, house.post(&issuer, path, &with("nothing")).await);
    assert_eq!((other.status.as_u16(), none.status.as_u16()), (403, 403), "{other:?} {none:?}");
    assert_eq!(anonymous(&other, "root"), anonymous(&none, "nothing"));
    house.post(&issuer, path, &with("issuing")).await.expect(201);
    house.post(&house.admin, path, &with("root")).await.expect(201);

    // Neither does the team change the CA of its profile, or make applications' identities.
    let manager = house.token("admin", "team:a").await;
    let resource_path = "/api/v1/profiles/web-a";
    let own = house.get(&manager, resource_path).await.expect(200).json();
    let put = async |token: &str, change: &dyn Fn(&mut Value)| {
        let mut body = own.clone();
        change(&mut body);
        send(house.request_as(token, Method::PUT, resource_path).json(&body)).await
    };
    put(&manager, &|body| body["ca"] = json!("root")).await.expect(403);
    put(&manager, &|body| body["subject"]["application_identities"] = json!(true)).await.expect(403);
    put(&manager, &|body| body["names"]["max"] = json!(7)).await.expect(200);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_profile_of_the_internal_ca_cannot_be_named_as_that_of_an_issuer() {
    let house = House::new(Database::sqlite()).await;
    house.guarded_profile("vip").await;
    let second = house.second().await;
    let issuer = json!({ "name": "inside", "config": { "type": "internal" } });
    let made = house.post(&house.admin, "/api/v1/issuers", &issuer).await;
    assert!(matches!(made.status.as_u16(), 201 | 202), "{made:?}");
    if made.status == 202 {
        let path = format!("/api/v1/changes/{}/approve", made.json()["id"].as_str().unwrap());
        house.post(&second, &path, &json!({})).await.expect(200);
    }
    let new =
        json!({ "names": ["x.example"], "profile": "shared", "issuer": "inside", "issuer_profile": "vip" });
    let made = house.post(&house.admin, CERTIFICATES, &new).await;
    if made.status == 201 {
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let shown = house.until(&id, "status", |status| status != "pending" && status != "issuing").await;
        let issued = house.get(&house.admin, "/api/v1/issued?profile=vip").await.expect(200).json();
        assert_eq!(issued["items"], json!([]), "issued by vip without approval: {shown}");
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_tokens_are_no_clients_of_a_uaa() {
    let database = Database::sqlite();
    let (store, clock) = (database.open().await, Clock::system());
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let credentials = Credentials::open(store, keystore, clock, CredentialsOptions::default());
    let uaa = UaaOptions::uaa("https://uaa.example:8443".to_owned(), Vec::new(), Vec::new());
    let options = CredHubOptions { uaa: Some(uaa), ..CredHubOptions::default() };
    let plan = Plan {
        database,
        options: Box::new(|options| options.credentials = Some("127.0.0.1:0".parse().unwrap())),
        components: Components {
            credentials: Some(CredHub::new(credentials, options).unwrap()),
            ..Components::default()
        },
        ..Plan::default()
    };
    let world = World::start_with(plan).await;
    let address = world.running.as_ref().unwrap().credential_address.unwrap();
    let client = world.builder().build().unwrap();
    let request_as = async |token: &str, method: Method, path: &str, body: Value| {
        let request = client.request(method, format!("https://{address}{path}")).bearer_auth(token);
        send(if body.is_null() { request } else { request.json(&body) }).await
    };
    let body = json!({ "name": "ci", "grants": [] });
    let token = world.post("/api/v1/tokens", body).await.expect(201).json()["token"].clone();
    let token = token.as_str().unwrap();
    let secret = json!({ "name": "/x", "type": "value", "value": "secret" });
    request_as(&world.admin, Method::PUT, "/api/v1/data", secret).await.expect(200);
    let read = "/api/v1/data?name=/x";
    // The client `ci` of the UAA is not the API token `ci`.
    for (actor, status) in [("uaa-client:ci", 404), ("uaa-user:ci", 404), ("token:ci", 200)] {
        let grant = json!({ "actor": actor, "path": "/x", "operations": ["read"] });
        request_as(&world.admin, Method::POST, "/api/v2/permissions", grant).await.expect(201);
        request_as(token, Method::GET, read, Value::Null).await.expect(status);
    }
}
