//! One certificate through every part of one `bulla up`: found, alerted, claimed, renewed, deployed, verified, its key moved to the key
//! service, served by the terminator, and called through the proxy with a credential that the client never sees, which rotates
//! under load; then its CA is replaced.
//! Then: the demo of the same journey, and roles that do not start.

#[path = "../../../src/demo/fixtures.rs"]
mod fixtures;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fleet::free_port;
use serde_json::{Value, json};

use self::fixtures::{NAMES, OK, Receiver, accept, expiring_certificate, listen};
use super::House;
use super::agent::{Nginx, allow, forbid, target};
use super::collector::{Collector, OpenTelemetryCollector};
use super::journey_trace;
use crate::world::{describe, run};

const SECRET: &str = "canary-of-the-journey-41c7";
/// Clients that call the origin while its credential rotates, each in a loop.
const CLIENTS: usize = 3;
/// Rotations of the credential.
const ROTATIONS: usize = 5;
/// Calls between two rotations.
const CALLS: usize = 6;

/// A plain HTTP server that responds 401 unless the request has a valid token.
#[derive(Clone)]
struct Origin {
    port: u16,
    valid: Arc<Mutex<Vec<String>>>,
    refused: Arc<AtomicUsize>,
}

impl Origin {
    fn start() -> Self {
        let (listener, port) = listen().unwrap();
        let origin = Self { port, valid: Arc::default(), refused: Arc::default() };
        let served = origin.clone();
        accept(listener, move |stream| served.serve(stream));
        origin
    }

    /// Sets the tokens that are valid from now on.
    fn accepts(&self, tokens: &[&str]) {
        *self.valid.lock().unwrap() = tokens.iter().map(|token| format!("Bearer {token}")).collect();
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut line, mut is_valid) = (String::new(), false);
        while reader.read_line(&mut line)? > 0 {
            if line == "\r\n" {
                let response =
                    if is_valid { OK } else { &b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"[..] };
                self.refused.fetch_add(usize::from(!is_valid), Ordering::Relaxed);
                stream.write_all(response)?;
                is_valid = false;
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("authorization")
            {
                is_valid = self.valid.lock().unwrap().iter().any(|token| token == value.trim());
            }
            line.clear();
        }
        Ok(())
    }
}

/// Writes a self-signed certificate that expires in two days, and its key, for nginx.
fn write_rogue(house: &House) {
    let (certificate, key) = expiring_certificate().unwrap();
    let folder = house.path("nginx/tls");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("full.pem"), certificate).unwrap();
    std::fs::write(folder.join("key.pem"), key).unwrap();
}

/// Sets the flag when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server with every role, and the addresses of its terminator and its proxy.
struct Estate {
    house: House,
    edge: String,
    proxy: String,
}

impl Estate {
    /// `upstream` is the port of the server behind the terminator, `collector` the URL of a collector of traces, or `none`.
    fn prepared(upstream: u16, collector: &str) -> Self {
        let mut house = House::prepared("", None);
        // Overrides the file, which names the role server: these are the default roles of `bulla up`.
        house.environment("BULLA_ROLES", "");
        let (edge, proxy, nodes) = (free_port(), free_port(), free_port());
        let (policy, root) = (house.path("agent.toml"), house.root());
        house.configure(&format!(
            "[agent]\npolicy = {policy:?}\n[keys]\nmetrics_listen = \"\"\nreload_s = 1\n[keys.node]\nlisten = \"127.0.0.1:{nodes}\"\n\
             [edge]\nlisten = \"127.0.0.1:{edge}\"\nmetrics_listen = \"\"\nupstream = \"127.0.0.1:{upstream}\"\nmode = \"http\"\n\
             inventory = true\nreload_s = 1\n[telemetry]\notlp_endpoint = \"{collector}\"\notlp_share = 1.0\n[proxy]\nlisten = \"127.0.0.1:{proxy}\"\nmetrics_listen = \"\"\nupstream_ca_files = [{root:?}]\n\
             [[proxy.rules]]\nhost = [\"localhost\"]\npath = [\"/api/*\"]\n\
             inject = {{ credential = \"/shop/api\", port = [{edge}] }}\n"
        ));
        Self { house, edge: format!("127.0.0.1:{edge}"), proxy: format!("http://127.0.0.1:{proxy}") }
    }

