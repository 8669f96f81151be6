//! Tests of Vault and OpenBao with a fake written from their API documentation: login by token, AppRole and Kubernetes, token
//! renewal, signing and revocation.

use std::sync::Arc;
use std::time::Duration;

use issuers::{IssuerError, NewIssuer, Order};
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::Clock;
use x509::{Certificate, UnixTime};

use super::authority_of_tests::{Leaf, TestCa};
use super::fake::{Fake, RecordedRequest, Response};
use super::world::{World, order};

const START_US: i64 = 1_800_000_000 * 1_000_000;

/// The fake's state of tokens.
#[derive(Default)]
struct Server {
    /// Valid tokens.
    tokens: Vec<String>,
    logins: usize,
    renewals: usize,
    renewal_allowed: bool,
}

/// Starts a fake with the paths and formats of <https://openbao.org/api-docs/secret/pki/>, /auth/approle/, /auth/kubernetes/ and
/// /auth/token/.
async fn vault(server: Arc<Mutex<Server>>, ca: Arc<TestCa>, intermediate: Arc<TestCa>) -> Fake {
    let now = UnixTime(START_US / 1_000_000);
    Fake::start(move |asked: &RecordedRequest| {
        let mut server = server.lock();
        let errors = |status, text: &str| Response::json(status, &json!({ "errors": [text] }));
        let auth = |token: &str| {
            Response::json(200, &json!({"auth": {"client_token": token, "lease_duration": 3600, "renewable": true}}))
        };
        if asked.header("x-vault-namespace") != Some("team") || asked.header("x-vault-request") != Some("true") {
            return errors(404, "no handler for route");
        }
        match asked.path.as_str() {
            "/v1/auth/approle/login" => {
                if asked.json() != json!({"role_id": "r", "secret_id": "s3cret-id"}) {
                    return errors(400, "invalid role or secret ID");
                }
                server.logins += 1;
                let token = format!("t{}", server.logins);
                server.tokens.push(token.clone());
                return auth(&token);
            }
            "/v1/auth/kubernetes/login" if asked.json() == json!({"role": "bulla", "jwt": "pod.token"}) => {
                server.tokens.push("k".to_owned());
                return auth("k");
            }
            _ => {}
        }
        let token = asked.header("x-vault-token").unwrap_or_default().to_owned();
        if !server.tokens.contains(&token) {
            return errors(403, "permission denied");
        }
        match asked.path.as_str() {
            "/v1/auth/token/lookup-self" => Response::json(200, &json!({"data": {"ttl": 3600, "renewable": true}})),
            "/v1/auth/token/renew-self" if server.renewal_allowed => {
                server.renewals += 1;
                auth(&token)
            }
            "/v1/auth/token/renew-self" => errors(400, "lease is not renewable"),
            "/v1/team/pki/sign/web" | "/v1/team/pki/sign/other" => {
                let body = asked.json();
                let csr = x509::csr::CertificateRequest::from_pem_or_der(body["csr"].as_str().unwrap().as_bytes());
                let mut leaf = Leaf::of(&csr.unwrap().der, now);
                leaf.common_name = body["common_name"].as_str().map(str::to_owned);
                let pem = x509::pem::encode("CERTIFICATE", &intermediate.sign(&leaf));
                let chain = json!([intermediate.pem(), ca.pem()]);
                Response::json(
                    200,
                    &json!({"data": {"certificate": pem, "issuing_ca": intermediate.pem(), "ca_chain": chain}}),
                )
            }
            "/v1/team/pki/sign/nothing" => errors(400, "unknown role: nothing"),
            "/v1/team/pki/sign/forbidden" => errors(400, "common name a.example not allowed by this role"),
            "/v1/team/pki/sign/sealed" => errors(503, "Vault is sealed"),
            "/v1/team/pki/sign/quota" => {
                errors(429, "request path rate limit quota exceeded").header("retry-after", "9")
            }
            "/v1/team/pki/revoke" => Response::json(200, &json!({"data": {"revocation_time": 1}})),
            "/v1/team/pki/ca/pem" => Response::new(200, ca.pem()),
            _ => errors(404, "no handler for route"),
        }
    })
    .await
}

