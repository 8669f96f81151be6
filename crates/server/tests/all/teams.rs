//! Two teams on one server: every kind of access to the other team's objects is tested.

use std::sync::Arc;

use agent::tables::{TargetSettings, insert_target};
use agent::{Agents, AgentsParts};
use authority::est::{ClientCa, Est, EstOptions};
use authority::profile::Profile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use enrollment::AuthorityCertifier;
use futures_util::FutureExt;
use http::Method;
use keys::{KeyType, PrivateKey, Signer};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::access::{AccessControl, SessionOptions, TokenPasswords, uri_identity_key};
use server::listen::server_certificate;
use server::{Components, Issuance, Running, Server, ServerOptions, State, access};
use store::Store;
use testbed::Database;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::{Certificate, DistinguishedName};

use crate::parts::Parts;
use crate::world::{self, TestResponse, issuance, send};

pub(crate) const CERTIFICATES: &str = "/api/v1/certificates";

pub(crate) struct House {
    pub(crate) store: Store,
    running: Running,
    pub(crate) admin: String,
    /// The CA of the listener's certificate, and of client certificates that are not from the server's internal CA.
    ca: world::Authority,
    client: reqwest::Client,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
    // Keep this field last: the database must be dropped after its users.
    _database: Database,
}

impl House {
    pub(crate) async fn new(database: Database) -> Self {
        let store = database.open().await;
        let Parts { clock, keystore, authority, issuers, lifecycle } = Parts::with_issuing(&store).await;
        for name in ["shared", "web-a", "web-b", "closed"] {
            let names = json!({ "dns_allowed": [{ "suffix": "example", "wildcards": true }] });
            let mut profile = Profile::for_servers(name, serde_json::from_value(names).unwrap());
            profile.subject.common_name = authority::profile::CommonName::Any;
            authority.put_profile(profile, None, "test").await.unwrap();
        }
        let ca = world::Authority::new("another root");
        let agents = Agents::new(AgentsParts {
            store: store.clone(),
            keystore,
            clock: clock.clone(),
            work: Arc::new(lifecycle.clone()),
            certify: Arc::new(AuthorityCertifier::agents(authority.clone())),
            identity: Arc::new(uri_identity_key),
            ca_pem: x509::pem::encode("CERTIFICATE", &ca.root).into(),
        });
        let session = SessionOptions::default();
        let teams = authority.teams().clone();
        let control = AccessControl::with_teams(store.clone(), clock.clone(), session, teams);
        let est = EstOptions {
            profiles: ["shared", "web-a", "web-b", "closed"].map(str::to_owned).into(),
            client_cas: vec![ClientCa {
                certificate: Certificate::parse(&ca.root).unwrap(),
                profiles: vec!["shared".to_owned()],
            }],
            ..EstOptions::default()
        };
        let passwords = Arc::new(TokenPasswords::new(control));
        let issuance = issuance(&authority, &store, &clock);
        let components = Components {
            issuance: Some(Issuance { est: Est::new(authority.clone(), Some(passwords), est), ..issuance }),
            certificates: Some(lifecycle.clone()),
            agents: Some(agents),
            issuers: Some(issuers),
            ..Components::default()
        };
        let leaf = ca.leaf(&["127.0.0.1"]);
        let certificate = server_certificate(&[leaf.der], &leaf.key).unwrap();
        let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), certificate);
        options.client_roots = vec![ca.root.clone()];
        let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
        let state = State::builder(store.clone(), clock).components(components).build();
        let running = Server::start(options, state).await.unwrap();
        let client = client(&ca).build().unwrap();
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let until = stop.clone();
        tasks.spawn(async move { lifecycle.run(until).await });
        Self { store, running, admin, ca, client, stop, _tasks: tasks, _database: database }
    }

    pub(crate) fn request_as(&self, token: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("https://{}{path}", self.running.address)).bearer_auth(token)
    }

    pub(crate) async fn post(&self, token: &str, path: &str, body: &Value) -> TestResponse {
        send(self.request_as(token, Method::POST, path).json(body)).await
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> TestResponse {
        send(self.request_as(token, Method::GET, path)).await
    }

    pub(crate) async fn token(&self, role: &str, scope: &str) -> String {
        let body = json!({ "name": format!("{role} {scope}"), "grants": [{ "role": role, "scope": scope }] });
        let made = self.post(&self.admin, "/api/v1/tokens", &body).await.expect(201);
        made.json()["token"].as_str().unwrap().to_owned()
    }

    /// Creates or updates a team.
    pub(crate) async fn team(&self, name: &str, owns: Value, quota: Value) -> TestResponse {
        let resource_path = format!("/api/v1/teams/{name}");
        if self.get(&self.admin, &resource_path).await.status == 404 {
            let body = json!({ "name": name, "owns": owns, "quota": quota });
            return self.post(&self.admin, "/api/v1/teams", &body).await;
        }
        let body = json!({ "owns": owns, "quota": quota });
        send(self.request_as(&self.admin, Method::PUT, &resource_path).json(&body)).await
    }

    pub(crate) async fn two_teams(&self) {
        let of = |team: &str| {
            json!({
                "names": [format!("{team}.example")], "profiles": [format!("web-{team}")],
                "targets": [format!("host-{team}")], "paths": [format!("/{team}")],
            })
        };
        for team in ["a", "b"] {
            self.team(team, of(team), json!({})).await.expect(201);
        }
    }

    /// Creates a target on an agent without a label.
    pub(crate) async fn target(&self, name: &str) -> Value {
        let (id, agent) = (Uuid::now_v7(), Uuid::now_v7());
        let settings = TargetSettings {
            name: name.to_owned(),
            agent,
            kind: "files".to_owned(),
            config: json!({
                "type": "files", "fullchain": { "path": "/etc/x.pem" }, "key": { "path": "/etc/x.key" },
            })
            .to_string(),
            secrets: None,
        };
        let put = self.store.write("test", move |tx| {
            let settings = settings.clone();
            async move { insert_target(tx, id, &settings, 1).await }.boxed()
        });
        assert!(put.await.unwrap());
        json!({ "kind": "deploy", "target": id, "agent": agent })
    }

    pub(crate) async fn until(&self, id: &str, member: &str, is: impl Fn(&Value) -> bool) -> Value {
        testbed::until_some(&format!("{member} of certificate {id}"), async || {
            let shown = self.get(&self.admin, &format!("{CERTIFICATES}/{id}")).await.expect(200).json();
            is(&shown[member]).then_some(shown)
        })
        .await
    }

    async fn error_of_the_newest_run(&self, id: &str) -> String {
        testbed::until_some(&format!("an error of a run of {id}"), async || {
            let jobs = self.get(&self.admin, &format!("{CERTIFICATES}/{id}/jobs")).await.expect(200).json();
            jobs["items"][0]["last_error"].as_str().map(str::to_owned)
        })
        .await
    }

    async fn est(&self, profile: &str, token: &str, name: &str) -> TestResponse {
        let url = format!("https://{}/.well-known/est/{profile}/simpleenroll", self.running.address);
        let post = self.client.post(url).basic_auth("any", Some(token));
        send(post.header("content-type", "application/pkcs10").body(base64_request(name, name))).await
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        let audit = self.store.audit_verify().await.unwrap();
        assert!(audit.faults.is_empty(), "{:?}", audit.faults);
    }
}

