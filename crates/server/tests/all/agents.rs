//! Agents with a complete server: enrolment, deployment, and retirement over the API, with an internal CA.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::client::{Agent, AgentStatus, WorkReport};
use agent::deploy::PolicyFile;
use agent::{Agents, AgentsParts};
use authority::profile::Profile;
use enrollment::AuthorityCertifier;
use enrollment::client::JoinOptions;
use http::Method;
use lifecycle::managed::{KeyLocation, NewCertificate, TargetRef};
use lifecycle::{Lifecycle, state};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::access::uri_identity_key;
use server::listen::server_certificate;
use server::{Components, Running, Server, ServerOptions, State, access};
use store::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::parts::{Parts, names_under};
use crate::world::{self, TestResponse, send};

/// A server with all components that agents need.
struct House {
    lifecycle: Lifecycle,
    running: Running,
    admin: String,
    ca_pem: String,
    client: reqwest::Client,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
    folder: tempfile::TempDir,
}

impl House {
    async fn new() -> Self {
        let (folder, store) = world::store().await;
        let Parts { clock, keystore, authority, lifecycle, .. } = Parts::with_issuing(&store).await;
        let web = Profile::for_servers("web", names_under("example"));
        authority.put_profile(web, None, "test").await.unwrap();
        // The listener's certificate is from another CA: agents trust the roots that enrolment returns.
        let ca = world::Authority::new("listener's root");
        let ca_pem = x509::pem::encode("CERTIFICATE", &ca.root);
        let agents = Agents::new(AgentsParts {
            store: store.clone(),
            keystore,
            clock: clock.clone(),
            work: Arc::new(lifecycle.clone()),
            certify: Arc::new(AuthorityCertifier::agents(authority.clone())),
            identity: Arc::new(uri_identity_key),
            ca_pem: ca_pem.clone().into(),
        });
        let leaf = ca.leaf(&["127.0.0.1"]);
        let certificate = server_certificate(&[leaf.der], &leaf.key).unwrap();
        let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), certificate);
        let cas = authority.cas().await.unwrap();
        options.client_roots =
            cas.iter().filter(|ca| ca.is_root()).map(|ca| ca.certificate.der.to_vec()).collect();
        let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
        let state = State::builder(store, clock)
            .components(Components {
                agents: Some(agents.clone()),
                certificates: Some(lifecycle.clone()),
                ..Components::default()
            })
            .build();
        let running = Server::start(options, state).await.unwrap();
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_der(&ca.root).unwrap()])
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (work, until) = (lifecycle.clone(), stop.clone());
        tasks.spawn(async move { work.run(until).await });
        let until = stop.clone();
        tasks.spawn(async move { agents.run(until).await });
        Self { lifecycle, running, admin, ca_pem, client, stop, _tasks: tasks, folder }
    }

    fn url(&self) -> String {
        format!("https://{}", self.running.address)
    }

    async fn send_request(&self, method: Method, path: &str, body: Option<Value>) -> TestResponse {
        let request = self.client.request(method, format!("{}{path}", self.url())).bearer_auth(&self.admin);
        send(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    async fn token(&self) -> String {
        let made = self
            .send_request(Method::POST, "/api/v1/agent-tokens", Some(json!({"labels": {"env": "prod"}})))
            .await;
        made.expect(201).json()["token"].as_str().unwrap().to_owned()
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    async fn enrolled(&self) -> AgentStatus {
        let options = JoinOptions {
            server: self.url(),
            token: keys::Secret::new(self.token().await),
            ca_pem: Some(self.ca_pem.clone()),
            ca_sha256: None,
            name: Some("web-1".to_owned()),
            state: self.state(),
        };
        Agent::enroll(&options).await.unwrap()
    }

    async fn agent(&self) -> Agent {
        let policy = self.folder.path().join("agent.toml");
        let rule = format!("[[files]]\npath = \"{}/etc/\"\n", self.folder.path().display());
        std::fs::write(&policy, rule).unwrap();
        Agent::open(&self.state(), PolicyFile::new(&policy), Clock::system()).await.unwrap()
    }

    /// Returns the path of a file in the folder that is deployed to.
    fn etc(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join("etc");
        std::fs::create_dir_all(&folder).unwrap();
        folder.join(name)
    }

    async fn target(&self, agent: Uuid, name: &str) -> Uuid {
        let target = json!({"type": "files", "fullchain": self.etc("f.pem"), "key": self.etc("k.pem")});
        let body = json!({"name": name, "agent": agent, "target": target});
        let made = self.send_request(Method::POST, "/api/v1/targets", Some(body)).await.expect(201);
        made.json()["id"].as_str().unwrap().parse().unwrap()
    }

    /// Runs the agent until the certificate has this state.
    async fn work_until(&self, certificate: Uuid, state: state::State) -> WorkReport {
        let mut all = WorkReport::default();
        let mut agent = self.agent().await;
        for _ in 0..600 {
            let worked = agent.work_once().await.unwrap();
            all = WorkReport { done: all.done + worked.done, failed: all.failed + worked.failed };
            if self.lifecycle.get(certificate).await.unwrap().state == state {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("still {:?}", self.lifecycle.get(certificate).await.unwrap());
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_with_agent_key_is_issued_and_deployed() {
    let house = House::new().await;
    let agent = house.enrolled().await;
    let target = house.target(agent.agent, "web").await;
    let new = NewCertificate {
        key_location: KeyLocation::Agent { agent: agent.agent },
        targets: vec![TargetRef::Deploy { target, agent: agent.agent }],
        ..NewCertificate::new(&["www.example"], "web")
    };
    let own = Agent::targets(&house.state()).await.unwrap();
    assert_eq!((own.len(), own[0].id, own[0].name.as_str()), (1, target, "web"));
    let certificate = house.lifecycle.create(new, "user:alice").await.unwrap().certificate;
    let worked = house.work_until(certificate, state::State::Active).await;
    assert_eq!(worked, WorkReport { done: 2, failed: 0 }, "a CSR and a deployment");
    let deployed = std::fs::read_to_string(house.etc("f.pem")).unwrap();
    let (_, leaf) = x509::pem::certificates(deployed.as_bytes()).next().unwrap();
    let leaf = x509::Certificate::parse(&leaf).unwrap();
    let key = keys::PrivateKey::from_pem(&std::fs::read_to_string(house.etc("k.pem")).unwrap()).unwrap();
    assert_eq!(&*leaf.public_key.spki, keys::Signer::spki(&key));

    let listed = house
        .send_request(Method::GET, &format!("/api/v1/targets/{target}/deployments"), None)
        .await
        .expect(200);
    let listed = listed.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["state"], "deployed", "{listed}");
    assert_eq!(listed["items"][0]["fingerprint"], leaf.fingerprint.to_string());
    assert_eq!(listed["items"][0]["attempts"], 1);
    let shown =
        house.send_request(Method::GET, "/api/v1/agents?labels=env=prod&online=true", None).await.expect(200);
    assert_eq!(shown.json()["items"][0]["name"], "web-1");
    let none = house.send_request(Method::GET, "/api/v1/agents?labels=env=test", None).await.expect(200);
    assert_eq!(none.json()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_is_usable_only_by_the_team_in_its_label() {
    let house = House::new().await;
    let agent = house.enrolled().await.agent;
    let target = house.target(agent, "shop's").await;
    let made =
        json!({ "name": "shop", "grants": [{ "role": "operator", "scope": "team:shop,profile:web" }] });
    let made = house.send_request(Method::POST, "/api/v1/tokens", Some(made)).await.expect(201).json();
    let token = made["token"].as_str().unwrap();
    let number = std::cell::Cell::new(0);
    let create = async |team: &str, more: Value| {
        number.set(number.get() + 1);
        let name = format!("n{}.example", number.get());
        let mut body = json!({ "names": [name], "profile": "web", "team": team, "issue": false });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = house.client.post(format!("{}/api/v1/certificates", house.url())).bearer_auth(token);
        send(request.json(&body)).await.status.as_u16()
    };
    let deploy = json!({ "targets": [{ "kind": "deploy", "target": target, "agent": agent }] });
    let key = json!({ "key_location": { "at": "agent", "agent": agent } });
    for (label, status) in [(None, 403), (Some("other"), 403), (Some("shop"), 201)] {
        let labels = label.map_or(json!({}), |team| json!({ "team": team }));
        let path = format!("/api/v1/agents/{agent}");
        house.send_request(Method::PATCH, &path, Some(json!({ "labels": labels }))).await.expect(200);
        assert_eq!(create("shop", deploy.clone()).await, status, "{label:?}");
        assert_eq!(create("shop", key.clone()).await, status, "{label:?}");
        assert_eq!(create("other", json!({})).await, 403);
    }
    // A target of one agent cannot be used with another agent.
    let elsewhere = json!({ "targets": [{ "kind": "deploy", "target": target, "agent": Uuid::new_v4() }] });
    assert_eq!(create("shop", elsewhere).await, 403);
    assert_eq!(create("shop", json!({})).await, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_deploys_server_stored_keys_and_keeps_no_copy() {
    let house = House::new().await;
    let agent = house.enrolled().await;
    let target = house.target(agent.agent, "web").await;
    let new = NewCertificate {
        targets: vec![TargetRef::Deploy { target, agent: agent.agent }],
        ..NewCertificate::new(&["www.example"], "web")
    };
    let certificate = house.lifecycle.create(new, "user:alice").await.unwrap().certificate;
    let worked = house.work_until(certificate, state::State::Active).await;
    assert_eq!(worked, WorkReport { done: 1, failed: 0 });
    assert!(house.etc("k.pem").exists());
    assert_eq!(std::fs::read_dir(house.state().join("keys")).unwrap().count(), 0, "the agent keeps no copy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_endpoints_reject_tokens_and_retired_agents() {
    let house = House::new().await;
    let agent = house.enrolled().await;
    // A token is rejected on agent endpoints, even if its role has the permission.
    for (method, path, body) in [
        (Method::GET, "/api/v1/agent/work", None),
        (Method::GET, "/api/v1/agent/targets", None),
        (Method::POST, "/api/v1/agent/renew", Some(json!({"csr_pem": ""}))),
        (
            Method::POST,
            "/api/v1/agent/jobs/00000000-0000-0000-0000-000000000000/csr",
            Some(json!({"csr_pem": ""})),
        ),
    ] {
        let refused = house.send_request(method, path, body).await.expect(403);
        assert_eq!(refused.problem(), "forbidden");
    }
    // Retiring an agent rejects its certificate immediately.
    let path = format!("/api/v1/agents/{}", agent.agent);
    house.send_request(Method::POST, &format!("{path}/retire"), None).await.expect(204);
    let error = house.agent().await.work_once().await.unwrap_err().to_string();
    assert!(error.contains("401") || error.contains("403") || error.contains("409"), "{error}");
    assert!(house.send_request(Method::GET, &path, None).await.expect(200).json()["retired_at"].is_string());
    // The enrolment endpoint needs no authentication, but it rejects an unknown join token.
    let body = json!({"token": "bulla-enroll-none", "csr_pem": csr()});
    let request = house.client.post(format!("{}/api/v1/agent/enroll", house.url())).json(&body);
    assert_eq!(send(request).await.expect(401).problem(), "unauthenticated");
}

fn csr() -> String {
    let key = keys::PrivateKey::generate(keys::KeyType::P256).unwrap();
    let subject = x509::DistinguishedName::empty();
    let tbs = x509::csr::tbs(&subject.der, keys::Signer::spki(&key), &[], None);
    let der = x509::build::signed(&tbs, &keys::Signer::algorithm(&key), &key.sign_now(&tbs).unwrap());
    x509::pem::encode("CERTIFICATE REQUEST", &der)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_have_revisions_and_hide_passwords_and_groups_select_agents() {
    let house = House::new().await;
    let agent = house.enrolled().await.agent;
    let store = json!({"type": "jks", "file": "/srv/a.jks", "password": "open sesame"});
    let body = json!({"name": "java", "agent": agent, "target": store});
    let made = house.send_request(Method::POST, "/api/v1/targets", Some(body)).await.expect(201);
    assert!(!made.text.contains("sesame"), "{}", made.text);
    assert_eq!(made.header("etag"), "\"1\"");
    let path = made.header("location").to_owned();
    // Sends the target back as it was shown, with another name.
    let renamed = json!({"name": "java-2", "agent": agent, "target": made.json()["target"]});
    let request = house.client.put(format!("{}{path}", house.url())).bearer_auth(&house.admin).json(&renamed);
    send(request.try_clone().unwrap().header("if-match", "\"7\"")).await.expect(412);
    send(request.header("if-match", "\"1\"")).await.expect(200);
    let wrong = json!({"name": "x", "agent": agent, "target": {"type": "iis"}});
    assert_eq!(
        house.send_request(Method::POST, "/api/v1/targets", Some(wrong)).await.expect(422).problem(),
        "unprocessable"
    );
    house.send_request(Method::DELETE, &path, None).await.expect(204);
    house.send_request(Method::GET, &path, None).await.expect(404);

    let group = json!({"name": "front", "selector": {"env": "prod"}});
    house.send_request(Method::POST, "/api/v1/agent-groups", Some(group.clone())).await.expect(201);
    house.send_request(Method::POST, "/api/v1/agent-groups", Some(group)).await.expect(409);
    let members = house.send_request(Method::GET, "/api/v1/agents?group=front", None).await.expect(200);
    assert_eq!(members.json()["items"].as_array().unwrap().len(), 1);
    house.send_request(Method::GET, "/api/v1/agents?group=none", None).await.expect(404);
    house.send_request(Method::DELETE, "/api/v1/agent-groups/front", None).await.expect(204);
}
