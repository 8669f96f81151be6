//! Tests with OpenBao: an intermediate in its PKI engine signs and revokes. Covers AppRole logins, tokens that are renewed, expire
//! or are revoked, and the errors for a wrong role, mount or policy.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::free_port;
use issuers::{IssuerError, Order};
use serde_json::{Value, json};
use store::Clock;
use x509::Certificate;
use x509::crl::Reason;

use crate::pebble::openssl_verifies;
use crate::world::{World, order};

const INSTALL: &str = "run .ci/interop, which installs it";
/// The permissions of the AppRole, and no others.
const POLICY: &str = r#"path "team/pki/sign/web" { capabilities = ["update"] }
path "team/pki/sign/absent" { capabilities = ["update"] }
path "team/pki/revoke" { capabilities = ["update"] }"#;
/// The lifetime of the AppRole's tokens in seconds, after login and after renewal.
const TOKEN_SECONDS: u64 = 3_600;

/// A running OpenBao that stores everything in memory. Stops when dropped.
pub(crate) struct OpenBao {
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) url: String,
    root: String,
}

impl Drop for OpenBao {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OpenBao {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let port = free_port();
        let child = Command::new("bao")
            .args(["server", "-dev", "-dev-root-token-id=root", "-dev-no-store-token"])
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .env("HOME", folder.path())
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap_or_else(|error| panic!("bao: {error}; {INSTALL}"));
        let mut bao = Self { child, folder, url: format!("http://127.0.0.1:{port}"), root: String::new() };
        let until = Instant::now() + Duration::from_secs(60);
        while bao.try_run(&["status"]).is_err() {
            let log = || std::fs::read_to_string(bao.folder.path().join("log")).unwrap();
            assert!(Instant::now() < until, "OpenBao is not unsealed: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        bao.mount_pki();
        bao
    }

    fn try_run(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let ran = Command::new("bao")
            .args(arguments)
            .env("HOME", self.folder.path())
            .env("BAO_ADDR", &self.url)
            .env("BAO_TOKEN", "root")
            .env("BAO_FORMAT", "json")
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("bao: {error}; {INSTALL}"));
        if ran.status.success() {
            return Ok(ran.stdout);
        }
        Err(String::from_utf8_lossy(&ran.stderr).into_owned())
    }

    /// Runs a command as administrator. Returns its output as JSON, or null if the output is plain text.
    pub(crate) fn run(&self, arguments: &[&str]) -> Value {
        let out = self.try_run(arguments).unwrap_or_else(|error| panic!("bao {arguments:?}: {error}"));
        serde_json::from_slice(&out).unwrap_or(Value::Null)
    }

    /// Creates a root, an intermediate in its own mount, and a role there.
    fn mount_pki(&mut self) {
        for mount in ["pki", "team/pki"] {
            self.run(&["secrets", "enable", "-path", mount, "-max-lease-ttl=87600h", "pki"]);
        }
        let root = self.run(&["write", "pki/root/generate/internal", "common_name=Bao root", "ttl=87600h"]);
        self.root = root["data"]["certificate"].as_str().unwrap().to_owned();
        let request = self.run(&["write", "team/pki/intermediate/generate/internal", "common_name=Bao team"]);
        let csr = format!("csr={}", request["data"]["csr"].as_str().unwrap());
        let signed = self.run(&["write", "pki/root/sign-intermediate", &csr, "ttl=43800h"]);
        let signed = format!(
            "certificate={}\n{}",
            signed["data"]["certificate"].as_str().unwrap().trim(),
            self.root.trim()
        );
        self.run(&["write", "team/pki/intermediate/set-signed", &signed]);
        let role = ["allowed_domains=example", "allow_subdomains=true", "key_type=any", "max_ttl=72h"];
        self.run(&[&["write", "team/pki/roles/web"], &role[..]].concat());
    }

    /// Returns the login of an AppRole that may sign with the role web and revoke.
    fn approle(&self) -> Value {
        let policy = self.folder.path().join("policy.hcl");
        std::fs::write(&policy, POLICY).unwrap();
        self.run(&["auth", "enable", "approle"]);
        self.run(&["policy", "write", "bulla", policy.to_str().unwrap()]);
        let role = "auth/approle/role/bulla";
        let life = format!("token_ttl={TOKEN_SECONDS}");
        self.run(&["write", role, "token_policies=bulla", &life]);
        let id = self.run(&["read", &format!("{role}/role-id")]);
        let secret = self.run(&["write", "-force", &format!("{role}/secret-id")]);
        json!({"method": "approle", "role_id": id["data"]["role_id"], "secret_id": secret["data"]["secret_id"]})
    }

    fn config(&self, auth: Value) -> Value {
        json!({
            "type": "vault", "url": self.url, "mount": "team/pki", "role": "web", "auth": auth,
            "verify": {"roots": self.root},
        })
    }

    /// Returns OpenBao's data of the valid tokens of the AppRole.
    fn tokens(&self) -> Vec<Value> {
        let accessors = self.run(&["list", "auth/token/accessors"]);
        let facts = accessors.as_array().unwrap().iter().map(|accessor| {
            self.run(&[
                "write",
                "auth/token/lookup-accessor",
                &format!("accessor={}", accessor.as_str().unwrap()),
            ])
        });
        facts.map(|token| token["data"].clone()).filter(|data| data["path"] == "auth/approle/login").collect()
    }

