//! A server on loopback with a CA, a database and an admin token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use authority as embedded;
use authority::acme::{Acme, AcmeOptions};
use authority::est::{Est, EstOptions};
use authority::keystore::KeyStore;
use authority::publish::Publications;
use authority::scep::{Scep, ScepOptions};
use credentials::{Credentials, CredentialsOptions};
use http::{HeaderMap, Method, StatusCode};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::ExposeSecret;
use serde_json::Value;
use server::access;
use server::listen::server_certificate;
use server::routes::credhub::{CredHub, CredHubOptions};
use server::{Components, Issuance, Running, Server, ServerOptions, State, StateBuilder};
use store::{Clock, Store, StoreUrl};
use testbed::Database;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509::build::{self, Attribute, CertificateSpec, Extension};
use x509::{BasicConstraints, DistinguishedName, GeneralName, KeyUsage, SerialNumber, UnixTime, csr};

pub(crate) const HOUR: i64 = 3_600;

/// Returns the current Unix time, for certificates that real TLS clients verify.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A certificate with its private key.
pub(crate) struct Issued {
    pub(crate) der: Vec<u8>,
    pub(crate) key: PrivateKey,
}

impl Issued {
    /// Returns the certificate and key in reqwest's format.
    pub(crate) fn identity(&self) -> reqwest::Identity {
        let pem =
            format!("{}{}", self.key.to_pkcs8_pem().as_str(), x509::pem::encode("CERTIFICATE", &self.der));
        reqwest::Identity::from_pem(pem.as_bytes()).unwrap()
    }
}

/// A root CA that issues leaf certificates.
pub(crate) struct Authority {
    pub(crate) root: Vec<u8>,
    key: PrivateKey,
    name: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = build::distinguished_name(&[(Attribute::CommonName, name.to_owned())]).der.to_vec();
        let extensions = [
            Extension::basic_constraints(BasicConstraints { ca: true, path_len: None }),
            Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN)),
            Extension::subject_key_id(&build::key_id(key.spki())),
        ];
        let root = certificate(&key, &name, &name, key.spki(), &extensions, now() + HOUR);
        Self { root, key, name }
    }

    pub(crate) fn leaf(&self, names: &[&str]) -> Issued {
        self.leaf_until(names, now() + HOUR)
    }

    pub(crate) fn leaf_until(&self, names: &[&str], not_after: i64) -> Issued {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let names: Vec<GeneralName> = names.iter().map(|name| GeneralName::parse(name).unwrap()).collect();
        let extensions = [
            Extension::subject_alt_names(&names).critical(true),
            Extension::authority_key_id(&build::key_id(self.key.spki())),
        ];
        let der = certificate(
            &self.key,
            &self.name,
            &build::distinguished_name(&[]).der,
            key.spki(),
            &extensions,
            not_after,
        );
        Issued { der, key }
    }
}

fn certificate(
    by: &PrivateKey,
    issuer: &[u8],
    subject: &[u8],
    spki: &[u8],
    extensions: &[Extension],
    not_after: i64,
) -> Vec<u8> {
    let serial = SerialNumber::from_random(*uuid::Uuid::new_v4().as_bytes());
    let algorithm = by.algorithm();
    let tbs = build::tbs_certificate(&CertificateSpec {
        serial: &serial,
        signature: algorithm.clone(),
        issuer,
        subject,
        not_before: UnixTime(now() - HOUR),
        not_after: UnixTime(not_after),
        spki,
        extensions,
    });
    build::signed(&tbs, &algorithm, &by.sign_now(&tbs).unwrap())
}

/// Settings of a test server. The default is the usual server.
pub(crate) struct Plan {
    pub(crate) clock: Clock,
    pub(crate) options: Box<dyn FnOnce(&mut ServerOptions) + Send>,
    pub(crate) state: Box<dyn FnOnce(StateBuilder) -> StateBuilder + Send>,
    /// Optional components of the server.
    pub(crate) components: Components,
    pub(crate) database: Database,
    /// The CA of the listener's certificate, and of client certificates.
    pub(crate) ca: Authority,
    /// Whether the server has a credential store on a separate listener.
    pub(crate) credentials: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            options: Box::new(|_| {}),
            state: Box::new(|state| state),
            components: Components::default(),
            database: Database::sqlite(),
            ca: Authority::new("test root"),
            credentials: false,
        }
    }
}

pub(crate) struct World {
    pub(crate) ca: Authority,
    pub(crate) state: State,
    pub(crate) running: Option<Running>,
    pub(crate) admin: String,
    pub(crate) address: SocketAddr,
    pub(crate) public: SocketAddr,
    client: reqwest::Client,
    pub(crate) store: Store,
    // Keep this field last: the database must be dropped after its users.
    _database: Database,
}

/// A response with its complete body.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the problem type of this error response.
    #[track_caller]
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status.as_u16(), "{self:?}");
        assert!(json["instance"].as_str().unwrap().starts_with("urn:uuid:"), "{self:?}");
        json["type"].as_str().unwrap().strip_prefix("https://bulla.dev/problems/").unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}")).to_str().unwrap()
    }
}

