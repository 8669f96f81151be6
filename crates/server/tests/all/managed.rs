//! The certificate lifecycle over the API, with an internal CA.

use std::time::Duration;

use authority::Authority;
use authority::issue::IssuedRef;
use authority::profile::Profile;
use authority::revoke::{CertificateStatus, RevocationFilter, Selection};
use http::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::listen::server_certificate;
use server::{Components, Running, Server, ServerOptions, State, access};
use store::{Clock, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use x509::crl::Reason;

use crate::parts::{Parts, names_under};
use crate::world::{self, TestResponse, send};

/// A server with managed certificates and an internal CA.
struct House {
    authority: Authority,
    store: Store,
    running: Running,
    admin: String,
    client: reqwest::Client,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _folder: tempfile::TempDir,
}

impl House {
    async fn new() -> Self {
        let (folder, store) = world::store().await;
        let Parts { clock, authority, issuers, lifecycle, .. } = Parts::with_issuing(&store).await;
        for (name, requires_approval) in [("web", false), ("careful", true)] {
            let profile = Profile { requires_approval, ..Profile::for_servers(name, names_under("example")) };
            authority.put_profile(profile, None, "test").await.unwrap();
        }
        let ca = world::Authority::new("listener's root");
        let leaf = ca.leaf(&["127.0.0.1"]);
        let certificate = server_certificate(&[leaf.der], &leaf.key).unwrap();
        let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), certificate);
        options.console = Some(web_console::pages);
        let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
        let certificates = Some(lifecycle.clone());
        let issuance = Some(world::issuance(&authority, &store, &clock));
        let components =
            Components { certificates, issuance, issuers: Some(issuers), ..Components::default() };
        let state = State::builder(store.clone(), clock).components(components).build();
        let running = Server::start(options, state).await.unwrap();
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_der(&ca.root).unwrap()])
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let until = stop.clone();
        tasks.spawn(async move { lifecycle.run(until).await });
        Self { authority, store, running, admin, client, stop, tasks, _folder: folder }
    }

    fn request(&self, token: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("https://{}{path}", self.running.address)).bearer_auth(token)
    }

    async fn get(&self, path: &str) -> TestResponse {
        send(self.request(&self.admin, Method::GET, path)).await
    }

    async fn post(&self, path: &str, body: Value) -> TestResponse {
        send(self.request(&self.admin, Method::POST, path).json(&body)).await
    }

    async fn token(&self, name: &str, role: &str, scope: &str) -> String {
        let body = json!({ "name": name, "grants": [{ "role": role, "scope": scope }] });
        let made = self.post("/api/v1/tokens", body).await;
        let token = made.json()["token"].as_str().unwrap().to_owned();
        if made.status == 202 {
            // If a profile requires approval, another person must approve the grant.
            let other = access::break_glass(&self.store, &Clock::system(), "a test").await.unwrap();
            let path = format!("/api/v1/changes/{}/approve", made.json()["id"].as_str().unwrap());
            let approve = self.request(other.expose_secret(), Method::POST, &path);
            send(approve.json(&json!({}))).await.expect(200);
        }
        token
    }

    /// Waits until the certificate has this status.
    async fn until(&self, id: &str, status: &str) -> TestResponse {
        for _ in 0..2_400 {
            let answer = self.get(&format!("/api/v1/certificates/{id}")).await.expect(200);
            if answer.json()["status"] == status {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let now = self.get(&format!("/api/v1/certificates/{id}")).await.text;
        let log =
            self.get(&format!("/api/v1/audit?resource=certificate/{id}&fields=action,details")).await.text;
        panic!("{id} does not become {status}: {now} {log}");
    }

    async fn issued(&self, name: &str) -> String {
        let body = json!({ "names": [name], "profile": "web" });
        let made = self.post("/api/v1/certificates", body).await.expect(201);
        let id = made.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(made.header("location"), format!("/api/v1/certificates/{id}"));
        self.until(&id, "active").await;
        id
    }

    /// Waits until the certificate has two versions, and returns them.
    async fn two_versions(&self, path: &str) -> Vec<Value> {
        testbed::until_some("there are two versions", async || {
            let versions = self.get(&format!("{path}/versions")).await.expect(200).json();
            versions["items"].as_array().filter(|all| all.len() == 2).cloned()
        })
        .await
    }

    async fn end(self) {
        self.stop.cancel();
        let audit = self.store.audit_verify().await.unwrap();
        assert!(audit.faults.is_empty(), "{:?}", audit.faults);
    }
}

/// A patch without `If-Match` is not rejected because of a concurrent write to another field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_patches_of_different_fields_are_all_applied() {
    let house = House::new().await;
    let id = house.issued("a.example").await;
    let path = format!("/api/v1/certificates/{id}");
    for round in 0..20 {
        let text = format!("{round}");
        let bodies = [
            json!({ "tags": { "round": text } }),
            json!({ "environment": text }),
            json!({ "notes": text }),
            json!({ "auto_renew": round % 2 == 0 }),
        ];
        let patch = |body| send(house.request(&house.admin, Method::PATCH, &path).json(body));
        for answer in futures_util::future::join_all(bodies.iter().map(patch)).await {
            answer.expect(200);
        }
        let shown = house.get(&path).await.expect(200).json();
        assert_eq!((&shown["tags"]["round"], &shown["environment"]), (&json!(text), &json!(text)), "{shown}");
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_is_updated_exported_renewed_revoked_and_restored() {
    let house = House::new().await;
    let id = house.issued("a.example").await;
    let path = format!("/api/v1/certificates/{id}");
    let shown = house.get(&path).await.expect(200);
    let tag = shown.header("etag").to_owned();
    let conditional = house.request(&house.admin, Method::GET, &path).header("if-none-match", &tag);
    send(conditional).await.expect(304);

    // Anyone who has read the current revision can change it.
    let patch = |tag: &'static str| {
        let request = house.request(&house.admin, Method::PATCH, &path).header("if-match", tag);
        send(request.json(&json!({ "owner": "ann", "tags": { "cost": "42" }, "auto_renew": false })))
    };
    assert_eq!(patch("\"0\"").await.expect(412).problem(), "precondition-failed");
    let request = house.request(&house.admin, Method::PATCH, &path).header("if-match", &tag);
    let changed = send(request.json(&json!({ "owner": "ann", "auto_renew": false }))).await.expect(200);
    assert_eq!((&changed.json()["owner"], &changed.json()["run"]), (&json!("ann"), &Value::Null));
    let bad = house.request(&house.admin, Method::PATCH, &path).json(&json!({ "ownr": "ann" }));
    send(bad).await.expect(422);
    let none = house.request(&house.admin, Method::PATCH, &path).json(&json!({ "owner": null }));
    assert_eq!(send(none).await.expect(200).json()["owner"], Value::Null);

    // The chain has two certificates, and the exported key matches the leaf certificate.
    let chain = house.get(&format!("{path}/chain")).await.expect(200);
    assert_eq!(chain.header("content-type"), "application/pem-certificate-chain");
    assert_eq!(chain.text.matches("BEGIN CERTIFICATE").count(), 2);
    let export = json!({ "format": "pem" });
    let exported = house.post(&format!("{path}/export"), export).await.expect(200);
    let key = &exported.text[exported.text.find("-----BEGIN PRIVATE KEY").unwrap()..];
    let key = keys::PrivateKey::from_pem(key).unwrap();
    let (_, leaf) = x509::pem::certificates(chain.text.as_bytes()).next().unwrap();
    let leaf = x509::Certificate::parse(&leaf).unwrap();
    assert_eq!(keys::Signer::spki(&key), &*leaf.public_key.spki);
    house.post(&format!("{path}/export"), json!({ "format": "pkcs12" })).await.expect(422);

    // Renewed, then revoked, also at the CA.
    house.post(&format!("{path}/renew"), json!({})).await.expect(202);
    house.two_versions(&path).await;
    let active = house.until(&id, "active").await.json();
    let newest = active["current"]["fingerprint"].as_str().unwrap().parse().unwrap();
    assert_ne!(leaf.fingerprint, newest);
    house.post(&format!("{path}/revoke"), json!({ "reason": "bored" })).await.expect(422);
    let revoked = house.post(&format!("{path}/revoke"), json!({ "reason": "superseded" })).await.expect(200);
    assert_eq!(revoked.json()["status"], "revoked");
    let status = house.authority.status(&IssuedRef::Fingerprint(newest)).await.unwrap().unwrap();
    assert!(matches!(status, CertificateStatus::Revoked { .. }), "{status:?}");

    let jobs = house.get(&format!("{path}/jobs")).await.expect(200).json();
    let kinds: Vec<&str> =
        jobs["items"].as_array().unwrap().iter().map(|job| job["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["revocation", "renewal", "renewal", "issuance"]);
    let job = jobs["items"][3]["id"].as_str().unwrap();
    assert_eq!(house.get(&format!("/api/v1/jobs/{job}")).await.expect(200).json()["state"], "done");
    assert_eq!(
        house.post(&format!("/api/v1/jobs/{job}/cancel"), json!({})).await.expect(409).problem(),
        "conflict"
    );
    send(house.request(&house.admin, Method::DELETE, &path)).await.expect(204);
    assert_eq!(house.get(&path).await.json()["status"], "archived");
    house.post(&format!("{path}/restore"), json!({})).await.expect(200);
    let missing = house.get("/api/v1/certificates/00000000-0000-7000-8000-000000000000").await.expect(404);
    assert_eq!(missing.problem(), "not-found");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facets_jobs_revocations_and_publications_are_listed() {
    let house = House::new().await;
    let (first, second) = (house.issued("a.example").await, house.issued("b.example").await);
    let get = async |path: &str| house.get(path).await.expect(200).json();
    let names = async |query: &str| -> Vec<String> {
        let listed = get(&format!("/api/v1/certificates?{query}")).await;
        let items = listed["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("sort=name&order=desc").await, ["b.example", "a.example"]);
    assert_eq!(names("sort=issued&order=desc&limit=1").await.len(), 1);
    assert_eq!(names("algorithm=p256&owner=nobody").await, [""; 0]);
    let days = get("/api/v1/certificates/groups?by=expiry_day").await;
    let day = days["groups"][0]["value"].as_str().unwrap().to_owned();
    let ends = get(&format!("/api/v1/certificates/{first}")).await["current"]["not_after"].clone();
    assert!(ends.as_str().unwrap().starts_with(&day), "{day} {ends}");
    let facets = get("/api/v1/certificates/facets?by=expiry_day,status&status=failed").await;
    assert_eq!(facets["facets"][0]["groups"], json!([]), "{facets}");
    assert_eq!(facets["facets"][1]["groups"], json!([{ "value": "active", "count": 2 }]), "{facets}");
    for bad in ["by=status,colour", "by=status,status", "by=", "status=failed"] {
        house.get(&format!("/api/v1/certificates/facets?{bad}")).await.expect(400);
    }
    let refused = house.get("/api/v1/certificates/groups?by=colour").await.expect(400);
    assert!(refused.text.contains("expiry_day"), "{refused:?}");
    house.get("/api/v1/certificates?serial=xyz").await.expect(400);

    // The events of a job.
    let jobs = get(&format!("/api/v1/certificates/{first}/jobs")).await;
    let jobs = jobs["items"].as_array().unwrap();
    let job = jobs.iter().find(|job| job["kind"] == "issuance").unwrap()["id"].as_str().unwrap();
    let events = get(&format!("/api/v1/jobs/{job}/events")).await;
    let actions: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|event| event["action"].as_str().unwrap()).collect();
    assert!(actions.contains(&"certificate.issue"), "{actions:?}");
    assert!(actions.iter().all(|action| action.starts_with("certificate.")), "{actions:?}");
    let scheduler = get("/api/v1/scheduler").await;
    assert_eq!(scheduler["awaiting_approval"], 0, "{scheduler}");
    assert_eq!(scheduler["counted_to"], 10_000);

    // Revocations and blocked keys, newest first.
    let version = |listed: Value| listed["items"][0].clone();
    let newest = version(get(&format!("/api/v1/certificates/{second}/versions")).await);
    house
        .post(&format!("/api/v1/certificates/{first}/revoke"), json!({ "reason": "superseded" }))
        .await
        .expect(200);
    let block = json!({ "certificate": newest["fingerprint"] });
    house.post("/api/v1/blocked-keys", block).await.expect(200);
    let revoked = get("/api/v1/revocations").await;
    let reasons: Vec<&Value> =
        revoked["items"].as_array().unwrap().iter().map(|one| &one["reason"]).collect();
    assert_eq!(reasons, ["keyCompromise", "superseded"]);
    assert_eq!(revoked["items"][0]["serial"], newest["serial"]);
    let one = get("/api/v1/revocations?ca=issuing&limit=1").await;
    let rest = get(&format!("/api/v1/revocations?ca=issuing&cursor={}", one["next"].as_str().unwrap())).await;
    assert_eq!((&rest["items"][0], &rest["next"]), (&revoked["items"][1], &Value::Null));
    assert_eq!(get("/api/v1/revocations?ca=root").await["items"], json!([]));
    let blocked = get("/api/v1/blocked-keys").await;
    assert_eq!(blocked["items"].as_array().unwrap().len(), 1);
    let key = blocked["items"][0]["key"].as_str().unwrap();
    assert_eq!(get(&format!("/api/v1/blocked-keys/{key}")).await["blocked"], true);
    let issued = get(&format!("/api/v1/issued?key={key}")).await;
    assert_eq!(issued["items"][0]["serial"], newest["serial"]);
    let by_serial = get(&format!("/api/v1/issued?serial={}", newest["serial"].as_str().unwrap())).await;
    assert_eq!(by_serial["items"], issued["items"]);
    let issued =
        async |query: &str| get(&format!("/api/v1/issued{query}")).await["items"].as_array().unwrap().clone();
    let (up, mut down) = loop {
        let (up, down) = (issued("?order=asc").await, issued("").await);
        // A replacement of a revoked certificate may be issued between the two requests.
        if up.len() == down.len() {
            break (up, down);
        }
    };
    down.reverse();
    assert_eq!(up, down);
    let series = get("/api/v1/series?names=revoked,issued&step=hour").await;
    // The revoked certificates may have been replaced by now.
    assert_eq!(series["series"][0]["name"], "issued");
    assert!((2..=4).contains(&series["series"][0]["total"].as_i64().unwrap()), "{series}");
    assert_eq!(series["series"][1]["total"], 2, "{series}");

    let servers = get("/api/v1/servers").await;
    assert_eq!(
        (&servers["items"][0]["state"], &servers["items"][1]),
        (&json!("up"), &Value::Null),
        "{servers}"
    );

    // The CRL is published and current.
    house.authority.tick().await.unwrap();
    let published = get("/api/v1/publications").await;
    let issuing = published["items"].as_array().unwrap().iter().find(|ca| ca["name"] == "issuing").unwrap();
    let full = &issuing["crls"].as_array().unwrap().iter().find(|crl| crl["part"] == "full").unwrap();
    assert_eq!(
        (&full["state"], &full["entries"], &full["failures"]),
        (&json!("current"), &json!(2), &json!(0))
    );
    assert!(full["age_seconds"].as_i64().unwrap() < 3_600, "{full}");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_revoked_at_the_ca_are_replaced_if_auto_renewed() {
    let house = House::new().await;
    let id = house.issued("a.example").await;
    let path = format!("/api/v1/certificates/{id}");
    let by_hand = house.issued("b.example").await;
    let patch = house.request(&house.admin, Method::PATCH, &format!("/api/v1/certificates/{by_hand}"));
    send(patch.json(&json!({ "auto_renew": false }))).await.expect(200);
    let all = RevocationFilter { profile: Some("web".to_owned()), ..RevocationFilter::default() };
    let revoked =
        house.authority.revoke(Selection::Filter(all), Reason::KeyCompromise, None, "user:eve").await;
    assert_eq!(revoked.unwrap().count, 2);
    house.until(&by_hand, "revoked").await;
    let versions = house.two_versions(&path).await;
    assert_eq!(versions[1]["revoked_reason"], 1);
    assert!(versions[0]["revoked_at"].is_null());
    house.until(&id, "active").await;
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_created_reassigned_revoked_and_renewed_in_bulk() {
    let house = House::new().await;
    let mut batch: Vec<Value> =
        (0..120).map(|n| json!({ "names": [format!("n{n:03}.example")], "profile": "web" })).collect();
    batch.push(json!({ "names": ["n000.example"], "profile": "web" }));
    batch.push(json!({ "names": ["x.example"], "profile": "none" }));
    let made =
        house.post("/api/v1/certificates/batch", json!({ "certificates": batch })).await.expect(200).json();
    let items = made["items"].as_array().unwrap();
    assert_eq!(items.iter().filter(|item| item["created"].is_object()).count(), 120);
    // Two items have the same name: either one is created and the other is rejected.
    let taken = [&items[0], &items[120]].iter().filter(|item| item["problem"]["status"] == 409).count();
    assert_eq!(taken, 1);
    assert_eq!(items[121]["problem"]["status"], 422);
    let active = |wanted: u64| {
        let house = &house;
        testbed::until_some("so many are active", async move || {
            let summary = house.get("/api/v1/certificates/summary").await.expect(200).json();
            (summary["statuses"]["active"] == wanted).then_some(summary)
        })
    };
    // All 120 certificates, not just one batch of 50.
    let summary = active(120).await;
    assert_eq!((summary["certificates"].as_u64(), summary["expired"].as_u64()), (Some(120), Some(0)));
    assert_eq!(summary["short_lived"], 120, "the default profile issues for 47 days");
    assert_eq!(summary["expiring_days"]["90"], 120);

    // The pages contain no certificate twice.
    let mut seen = std::collections::BTreeSet::new();
    let mut next = String::new();
    loop {
        let page =
            house.get(&format!("/api/v1/certificates?sort=name&limit=50{next}")).await.expect(200).json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["id"].to_string()));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 120);
    let one =
        house.get("/api/v1/certificates?suffix=n007.example&fields=name,status").await.expect(200).json();
    assert_eq!(one["items"], json!([{ "name": "n007.example", "status": "active" }]));
    house.get("/api/v1/certificates?status=awake").await.expect(400);
    house.get("/api/v1/certificates?tag=x").await.expect(400);

    let reassign =
        json!({ "select": { "filter": { "contains": "n00" } }, "team": "web", "tags_set": { "a": "b" } });
    let report = house.post("/api/v1/certificates/reassign", reassign).await.expect(200).json();
    assert_eq!((report["matched"].as_u64(), report["done"].as_u64()), (Some(10), Some(10)));
    assert_eq!(
        house.get("/api/v1/certificates?team=web&tag=a=b").await.json()["items"].as_array().unwrap().len(),
        10
    );
    let revoke = json!({ "select": { "filter": {} }, "reason": "cessationOfOperation" });
    let report = house.post("/api/v1/certificates/revoke", revoke).await.expect(200).json();
    assert_eq!((report["matched"].as_u64(), report["done"].as_u64()), (Some(120), Some(120)));
    let both = json!({ "select": { "ids": [], "filter": {} } });
    house.post("/api/v1/certificates/renew", both).await.expect(422);
    let renew = json!({ "select": { "filter": { "status": "revoked" } } });
    assert_eq!(house.post("/api/v1/certificates/renew", renew).await.expect(200).json()["done"], 120);
    active(120).await;
    let jobs = house.get("/api/v1/jobs?kind=revocation&limit=500").await.expect(200).json();
    assert_eq!(jobs["items"].as_array().unwrap().len(), 120);
    assert!(jobs["items"].as_array().unwrap().iter().all(|job| job["state"] == "done"));
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_needs_another_person_and_team_grants_limit_access() {
    let house = House::new().await;
    let requester = house.token("asks", "operator", "any").await;
    let decides = house.token("decides", "approver", "any").await;
    let body = json!({ "names": ["a.example"], "profile": "careful", "team": "a" });
    let made =
        send(house.request(&requester, Method::POST, "/api/v1/certificates").json(&body)).await.expect(201);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    house.until(&id, "awaiting_approval").await;
    let open = house.get("/api/v1/approvals").await.expect(200).json();
    let approval = open["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(open["items"][0]["requested_by"], "token:asks");
    let decide = format!("/api/v1/approvals/{approval}/approve");
    // Rejected without the permission, and also for one's own request.
    send(house.request(&requester, Method::POST, &decide).json(&json!({}))).await.expect(403);
    // Only the current plan can be approved.
    let shown = house.get(&format!("/api/v1/approvals/{approval}")).await.expect(200).json();
    assert_eq!(shown["barred"], json!(["token:asks"]));
    let say = |body: Value| send(house.request(&decides, Method::POST, &decide).json(&body));
    say(json!({ "plan_sha256": "abc" })).await.expect(422);
    let other = say(json!({ "plan_sha256": "00".repeat(32) })).await.expect(409).json();
    assert!(other["detail"].as_str().unwrap().contains("does not match the plan"), "{other}");
    let good = say(json!({ "note": "fine", "plan_sha256": shown["plan_sha256"] })).await;
    assert_eq!(good.expect(200).json()["state"], "approved");
    send(house.request(&decides, Method::POST, &decide).json(&json!({}))).await.expect(409);
    house.until(&id, "active").await;
    let own = json!({ "names": ["b.example"], "profile": "careful" });
    let made = house.post("/api/v1/certificates", own).await.expect(201);
    house.until(made.json()["id"].as_str().unwrap(), "awaiting_approval").await;
    let open = house.get("/api/v1/approvals?state=open").await.json();
    let mine = format!("/api/v1/approvals/{}/approve", open["items"][0]["id"].as_str().unwrap());
    assert_eq!(house.post(&mine, json!({})).await.expect(403).problem(), "forbidden");

    // A grant for one team gives access to the certificates of that team.
    house.issued("c.example").await;
    let narrow = house.token("narrow", "operator", "team:a").await;
    let listed = send(house.request(&narrow, Method::GET, "/api/v1/certificates")).await.expect(200).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["id"], json!(id));
    let path = format!("/api/v1/certificates/{id}");
    send(house.request(&narrow, Method::GET, &path)).await.expect(200);
    let all = house.get("/api/v1/certificates?name=c.example").await.json();
    let other = format!("/api/v1/certificates/{}", all["items"][0]["id"].as_str().unwrap());
    send(house.request(&narrow, Method::GET, &other)).await.expect(404);
    send(house.request(&narrow, Method::POST, &format!("{other}/renew"))).await.expect(404);
    send(house.request(&narrow, Method::GET, "/api/v1/certificates/summary")).await.expect(403);
    // Certificates of other teams and agents without this team's label are rejected, also as references.
    let host = uuid::Uuid::new_v4();
    for (more, what) in [
        (json!({ "team": "b" }), ""),
        (json!({ "targets": [{ "kind": "deploy", "target": host, "agent": host }] }), "target"),
        (json!({ "key_location": { "at": "agent", "agent": host } }), "agent"),
    ] {
        let mut body = json!({ "names": ["e.example"], "profile": "web", "team": "a" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused =
            send(house.request(&narrow, Method::POST, "/api/v1/certificates").json(&body)).await.expect(403);
        assert!(refused.text.contains(what), "{refused:?}");
        let batch = json!({ "certificates": [body] });
        let many = "/api/v1/certificates/batch";
        let refused = send(house.request(&narrow, Method::POST, many).json(&batch)).await.expect(200).json();
        assert_eq!(refused["items"][0]["problem"]["status"], 403, "{refused}");
        let refused = send(house.request(&narrow, Method::PATCH, &path).json(&more)).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    let to_other_team = house.request(&narrow, Method::PATCH, &path).json(&json!({ "team": "b" }));
    send(to_other_team).await.expect(403);
    let stranger = house.request(&narrow, Method::POST, "/api/v1/certificates");
    send(stranger.json(&json!({ "names": ["d.example"], "profile": "web" }))).await.expect(403);
    let within = house.request(&narrow, Method::POST, "/api/v1/certificates");
    send(within.json(&json!({ "names": ["d.example"], "profile": "web", "team": "a" }))).await.expect(201);
    let viewer = house.token("looks", "viewer", "any").await;
    send(house.request(&viewer, Method::POST, &format!("{path}/export")).json(&json!({ "format": "pem" })))
        .await
        .expect(403);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_and_policies_are_managed_and_policies_enforced() {
    let house = House::new().await;
    let team = house.post("/api/v1/teams", json!({ "name": "web team" })).await.expect(201);
    assert_eq!(team.header("location"), "/api/v1/teams/web%20team");
    let ann = json!({ "name": "ann", "team": "web team", "contacts": [{ "kind": "email", "address": "ann@example.org" }] });
    let made = house.post("/api/v1/owners", ann.clone()).await.expect(201);
    house.post("/api/v1/owners", ann).await.expect(409);
    house.post("/api/v1/owners", json!({ "name": "bob", "team": "none" })).await.expect(422);
    let stale = house.request(&house.admin, Method::PUT, "/api/v1/owners/ann").header("if-match", "\"9\"");
    send(stale.json(&json!({ "description": "away" }))).await.expect(412);
    let tag = made.header("etag").to_owned();
    let put = house.request(&house.admin, Method::PUT, "/api/v1/owners/ann").header("if-match", tag);
    assert_eq!(send(put.json(&json!({ "description": "away" }))).await.expect(200).json()["revision"], 2);

    let rules = json!([{ "rule": "required_owner", "severity": "error" }]);
    let advisory = json!({ "name": "owned", "policy": { "applies_to": { "all": true }, "rules": rules } });
    house.post("/api/v1/policies", advisory).await.expect(201);
    house.post("/api/v1/policies", json!({ "name": "x", "policy": { "rulez": [] } })).await.expect(422);
    let id = house.issued("a.example").await;
    let violations = house.get("/api/v1/violations").await.expect(200).json();
    assert_eq!(violations["items"].as_array().unwrap().len(), 1);
    assert_eq!(violations["items"][0]["severity"], "error");
    let mine =
        house.get(&format!("/api/v1/violations?certificate={id}&severity=critical")).await.expect(200).json();
    assert!(mine["items"].as_array().unwrap().is_empty());
    let enforced =
        json!({ "policy": { "applies_to": { "all": true }, "rules": rules, "enforcement": "enforced" } });
    let put = house.request(&house.admin, Method::PUT, "/api/v1/policies/owned").json(&enforced);
    send(put).await.expect(200);
    let refused =
        house.post("/api/v1/certificates", json!({ "names": ["b.example"], "profile": "web" })).await;
    let refused = refused.expect(422);
    assert_eq!(refused.problem(), "policy-violation");
    assert_eq!(refused.json()["violations"][0]["rule"], "required_owner");
    house
        .post("/api/v1/certificates", json!({ "names": ["b.example"], "profile": "web", "owner": "ann" }))
        .await
        .expect(201);
    send(house.request(&house.admin, Method::DELETE, "/api/v1/owners/ann")).await.expect(409);
    send(house.request(&house.admin, Method::DELETE, "/api/v1/policies/owned")).await.expect(204);
    house.get("/api/v1/policies/owned").await.expect(404);
    let found = house.get("/api/v1/inventory").await.expect(200).json();
    // Certificates of the internal CA are in the inventory, but no scan has found them at an endpoint.
    assert!(found["items"].as_array().unwrap().is_empty());
    let claim = json!({ "endpoint": { "host": "h", "port": 443, "protocol": "tls", "server_name": "h" }, "profile": "web" });
    house.post("/api/v1/inventory/claim", claim).await.expect(404);
    house.post("/api/v1/inventory/dismiss", json!({ "fingerprint": "00" })).await.expect(422);
    house.end().await;
}

/// List pages: each uses the same number of SQL statements with one certificate as with many.
const PAGES: &[&str] = &[
    "/console",
    "/console/certificates",
    "/console/certificates?status=active&contains=e",
    "/console/certificates?issuer=internal&owner=ann",
    "/console/jobs",
    "/console/approvals",
    "/console/issued",
    "/console/revocations",
    "/console/authorities",
    "/console/profiles",
    "/console/issuers",
    "/console/policies",
    "/console/audit",
    "/console/users",
    "/console/tokens",
    "/console/teams",
    "/console/owners",
];

impl House {
    /// Returns the number of SQL statements for a page. Background work can only add statements, so the minimum of several runs is used.
    async fn statements(&self, path: &str) -> u64 {
        let mut least = u64::MAX;
        for _ in 0..5 {
            let before = self.store.statements_sent();
            self.get(path).await.expect(200);
            least = least.min(self.store.statements_sent() - before);
        }
        least
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_pages_use_a_constant_number_of_sql_statements() {
    let mut house = House::new().await;
    house.issued("a.example").await;
    let one = house.issued("b.example").await;
    let mut before = Vec::new();
    for path in PAGES {
        before.push(house.statements(path).await);
    }
    let single = house.statements(&format!("/console/certificates/{one}")).await;
    for number in 0..12 {
        house.issued(&format!("n{number}.example")).await;
    }
    house.stop.cancel();
    while house.tasks.join_next().await.is_some() {}
    for (path, before) in PAGES.iter().zip(before) {
        let after = house.statements(path).await;
        assert!(after <= before, "{path}: {before} statements with 2 certificates, {after} with 14");
        assert!(after <= 60, "{path}: {after} statements");
    }
    let after = house.statements(&format!("/console/certificates/{one}")).await;
    assert!(after <= single, "a certificate: {single} statements, then {after}");
    // All facets in one request, compared with one grouping.
    let facets =
        house.statements("/api/v1/certificates/facets?by=status,issuer,owner,algorithm,expiry_day").await;
    let groups = house.statements("/api/v1/certificates/groups?by=issuer").await;
    assert!(facets <= groups + 1, "{facets} statements for five facets, {groups} for one");
    house.end().await;
}
