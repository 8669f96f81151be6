//! Tests with step-ca: signing with one-time tokens, renewal over mutual TLS, revocation and the pinned root.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::free_port;
use issuers::{IssuerError, Order};
use keys::{KeyType, PrivateKey, Secret, Signer};
use serde_json::{Value, json};
use x509::crl::Reason;
use x509::{Certificate, GeneralName};

use crate::authority_of_tests::{TestCa, request_with};
use crate::pebble::openssl_verifies;
use crate::world::{World, order};

/// A running step-ca. Stops when dropped.
struct StepCa {
    child: Child,
    folder: tempfile::TempDir,
    url: String,
    root: TestCa,
    provisioner: PrivateKey,
}

impl Drop for StepCa {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the coordinates of a P-256 key in base64url.
fn point(key: &PrivateKey) -> (String, String) {
    use base64::Engine as _;
    let spki = key.spki();
    let coordinates = &spki[spki.len() - 64..];
    let encode = |part: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(part);
    (encode(&coordinates[..32]), encode(&coordinates[32..]))
}

impl StepCa {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now = x509::UnixTime(store::Clock::system().now_seconds());
        let root = TestCa::root("step root", now);
        let intermediate = root.below("step intermediate", now);
        let provisioner = PrivateKey::generate(KeyType::P256).unwrap();
        let (x, y) = point(&provisioner);
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        write("root.pem", &root.pem());
        write("ca.pem", &intermediate.pem());
        write("ca.key", &intermediate.key.to_pkcs8_pem());
        let port = free_port();
        let config = json!({
            "root": path("root.pem"), "crt": path("ca.pem"), "key": path("ca.key"),
            "address": format!("127.0.0.1:{port}"), "dnsNames": ["127.0.0.1"],
            "db": {"type": "badgerv2", "dataSource": path("db")},
            "authority": {"provisioners": [{
                "type": "JWK", "name": "bulla",
                "key": {"use": "sig", "kty": "EC", "kid": "bulla-key", "crv": "P-256", "alg": "ES256", "x": x, "y": y},
            }]},
        });
        write("ca.json", &config.to_string());
        let log = std::fs::File::create(path("log")).unwrap();
        let child = Command::new("step-ca")
            .arg(path("ca.json"))
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap_or_else(|error| panic!("step-ca: {error}; run .ci/interop, which builds it"));
        let step = Self { child, folder, url: format!("https://127.0.0.1:{port}"), root, provisioner };
        let until = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || std::fs::read_to_string(step.folder.path().join("log")).unwrap();
            assert!(Instant::now() < until, "step-ca does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        step
    }

    fn config(&self, fingerprint: &str, key: &str) -> Value {
        json!({
            "type": "step_ca", "url": self.url, "root_fingerprint": fingerprint,
            "provisioner": {"name": "bulla", "key_id": "bulla-key", "key": key},
            "verify": {"roots": self.root.pem()},
        })
    }

    fn fingerprint(&self) -> String {
        Certificate::parse(&self.root.der).unwrap().fingerprint.to_string()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_ca_signs_revokes_and_renews_over_mutual_tls() {
    let step = StepCa::start();
    let world = World::new().await;
    let pem = step.provisioner.to_pkcs8_pem();
    let issuer = world.add("step", step.config(&step.fingerprint(), &pem)).await;
    assert!(issuer.test().await.unwrap().contains("provisioner bulla has the configured key"));
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let names = ["a.example", "b.example", "10.0.0.1"];
    let wish = Order {
        csr_der: request_with(&key, &names),
        names: names.iter().map(|name| GeneralName::parse(name).unwrap()).collect(),
        lifetime_seconds: Some(3_600),
        ..order("1", &names)
    };
    let delivered = issuer.issue(&wish).await.unwrap();
    openssl_verifies(&step.root.pem(), &delivered.chain);
    let leaf = Certificate::parse(&delivered.chain[0]).unwrap();
    assert!((3_540..=3_720).contains(&leaf.not_after.since(leaf.not_before)), "an hour");
    let renewed = issuer.renew_with_key(&delivered.chain, &Secret::from(key.to_pkcs8_pem())).await.unwrap();
    let renewed = Certificate::parse(&renewed.chain[0]).unwrap();
    assert_eq!(renewed.public_key.spki, leaf.public_key.spki);
    assert_ne!(renewed.serial, leaf.serial);
    issuer.revoke(&leaf, Reason::KeyCompromise).await.unwrap();
    issuer.revoke(&leaf, Reason::KeyCompromise).await.unwrap();
    let error = issuer.renew_with_key(&delivered.chain, &Secret::from(key.to_pkcs8_pem())).await.unwrap_err();
    assert_eq!(error.code(), "denied", "a revoked certificate renews nothing: {error}");
    let long = Order { lifetime_seconds: Some(400 * 86_400), ..order("2", &["a.example"]) };
    let error = issuer.issue(&long).await.unwrap_err();
    assert_eq!(error.code(), "refused", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_step_ca_root_or_provisioner_key_is_detected() {
    let step = StepCa::start();
    let world = World::new().await;
    let other = PrivateKey::generate(KeyType::P256).unwrap().to_pkcs8_pem();
    let stranger = world.add("stranger", step.config(&step.fingerprint(), &other)).await;
    let error = stranger.test().await.unwrap_err();
    assert!(error.to_string().contains("is not the configured key"), "{error}");
    assert_eq!(stranger.issue(&order("1", &["a.example"])).await.unwrap_err().code(), "denied");
    let elsewhere = world.add("elsewhere", step.config(&"ab".repeat(32), &other)).await;
    let error = elsewhere.issue(&order("1", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::Misconfigured { .. } | IssuerError::Lying { .. }), "{error}");
}
