//! Client certificates of the internal CA, and their revocation.

use std::net::IpAddr;

use authority::est::{Est, EstOptions};
use authority::issue::{IssueRequest, Source};
use authority::keystore::KeyStore;
use authority::revoke::Selection;
use authority::tree::NewCa;
use authority::{Authority, AuthorityOptions, ClientCertificateError, ClientCertificates, PresentedChain};
use axum::Router;
use axum::body::Body;
use credentials::{Credentials, CredentialsOptions};
use http::{Method, Request};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::listen::server_certificate;
use server::routes::credhub::{CredHub, CredHubOptions};
use server::{Components, Issuance, Peer, Running, Server, ServerOptions, State, access, router};
use store::Clock;
use tower::ServiceExt;
use x509::build;
use x509::crl::{CrlSpec, Reason, Revoked, Scope, tbs_crl};
use x509::{Certificate, DistinguishedName, GeneralName, SerialNumber, UnixTime};

use crate::world::{self, issuance, store};

async fn send_request(router: &Router, request: Request<Body>) -> (u16, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Creates a request as the listener forwards it after verifying this certificate's chain.
fn by_certificate(method: Method, path: &str, der: &[u8]) -> Request<Body> {
    let address = IpAddr::from([127, 0, 0, 1]);
    let peer = Peer { address, client_certificate: PresentedChain::new([der]), channel_binding: None };
    Request::builder().method(method).uri(path).extension(peer).body(Body::empty()).unwrap()
}

/// All listeners with one CA, and a client with an application certificate of that CA.
struct Applications {
    authority: Authority,
    server: Running,
    chain: Vec<Vec<u8>>,
    issued: uuid::Uuid,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

/// The CA that the configuration names for application certificates.
#[derive(Clone, Copy)]
enum Naming {
    Root,
    Issuing,
    Another,
    Nobody,
}

/// The subject of application certificates in Cloud Foundry.
const APPLICATION: &str = "OU=app:00000000-0000-4000-8000-000000000007";

impl Applications {
    async fn start() -> Self {
        Self::naming(Naming::Root).await
    }

    async fn naming(naming: Naming) -> Self {
        let (folder, store) = store().await;
        let clock = Clock::system();
        access::bootstrap(&store, &clock).await.unwrap().unwrap();
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let authority =
            Authority::open(store.clone(), keystore.clone(), clock.clone(), AuthorityOptions::default())
                .unwrap();
        let root = authority.create_root(&NewCa::root("root", "CN=Root"), "user:a").await.unwrap();
        let root = root.certificate.der.to_vec();
        authority.create_intermediate("root", &NewCa::intermediate("ca", "CN=CA"), "user:a").await.unwrap();
        let profile = json!({
            "name": "apps", "ca": "ca", "names": { "dns_allowed": [".example"] },
            "extended_key_usage": ["clientAuth"],
            "subject": { "requested": true, "application_identities": true },
        });
        authority.put_profile(serde_json::from_value(profile).unwrap(), None, "user:a").await.unwrap();
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let mut request = IssueRequest::new(
            "apps",
            key.spki().to_vec(),
            vec![GeneralName::Dns("app.example".to_owned())],
            Source::Api,
            "user:a",
        );
        request.subject = Some(DistinguishedName::from_text(APPLICATION).unwrap());
        let issued = authority.issue(request).await.unwrap();
        let chain: Vec<Vec<u8>> =
            std::iter::once(&issued.der).chain(issued.chain.iter()).map(|der| der.to_vec()).collect();

        let credentials =
            Credentials::open(store.clone(), keystore, clock.clone(), CredentialsOptions::default());
        let another = crate::world::Authority::new("another").root;
        let named = match naming {
            Naming::Root => vec![&root],
            Naming::Issuing => vec![&chain[1]],
            Naming::Another => vec![&another],
            Naming::Nobody => vec![],
        };
        let application_cas = named.into_iter().map(|der| Certificate::parse(der).unwrap()).collect();
        let hub = CredHubOptions { application_cas, ..CredHubOptions::default() };
        let est = EstOptions { profiles: vec!["apps".to_owned()], ..EstOptions::default() };
        let issuance = issuance(&authority, &store, &clock);
        let components = Components {
            issuance: Some(Issuance { est: Est::new(authority.clone(), None, est), ..issuance }),
            credentials: Some(CredHub::new(credentials, hub).unwrap()),
            ..Components::default()
        };
        let state = State::builder(store, clock).components(components).build();
        let ca = crate::world::Authority::new("server root");
        let leaf = ca.leaf(&["127.0.0.1"]);
        let certificate = server_certificate(&[leaf.der], &leaf.key).unwrap();
        let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), certificate);
        options.credentials = Some("127.0.0.1:0".parse().unwrap());
        options.client_roots = vec![root.clone()];
        let server = Server::start(options, state).await.unwrap();
        let pem = chain.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect::<String>();
        let pem = format!("{}{pem}", key.to_pkcs8_pem().as_str());
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_der(&ca.root).unwrap()])
            .identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap())
            .build()
            .unwrap();
        Self { authority, server, chain, issued: issued.id, client, _folder: folder }
    }

    /// Returns the status of one request each to the API, EST, and the credential store.
    async fn doors(&self) -> [u16; 3] {
        let api = self.client.get(format!("https://{}/api/v1/auth/me", self.server.address));
        let est = format!("https://{}/.well-known/est/apps/simpleenroll", self.server.address);
        let est = self.client.post(est).header("content-type", "application/pkcs10").body("none");
        let store = self.server.credential_address.unwrap();
        let store = self.client.get(format!("https://{store}/api/v1/data?name=/a"));
        let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
        [status(api).await, status(est).await, status(store).await]
    }
}

