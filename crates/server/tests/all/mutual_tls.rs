//! Client certificates that our own authority issued, and revoked.

use std::net::IpAddr;
use std::sync::Arc;

use authority::keystore::KeyStore;
use authority::{Authority, AuthorityOptions};
use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::{Components, Peer, State, access, router};
use store::Clock;
use tower::ServiceExt;
use x509::build::{self, Extension};
use x509::{DistinguishedName, GeneralName, csr};

use crate::world::{issuance, store};

async fn ask(router: &Router, request: Request<Body>) -> (u16, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// As the listener hands a request over, once it has verified this certificate's chain.
fn by_certificate(method: Method, path: &str, der: &[u8]) -> Request<Body> {
    let address = IpAddr::from([127, 0, 0, 1]);
    let peer = Peer { address, client_certificate: Some(Arc::from(der)), channel_binding: None };
    Request::builder().method(method).uri(path).extension(peer).body(Body::empty()).unwrap()
}

fn request_for(name: &str) -> String {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let names = [GeneralName::Dns(name.to_owned())];
    let subject = DistinguishedName::from_text(&format!("CN={name}")).unwrap();
    let tbs = csr::tbs(&subject.der, key.spki(), &[Extension::subject_alt_names(&names)], None);
    let signature = key.sign_now(&tbs).unwrap();
    x509::pem::encode("CERTIFICATE REQUEST", &build::signed(&tbs, &key.algorithm(), &signature))
}

#[tokio::test]
async fn a_revoked_client_certificate_opens_no_door() {
    let (_folder, store) = store().await;
    let clock = Clock::system();
    let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap();
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let options =
        AuthorityOptions { base_url: "http://pki.example".to_owned(), ..AuthorityOptions::default() };
    let authority = Authority::open(store.clone(), keystore, clock.clone(), options).unwrap();
    let issuance = issuance(&authority, &store, &clock);
    let components = Components { issuance: Some(issuance), ..Components::default() };
    let state = State::builder(store, clock).components(components).build();
    let router = router(&state).0;
    let post = async |path: &str, body: Value| {
        let request = Request::post(path)
            .header("authorization", format!("Bearer {}", admin.expose_secret()))
            .header("content-type", "application/json");
        let (status, answer) = ask(&router, request.body(Body::from(body.to_string())).unwrap()).await;
        assert!(status < 300, "{path}: {answer}");
        answer
    };
    post("/api/v1/authorities", json!({ "name": "root", "subject": "CN=Root" })).await;
    post("/api/v1/authorities", json!({ "name": "ca", "subject": "CN=CA", "parent": "root" })).await;
    post("/api/v1/profiles", json!({ "name": "web", "names": { "dns_allowed": [".example"] } })).await;
    let csr = json!({ "csr": request_for("deployer.example") });
    let issued = post("/api/v1/profiles/web/certificates", csr).await;
    let identity = json!({
        "name": "deployer", "match": "dns:deployer.example", "grants": [{ "role": "viewer", "scope": "any" }],
    });
    post("/api/v1/client-certificates", identity).await;
    let pem = issued["chain"].as_str().unwrap();
    let leaf = x509::pem::certificates(pem.as_bytes()).next().unwrap().1;

    let me = "/api/v1/auth/me";
    let (status, who) = ask(&router, by_certificate(Method::GET, me, &leaf)).await;
    assert_eq!((status, who["actor"].as_str()), (200, Some("certificate:deployer")), "{who}");
    // A browser shows its certificate by itself, so another site's request is none of its owner's.
    let mut request = by_certificate(Method::POST, "/api/v1/audit/verify", &leaf);
    request.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
    assert_eq!(ask(&router, request).await.1["detail"], "another site made this browser ask");

    post("/api/v1/revocations", json!({ "reason": "keyCompromise", "certificate": issued["id"] })).await;
    // As it is once what was remembered of it has run out.
    state.access().forget();
    let (status, refused) = ask(&router, by_certificate(Method::GET, me, &leaf)).await;
    assert_eq!((status, refused["detail"].as_str()), (401, Some("the client certificate is revoked")));
}