fn client(ca: &world::Authority) -> reqwest::ClientBuilder {
    reqwest::Client::builder().tls_certs_only([reqwest::Certificate::from_der(&ca.root).unwrap()])
}

/// Returns a DER certificate signing request with this common name and DNS name.
fn request(common: &str, name: &str) -> Vec<u8> {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let subject = DistinguishedName::from_text(&format!("CN={common}")).unwrap();
    let names = [x509::build::Extension::subject_alt_names(&[x509::GeneralName::Dns(name.to_owned())])];
    let tbs = x509::csr::tbs(&subject.der, key.spki(), &names, None);
    x509::build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap())
}

fn base64_request(common: &str, name: &str) -> String {
    STANDARD.encode(request(common, name))
}

pub(crate) fn csr(common: &str, name: &str) -> Value {
    json!({ "csr": x509::pem::encode("CERTIFICATE REQUEST", &request(common, name)) })
}

async fn databases() -> [Database; 2] {
    [Database::sqlite(), Database::postgres().await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_certificates_are_isolated_between_teams() {
    for database in databases().await {
        let house = House::new(database).await;
        house.two_teams().await;
        let (to_a, to_b) = (house.target("host-a").await, house.target("host-b").await);
        let (a, b) = (house.token("operator", "team:a").await, house.token("operator", "team:b").await);
        let new = |names: &[&str], profile: &str, team: Option<&str>, targets: Value| json!({ "names": names, "profile": profile, "team": team, "targets": targets });
        let own = new(&["x.a.example"], "shared", Some("a"), json!([]));
        for (body, why) in [
            (new(&["x.b.example"], "shared", Some("a"), json!([])), "a name"),
            (new(&["x.a.example", "X.B.example"], "shared", Some("a"), json!([])), "one of the names"),
            (new(&["*.example"], "shared", Some("a"), json!([])), "a wildcard over it"),
            (new(&["x.a.example"], "web-b", Some("a"), json!([])), "a profile"),
            (new(&["x.a.example"], "shared", Some("a"), json!([to_b])), "a target"),
            (new(&["x.a.example"], "shared", Some("a"), json!([to_a, to_b])), "one of the targets"),
            (new(&["x.b.example"], "shared", Some("b"), json!([])), "a team"),
            (new(&["x.b.example"], "shared", None, json!([])), "a name without a team"),
        ] {
            let refused = house.post(&a, CERTIFICATES, &body).await;
            assert_eq!(refused.status, 403, "{why}: {refused:?}");
            let many = json!({ "certificates": [body] });
            let refused = house.post(&a, &format!("{CERTIFICATES}/batch"), &many).await.expect(200).json();
            assert_eq!(refused["items"][0]["problem"]["status"], 403, "{why}: {refused}");
        }
        let made = house.post(&a, CERTIFICATES, &own).await.expect(201).json();
        let id = made["id"].as_str().unwrap().to_owned();
        let resource_path = format!("{CERTIFICATES}/{id}");
        let before = house.until(&id, "status", |status| status == "active").await;
        for change in [
            json!({ "names": ["x.b.example"] }),
            json!({ "profile": "web-b" }),
            json!({ "team": "b" }),
            json!({ "targets": [to_b] }),
        ] {
            let refused = send(house.request_as(&a, Method::PATCH, &resource_path).json(&change)).await;
            assert_eq!(refused.status, 403, "{change}: {refused:?}");
        }
        send(house.request_as(&a, Method::PATCH, &resource_path).json(&json!({ "targets": [to_a] })))
            .await
            .expect(200);
        send(house.request_as(&a, Method::PATCH, &resource_path).json(&json!({ "targets": [] })))
            .await
            .expect(200);

        // The other team gets 404 for every operation on the certificate.
        for (method, path) in [
            (Method::GET, resource_path.clone()),
            (Method::PATCH, resource_path.clone()),
            (Method::DELETE, resource_path.clone()),
            (Method::POST, format!("{resource_path}/renew")),
            (Method::POST, format!("{resource_path}/deploy")),
            (Method::POST, format!("{resource_path}/revoke")),
            (Method::POST, format!("{resource_path}/export")),
            (Method::GET, format!("{resource_path}/chain")),
        ] {
            let body = match path.rsplit('/').next() {
                Some("revoke") => json!({ "reason": "superseded" }),
                Some("export") => json!({ "format": "pem" }),
                _ => json!({}),
            };
            let refused = send(house.request_as(&b, method.clone(), &path).json(&body)).await;
            assert_eq!(refused.status, 404, "{method} {path}: {refused:?}");
        }
        let listed = |answer: TestResponse| answer.json()["items"].as_array().unwrap().len();
        assert_eq!(listed(house.get(&a, CERTIFICATES).await.expect(200)), 1);
        assert_eq!(listed(house.get(&b, CERTIFICATES).await.expect(200)), 0);

        // Narrower grants of the same team.
        for (scope, seen) in [("team:a,name:*.a.example", true), ("team:a,name:*.other.a.example", false)] {
            let token = house.token("operator", scope).await;
            let status = if seen { 200 } else { 404 };
            assert_eq!(house.get(&token, &resource_path).await.status, status, "{scope}");
            assert_eq!(
                listed(house.get(&token, CERTIFICATES).await.expect(200)),
                usize::from(seen),
                "{scope}"
            );
        }
        let narrow = house.token("operator", "team:a,target:web-*").await;
        let body = new(&["y.a.example"], "shared", Some("a"), json!([to_a]));
        house.post(&narrow, CERTIFICATES, &body).await.expect(403);

        // The names move to the other team: renewal fails for this team and for the scheduler.
        house.team("a", json!({ "profiles": ["web-a"] }), json!({})).await.expect(200);
        let both = json!({ "names": ["a.example", "b.example"], "profiles": ["web-b"] });
        house.team("b", both, json!({})).await.expect(200);
        let refused = house.post(&a, &format!("{resource_path}/renew"), &json!({})).await;
        assert_eq!(refused.status, 404, "{refused:?}");
        house.post(&house.admin, &format!("{resource_path}/renew"), &json!({})).await.expect(202);
        let error = house.error_of_the_newest_run(&id).await;
        assert!(error.contains("x.a.example belongs to another team"), "{error}");
        let after = house.get(&house.admin, &resource_path).await.expect(200).json();
        assert_eq!(after["current"]["fingerprint"], before["current"]["fingerprint"], "nothing was issued");
        house.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_series_and_searches_are_isolated_between_teams() {
    for database in databases().await {
        let house = House::new(database).await;
        house.two_teams().await;
        let (a, b) = (house.token("operator", "team:a").await, house.token("operator", "team:b").await);
        let mut ids = Vec::new();
        for (token, team, name) in
            [(&a, "a", "x.a.example"), (&b, "b", "y.b.example"), (&b, "b", "secret.b.example")]
        {
            let body = json!({ "names": [name], "profile": "shared", "team": team });
            let made = house.post(token, CERTIFICATES, &body).await.expect(201).json();
            ids.push(made["id"].as_str().unwrap().to_owned());
        }
        for id in &ids {
            house.until(id, "status", |status| status == "active").await;
        }
        let get = async |token: &str, path: &str| house.get(token, path).await.expect(200).json();
        let versions = get(&b, &format!("{CERTIFICATES}/{}/versions", ids[2])).await;
        let version = &versions["items"][0];
        let (serial, fingerprint) =
            (version["serial"].as_str().unwrap(), version["fingerprint"].as_str().unwrap());

        for (token, count) in [(&house.admin, 3), (&a, 1), (&b, 2)] {
            let listed = get(token, &format!("{CERTIFICATES}?limit=1&count=true")).await;
            assert_eq!(listed["total"], json!({ "value": count, "exact": true }));
            // A filter that matches only a certificate of another team.
            let filtered = get(token, &format!("{CERTIFICATES}?count=true&serial={serial}")).await;
            let own = u64::from(count > 1);
            assert_eq!(filtered["total"], json!({ "value": own, "exact": true }), "{filtered}");
            let filtered = get(token, &format!("{CERTIFICATES}?fingerprint={fingerprint}")).await;
            assert_eq!(filtered["items"].as_array().unwrap().len() as u64, own);
            let grouped = get(token, &format!("{CERTIFICATES}/groups?by=profile")).await;
            assert_eq!(grouped["groups"], json!([{ "value": "shared", "count": count }]), "{grouped}");
            assert_eq!((&grouped["counted"], &grouped["complete"]), (&json!(count), &json!(true)));
            let issued = get(token, "/api/v1/series?names=issued,failed&step=day").await;
            assert_eq!(issued["series"][0]["total"], count, "{issued}");
            assert_eq!(issued["series"][0]["counts"].as_array().unwrap().len(), 90);
        }
        assert!(get(&a, CERTIFICATES).await.get("total").is_none(), "not asked for");
        let teams = get(&a, &format!("{CERTIFICATES}/groups?by=team")).await;
        assert_eq!(teams["groups"], json!([{ "value": "a", "count": 1 }]));
        house.get(&a, "/api/v1/series?team=b").await.expect(403);
        assert_eq!(get(&house.admin, "/api/v1/series?team=b&names=issued").await["series"][0]["total"], 2);
        let profile = house.token("operator", "profile:shared").await;
        house.get(&profile, "/api/v1/series").await.expect(403);

        let names = async |token: &str, query: &str| -> Vec<String> {
            let found = get(token, &format!("/api/v1/search?q={query}")).await;
            let hits = found["hits"].as_array().unwrap().clone();
            hits.iter()
                .map(|hit| format!("{} {}", hit["kind"].as_str().unwrap(), hit["name"].as_str().unwrap()))
                .collect()
        };
        for query in [
            "secret.b.example",
            "SECRET",
            "ecret",
            "cret.b.ex",
            serial,
            &fingerprint[..12],
            &fingerprint.to_uppercase(),
        ] {
            assert_eq!(names(&a, query).await, [""; 0], "{query}");
            let found = names(&b, query).await;
            assert_eq!(found[0], "certificate secret.b.example", "{query}: {found:?}");
        }
        let all = names(&house.admin, "b.example").await;
        assert!(all.contains(&"certificate y.b.example".to_owned()), "{all:?}");
        assert!(!all.iter().any(|name| name.ends_with("x.a.example")), "{all:?}");
        let hits = get(&house.admin, "/api/v1/search?q=x.a.example").await;
        assert_eq!((&hits["hits"][0]["how"], &hits["hits"][0]["matched"]), (&json!("exact"), &json!("name")));
        assert!(names(&house.admin, "issuing").await.contains(&"authority issuing".to_owned()));
        assert!(!names(&a, "issuing").await.contains(&"authority issuing".to_owned()));
        for bad in ["a", "", &"x".repeat(254), "x%00y"] {
            house.get(&a, &format!("/api/v1/search?q={bad}")).await.expect(400);
        }
        house.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuance_by_api_and_est_is_isolated_between_teams() {
    for database in databases().await {
        let house = House::new(database).await;
        house.two_teams().await;
        let issue = async |token: &str, profile: &str, body: &Value| {
            house.post(token, &format!("/api/v1/profiles/{profile}/certificates"), body).await
        };
        let a = house.token("operator", "team:a").await;
        let of_profile = house.token("issuer", "profile:web-a").await;
        let of_shared = house.token("issuer", "profile:shared").await;
        let of_name = house.token("issuer", "profile:shared,name:*.a.example").await;
        for (token, profile, body, status) in [
            (&a, "web-a", csr("x.a.example", "x.a.example"), 201),
            (&a, "web-b", csr("x.a.example", "x.a.example"), 403),
            (&a, "web-a", csr("x.b.example", "x.a.example"), 403),
            (&a, "web-a", csr("x.a.example", "x.b.example"), 403),
            (&of_profile, "web-a", csr("x.a.example", "x.a.example"), 201),
            (&of_profile, "web-a", csr("x.b.example", "x.b.example"), 403),
            (&of_profile, "web-a", csr("x.c.example", "x.c.example"), 403),
            (&of_shared, "shared", csr("x.c.example", "x.c.example"), 201),
            (&of_shared, "shared", csr("x.a.example", "x.a.example"), 403),
            (&of_shared, "shared", csr("x.a.example", "x.c.example"), 403),
            (&of_name, "shared", csr("x.a.example", "x.a.example"), 201),
            (&of_name, "shared", csr("x.c.example", "x.c.example"), 403),
            (&house.admin, "shared", csr("x.b.example", "x.b.example"), 201),
            (&house.admin, "web-a", csr("x.b.example", "x.b.example"), 403),
        ] {
            let answer = issue(token, profile, &body).await;
            assert_eq!(answer.status, status, "{profile} {body}: {answer:?}");
        }
        // The issued certificate belongs to the team, so only its tokens can read and revoke it.
        let mine = issue(&of_profile, "web-a", &csr("y.a.example", "y.a.example")).await.json();
        let id = mine["id"].as_str().unwrap();
        let b = house.token("operator", "team:b").await;
        let revocation = json!({ "certificate": id, "reason": "superseded" });
        assert_eq!(house.get(&b, &format!("/api/v1/issued/{id}")).await.status, 404);
        assert_eq!(house.post(&b, "/api/v1/revocations", &revocation).await.status, 404);
        assert_eq!(house.get(&a, &format!("/api/v1/issued/{id}")).await.status, 200);
        house.post(&a, "/api/v1/revocations", &revocation).await.expect(200);

        // EST with a token: the profile must be within the token's scope, and the names must belong to the team.
        for (profile, token, name, status) in [
            ("web-a", &a, "x.a.example", 200),
            ("web-a", &of_profile, "x.a.example", 200),
            ("web-b", &a, "x.a.example", 401),
            ("web-b", &of_profile, "x.b.example", 401),
            ("web-a", &of_profile, "x.b.example", 400),
            ("shared", &of_shared, "x.c.example", 200),
            ("shared", &of_shared, "x.b.example", 400),
            ("web-a", &of_shared, "x.a.example", 401),
        ] {
            let answer = house.est(profile, token, name).await;
            assert_eq!(answer.status, status, "{profile} {name}: {answer:?}");
        }
        house.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issued_certificates_of_a_shared_profile_are_isolated_between_teams() {
    for database in databases().await {
        let house = House::new(database).await;
        house.two_teams().await;
        let mut ids = Vec::new();
        for name in ["x.a.example", "x.b.example", "x.c.example", "y.c.example"] {
            let body = csr(name, name);
            let path = "/api/v1/profiles/shared/certificates";
            let issued = house.post(&house.admin, path, &body).await.expect(201).json();
            ids.push(issued["id"].as_str().unwrap().to_owned());
        }
        let shared = house.token("operator", "profile:shared").await;
        let mut seen = Vec::new();
        let mut next = String::new();
        loop {
            let path = format!("/api/v1/issued?profile=shared&limit=1&order=asc{next}");
            let page = house.get(&shared, &path).await.expect(200).json();
            seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["id"].clone()));
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
        assert_eq!(seen, [ids[2].as_str(), ids[3].as_str()]);
        let of_a = "/api/v1/issued?profile=shared&name=a.example&limit=1";
        let page = house.get(&shared, of_a).await.expect(200).json();
        assert_eq!((page["items"].as_array().unwrap().len(), &page["next"]), (0, &Value::Null));

        let all = json!({ "filter": { "profile": "shared" }, "reason": "superseded" });
        let revoked = house.post(&shared, "/api/v1/revocations", &all).await.expect(200).json();
        assert_eq!(revoked["count"], 2, "{revoked}");
        for (id, status) in ids.iter().zip(["good", "good", "revoked", "revoked"]) {
            let shown = house.get(&house.admin, &format!("/api/v1/issued/{id}")).await.expect(200).json();
            assert_eq!(shown["status"], status, "{shown}");
        }
        let none = json!({ "filter": { "profile": "shared", "name": "a.example" }, "reason": "superseded" });
        let revoked = house.post(&shared, "/api/v1/revocations", &none).await.expect(200).json();
        assert_eq!(revoked["count"], 0, "{revoked}");
        let revoked = house.post(&house.admin, "/api/v1/revocations", &all).await.expect(200).json();
        assert_eq!(revoked["count"], 2, "{revoked}");
        house.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_cursors_reveal_no_certificates_outside_of_a_scope() {
    for database in databases().await {
        let house = House::new(database).await;
        house.two_teams().await;
        for name in ["aa.b.example", "bb.b.example", "x.a.example", "zz.b.example"] {
            let body = json!({ "names": [name], "profile": "shared", "issue": false });
            house.post(&house.admin, CERTIFICATES, &body).await.expect(201);
        }
        let token = house.token("viewer", "name:*.a.example").await;
        let names = |page: &Value| -> Vec<String> {
            let items = page["items"].as_array().unwrap().iter();
            items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        for query in ["limit=1&sort=name", "limit=1&sort=name&order=desc", "limit=1"] {
            let page = house.get(&token, &format!("{CERTIFICATES}?{query}")).await.expect(200).json();
            assert_eq!((names(&page), &page["next"]), (vec!["x.a.example".to_owned()], &Value::Null));
        }
        let secret = format!("{CERTIFICATES}?limit=1&contains=b.example");
        let page = house.get(&token, &secret).await.expect(200).json();
        assert_eq!((names(&page).len(), &page["next"]), (0, &Value::Null), "{page}");
        let page = house.get(&house.admin, &secret).await.expect(200).json();
        assert!(names(&page).len() == 1 && page["next"].is_string(), "{page}");
        house.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals_are_isolated_between_teams() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    let of_profile = house.token("approver", "profile:vip").await;
    let (a, b) = (house.token("approver", "team:a").await, house.token("approver", "team:b").await);
    let names = json!({ "dns_allowed": [{ "suffix": "example", "wildcards": true }] });
    let vip = Profile::for_servers("vip", serde_json::from_value(names).unwrap());
    let vip = Profile { requires_approval: true, ..vip };
    house.post(&house.admin, "/api/v1/profiles", &serde_json::to_value(vip).unwrap()).await.expect(201);
    let new = json!({ "names": ["x.b.example"], "profile": "vip", "team": "b" });
    house.post(&house.admin, CERTIFICATES, &new).await.expect(201);
    let id = testbed::until_some("an approval", async || {
        let open = house.get(&house.admin, "/api/v1/approvals").await.expect(200).json();
        open["items"][0]["id"].as_str().map(str::to_owned)
    });
    let path = format!("/api/v1/approvals/{}", id.await);
    let approve = format!("{path}/approve");
    // No team owns the profile, but the team b owns the name.
    for token in [&of_profile, &a] {
        house.get(token, &path).await.expect(404);
        house.post(token, &approve, &json!({})).await.expect(404);
    }
    house.get(&b, &path).await.expect(200);
    let approved = house.post(&b, &approve, &json!({})).await.expect(200).json();
    assert_eq!(approved["state"], "approved");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_for_targets_exclude_certificates_without_a_target() {
    let house = House::new(Database::sqlite()).await;
    let target = house.target("host-a").await;
    let mut paths = Vec::new();
    for (name, targets) in [("x.example", json!([])), ("y.example", json!([target]))] {
        let body = json!({ "names": [name], "profile": "shared", "targets": targets, "issue": false });
        let made = house.post(&house.admin, CERTIFICATES, &body).await.expect(201).json();
        paths.push(format!("{CERTIFICATES}/{}", made["id"].as_str().unwrap()));
    }
    let token = house.token("operator", "target:host-*").await;
    house.get(&token, &paths[0]).await.expect(404);
    house.get(&token, &paths[1]).await.expect(200);
    let removed = json!({ "targets": [] });
    send(house.request_as(&token, Method::PATCH, &paths[1]).json(&removed)).await.expect(403);
    let new = json!({ "names": ["z.example"], "profile": "shared", "issue": false });
    house.post(&token, CERTIFICATES, &new).await.expect(403);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_of_teams_are_changed_only_with_access_to_credentials() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    let operator = house.token("operator", "any").await;
    let new = json!({ "name": "c", "owns": { "paths": ["/c"] } });
    house.post(&operator, "/api/v1/teams", &new).await.expect(403);
    let put = async |owns: Value| {
        send(house.request_as(&operator, Method::PUT, "/api/v1/teams/a").json(&json!({ "owns": owns }))).await
    };
    for paths in [json!(["/a", "/payroll"]), json!([]), json!(["/"])] {
        let refused = put(json!({ "names": ["a.example"], "paths": paths })).await;
        assert_eq!(refused.status, 403, "{paths}: {refused:?}");
    }
    put(json!({ "names": ["a.example", "c.example"], "paths": ["/a"] })).await.expect(200);
    send(house.request_as(&operator, Method::DELETE, "/api/v1/teams/a")).await.expect(403);
    send(house.request_as(&house.admin, Method::DELETE, "/api/v1/teams/a")).await.expect(204);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_ca_certificates_enroll_only_permitted_profiles_and_names() {
    let house = House::new(Database::sqlite()).await;
    house.two_teams().await;
    let names = ["device.c.example", "device.b.example"];
    let device = client(&house.ca).identity(house.ca.leaf(&names).identity()).build().unwrap();
    for (profile, name, status) in [
        ("shared", "device.c.example", 200),
        // The profile exists, but not for certificates of this CA.
        ("closed", "device.c.example", 403),
        // A certificate of an external CA is not sufficient for names that a team owns.
        ("shared", "device.b.example", 400),
        ("shared", "other.c.example", 403),
    ] {
        let url = format!("https://{}/.well-known/est/{profile}/simpleenroll", house.running.address);
        let post = device.post(url).header("content-type", "application/pkcs10");
        let answer = send(post.body(base64_request(name, name))).await;
        assert_eq!(answer.status, status, "{profile} {name}: {answer:?}");
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn team_objects_are_exclusive_and_quotas_are_enforced() {
    for database in databases().await {
        let house = House::new(database).await;
        house.two_teams().await;
        let taken = house.team("c", json!({ "profiles": ["web-a"] }), json!({})).await.expect(409);
        assert!(taken.text.contains("already belongs to the team"), "{taken:?}");
        assert_eq!(house.get(&house.admin, "/api/v1/teams/c").await.status, 404, "nothing is stored");
        for (owns, quota) in [
            (json!({ "names": ["*.c.example"] }), json!({})),
            (json!({ "paths": ["c"] }), json!({})),
            (json!({}), json!({ "certificates_per_day": 0 })),
        ] {
            house.team("c", owns, quota).await.expect(422);
        }
        let shown = house.get(&house.admin, "/api/v1/teams/a").await.expect(200).json();
        assert_eq!(shown["owns"]["names"], json!(["a.example"]));
        let owner = json!({ "name": "ann", "owns": { "names": ["c.example"] } });
        house.post(&house.admin, "/api/v1/owners", &owner).await.expect(422);

        let token = house.token("operator", "team:b").await;
        let owns = json!({ "profiles": ["web-b"] });
        house.team("b", owns.clone(), json!({ "certificates_per_day": 2 })).await.expect(200);
        let path = "/api/v1/profiles/web-b/certificates";
        for name in ["1.b.example", "2.b.example"] {
            house.post(&token, path, &csr(name, name)).await.expect(201);
        }
        let over = house.post(&token, path, &csr("3.b.example", "3.b.example")).await.expect(429);
        let seconds: u64 = over.header("retry-after").parse().unwrap();
        assert!((1..=86_400).contains(&seconds) && over.text.contains("for today"), "{over:?}");
        let over = house.est("web-b", &token, "4.b.example").await.expect(429);
        assert!(over.header("retry-after").parse::<u64>().unwrap() >= 1);

        house.team("b", owns, json!({ "requests_per_second": 1 })).await.expect(200);
        let mut refused = None;
        for _ in 0..200 {
            let answer = house.get(&token, "/api/v1/auth/me").await;
            refused = if answer.status == 429 { Some(answer) } else { refused };
        }
        assert_eq!(refused.expect("one a second").header("retry-after"), "1");
        house.get(&house.admin, "/api/v1/auth/me").await.expect(200);
        house.end().await;
    }
}