#[tokio::test]
async fn revocation_applies_to_the_next_request_of_an_open_connection() {
    let applications = Applications::start().await;
    // The expected errors of an accepted certificate: no matching identity, no CSR, unknown name.
    assert_eq!(applications.doors().await, [401, 400, 404]);
    let which = Selection::Id(applications.issued);
    applications.authority.revoke(which, Reason::KeyCompromise, None, "user:a").await.unwrap();
    assert_eq!(applications.doors().await, [401, 403, 401]);
}

#[tokio::test]
async fn application_certificates_are_accepted_only_from_the_configured_ca() {
    for (naming, status) in
        [(Naming::Root, 404), (Naming::Issuing, 404), (Naming::Another, 401), (Naming::Nobody, 401)]
    {
        assert_eq!(Applications::naming(naming).await.doors().await[2], status);
    }
}

#[tokio::test]
async fn client_certificates_of_a_revoked_ca_are_rejected() {
    let applications = Applications::start().await;
    assert_eq!(applications.doors().await, [401, 400, 404]);
    let issuing = Certificate::parse(&applications.chain[1]).unwrap().fingerprint;
    let which = Selection::Fingerprint(issuing);
    applications.authority.revoke(which, Reason::CaCompromise, None, "user:a").await.unwrap();
    assert_eq!(applications.doors().await, [401, 403, 401]);
}

#[tokio::test]
async fn client_certificates_are_checked_against_configured_crls() {
    let applications = Applications::start().await;
    let clients = ClientCertificates::without_authority(Clock::system());
    let mut peer = Peer::at(IpAddr::from([127, 0, 0, 1]));
    peer.client_certificate = PresentedChain::new(&applications.chain);
    assert!(clients.verify(&peer).await.unwrap().is_some());
    // If any CRL is configured, each CA needs one. A certificate on the CRL is revoked.
    let leaf = Certificate::parse(&applications.chain[0]).unwrap();
    let other = DistinguishedName::from_text("CN=Other").unwrap();
    for (issuer, serials, outcome) in [
        (&other.der, &[][..], "no CRL"),
        (&leaf.issuer.der, &[], ""),
        (&leaf.issuer.der, std::slice::from_ref(&leaf.serial), "revoked"),
    ] {
        clients.replace_crls(&[crl(issuer, serials)]).unwrap();
        let verified = clients.verify(&peer).await.map_err(|error| error.to_string());
        match outcome {
            "" => assert!(verified.unwrap().is_some()),
            why => assert!(verified.as_ref().unwrap_err().contains(why), "{verified:?}"),
        }
    }
    // An invalid CRL is rejected, and the previous CRLs remain active.
    assert!(clients.replace_crls(&[vec![0x30, 0]]).is_err());
    assert!(matches!(clients.verify(&peer).await, Err(ClientCertificateError::Revoked)));
}