    fn end_tokens(&self) {
        for token in self.tokens() {
            self.run(&["token", "revoke", "-accessor", token["accessor"].as_str().unwrap()]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openbao_approle_signs_with_the_whole_chain_and_revokes() {
    let bao = OpenBao::start();
    let world = World::new().await;
    let issuer = world.add("bao", bao.config(bao.approle())).await;
    assert!(issuer.test().await.unwrap().contains("Bao team"));
    let wish = Order { lifetime_seconds: Some(7_200), ..order("1", &["a.example", "b.example"]) };
    let delivered = issuer.issue(&wish).await.unwrap();
    openssl_verifies(&bao.root, &delivered.chain);
    let leaf = Certificate::parse(&delivered.chain[0]).unwrap();
    assert!((7_140..=7_320).contains(&leaf.not_after.since(leaf.not_before)), "two hours");
    issuer.revoke(&leaf, Reason::KeyCompromise).await.unwrap();
    let serial: Vec<String> = leaf
        .serial
        .to_string()
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8(pair.to_vec()).unwrap())
        .collect();
    let stored = bao.run(&["read", &format!("team/pki/cert/{}", serial.join(":"))]);
    assert_ne!(stored["data"]["revocation_time"], 0, "{stored}");
    issuer.revoke(&leaf, Reason::KeyCompromise).await.unwrap();
    assert_eq!(bao.tokens().len(), 1, "one login serves all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openbao_token_is_renewed_at_half_its_lifetime_or_replaced() {
    let bao = OpenBao::start();
    let clock = Clock::manual(Clock::system().now_us());
    let world = World::with(clock.clone(), Vec::new()).await;
    let issuer = world.add("bao", bao.config(bao.approle())).await;
    issuer.issue(&order("1", &["a.example"])).await.unwrap();
    let [before] = &bao.tokens()[..] else { panic!("not one token") };
    assert_eq!(before["last_renewal"], Value::Null, "{before}");
    clock.advance(Duration::from_secs(TOKEN_SECONDS / 2));
    world.issuers.upkeep().await.unwrap();
    let [renewed] = &bao.tokens()[..] else { panic!("not one token") };
    assert_eq!(renewed["accessor"], before["accessor"]);
    assert!(renewed["last_renewal"].is_string(), "{renewed}");
    // The token was revoked externally: one new login, which the caller does not notice.
    bao.end_tokens();
    issuer.issue(&order("2", &["a.example"])).await.unwrap();
    assert_eq!(bao.tokens().len(), 1);
    // The token was revoked, which is detected at its renewal.
    bao.end_tokens();
    clock.advance(Duration::from_secs(TOKEN_SECONDS / 2));
    world.issuers.upkeep().await.unwrap();
    assert_eq!(bao.tokens().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_openbao_token_is_renewed_until_it_is_revoked() {
    let bao = OpenBao::start();
    let clock = Clock::manual(Clock::system().now_us());
    let world = World::with(clock.clone(), Vec::new()).await;
    bao.approle();
    let made = bao.run(&["token", "create", "-policy=bulla", "-ttl=1h", "-orphan"]);
    let (token, accessor) = (&made["auth"]["client_token"], made["auth"]["accessor"].as_str().unwrap());
    let issuer = world.add("bao", bao.config(json!({"method": "token", "token": token}))).await;
    issuer.issue(&order("1", &["a.example"])).await.unwrap();
    clock.advance(Duration::from_secs(TOKEN_SECONDS / 2));
    world.issuers.upkeep().await.unwrap();
    let facts = bao.run(&["token", "lookup", "-accessor", accessor]);
    assert!(facts["data"]["last_renewal"].is_string(), "{facts}");
    bao.run(&["token", "revoke", "-accessor", accessor]);
    let error = issuer.issue(&order("2", &["a.example"])).await.unwrap_err();
    assert_eq!(error.code(), "denied", "{error}");
    assert!(!error.to_string().contains(token.as_str().unwrap()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openbao_errors_say_the_cause_and_the_remedy() {
    let bao = OpenBao::start();
    let world = World::new().await;
    let approle = bao.approle();
    let issuer = world.add("bao", bao.config(approle.clone())).await;
    let by = |role: &str| Order { profile: Some(role.to_owned()), ..order(role, &["a.example"]) };
    let error = issuer.issue(&by("absent")).await.unwrap_err();
    assert!(matches!(error, IssuerError::Misconfigured { .. }), "{error}");
    assert!(error.to_string().contains("unknown role: absent: check mount and role"), "{error}");
    let error = issuer.issue(&by("unlike")).await.unwrap_err();
    assert_eq!(error.code(), "denied", "the policy names other roles: {error}");
    let error = issuer.issue(&order("1", &["a.elsewhere"])).await.unwrap_err();
    assert_eq!(error.code(), "refused", "{error}");
    assert!(error.to_string().contains("not allowed by this role"), "{error}");

    let mut elsewhere = bao.config(json!({"method": "token", "token": "root"}));
    elsewhere["mount"] = json!("nowhere");
    let issuer = world.add("elsewhere", elsewhere).await;
    let error = issuer.issue(&order("2", &["a.example"])).await.unwrap_err();
    assert!(error.to_string().contains("check mount and role"), "{error}");
    assert_eq!(issuer.test().await.unwrap_err().code(), "misconfigured");

    let mut stranger = approle;
    stranger["secret_id"] = json!("another");
    let issuer = world.add("stranger", bao.config(stranger)).await;
    let error = issuer.issue(&order("3", &["a.example"])).await.unwrap_err();
    assert_eq!(error.code(), "denied", "{error}");
}
