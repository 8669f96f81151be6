//! A rolling upgrade: three nodes on one database are replaced one after the other, while ACME clients order certificates.
//!
//! `BULLA_PREVIOUS_BINARY` names the binary of the previous release: the nodes then begin with it. Without it the tested binary is the
//! previous release, and the test migrates the database as a newer release would: an additional column in every table.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet::free_port;
use keys::{KeyType, PrivateKey, Signer as _};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use store::testing::Cluster;
use x509::GeneralName;
use x509::build::{self, Extension};

use super::House;

/// Clients that order at the same time.
const CLIENTS: u64 = 4;
/// Orders that must succeed in each phase of the upgrade.
const ORDERS: u64 = 8;
/// Maximum polls of an object, each after a pause. Only a failed test reaches it.
const POLLS_MAX: u32 = 600;
const POLL_PAUSE: Duration = Duration::from_millis(100);

/// What a newer release does to the schema: it records a migration, and adds a column to every table, one transaction for each.
const NEWER_MIGRATION: &str = "DO $$ DECLARE name text; BEGIN
    INSERT INTO schema_migrations VALUES (9000, 'newer', 'x', 0);
    COMMIT;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_migrations' LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN of_a_newer_release BIGINT', name);
        COMMIT;
    END LOOP;
END $$";

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A load balancer for TCP: the first node that accepts connections gets a connection.
fn balance(port: u16, nodes: Vec<u16>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let order = (0..nodes.len()).map(|at| nodes[(number + at) % nodes.len()]);
            let Some(node) = order.map(|node| TcpStream::connect(("127.0.0.1", node))).find_map(Result::ok)
            else {
                continue;
            };
            forward(client.try_clone().unwrap(), node.try_clone().unwrap());
            forward(node, client);
        }
    });
}

/// Copies bytes until the end of a stream, then ends the other one.
fn forward(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        // A connection that breaks ends the other one like a normal end.
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}

/// Answers http-01 validations of every account: `tokens` has the key authorizations.
fn prove(port: u16, tokens: Tokens) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 2_048];
            let length = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let token = head.split(' ').nth(1).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            let known = tokens.lock().unwrap_or_else(PoisonError::into_inner);
            let body = known.iter().find(|one| one.split('.').next() == Some(token)).cloned();
            let body = body.unwrap_or_default();
            let length = body.len();
            // The node may have ended.
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
}

type Tokens = Arc<Mutex<Vec<String>>>;

/// Progress of all clients.
#[derive(Default)]
struct Progress {
    orders: AtomicU64,
    retries: AtomicU64,
    stop: AtomicBool,
}

/// An ACME client (RFC 8555). It repeats a request once if its connection broke, and once with a new nonce (section 6.5), as clients
/// do. Any other failure ends the test.
struct AcmeClient {
    http: reqwest::Client,
    directory: Value,
    pair: EcdsaKeyPair,
    kid: String,
    nonce: String,
    tokens: Tokens,
    progress: Arc<Progress>,
}