fn crl(issuer: &[u8], serials: &[SerialNumber]) -> Vec<u8> {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let now = UnixTime(crate::world::now());
    let spec = CrlSpec {
        signature: key.algorithm(),
        issuer,
        this_update: now,
        next_update: now.plus(3_600),
        number: 1,
        authority_key_id: &[1],
        base: None,
        distribution_point: None,
        scope: Scope::All,
        freshest: None,
    };
    let revoked = |serial: &SerialNumber| Revoked {
        serial: serial.clone(),
        at: now,
        reason: None,
        invalidity_date: None,
    };
    let revoked: Vec<Revoked> = serials.iter().map(revoked).collect();
    let tbs = tbs_crl(&spec, &revoked);
    build::signed(&tbs, &spec.signature, &key.sign_now(&tbs).unwrap())
}

#[tokio::test]
async fn revoked_client_certificate_and_its_session_are_rejected() {
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
        let (status, answer) =
            send_request(&router, request.body(Body::from(body.to_string())).unwrap()).await;
        assert!(status < 300, "{path}: {answer}");
        answer
    };
    post("/api/v1/authorities", json!({ "name": "root", "subject": "CN=Root" })).await;
    post("/api/v1/authorities", json!({ "name": "ca", "subject": "CN=CA", "parent": "root" })).await;
    let web = json!({
        "name": "web", "names": { "dns_allowed": [".example"] }, "extended_key_usage": ["clientAuth"],
    });
    post("/api/v1/profiles", web).await;
    let csr = json!({ "csr": world::request_for("deployer.example") });
    let issued = post("/api/v1/profiles/web/certificates", csr).await;
    let identity = json!({
        "name": "deployer", "match": "dns:deployer.example", "profile": "web",
        "grants": [{ "role": "viewer", "scope": "any" }],
    });
    post("/api/v1/client-certificates", identity).await;
    // A match by name alone applies only to certificates of external CAs, and a match with a profile only to that profile.
    for profile in [None, Some("other")] {
        let identity = json!({
            "name": format!("boss {profile:?}"), "match": "dns:deployer.example", "profile": profile,
            "grants": [{ "role": "admin", "scope": "any" }],
        });
        post("/api/v1/client-certificates", identity).await;
    }
    let pem = issued["chain"].as_str().unwrap();
    let leaf = x509::pem::certificates(pem.as_bytes()).next().unwrap().1;

    let me = "/api/v1/auth/me";
    let (status, who) = send_request(&router, by_certificate(Method::GET, me, &leaf)).await;
    assert_eq!((status, who["actor"].as_str()), (200, Some("certificate:deployer")), "{who}");
    // Browsers send the client certificate automatically, so cross-site requests are rejected.
    let mut request = by_certificate(Method::POST, "/api/v1/audit/verify", &leaf);
    request.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
    assert_eq!(
        send_request(&router, request).await.1["detail"],
        "the request comes from a page of another site"
    );

    // A session created with the certificate is valid only while the certificate is.
    let mut request = by_certificate(Method::POST, "/api/v1/auth/links", &leaf);
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    *request.body_mut() = Body::from("{}");
    let (status, link) = send_request(&router, request).await;
    assert_eq!(status, 201, "{link}");
    let signing_in = Request::post("/api/v1/auth/sessions")
        .header("host", "a.example")
        .header("origin", "https://a.example")
        .header("content-type", "application/json");
    let body = json!({ "code": link["code"] }).to_string();
    let signed_in = router.clone().oneshot(signing_in.body(Body::from(body)).unwrap()).await.unwrap();
    assert_eq!(signed_in.status(), 201);
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let by_session = || Request::get(me).header("cookie", &cookie).body(Body::empty()).unwrap();
    let (status, who) = send_request(&router, by_session()).await;
    assert_eq!((status, who["actor"].as_str()), (200, Some("certificate:deployer")), "{who}");

    post("/api/v1/revocations", json!({ "reason": "keyCompromise", "certificate": issued["id"] })).await;
    let (status, refused) = send_request(&router, by_certificate(Method::GET, me, &leaf)).await;
    assert_eq!((status, refused["detail"].as_str()), (401, Some("the client certificate is revoked")));
    assert_eq!(send_request(&router, by_session()).await.0, 401);
}

