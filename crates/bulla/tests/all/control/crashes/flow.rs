//! A certificate's life as a client drives it who does not give up: created, renewed, revoked and replaced, brought to
//! its files each time; and what has to hold when it is over, whatever fell meanwhile.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keys::PrivateKey;
use serde_json::{Value, json};
use x509::Certificate;

use super::super::House;
use super::{Points, Shim, Side};
use crate::world::{describe, run};

/// For a system to come to rest, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A house with an agent in it.
pub(super) struct Estate {
    pub(super) house: House,
    pub(super) agent: String,
    pub(super) falls: u32,
    /// Who issues, if it is not the authority directly: an ACME server, of which Bulla is the client.
    issuer: Option<&'static str>,
}

impl Estate {
    /// Whose server is attacked, or whose agent.
    pub(super) fn new(database: Option<String>, server: bool) -> Self {
        let mut house = House::prepared("", database);
        house.put(Shim::new(&house.path("")), server);
        house.start();
        let agent = enroll(&house);
        Self { house, agent, falls: 0, issuer: None }
    }

    /// Of a house without an agent.
    pub(super) fn over(house: House) -> Self {
        Self { house, agent: String::new(), falls: 0, issuer: None }
    }

    /// The server becomes a client of its own ACME server, so that both sides fall at once.
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

    /// The beginning of a life under attack, up to the first version in its place; says how many points it had.
    pub(super) fn begin(&mut self, name: &str, (points, at, side): (&dyn Points, u64, Side)) -> u64 {
        let target = target(&self.house, &self.agent, name);
        points.arm(at, side);
        self.create(name, &target);
        self.rest(name, 1);
        let counted = points.counted();
        self.check(name);
        counted
    }

    /// Starts the server again after it fell, when every lease it held has ended.
    pub(super) fn raise(&mut self) {
        self.falls += 1;
        self.house.shim().past_leases();
        self.house.start();
    }

    /// What a command prints as JSON; nothing if the server fell meanwhile.
    pub(super) fn told(&mut self, arguments: &[&str]) -> Option<Value> {
        let output = run(self.house.bulla(arguments).args(["--output", "json"]));
        if output.status.success() {
            return Some(serde_json::from_slice(&output.stdout).unwrap());
        }
        assert!(self.house.fell(), "bulla {}: {}", arguments.join(" "), describe(&output));
        None
    }

    /// The same, retried until it is answered.
    pub(super) fn asked(&mut self, arguments: &[&str]) -> Value {
        loop {
            match self.told(arguments) {
                Some(value) => return value,
                None => self.raise(),
            }
        }
    }

    /// One whole life.
    pub(super) fn live(&mut self, name: &str) {
        let points = self.house.shim().clone();
        self.live_attacked(name, (&points, 0, Side::Before));
    }

    /// One whole life under attack; says how many points it had.
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

    /// Asks until it is known to be there. Without an answer nobody knows whether it is: then it is looked for.
    fn create(&mut self, name: &str, target: &str) {
        let mut arguments = vec!["cert", "create", name, "--target", target];
        arguments.extend(self.issuer.iter().flat_map(|issuer| ["--issuer", issuer]));
        while self.told(&arguments).is_none() {
            self.raise();
            let all = self.asked(&["cert", "list", "--all"]);
            if rows(&all).iter().any(|row| row["name"] == name) {
                return;
            }
        }
    }

    /// Asks for something that makes a version, and waits for it. Without an answer it is waited for what comes of it,
    /// and retried if nothing does.
    fn request(&mut self, name: &str, arguments: &[&str], versions: usize) {
        while self.told(arguments).is_none() {
            self.raise();
            self.settle(name);
            if self.versions(name).len() == versions {
                return;
            }
        }
        self.rest(name, versions);
    }

    /// Waits until nothing more happens to the certificate, which then has so many versions.
    pub(super) fn rest(&mut self, name: &str, versions: usize) {
        self.settle(name);
        let found = self.versions(name);
        assert_eq!(found.len(), versions, "{name}: {found:?}");
    }