    fn shown(&self) -> Value {
        self.house.json(&["cert", "show", NAMES[0]])
    }

    /// Returns the SHA-256 of the certificate that the terminator presents.
    fn presented_by_edge(&self) -> Option<String> {
        let request = format!(
            "echo | openssl s_client -connect {} -servername {} 2>/dev/null | openssl x509 -noout -fingerprint -sha256",
            self.edge, NAMES[0]
        );
        let output = self.house.program("sh", "apt-get install -y openssl", &["-c", &request]);
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.trim().split_once('=')?.1.replace(':', "").to_lowercase())
    }

    /// Calls the origin through the proxy and the terminator, as a client without a credential.
    fn call(&self) -> std::process::Output {
        let trust = self.house.path("data/proxy-ca.pem").display().to_string();
        let url = format!("https://localhost:{}/api/stock", self.edge.rsplit(':').next().unwrap());
        let traceparent = journey_trace::traceparent();
        let request = [
            &["-sSv", "--max-time", "60", "--noproxy", "", "--proxy", &self.proxy, "--cacert", &trust][..],
            &["-H", &traceparent, &url],
        ]
        .concat();
        self.house.program("curl", "apt-get install -y curl", &request)
    }

    /// Replaces the credential `ROTATIONS` times while clients call the origin, which accepts the former value no longer. No call
    /// fails.
    fn rotate_under_load(&self, origin: &Origin) {
        let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Also when an assertion below fails.
            let _ends = StopOnDrop(&stop);
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let called = self.call();
                        assert_eq!(called.stdout, b"ok", "{}", describe(&called));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut former = SECRET.to_owned();
            for rotation in 0..ROTATIONS {
                let next = format!("{SECRET}-{rotation}");
                let before = done.load(Ordering::Relaxed);
                self.house.until("calls", || done.load(Ordering::Relaxed) >= before + CALLS);
                // The origin knows both while the store changes. Then it rejects the former value, which the proxy may still have.
                origin.accepts(&[&former, &next]);
                std::fs::write(self.house.path("value"), &next).unwrap();
                self.house.does(&["credential", "set", "/shop/api", "--type", "password", "--file", "value"]);
                origin.accepts(&[&next]);
                former = next;
            }
            let before = done.load(Ordering::Relaxed);
            self.house.until("calls", || done.load(Ordering::Relaxed) >= before + CALLS);
        });
    }

    /// Moves the private key of the current version to the key service, and waits until the terminator presents this version.
    fn move_key(&self, fingerprint: &str) {
        let house = &self.house;
        // `cert export` writes no file that exists.
        let _ = std::fs::remove_file(house.path("shop.pem"));
        house.does(&["cert", "export", NAMES[0], "--key", "--file", "shop.pem"]);
        house.openssl(&["pkey", "-in", "shop.pem", "-out", "shop.key"]);
        house.does(&["key", "seal", "--policy", "here", "--key", "shop.key"]);
        house.until("the terminator", || self.presented_by_edge().as_deref() == Some(fingerprint));
    }

    /// Creates the issuer `acme`: the ACME directory of this server, over TLS. Its CA validates by http-01 at the issuer's listener.
    fn create_acme_issuer(&self) {
        let house = &self.house;
        let roots = std::fs::read_to_string(house.root()).unwrap();
        let config = json!({
            "type": "acme", "directory": format!("{}/acme/directory", house.url()), "terms_agreed": true,
            "challenges": ["http-01"], "listen": { "http01": format!("127.0.0.1:{}", house.http_port) },
            "http": { "roots": roots },
        });
        self.give(&["issuer", "create"], &json!({ "name": "acme", "config": config }));
        house.does(&["issuer", "test", "acme"]);
    }

    /// Passes a document to a command as a file.
    fn give(&self, command: &[&str], document: &Value) -> Value {
        std::fs::write(self.house.path("document.json"), document.to_string()).unwrap();
        self.house.json(&[command, &["--file", "document.json"]].concat())
    }
}

/// Returns the message that a certificate is about to expire, if it has arrived.
fn expiring(messages: &[Value]) -> Option<&Value> {
    messages.iter().find(|message| message["kind"] == "certificate.expiring" && message["reason"] == "raised")
}