/// Anyone who may request certificates for arbitrary host names could impersonate every identity that is matched by name.
#[tokio::test]
async fn identities_matched_by_names_of_unrestricted_profiles_are_rejected() {
    let (_folder, store) = store().await;
    let clock = Clock::system();
    let admin = access::bootstrap(&store, &clock).await.unwrap().unwrap();
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let authority =
        Authority::open(store.clone(), keystore, clock.clone(), AuthorityOptions::default()).unwrap();
    let issuance = issuance(&authority, &store, &clock);
    let components = Components { issuance: Some(issuance), ..Components::default() };
    let state = State::builder(store, clock).components(components).build();
    let router = router(&state).0;
    let send = async |method: Method, path: &str, body: Value| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", admin.expose_secret()))
            .header("if-match", "*")
            .header("content-type", "application/json");
        send_request(&router, request.body(Body::from(body.to_string())).unwrap()).await
    };
    let post = async |path: &str, body: Value| send(Method::POST, path, body).await;
    post("/api/v1/authorities", json!({ "name": "root", "subject": "CN=Root" })).await;
    post("/api/v1/authorities", json!({ "name": "ca", "subject": "CN=CA", "parent": "root" })).await;
    let profile = |name: &str, suffix: &str| json!({ "name": name, "names": { "dns_allowed": [suffix] }, "extended_key_usage": ["clientAuth"] });
    assert_eq!(post("/api/v1/profiles", profile("any", ".")).await.0, 201);
    assert_eq!(post("/api/v1/profiles", profile("narrow", ".example")).await.0, 201);
    let identity = |profile: &str| {
        json!({ "name": format!("boss {profile}"), "match": "dns:boss.example", "profile": profile,
                "grants": [{ "role": "admin", "scope": "any" }] })
    };
    let (status, refused) = post("/api/v1/client-certificates", identity("any")).await;
    assert_eq!(status, 422, "{refused}");
    assert_eq!(post("/api/v1/client-certificates", identity("narrow")).await.0, 201);
    let csr = json!({ "csr": world::request_for("boss.example") });
    let (status, issued) = post("/api/v1/profiles/narrow/certificates", csr).await;
    assert_eq!(status, 201, "{issued}");
    let leaf = x509::pem::certificates(issued["chain"].as_str().unwrap().as_bytes()).next().unwrap().1;
    let me = "/api/v1/auth/me";
    assert_eq!(send_request(&router, by_certificate(Method::GET, me, &leaf)).await.0, 200);
    // The identity is no longer accepted after its profile has been widened.
    let (status, put) = send(Method::PUT, "/api/v1/profiles/narrow", profile("narrow", ".")).await;
    assert_eq!(status, 200, "{put}");
    let (status, refused) = send_request(&router, by_certificate(Method::GET, me, &leaf)).await;
    assert_eq!(status, 401, "{refused}");
}
