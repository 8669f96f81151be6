//! The life of a certificate, driven by a client that retries. The certificate is created, renewed, revoked and replaced, and
//! deployed each time. The module also has the checks that must hold afterwards, whichever process was killed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keys::PrivateKey;
use serde_json::{Value, json};
use x509::Certificate;

use super::super::House;
use super::{Points, Shim, Side};
use crate::world::{describe, run};

/// Maximum time until the system is idle, on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A test server with an agent.
pub(super) struct Estate {
    pub(super) house: House,
    pub(super) agent: String,
    pub(super) falls: u32,
    /// The issuer, unless the CA issues directly: an ACME server whose client is Bulla.
    issuer: Option<&'static str>,
}

impl Estate {
    /// `server` selects the process to attack: the server, or the agent.
    pub(super) fn new(database: Option<String>, server: bool) -> Self {
        let mut house = House::prepared("", database);
        house.put(Shim::new(&house.path("")), server);
        house.start();
        let agent = enroll(&house);
        Self { house, agent, falls: 0, issuer: None }
    }

    /// Uses a test server without an agent.
    pub(super) fn over(house: House) -> Self {
        Self { house, agent: String::new(), falls: 0, issuer: None }
    }

    /// Makes the server a client of its own ACME server, so that both sides are killed at the same time.
    pub(super) fn issue_by_acme(&mut self) {
        const NAME: &str = "acme";
        let config = json!({
            "type": "acme", "directory": format!("{}/acme/directory", self.house.url()), "terms_agreed": true,
            "http": { "roots": std::fs::read_to_string(self.house.root()).unwrap() },
            "listen": { "http01": format!("127.0.0.1:{}", self.house.http_port) },
        });
        let document = json!({ "name": NAME, "config": config });
        std::fs::write(self.house.path("issuer.json"), document.to_string()).unwrap();
        self.house.does(&["issuer", "create", "--file", "issuer.json"]);
        self.issuer = Some(NAME);
    }

    /// Runs the first part under attack, until the first version is deployed. Returns the number of kill points.
    pub(super) fn begin(&mut self, name: &str, (points, at, side): (&dyn Points, u64, Side)) -> u64 {
        let target = target(&self.house, &self.agent, name);
        points.arm(at, side);
        self.create(name, &target);
        self.rest(name, 1);
        let counted = points.counted();
        self.check(name);
        counted
    }

    /// Starts the server again after a kill, when every lease it held has expired.
    pub(super) fn raise(&mut self) {
        self.falls += 1;
        self.house.shim().past_leases();
        self.house.start();
    }

    /// Returns the JSON that a command prints. `None`: the server was killed meanwhile.
    pub(super) fn try_json(&mut self, arguments: &[&str]) -> Option<Value> {
        let output = run(self.house.bulla(arguments).args(["--output", "json"]));
        if output.status.success() {
            return Some(serde_json::from_slice(&output.stdout).unwrap());
        }
        assert!(self.house.fell(), "bulla {}: {}", arguments.join(" "), describe(&output));
        None
    }

    /// Like [`Self::try_json`], but restarts the server and retries until there is an answer.
    pub(super) fn json_with_retry(&mut self, arguments: &[&str]) -> Value {
        loop {
            match self.try_json(arguments) {
                Some(value) => return value,
                None => self.raise(),
            }
        }
    }

    /// Runs one whole certificate life.
    pub(super) fn live(&mut self, name: &str) {
        let points = self.house.shim().clone();
        self.live_attacked(name, (&points, 0, Side::Before));
    }

    /// Runs one whole certificate life under attack. Returns the number of kill points.
    pub(super) fn live_attacked(&mut self, name: &str, (points, at, side): (&dyn Points, u64, Side)) -> u64 {
        let target = target(&self.house, &self.agent, name);
        points.arm(at, side);
        self.create(name, &target);
        self.rest(name, 1);
        self.request(name, &["cert", "renew", name], 2);
        self.request(name, &["cert", "revoke", name, "--reason", "keyCompromise", "--replace"], 3);
        let counted = points.counted();
        self.check(name);
        let revoked = self.versions(name).into_iter().map(|row| row["revoked_at"].is_string());
        assert!(revoked.eq([false, true, false]), "{name}: the replaced one is revoked");
        counted
    }