struct Scene {
    world: World,
    clock: Clock,
    server: Arc<Mutex<Server>>,
    fake: Fake,
    root: Arc<TestCa>,
}

async fn scene() -> Scene {
    let clock = Clock::manual(START_US);
    let world = World::with(clock.clone(), Vec::new()).await;
    let server = Arc::new(Mutex::new(Server { renewal_allowed: true, ..Server::default() }));
    let root = Arc::new(TestCa::root("Vault root", world.now()));
    let intermediate = Arc::new(root.below("Vault intermediate", world.now()));
    let fake = vault(Arc::clone(&server), Arc::clone(&root), intermediate).await;
    Scene { world, clock, server, fake, root }
}

impl Scene {
    /// Returns the number of logins and of renewals.
    fn asked(&self) -> (usize, usize) {
        let server = self.server.lock();
        (server.logins, server.renewals)
    }

    fn config(&self, auth: Value) -> Value {
        json!({
            "type": "vault", "url": self.fake.url(""), "mount": "team/pki", "role": "web", "namespace": "team",
            "auth": auth, "verify": {"roots": self.root.pem()},
        })
    }
}

fn approle() -> Value {
    json!({"method": "approle", "role_id": "r", "secret_id": "s3cret-id"})
}

#[tokio::test]
async fn vault_approle_signs_and_revokes() {
    let scene = scene().await;
    let issuer = scene.world.add("vault", scene.config(approle())).await;
    let wish = Order { lifetime_seconds: Some(7_200), ..order("k", &["a.example", "10.0.0.1"]) };
    let delivered = issuer.issue(&wish).await.unwrap();
    assert_eq!(delivered.chain.len(), 2, "leaf and intermediate");
    let sign = scene.fake.seen().into_iter().find(|asked| asked.path.ends_with("/sign/web")).unwrap().json();
    assert_eq!(
        (&sign["alt_names"], &sign["ip_sans"], &sign["ttl"]),
        (&json!("a.example"), &json!("10.0.0.1"), &json!("7200s"))
    );
    let leaf = Certificate::parse(&delivered.chain[0]).unwrap();
    issuer.revoke(&leaf, x509::crl::Reason::Superseded).await.unwrap();
    let revoke = scene.fake.seen().pop().unwrap().json();
    let serial = revoke["serial_number"].as_str().unwrap().replace(':', "");
    assert_eq!(serial, leaf.serial.to_string());
    assert!(issuer.test().await.unwrap().contains("Vault root"));
    assert_eq!(scene.server.lock().logins, 1, "one login serves all");
    let other = Order { profile: Some("other".to_owned()), ..order("k2", &["a.example"]) };
    issuer.issue(&other).await.unwrap();
}

#[tokio::test]
async fn vault_token_is_renewed_at_half_its_lifetime_or_replaced_when_lost() {
    let scene = scene().await;
    let issuer = scene.world.add("vault", scene.config(approle())).await;
    issuer.issue(&order("1", &["a.example"])).await.unwrap();
    scene.clock.advance(Duration::from_secs(1_799));
    issuer.issue(&order("2", &["a.example"])).await.unwrap();
    assert_eq!(scene.asked(), (1, 0));
    scene.clock.advance(Duration::from_secs(1));
    scene.world.issuers.upkeep().await.unwrap();
    assert_eq!(scene.asked(), (1, 1));
    // Beyond the maximum renewal time: a new login.
    scene.server.lock().renewal_allowed = false;
    scene.clock.advance(Duration::from_secs(1_800));
    issuer.issue(&order("3", &["a.example"])).await.unwrap();
    assert_eq!(scene.server.lock().logins, 2);
    // The token was revoked externally: one new login, which the caller does not notice.
    scene.server.lock().tokens.clear();
    issuer.issue(&order("4", &["a.example"])).await.unwrap();
    assert_eq!(scene.server.lock().logins, 3);
}

