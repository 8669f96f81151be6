//! EST enrolments that wait for approval, decided over the API.

use std::sync::Arc;

use authority::enrolment::FixedPasswords;
use authority::est::{Est, EstOptions};
use authority::keystore::KeyStore;
use authority::profile::Profile;
use authority::tree::NewCa;
use authority::{Authority, AuthorityOptions};
use http::Method;
use keys::{KeyType, Keyring, PrivateKey, Signer};
use serde_json::{Value, json};
use server::limit::{LimitOptions, Rate};
use server::{Components, Issuance};
use store::Clock;
use x509::DistinguishedName;

use crate::world::{Plan, TestResponse, World, issuance, send, store};

async fn authority() -> (tempfile::TempDir, store::Store, Authority) {
    let (folder, store) = store().await;
    let authority = authority_in(&store).await;
    (folder, store, authority)
}

/// Creates a CA with profiles that require approval.
pub(crate) async fn authority_in(store: &store::Store) -> Authority {
    let clock = Clock::system();
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let authority = Authority::open(store.clone(), keystore, clock, AuthorityOptions::default()).unwrap();
    authority.create_root(&NewCa::root("root", "CN=Root"), "user:a").await.unwrap();
    for name in ["vip", "web"] {
        let names = serde_json::from_value(json!({ "dns_allowed": [".a.example"] })).unwrap();
        let profile = Profile { requires_approval: true, ..Profile::for_servers(name, names) };
        authority.put_profile(profile, None, "user:a").await.unwrap();
    }
    authority
}

/// Returns a certificate signing request in PEM.
pub(crate) fn request(name: &str) -> String {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let subject = DistinguishedName::from_text(&format!("CN={name}")).unwrap();
    let tbs = x509::csr::tbs(&subject.der, key.spki(), &[], None);
    let der = x509::build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap());
    x509::pem::encode("CERTIFICATE REQUEST", &der)
}

async fn enrol(world: &World, request: &str) -> TestResponse {
    let post = world.bare(Method::POST, "/.well-known/est/vip/simpleenroll");
    let post = post.basic_auth("alice", Some("secret")).header("content-type", "application/pkcs10");
    send(post.body(request.to_owned())).await
}

#[tokio::test]
async fn failed_est_passwords_are_rate_limited() {
    let (_folder, store, authority) = authority().await;
    let options = EstOptions { profiles: vec!["vip".to_owned()], ..EstOptions::default() };
    let passwords = FixedPasswords::new().with("vip", "alice", "secret");
    let est = Est::new(authority.clone(), Some(Arc::new(passwords)), options);
    let issuance = Issuance { est, ..issuance(&authority, &store, &Clock::system()) };
    let components = Components { issuance: Some(issuance), ..Components::default() };
    let limits = LimitOptions { account_failures: Some(Rate::new(1, 2)), ..LimitOptions::unlimited() };
    let state = Box::new(move |state: server::StateBuilder| state.limits(limits));
    let world = World::start_with(Plan { components, state, ..Plan::default() }).await;
    let wrong = || {
        let post = world.bare(Method::POST, "/.well-known/est/vip/simpleenroll");
        let post = post.basic_auth("alice", Some("guess")).header("content-type", "application/pkcs10");
        send(post.body(request("a.a.example")))
    };
    wrong().await.expect(401);
    // One attempt per second is allowed: the loop sends far more, also on a slow machine.
    let mut refused = None;
    for _ in 0..200 {
        let answer = wrong().await;
        refused = if answer.status == 429 { Some(answer) } else { refused };
    }
    assert_eq!(refused.expect("a burst of two").header("retry-after"), "1");
    assert_eq!(enrol(&world, &request("b.a.example")).await.status, 202, "alice is not locked out");
}

#[tokio::test]
async fn pending_enrollments_are_listed_approved_and_rejected_by_profile() {
    let (_folder, store, authority) = authority().await;
    let options = EstOptions { profiles: vec!["vip".to_owned()], ..EstOptions::default() };
    let passwords = FixedPasswords::new().with("vip", "alice", "secret");
    let est = Est::new(authority.clone(), Some(Arc::new(passwords)), options);
    let issuance = Issuance { est, ..issuance(&authority, &store, &Clock::system()) };
    let components = Components { issuance: Some(issuance), ..Components::default() };
    let world = World::start_with(Plan { components, ..Plan::default() }).await;
    let requests = [request("a.a.example"), request("b.a.example")];
    for one in &requests {
        assert_eq!(enrol(&world, one).await.expect(202).header("retry-after"), "300");
    }

    let get = |token: &str, path: &str| send(world.with(token, Method::GET, path));
    let listed = get(&world.admin, "/api/v1/enrolments").await.expect(200).json();
    let items = listed["items"].as_array().unwrap();
    let summaries: Vec<&Value> = items.iter().map(|item| &item["asks"]).collect();
    assert_eq!(summaries, ["CN=a.a.example [a.a.example]", "CN=b.a.example [b.a.example]"]);
    assert_eq!((&items[0]["state"], &items[0]["requester"]), (&json!("open"), &json!("est:alice")));
    let path = |at: usize| format!("/api/v1/enrolments/{}", items[at]["id"].as_str().unwrap());

    // An approver for one profile does not see the enrolments of another.
    let mut tokens = Vec::new();
    for profile in ["vip", "web"] {
        let grants = json!([{ "role": "approver", "scope": format!("profile:{profile}") }]);
        let made = world.with(&world.admin, Method::POST, "/api/v1/tokens");
        let made = send(made.json(&json!({ "name": profile, "grants": grants }))).await;
        let made = world.agreed(made).await;
        tokens.push(made["token"].as_str().unwrap().to_owned());
    }
    let [vip, web] = [tokens[0].as_str(), tokens[1].as_str()];
    let seen = |answer: TestResponse| answer.expect(200).json()["items"].as_array().unwrap().len();
    assert_eq!(seen(get(vip, "/api/v1/enrolments").await), 2);
    assert_eq!(seen(get(web, "/api/v1/enrolments").await), 0);
    get(web, &path(0)).await.expect(404);
    let decide = |token: &str, at: usize, verb: &str, body: Value| {
        send(world.with(token, Method::POST, &format!("{}/{verb}", path(at))).json(&body))
    };
    decide(web, 0, "approve", json!({})).await.expect(404);
    decide(vip, 0, "approve", json!({ "note": "x".repeat(2_001) })).await.expect(422);
    decide(vip, 0, "approve", json!({ "notes": "" })).await.expect(422);

    let approved = decide(vip, 0, "approve", json!({ "note": "known" })).await.expect(200).json();
    assert_eq!((&approved["state"], &approved["note"]), (&json!("approved"), &json!("known")));
    decide(vip, 0, "reject", json!({})).await.expect(404);
    decide(vip, 1, "reject", json!({ "note": "no" })).await.expect(200);
    assert_eq!(seen(get(vip, "/api/v1/enrolments").await), 0);
    assert_eq!(seen(get(vip, "/api/v1/enrolments?state=approved").await), 1);
    assert_eq!(seen(get(vip, "/api/v1/enrolments?state=rejected&limit=1").await), 1);
    get(vip, "/api/v1/enrolments?state=lost").await.expect(400);

    let issued = enrol(&world, &requests[0]).await.expect(200);
    assert_eq!(issued.header("content-type"), "application/pkcs7-mime; smime-type=certs-only");
    assert!(enrol(&world, &requests[1]).await.expect(403).text.contains("rejected: no"));
}