/// Returns the number of certificates that the CA issued to ACME clients.
fn acme_issuances(house: &House) -> usize {
    let issued = house.json(&["audit", "list", "--action", "certificate.issue", "--all"]);
    let actors = issued["rows"].as_array().unwrap().iter().filter_map(|row| row["actor"].as_str());
    actors.filter(|actor| actor.starts_with("acme:")).count()
}

#[test]
fn found_certificate_is_claimed_renewed_deployed_and_served_without_key() {
    let collector = Collector::start();
    let journey = travel(&collector.url);
    journey_trace::check(&collector, &journey.certificate, &journey.rogue, 1 + ROTATIONS);
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn opentelemetry_collector_receives_the_whole_trace() {
    let receiver = Collector::start();
    let collector = OpenTelemetryCollector::before(&receiver);
    let journey = travel(&collector.url);
    // It exports what it has received before it ends.
    collector.stop();
    journey_trace::check(&receiver, &journey.certificate, &journey.rogue, 1 + ROTATIONS);
}

/// A certificate after its journey.
struct Journey {
    /// The ID of the managed certificate.
    certificate: String,
    /// The fingerprint with which it was found.
    rogue: String,
}

/// Takes a certificate through every part of one process, whose spans a collector with this URL gets.
fn travel(collector: &str) -> Journey {
    let (webhook, origin) = (Receiver::start().unwrap(), Origin::start());
    let mut estate = Estate::prepared(origin.port, collector);
    write_rogue(&estate.house);
    let nginx = Nginx::presenting(&estate.house);
    let rogue = nginx.presents(&estate.house).unwrap();
    forbid(&estate.house);
    estate.house.start();
    let house = &estate.house;

    // A watch finds it, and a webhook receives the alert.
    let hook = format!("http://127.0.0.1:{}/", webhook.port);
    let config = json!({"type": "webhook", "url": hook, "secret": "0123456789abcdef"});
    estate.give(&["alert", "channel", "create"], &json!({"name": "team", "config": config}));
    estate.give(&["alert", "rule", "create"], &json!({"name": "all", "rule": {"channels": ["team"]}}));
    house.does(&["watch", "add", "shop", &format!("127.0.0.1:{}", nginx.port), "--every", "1h"]);
    house.until("the alert at the webhook", || expiring(&webhook.messages()).is_some());
    assert!(webhook.heads().iter().all(|head| head.starts_with("POST / ")), "{:?}", webhook.heads());
    let raised = expiring(&webhook.messages()).unwrap().clone();
    assert_eq!(raised["severity"], "critical", "{raised}");

    // Claimed, with an owner.
    let found = house.json(&["cert", "found"]);
    let leaves = found["rows"].as_array().unwrap().iter().map(|row| &row["leaf"]["fingerprint"]);
    assert!(leaves.into_iter().any(|leaf| leaf == rogue.as_str()), "{found}");
    estate.create_acme_issuer();
    house.does(&["cert", "claim", &rogue, "--owner", "shop-team", "--issuer", "acme"]);
    assert_eq!(estate.shown()["owner"], "shop-team");

    // An order over ACME renews the certificate. The agent of this host deploys it, and verifies that nginx serves it.
    let agents = house.json(&["agent", "list"]);
    let agent = agents["rows"][0]["id"].as_str().unwrap_or_else(|| panic!("{agents}")).to_owned();
    let target = target(house, &nginx, &agent);
    allow(house, "data/agent");
    let change = json!({"targets": [{"kind": "deploy", "target": target, "agent": agent}]});
    std::fs::write(house.path("change.json"), change.to_string()).unwrap();
    // The lifecycle may change the certificate at the same time. Then the command is rejected.
    let update = ["cert", "update", NAMES[0], "--file", "change.json"];
    house.until("the target", || run(&mut house.bulla(&update)).status.success());
    house.does(&["cert", "renew", NAMES[0]]);
    house.until("the version that is served", || {
        let now = estate.shown();
        now["status"] == "active" && now["served_status"] == "newest"
    });
    let current = estate.shown()["current"]["fingerprint"].as_str().unwrap().to_owned();
    assert_ne!(current, rogue);
    assert_eq!(nginx.presents(house).unwrap(), current);
    let by_acme = acme_issuances(house);
    assert!(by_acme > 0);
    // The certificate can be changed although a version is verified as served.
    std::fs::write(house.path("change.json"), json!({"notes": "it is served"}).to_string()).unwrap();
    house.until("the notes", || run(&mut house.bulla(&update)).status.success());
    // The alert is resolved because the certificate is renewed.
    house.until("the alert's end", || {
        let over = house.json(&["alert", "list", "--state", "resolved"]);
        over["rows"].as_array().unwrap().iter().any(|alert| alert["id"] == raised["alert"])
    });

    // Its key moves to the key service. Until then the terminator presents nothing, as no key service can sign.
    assert_eq!(estate.presented_by_edge(), None);
    let policy = ["key", "policy", "create", "here", "site: local", "--yes"];
    house.until("a node for the policy", || run(&mut house.bulla(&policy)).status.success());
    estate.move_key(&current);

    // A client calls it through the proxy, which injects a credential.
    std::fs::write(house.path("value"), SECRET).unwrap();
    house.does(&["credential", "set", "/shop/api", "--type", "password", "--file", "value"]);
    origin.accepts(&[SECRET]);
    let called = estate.call();
    assert!(called.status.success() && called.stdout == b"ok", "{}", describe(&called));
    assert!(!describe(&called).contains(SECRET), "{}", describe(&called));
    // The control plane has the metrics of the roles in its process.
    let metrics = String::from_utf8_lossy(&house.does(&["api", "/metrics"]).stdout).into_owned();
    for name in ["proxy_credentials_injected_total", "edge_handshakes_total"] {
        let name = format!("bulla_intercept_{name}");
        assert!(metrics.lines().any(|line| line.starts_with(&name)), "{name}");
    }
    estate.rotate_under_load(&origin);

    // Another intermediate replaces the CA. The certificate follows, to nginx and to the terminator, and the calls go on.
    house.does(&["ca", "create", "next", "--parent", "root", "--subject", "CN=Next Issuing"]);
    house.does(&["ca", "default", "next"]);
    let left = |house: &House| {
        house.json(&["cert", "list", "--from-ca", "issuing"])["rows"].as_array().unwrap().len()
    };
    assert_eq!(left(house), 1);
    house.does(&["cert", "renew", "--from-ca", "issuing", "--limit", "1"]);
    house.until("the version of the next CA", || {
        let now = estate.shown();
        now["status"] == "active"
            && now["served_status"] == "newest"
            && now["current"]["fingerprint"] != current.as_str()
    });
    let next = estate.shown()["current"]["fingerprint"].as_str().unwrap().to_owned();
    assert_eq!(nginx.presents(house).unwrap(), next);
    estate.move_key(&next);
    let issuer = house.openssl(&["x509", "-in", "shop.pem", "-noout", "-issuer"]);
    assert!(issuer.contains("Next Issuing"), "{issuer}");
    assert_eq!((left(house), acme_issuances(house)), (0, by_acme + 1));
    house.does(&["ca", "retire", "issuing"]);
    assert_eq!(estate.call().stdout, b"ok");

    // Every role answers. Then all roles stop, in order.
    let checks = house.json(&["doctor"]);
    for role in ["server", "keys", "edge", "proxy", "agent"] {
        let is_fine = |row: &&Value| row["check"] == format!("role {role}") && row["state"] == "ok";
        assert!(checks["rows"].as_array().unwrap().iter().any(|row| is_fine(&row)), "{role}: {checks}");
    }
    assert_eq!(house.json(&["audit", "verify"])["good"], true);
    let certificate = estate.shown()["id"].as_str().unwrap().to_owned();
    assert_eq!(estate.house.stop(), Some(0));
    Journey { certificate, rogue }
}

#[test]
fn failed_role_start_stops_the_process_and_names_the_role() {
    let mut estate = Estate::prepared(1, "none");
    let taken = TcpListener::bind(estate.proxy.trim_start_matches("http://")).unwrap();
    let refused = run(estate.house.bulla(&["up"]).env("BULLA_ROLES", ""));
    assert_eq!(refused.status.code(), Some(5), "{}", describe(&refused));
    let printed = String::from_utf8_lossy(&refused.stderr);
    // Roles that have started drain.
    for line in [
        "error: the role proxy did not start: cannot listen",
        "stopping the key service",
        "stopping: requests",
    ] {
        assert!(printed.lines().any(|printed| printed.starts_with(line)), "{line}: {printed}");
    }
    assert_eq!(printed.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{printed}");
    // Without that role the process starts. Later the node finds the control plane at another address.
    estate.house.environment("BULLA_ROLES", "server,keys");
    estate.house.start();
    let nodes = |house: &House| house.json(&["key", "node", "list"])["rows"].as_array().unwrap().len();
    assert_eq!(nodes(&estate.house), 1);
    assert_eq!(estate.house.stop(), Some(0));
    let port = free_port();
    estate.house.environment("BULLA_SERVER_LISTEN", &format!("127.0.0.1:{port}"));
    estate.house.port = port;
    estate.house.start();
    let beats = || {
        let listed = estate.house.json(&["key", "node", "list"]);
        listed["rows"][0]["present"] == true
    };
    estate.house.until("the node", beats);
    assert_eq!(nodes(&estate.house), 1);
    drop(taken);
}

#[test]
fn demo_completes_every_step_and_leaves_no_files() {
    let scratch = tempfile::tempdir().unwrap();
    let mut demo = crate::world::bulla();
    demo.args(["up", "--demo"]).env("TMPDIR", scratch.path()).env("HOME", scratch.path());
    // The demo must ignore the caller's own servers.
    demo.env("BULLA_ROLES", "server").env("BULLA_CLIENT_URL", "https://localhost:1");
    let mut demo = demo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines();
    let printed: Vec<String> = lines
        .by_ref()
        .map_while(Result::ok)
        .take_while(|line| !line.starts_with("  bulla cert list"))
        .collect();
    let steps: Vec<&String> = printed.iter().filter(|line| line.starts_with("  \u{2713} ")).collect();
    assert_eq!(steps.len(), 9, "{printed:#?}");
    for text in [
        "every role",
        "scanned",
        "found",
        "claimed",
        "renewed",
        "resolved",
        "encrypted to the key service",
        "injected",
        "audit log",
    ] {
        assert!(steps.iter().any(|step| step.contains(text)), "{text}: {printed:#?}");
    }
    let link = printed.iter().find_map(|line| line.strip_prefix("open the console: ")).unwrap();
    assert!(link.starts_with("https://localhost:") && link.contains("#code="), "{link}");
    // The demo keeps running. Commands in another terminal use the variables that it printed.
    let variables = printed.iter().find_map(|line| line.trim().strip_prefix("export ")).unwrap();
    let mut listed = crate::world::bulla();
    listed.args(["cert", "list", "--output", "json"]);
    listed.envs(variables.split(' ').filter_map(|variable| variable.split_once('=')));
    let listed = run(&mut listed);
    assert!(describe(&listed).contains(NAMES[0]), "{}", describe(&listed));
    let stopped = Command::new("kill").arg(demo.id().to_string()).status().unwrap();
    assert!(stopped.success());
    assert_eq!(demo.wait().unwrap().code(), Some(0), "{:#?}", lines.collect::<Vec<_>>());
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn role_with_occupied_default_port_is_skipped_unless_requested() {
    // If another process already listens on a port, that port is in use as well.
    let _taken = ["127.0.0.1:3128", "127.0.0.1:2410"].map(TcpListener::bind);
    let mut house = House::prepared("[keys]\nmetrics_listen = \"\"\n[proxy]\nmetrics_listen = \"\"\n", None);
    let policy = house.path("agent.toml");
    house.environment("BULLA_AGENT_POLICY", &policy.display().to_string());
    for (role, address) in [("proxy", "127.0.0.1:3128"), ("keys", "127.0.0.1:2410")] {
        let named = run(&mut house.bulla(&["up", "--roles", &format!("server,{role}")]));
        assert_eq!(named.status.code(), Some(5), "{}", describe(&named));
        let printed = describe(&named);
        assert!(
            printed.contains(&format!("the role {role} did not start: ")) && printed.contains(address),
            "{printed}"
        );
    }
    house.environment("BULLA_ROLES", "");
    let printed = house.start_and_listen();
    for line in [
        "warning: 127.0.0.1:3128 is in use: this process starts without the role proxy",
        "hint: set proxy.listen to another address, or stop the process that listens there",
        "warning: 127.0.0.1:2410 is in use: this process starts without the role keys",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert_eq!(house.stop(), Some(0));
}