#[tokio::test]
async fn configured_vault_token_is_renewed() {
    let scene = scene().await;
    scene.server.lock().tokens.push("given".to_owned());
    let issuer = scene.world.add("vault", scene.config(json!({"method": "token", "token": "given"}))).await;
    issuer.issue(&order("1", &["a.example"])).await.unwrap();
    scene.clock.advance(Duration::from_secs(1_800));
    scene.world.issuers.upkeep().await.unwrap();
    assert_eq!(scene.server.lock().renewals, 1);
    scene.server.lock().tokens.clear();
    let error = issuer.issue(&order("2", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::Denied { .. }), "{error}");
    assert!(!error.to_string().contains("given"));
}

#[tokio::test]
async fn vault_login_uses_the_kubernetes_service_account_token() {
    let mut scene = scene().await;
    let pod = scene.world.folder.path().join("pod");
    std::fs::create_dir(&pod).unwrap();
    std::fs::write(pod.join("token"), "pod.token\n").unwrap();
    std::fs::write(scene.world.folder.path().join("master.key"), "pod.token\n").unwrap();
    std::os::unix::fs::symlink("../master.key", pod.join("link")).unwrap();
    let auth = |file: &str| {
        let file = pod.join(file);
        scene.config(json!({"method": "kubernetes", "role": "bulla", "token_file": file}))
    };
    let (token, key, above, link) =
        (auth("token"), auth("../master.key"), auth("/etc/hostname"), auth("link"));
    // Unless the host allows it, a request cannot name a file.
    let create = async |world: &World, config: &Value| {
        let new = NewIssuer { name: "vault".to_owned(), config: config.clone(), enabled: true };
        world.issuers.create(new, "user:operator").await
    };
    for config in [&token, &key, &above] {
        let error = create(&scene.world, config).await.unwrap_err();
        assert!(error.to_string().contains("files.readable_folders"), "{error}");
    }
    scene.world = scene.world.with_readable("pod");
    for config in [&key, &above] {
        assert!(create(&scene.world, config).await.is_err(), "{config}");
    }
    let issuer = scene.world.add("vault", token).await;
    issuer.issue(&order("1", &["a.example"])).await.unwrap();
    // A symlink that leads out of the directory is not followed.
    let issuer = scene.world.add("link", link).await;
    let error = issuer.issue(&order("1", &["a.example"])).await.unwrap_err();
    assert!(error.to_string().contains("files.readable_folders"), "{error}");
    // The host withdraws the permission. The issuer reports why it cannot continue.
    let back = scene.world.with_readable("elsewhere");
    let shown = back.issuers.find_named("vault").await.unwrap().unwrap();
    assert!(shown.problem.unwrap().to_string().contains("files.readable_folders"));
}

#[tokio::test]
async fn vault_refusals_and_outages_are_distinguished() {
    let scene = scene().await;
    let issuer = scene.world.add("vault", scene.config(approle())).await;
    for (role, code) in [
        ("forbidden", "refused"),
        ("sealed", "unavailable"),
        ("quota", "rate_limited"),
        ("nothing", "misconfigured"),
    ] {
        let wish = Order { profile: Some(role.to_owned()), ..order(role, &["a.example"]) };
        let error = issuer.issue(&wish).await.unwrap_err();
        assert_eq!(error.code(), code, "{role}: {error}");
    }
    let wish = Order { profile: Some("../../sys/seal".to_owned()), ..order("x", &["a.example"]) };
    assert_eq!(issuer.issue(&wish).await.unwrap_err().code(), "misconfigured");
    let wrong = json!({"method": "approle", "role_id": "r", "secret_id": "wrong"});
    let issuer = scene.world.add("wrong", scene.config(wrong)).await;
    assert_eq!(issuer.issue(&order("x", &["a.example"])).await.unwrap_err().code(), "denied");
}