struct Reply {
    location: String,
    body: Vec<u8>,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl AcmeClient {
    async fn registered(url: &str, root: &[u8], tokens: Tokens, progress: Arc<Progress>) -> Self {
        let roots = reqwest::Certificate::from_pem_bundle(root).unwrap();
        let http = reqwest::Client::builder().tls_certs_only(roots).no_proxy().build().unwrap();
        let found = http.get(format!("{url}/acme/directory")).send().await.unwrap().bytes().await.unwrap();
        let directory = serde_json::from_slice(&found).unwrap();
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let (kid, nonce) = (String::new(), String::new());
        let mut client = Self { http, directory, pair, kid, nonce, tokens, progress };
        let account = json!({ "termsOfServiceAgreed": true });
        client.kid = client.post(&text(&client.directory["newAccount"]), &account.to_string()).await.location;
        client
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"crv": "P-256", "kty": "EC", "x": b64(x), "y": b64(y)})
    }

    fn signed(&self, url: &str, payload: &str) -> String {
        let mut header = json!({"alg": "ES256", "nonce": self.nonce, "url": url});
        match self.kid.as_str() {
            "" => header["jwk"] = self.jwk(),
            kid => header["kid"] = json!(kid),
        }
        let (protected, payload) = (b64(header.to_string()), b64(payload));
        let signature = self.pair.sign(&SystemRandom::new(), format!("{protected}.{payload}").as_bytes());
        json!({"protected": protected, "payload": payload, "signature": b64(signature.unwrap())}).to_string()
    }

    /// Sends a request, and once more if the connection breaks.
    async fn send(&self, method: Method, url: &str, body: String) -> Result<reqwest::Response, String> {
        let request = || {
            let request =
                self.http.request(method.clone(), url).header("content-type", "application/jose+json");
            request.body(body.clone()).send()
        };
        match request().await {
            Err(error) => {
                self.progress.retries.fetch_add(1, Ordering::Relaxed);
                request().await.map_err(|retry_error| format!("{url}: {error}, then {retry_error}"))
            }
            done => done.map_err(|error| error.to_string()),
        }
    }

    async fn post(&mut self, url: &str, payload: &str) -> Reply {
        if self.nonce.is_empty() {
            let head =
                self.send(Method::HEAD, &text(&self.directory["newNonce"]), String::new()).await.unwrap();
            self.nonce = head.headers()["replay-nonce"].to_str().unwrap().to_owned();
        }
        for attempt in 0..2 {
            let response = self.send(Method::POST, url, self.signed(url, payload)).await.unwrap();
            let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            let location = header("location").unwrap_or_default().to_owned();
            self.nonce = header("replay-nonce").expect("a nonce").to_owned();
            let status = response.status();
            let body = response.bytes().await.unwrap().to_vec();
            if status.is_success() {
                return Reply { location, body };
            }
            let problem = String::from_utf8_lossy(&body).into_owned();
            let other_nonce = status == StatusCode::BAD_REQUEST && problem.contains("badNonce");
            assert!(other_nonce && attempt == 0, "{url}: {status} {problem}");
            self.progress.retries.fetch_add(1, Ordering::Relaxed);
        }
        unreachable!("the second attempt returns or fails")
    }

    async fn order(&mut self, name: &str) {
        let wanted = json!({"identifiers": [{"type": "dns", "value": name}]}).to_string();
        let made = self.post(&text(&self.directory["newOrder"]), &wanted).await;
        let order = made.json();
        let authorization = text(&order["authorizations"][0]);
        let found = self.post(&authorization, "").await.json();
        let challenges = found["challenges"].as_array().unwrap();
        let challenge = challenges.iter().find(|one| one["type"] == "http-01").unwrap();
        let key = authority::acme::jose::AccountKey::from_jwk(&self.jwk()).unwrap();
        let proof = format!("{}.{}", text(&challenge["token"]), key.thumbprint_text());
        self.tokens.lock().unwrap().push(proof);
        self.post(&text(&challenge["url"]), "{}").await;
        self.settled(&authorization, "pending").await;
        let ready = self.settled(&made.location, "pending").await;
        assert_eq!(ready["status"], "ready", "{ready}");
        let csr = json!({"csr": b64(certificate_request(name))}).to_string();
        self.post(&text(&order["finalize"]), &csr).await;
        let done = self.settled(&made.location, "processing").await;
        assert_eq!(done["status"], "valid", "{done}");
        let chain = self.post(&text(&done["certificate"]), "").await.body;
        assert!(chain.starts_with(b"-----BEGIN CERTIFICATE-----"));
        self.progress.orders.fetch_add(1, Ordering::Relaxed);
    }

    /// Polls an object until its status is no longer `passing`, and returns the object.
    async fn settled(&mut self, url: &str, passing: &str) -> Value {
        for _ in 0..POLLS_MAX {
            let found = self.post(url, "").await.json();
            if found["status"] != passing {
                return found;
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
        panic!("{url} stays {passing}")
    }
}

fn certificate_request(name: &str) -> Vec<u8> {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let extensions = [Extension::subject_alt_names(&[GeneralName::Dns(name.to_owned())]).critical(true)];
    let tbs = x509::csr::tbs(&x509::DistinguishedName::empty().der, key.spki(), &extensions, None);
    build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap())
}