    /// Creates the certificate, and retries until it exists. After a lost answer it lists the certificates first.
    fn create(&mut self, name: &str, target: &str) {
        let mut arguments = vec!["cert", "create", name, "--target", target];
        arguments.extend(self.issuer.iter().flat_map(|issuer| ["--issuer", issuer]));
        while self.try_json(&arguments).is_none() {
            self.raise();
            let all = self.json_with_retry(&["cert", "list", "--all"]);
            if rows(&all).iter().any(|row| row["name"] == name) {
                return;
            }
        }
    }

    /// Sends a request that makes a new version, and waits for the version. After a lost answer it waits for the result, and
    /// retries if there is none.
    fn request(&mut self, name: &str, arguments: &[&str], versions: usize) {
        while self.try_json(arguments).is_none() {
            self.raise();
            self.settle(name);
            if self.versions(name).len() == versions {
                return;
            }
        }
        self.rest(name, versions);
    }

    /// Waits until the certificate is idle, and checks its number of versions.
    pub(super) fn rest(&mut self, name: &str, versions: usize) {
        self.settle(name);
        let found = self.versions(name);
        assert_eq!(found.len(), versions, "{name}: {found:?}");
    }

    pub(super) fn settle(&mut self, name: &str) {
        /// After this time without progress the clock is moved, so that a delayed retry becomes due.
        const TURN: Duration = Duration::from_secs(5);
        let began = Instant::now();
        let mut turn = Instant::now();
        loop {
            if self.issuer.is_some() && turn.elapsed() > TURN {
                self.house.shim().past_leases();
                turn = Instant::now();
            }
            match self.at_rest(name) {
                Some(true) => return,
                Some(false) => std::thread::sleep(testbed::pause(began)),
                None => self.raise(),
            }
            if began.elapsed() > TIMEOUT {
                let (shown, jobs) = (self.try_json(&["cert", "show", name]), self.try_json(&["job", "list"]));
                panic!("{name} does not come to rest: {shown:#?}\n{jobs:#?}");
            }
        }
    }

    /// Returns whether the certificate is active with no open job. Runs the agent where needed. `None`: the server was killed.
    fn at_rest(&mut self, name: &str) -> Option<bool> {
        let shown = self.try_json(&["cert", "show", name])?;
        if shown["status"] == "deploying" || shown["status"] == "awaiting_csr" {
            self.agent_works()?;
        }
        let jobs = self.try_json(&["job", "list"])?;
        let ended = ["planned", "done", "cancelled"];
        let of_it = rows(&jobs).iter().filter(|job| job["name"] == name);
        let open = of_it.filter(|job| !ended.iter().any(|state| job["state"] == *state)).count();
        Some(open == 0 && shown["status"] == "active")
    }

    fn agent_works(&mut self) -> Option<()> {
        let output = run(&mut agent(&self.house, "work-once"));
        if output.status.success() {
            return Some(());
        }
        assert!(self.house.fell(), "{}", describe(&output));
        None
    }

    fn versions(&mut self, name: &str) -> Vec<Value> {
        rows(&self.json_with_retry(&["cert", "versions", name, "--all"])).clone()
    }

    /// Checks an idle certificate. Each certificate that the CA issued for it is recorded once as a version. The newest version is
    /// deployed with its key.
    pub(super) fn check(&mut self, name: &str) {
        let fingerprints = |rows: &[Value]| {
            let mut all: Vec<String> =
                rows.iter().map(|row| row["fingerprint"].as_str().unwrap().to_owned()).collect();
            all.sort();
            all
        };
        let versions = self.versions(name);
        let source = self.issuer.unwrap_or("lifecycle");
        let issued = self.json_with_retry(&["cert", "issued", "--source", source, "--all"]);
        let issued: Vec<Value> =
            rows(&issued).iter().filter(|row| row["names"] == json!([name])).cloned().collect();
        assert_eq!(fingerprints(&issued), fingerprints(&versions), "{name}: issued and recorded");
        let now = self.json_with_retry(&["cert", "show", name])["current"]["fingerprint"].clone();
        assert_eq!(now, versions[0]["fingerprint"], "{name}");
        assert_eq!(deployed(&self.house, name), Ok(now.as_str().unwrap().to_owned()), "{name}");
    }

