//! All identities of a person are one principal: no identity can approve a request of another one of the same person.

use authority::est::{ClientCa, Est, EstOptions};
use http::Method;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use server::access::SessionOptions;
use server::{Components, Issuance};
use store::Clock;
use testbed::Database;
use x509::Certificate;

use crate::enrolments::{authority_in, request};
use crate::logging_in::Scene;
use crate::world::{self, Plan, TestResponse, World, issuance, send};

/// Starts a server with EST for the profile `vip`, which requires approval.
async fn plan() -> Plan {
    let database = Database::sqlite();
    let store = database.open().await;
    let authority = authority_in(&store).await;
    let (ca, profiles) = (world::Authority::new("test root"), vec!["vip".to_owned()]);
    let certificate = Certificate::parse(&ca.root).unwrap();
    let client_cas = vec![ClientCa { certificate, profiles: profiles.clone() }];
    let options = EstOptions { profiles, client_cas, ..EstOptions::default() };
    let est = Est::new(authority.clone(), None, options);
    let issuance = Issuance { est, ..issuance(&authority, &store, &Clock::system()) };
    Plan {
        components: Components { issuance: Some(issuance), ..Components::default() },
        database,
        ca,
        ..Plan::default()
    }
}

/// A client with a certificate for these names, which requests a certificate for the first name.
struct Holder<'a> {
    world: &'a World,
    client: reqwest::Client,
    csr: String,
}

impl<'a> Holder<'a> {
    fn new(world: &'a World, names: &[&str]) -> Self {
        let leaf = world.ca.leaf(names);
        let client = world.builder().identity(leaf.identity()).build().unwrap();
        Self { world, client, csr: request(names[0]) }
    }

    async fn enrol(&self) -> TestResponse {
        let post = self.client.post(self.world.url("/.well-known/est/vip/simpleenroll"));
        send(post.header("content-type", "application/pkcs10").body(self.csr.clone())).await
    }

    /// Sends the request, and returns the path of the pending enrolment.
    async fn send_request(&self) -> String {
        self.enrol().await.expect(202);
        let waiting = self.world.get("/api/v1/enrolments").await.expect(200).json();
        let waiting = &waiting["items"][0];
        assert!(waiting["requester"].as_str().unwrap().starts_with("certificate:"), "{waiting}");
        format!("/api/v1/enrolments/{}", waiting["id"].as_str().unwrap())
    }
}

/// Asserts that the approval is rejected with 403 and the enrolment remains pending.
async fn refused(world: &World, path: &str, approve: RequestBuilder) {
    let refused = send(approve.json(&json!({}))).await.expect(403);
    assert_eq!(refused.problem(), "forbidden");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    let why = "requested this certificate and is the same person as you: another person must decide";
    assert!(detail.starts_with("certificate:") && detail.ends_with(why), "{detail}");
    assert_eq!(world.get(path).await.expect(200).json()["state"], "open");
}

async fn made(world: &World, create: RequestBuilder, body: Value) -> String {
    world.agreed(send(create.json(&body)).await).await["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn client_certificate_cannot_approve_its_own_est_enrollment() {
    let world = World::start_with(plan().await).await;
    let holder = Holder::new(&world, &["own.a.example"]);
    let grants = json!([{ "role": "approver", "scope": "any" }]);
    let laptop = json!({ "name": "laptop", "match": "dns:own.a.example", "grants": grants });
    world.agreed(world.post("/api/v1/client-certificates", laptop).await).await;
    let path = holder.send_request().await;
    let approve = format!("{path}/approve");
    refused(&world, &path, holder.client.post(world.url(&approve))).await;
    holder.enrol().await.expect(202);

    let other = world.token("bob", "approver", "any").await;
    let approved = send(world.with(&other, Method::POST, &approve).json(&json!({}))).await.expect(200);
    assert_eq!(approved.json()["decided_by"], "token:bob");
    holder.enrol().await.expect(200);
}

#[tokio::test]
async fn tokens_created_by_a_user_cannot_approve_requests_of_the_user() {
    let scene = Scene::start_plan(SessionOptions::default(), plan().await).await;
    let world = &scene.world;
    let ann = json!({ "name": "ann", "subject": "subject-1", "email": "Ann@a.example",
        "grants": [{ "role": "admin", "scope": "any" }] });
    world.agreed(world.post("/api/v1/users", ann).await).await;
    let (mut browser, answer) = scene.log_in().await;
    answer.expect(303);
    let me = scene.send_request(&mut browser, Method::GET, "/api/v1/auth/me", None).await.expect(200).json();
    assert_eq!(me["actor"], "user:ann");
    let session = |path: &str| {
        let post = world.bare(Method::POST, path).header("cookie", browser.line());
        post.header("x-csrf-token", me["csrf_token"].as_str().unwrap())
    };
    let grants = json!([{ "role": "admin", "scope": "any" }]);
    let tokens = "/api/v1/tokens";
    let direct = made(world, session(tokens), json!({ "name": "direct", "grants": grants })).await;
    let by_token = world.with(&direct, Method::POST, tokens);
    let indirect = made(world, by_token, json!({ "name": "indirect", "grants": grants })).await;

    // An administrator entered this e-mail address for Ann.
    let holder = Holder::new(world, &["own.a.example", "ann@a.example"]);
    let path = holder.send_request().await;
    let approve = format!("{path}/approve");
    refused(world, &path, session(&approve)).await;
    for token in [&direct, &indirect] {
        refused(world, &path, world.with(token, Method::POST, &approve)).await;
    }
    let other = world.token("bob", "approver", "any").await;
    send(world.with(&other, Method::POST, &approve).json(&json!({}))).await.expect(200);
    holder.enrol().await.expect(200);
}