async fn orders(url: String, root: Vec<u8>, client: u64, tokens: Tokens, progress: Arc<Progress>) {
    let mut acme = AcmeClient::registered(&url, &root, tokens, Arc::clone(&progress)).await;
    let mut number = 0_u64;
    while !progress.stop.load(Ordering::Relaxed) {
        number += 1;
        acme.order(&format!("n{number}.client-{client}.shop.example")).await;
    }
}

/// Creates three nodes with the same address for clients and the same master key, and starts them.
fn three_nodes(database: &str, url: &str, validation_port: u16, previous: Option<&PathBuf>) -> Vec<House> {
    let mut nodes: Vec<House> = Vec::new();
    for _ in 0..3 {
        let mut node = House::prepared("", Some(database.to_owned()));
        node.run_version(previous.cloned());
        node.environment("BULLA_SERVER_URL", url);
        node.environment("BULLA_ACME_VALIDATION_HTTP_PORT", &validation_port.to_string());
        if let Some(first) = nodes.first() {
            std::fs::create_dir(node.path("data")).unwrap();
            std::fs::copy(first.path("data/master.key"), node.path("data/master.key")).unwrap();
        }
        node.start();
        nodes.push(node);
    }
    nodes
}

#[test]
fn three_nodes_are_upgraded_one_by_one_without_a_failed_acme_request() {
    let cluster = Cluster::start();
    let database = cluster.database().to_string();
    let (port, validation_port) = (free_port(), free_port());
    let url = format!("https://localhost:{port}");
    let previous = std::env::var_os("BULLA_PREVIOUS_BINARY").map(PathBuf::from);
    let mut nodes = three_nodes(&database, &url, validation_port, previous.as_ref());
    balance(port, nodes.iter().map(|node| node.port).collect());
    let (tokens, progress) = (Tokens::default(), Arc::<Progress>::default());
    prove(validation_port, Arc::clone(&tokens));
    let root = std::fs::read(nodes[0].root()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            runtime.spawn(orders(url.clone(), root.clone(), client, tokens.clone(), Arc::clone(&progress)))
        })
        .collect();
    let more_orders = |phase: &str| {
        let before = progress.orders.load(Ordering::Relaxed);
        testbed::until_blocking(phase, || {
            let ended = clients.iter().any(tokio::task::JoinHandle::is_finished);
            ended || progress.orders.load(Ordering::Relaxed) >= before + ORDERS
        });
        assert!(!clients.iter().any(tokio::task::JoinHandle::is_finished), "a request failed: {phase}");
    };
    more_orders("before the upgrade");
    if previous.is_none() {
        assert!(cluster.psql("bulla_1", NEWER_MIGRATION), "the schema of a newer release");
        more_orders("after the migration");
    }
    for (number, node) in nodes.iter_mut().enumerate() {
        assert_eq!(node.stop(), Some(0), "node {number} stops in good order");
        more_orders(&format!("without node {number}"));
        node.run_version(None);
        node.start();
        more_orders(&format!("with the new node {number}"));
    }
    progress.stop.store(true, Ordering::Relaxed);
    for client in clients {
        runtime.block_on(client).expect("no request failed beyond a retry");
    }
    let (done, retries) = (progress.orders.load(Ordering::Relaxed), progress.retries.load(Ordering::Relaxed));
    println!("{done} orders, {retries} retries");
    let issued = nodes[0].json(&["audit", "list", "--action", "certificate.issue", "--all"]);
    let by_acme = issued["rows"].as_array().unwrap().iter();
    let by_acme = by_acme.filter(|row| row["actor"].as_str().unwrap().starts_with("acme:")).count();
    assert_eq!(by_acme as u64, done, "each order has one certificate");
}