    /// Checks the whole server: the audit log is valid, and no job is running.
    pub(super) fn verify(&mut self) {
        let audit = self.json_with_retry(&["audit", "verify"]);
        assert_eq!(audit["good"], true, "{audit}");
        let running = self.json_with_retry(&["job", "list", "--state", "running"]);
        assert!(rows(&running).is_empty(), "{running}");
    }
}

pub(super) fn rows(listed: &Value) -> &Vec<Value> {
    listed["rows"].as_array().unwrap()
}

/// Returns `bulla agent VERB` for the test agent.
pub(super) fn agent(house: &House, verb: &str) -> std::process::Command {
    let mut command = house.bulla(&["agent", verb, "--state", &house.path("agent").display().to_string()]);
    if verb == "work-once" {
        command.args(["--policy", &policy(house)]);
    }
    command
}

/// Writes a policy that lets the server write the files of [`target`].
fn policy(house: &House) -> String {
    let path = house.path("agent.toml");
    if !path.exists() {
        let rule = format!("[[files]]\npath = \"{}/\"\n", house.path("deployed").display());
        std::fs::write(&path, rule).unwrap();
    }
    path.display().to_string()
}

/// Returns the arguments that enrol the agent.
pub(super) fn enrolling(house: &House, token: &str) -> Vec<String> {
    let root = house.root().display().to_string();
    ["--server", &house.url(), "--token", token, "--ca", &root, "--name", "web-1"].map(str::to_owned).to_vec()
}

pub(super) fn enroll(house: &House) -> String {
    let token = house.json(&["agent", "token"])["token"].as_str().unwrap().to_owned();
    super::does(agent(house, "enroll").args(enrolling(house, &token)));
    house.json(&["agent", "list"])["rows"][0]["id"].as_str().unwrap().to_owned()
}

/// Returns the folder that a certificate is deployed to.
pub(super) fn deployment_folder(house: &House, name: &str) -> PathBuf {
    house.path("deployed").join(name)
}

/// Creates a target of two files, chain and key, in a folder for this certificate only.
pub(super) fn target(house: &House, agent: &str, name: &str) -> String {
    let folder = deployment_folder(house, name);
    std::fs::create_dir_all(&folder).unwrap();
    let at = |file: &str| folder.join(file).display().to_string();
    let files =
        json!({ "type": "files", "fullchain": { "path": at("full.pem") }, "key": { "path": at("key.pem") } });
    let document = json!({ "name": name, "agent": agent, "target": files });
    std::fs::write(house.path("target.json"), document.to_string()).unwrap();
    house.json(&["target", "create", "--file", "target.json"])["id"].as_str().unwrap().to_owned()
}

/// Returns the fingerprint of the deployed certificate if its key matches. Otherwise returns an error.
pub(super) fn deployed(house: &House, name: &str) -> Result<String, String> {
    let folder = deployment_folder(house, name);
    let (certificate, key) = (whole_certificate(&folder)?, whole_key(&folder)?);
    match (certificate, key) {
        (Some(certificate), Some(key)) if certificate.public_key.spki_sha256 == key.spki_hash() => {
            Ok(certificate.fingerprint.to_string())
        }
        (None, None) => Err("the secret does not exist yet".to_owned()),
        _ => Err("certificate and key do not fit".to_owned()),
    }
}

/// Returns the deployed certificate. A partly written file is an error.
pub(super) fn whole_certificate(folder: &Path) -> Result<Option<Certificate>, String> {
    let Ok(text) = std::fs::read(folder.join("full.pem")) else { return Ok(None) };
    let first = x509::pem::certificates(&text).next().ok_or("full.pem holds no whole certificate")?;
    Certificate::parse(&first.1).map(Some).map_err(|error| format!("full.pem: {error}"))
}

/// Returns the deployed key. A partly written file is an error.
pub(super) fn whole_key(folder: &Path) -> Result<Option<PrivateKey>, String> {
    let Ok(text) = std::fs::read_to_string(folder.join("key.pem")) else { return Ok(None) };
    PrivateKey::from_pem(&text).map(Some).map_err(|error| format!("key.pem: {error}"))
}