pub(crate) async fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
    (folder, store)
}

/// Returns the protocols of a CA, with default options.
pub(crate) fn issuance(authority: &embedded::Authority, store: &Store, clock: &Clock) -> Issuance {
    let acme = Acme::new(authority.clone(), store.clone(), clock.clone(), AcmeOptions::default()).unwrap();
    Issuance {
        publications: Publications::new(authority.clone()),
        acme,
        est: Est::new(authority.clone(), None, EstOptions::default()),
        scep: Scep::new(authority.clone(), None, ScepOptions::default()),
        authority: authority.clone(),
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(Plan::default()).await
    }

    pub(crate) async fn start_with(plan: Plan) -> Self {
        let store = plan.database.open().await;
        let ca = plan.ca;
        let leaf = ca.leaf(&["127.0.0.1", "bulla.test"]);
        let certificate = server_certificate(&[leaf.der], &leaf.key).unwrap();
        let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), certificate);
        options.public = Some("127.0.0.1:0".parse().unwrap());
        options.client_roots = vec![ca.root.clone()];
        (plan.options)(&mut options);
        let first = access::bootstrap(&store, &plan.clock).await.unwrap().unwrap();
        let mut components = plan.components;
        let (state, world_store) = (State::builder(store.clone(), plan.clock.clone()), store.clone());
        if plan.credentials {
            options.credentials = Some("127.0.0.1:0".parse().unwrap());
            let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), plan.clock.clone());
            let credentials = Credentials::open(store, keystore, plan.clock, CredentialsOptions::default());
            components.credentials = Some(CredHub::new(credentials, CredHubOptions::default()).unwrap());
        }
        let state = (plan.state)(state.components(components)).build();
        let running = Server::start(options, state.clone()).await.unwrap();
        let client = builder(&ca).build().unwrap();
        Self {
            address: running.address,
            public: running.public_address.unwrap(),
            admin: first.expose_secret().to_owned(),
            ca,
            state,
            running: Some(running),
            client,
            store: world_store,
            _database: plan.database,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn builder(&self) -> reqwest::ClientBuilder {
        builder(&self.ca)
    }

    /// Returns a request without authentication.
    pub(crate) fn bare(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, self.url(path))
    }

    /// Creates a request with a token.
    pub(crate) fn with(&self, token: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.bare(method, path).bearer_auth(token)
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        send(self.with(&self.admin, Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> TestResponse {
        send(self.with(&self.admin, Method::POST, path).json(&body)).await
    }

    /// Creates a new token with one grant.
    pub(crate) async fn token(&self, name: &str, role: &str, scope: &str) -> String {
        let body = serde_json::json!({ "name": name, "grants": [{ "role": role, "scope": scope }] });
        let made = self.agreed(self.post("/api/v1/tokens", body).await).await;
        made["token"].as_str().unwrap().to_owned()
    }

    /// Returns the created object. A change that waits for approval is approved by another identity first.
    pub(crate) async fn agreed(&self, answer: TestResponse) -> Value {
        if answer.status == StatusCode::ACCEPTED {
            let change = answer.json();
            let other = access::break_glass(&self.store, &Clock::system(), "a test").await.unwrap();
            let path = format!("/api/v1/changes/{}/approve", change["id"].as_str().unwrap());
            let approve = self.with(other.expose_secret(), Method::POST, &path);
            let applied = send(approve.json(&serde_json::json!({}))).await.expect(200);
            assert_eq!(applied.json()["state"], "applied");
            return change;
        }
        answer.expect(201).json()
    }

    /// Opens a raw TLS connection with ALPN http/1.1.
    pub(crate) async fn raw(&self) -> TlsStream<TcpStream> {
        self.raw_with(b"http/1.1").await
    }

    /// Returns the TLS configuration of a client without a certificate.
    pub(crate) fn tls(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.ca.root.clone())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    pub(crate) async fn raw_with(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut config = self.tls();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("bulla.test").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }
}

pub(crate) async fn send(request: reqwest::RequestBuilder) -> TestResponse {
    TestResponse::of(request.send().await.unwrap()).await
}

fn builder(ca: &Authority) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_der(&ca.root).unwrap()])
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(60))
}

pub(crate) use testbed::until;

/// Returns a PEM certificate signing request (RFC 2986) for one host, with a new key.
pub(crate) fn request_for(name: &str) -> String {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let names = [GeneralName::Dns(name.to_owned())];
    let subject = DistinguishedName::from_text(&format!("CN={name}")).unwrap();
    let tbs = csr::tbs(&subject.der, key.spki(), &[Extension::subject_alt_names(&names)], None);
    let signature = key.sign_now(&tbs).unwrap();
    x509::pem::encode("CERTIFICATE REQUEST", &build::signed(&tbs, &key.algorithm(), &signature))
}