    pub(super) fn settle(&mut self, name: &str) {
        /// An attempt that found its issuer away waits for its turn; then it is later.
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
            if began.elapsed() > PATIENCE {
                let (shown, jobs) = (self.told(&["cert", "show", name]), self.told(&["job", "list"]));
                panic!("{name} does not come to rest: {shown:#?}\n{jobs:#?}");
            }
        }
    }

    /// Whether it is active and none of its runs is open; lets the agent work where it has to. Nothing: the server fell.
    fn at_rest(&mut self, name: &str) -> Option<bool> {
        let shown = self.told(&["cert", "show", name])?;
        if shown["status"] == "deploying" || shown["status"] == "awaiting_csr" {
            self.agent_works()?;
        }
        let jobs = self.told(&["job", "list"])?;
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
        rows(&self.asked(&["cert", "versions", name, "--all"])).clone()
    }

    /// What has to hold of a certificate at rest: what the authority issued for it are its versions, each once; the
    /// newest is where it belongs, with its key; the one before it is revoked.
    pub(super) fn check(&mut self, name: &str) {
        let fingerprints = |rows: &[Value]| {
            let mut all: Vec<String> =
                rows.iter().map(|row| row["fingerprint"].as_str().unwrap().to_owned()).collect();
            all.sort();
            all
        };
        let versions = self.versions(name);
        let source = self.issuer.unwrap_or("lifecycle");
        let issued = self.asked(&["cert", "issued", "--source", source, "--all"]);
        let issued: Vec<Value> =
            rows(&issued).iter().filter(|row| row["names"] == json!([name])).cloned().collect();
        assert_eq!(fingerprints(&issued), fingerprints(&versions), "{name}: issued and recorded");
        let now = self.asked(&["cert", "show", name])["current"]["fingerprint"].clone();
        assert_eq!(now, versions[0]["fingerprint"], "{name}");
        assert_eq!(deployed(&self.house, name), Ok(now.as_str().unwrap().to_owned()), "{name}");
    }

    /// What has to hold of everything.
    pub(super) fn verify(&mut self) {
        let audit = self.asked(&["audit", "verify"]);
        assert_eq!(audit["good"], true, "{audit}");
        let running = self.asked(&["job", "list", "--state", "running"]);
        assert!(rows(&running).is_empty(), "{running}");
    }
}

pub(super) fn rows(listed: &Value) -> &Vec<Value> {
    listed["rows"].as_array().unwrap()
}

/// `bulla agent VERB` for the house's agent.
pub(super) fn agent(house: &House, verb: &str) -> std::process::Command {
    let mut command = house.bulla(&["agent", verb, "--state", &house.path("agent").display().to_string()]);
    if verb == "work-once" {
        command.args(["--policy", &policy(house)]);
    }
    command
}

/// A policy that lets the server write the files of [`target`].
fn policy(house: &House) -> String {
    let path = house.path("agent.toml");
    if !path.exists() {
        let rule = format!("[[files]]\npath = \"{}/\"\n", house.path("deployed").display());
        std::fs::write(&path, rule).unwrap();
    }
    path.display().to_string()
}

/// The arguments that make an agent of it.
pub(super) fn enrolling(house: &House, token: &str) -> Vec<String> {
    let root = house.root().display().to_string();
    ["--server", &house.url(), "--token", token, "--ca", &root, "--name", "web-1"].map(str::to_owned).to_vec()
}

pub(super) fn enroll(house: &House) -> String {
    let token = house.json(&["agent", "token"])["token"].as_str().unwrap().to_owned();
    super::does(agent(house, "enroll").args(enrolling(house, &token)));
    house.json(&["agent", "list"])["rows"][0]["id"].as_str().unwrap().to_owned()
}

/// The folder a certificate is deployed to.
pub(super) fn place(house: &House, name: &str) -> PathBuf {
    house.path("deployed").join(name)
}

/// Two files, chain and key, in a folder of the certificate's own.
pub(super) fn target(house: &House, agent: &str, name: &str) -> String {
    let folder = place(house, name);
    std::fs::create_dir_all(&folder).unwrap();
    let at = |file: &str| folder.join(file).display().to_string();
    let files =
        json!({ "type": "files", "fullchain": { "path": at("full.pem") }, "key": { "path": at("key.pem") } });
    let document = json!({ "name": name, "agent": agent, "target": files });
    std::fs::write(house.path("target.json"), document.to_string()).unwrap();
    house.json(&["target", "create", "--file", "target.json"])["id"].as_str().unwrap().to_owned()
}

/// The fingerprint of the deployed certificate, if its key is beside it; what is wrong otherwise.
pub(super) fn deployed(house: &House, name: &str) -> Result<String, String> {
    let folder = place(house, name);
    let (certificate, key) = (whole_certificate(&folder)?, whole_key(&folder)?);
    match (certificate, key) {
        (Some(certificate), Some(key)) if certificate.public_key.spki_sha256 == key.spki_hash() => {
            Ok(certificate.fingerprint.to_string())
        }
        (None, None) => Err("the secret does not exist yet. hint: write a".to_owned()),
        _ => Err("certificate and key do not fit".to_owned()),
    }
}

/// The deployed certificate; an error when the file is there in part.
pub(super) fn whole_certificate(folder: &Path) -> Result<Option<Certificate>, String> {
    let Ok(text) = std::fs::read(folder.join("full.pem")) else { return Ok(None) };
    let first = x509::pem::certificates(&text).next().ok_or("full.pem holds no whole certificate")?;
    Certificate::parse(&first.1).map(Some).map_err(|error| format!("full.pem: {error}"))
}

/// The deployed key; an error when the file is there in part.
pub(super) fn whole_key(folder: &Path) -> Result<Option<PrivateKey>, String> {
    let Ok(text) = std::fs::read_to_string(folder.join("key.pem")) else { return Ok(None) };
    PrivateKey::from_pem(&text).map(Some).map_err(|error| format!("key.pem: {error}"))
}
