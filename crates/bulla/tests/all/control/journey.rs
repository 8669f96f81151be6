//! One certificate through every part of one `bulla up`: found, alerted, claimed, renewed, deployed, verified, its key moved to the key
//! service, served by the terminator, and called through the proxy with a credential that the client never sees.
//! Then: the demo of the same journey, and roles that do not start.

#[path = "../../../src/demo/fixtures.rs"]
mod fixtures;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use fleet::free_port;
use serde_json::{Value, json};

use self::fixtures::{NAMES, Receiver, expiring_certificate};
use super::House;
use super::agent::{Nginx, allow, forbid, target};
use crate::world::{describe, run};

const SECRET: &str = "canary-of-the-journey-41c7";

/// Writes a self-signed certificate that expires in two days, and its key, for nginx.
fn write_rogue(house: &House) {
    let (certificate, key) = expiring_certificate().unwrap();
    let folder = house.path("nginx/tls");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("full.pem"), certificate).unwrap();
    std::fs::write(folder.join("key.pem"), key).unwrap();
}

/// A server with every role, and the addresses of its terminator and its proxy.
struct Estate {
    house: House,
    edge: String,
    proxy: String,
}

impl Estate {
    /// `upstream` is the port of the server behind the terminator.
    fn prepared(upstream: u16) -> Self {
        let mut house = House::prepared("", None);
        // Overrides the file, which names the role server: these are the default roles of `bulla up`.
        house.environment("BULLA_ROLES", "");
        let (edge, proxy, nodes) = (free_port(), free_port(), free_port());
        let (policy, root) = (house.path("agent.toml"), house.root());
        house.configure(&format!(
            "[agent]\npolicy = {policy:?}\n[keys]\nmetrics_listen = \"\"\nreload_s = 1\n[keys.node]\nlisten = \"127.0.0.1:{nodes}\"\n\
             [edge]\nlisten = \"127.0.0.1:{edge}\"\nmetrics_listen = \"\"\nupstream = \"127.0.0.1:{upstream}\"\ninventory = true\n\
             reload_s = 1\n[proxy]\nlisten = \"127.0.0.1:{proxy}\"\nmetrics_listen = \"\"\nupstream_ca_files = [{root:?}]\n\
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
        let ask = format!(
            "echo | openssl s_client -connect {} -servername {} 2>/dev/null | openssl x509 -noout -fingerprint -sha256",
            self.edge, NAMES[0]
        );
        let output = self.house.program("sh", "apt-get install -y openssl", &["-c", &ask]);
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.trim().split_once('=')?.1.replace(':', "").to_lowercase())
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

#[test]
fn found_certificate_is_claimed_renewed_deployed_and_served_without_key() {
    let (webhook, upstream) = (Receiver::start().unwrap(), Receiver::start().unwrap());
    let mut estate = Estate::prepared(upstream.port);
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
    let raised = expiring(&webhook.messages()).unwrap().clone();
    assert_eq!(raised["severity"], "critical", "{raised}");

    // Claimed, with an owner.
    let found = house.json(&["cert", "found"]);
    let leaves = found["rows"].as_array().unwrap().iter().map(|row| &row["leaf"]["fingerprint"]);
    assert!(leaves.into_iter().any(|leaf| leaf == rogue.as_str()), "{found}");
    house.does(&["cert", "claim", &rogue, "--owner", "shop-team"]);
    assert_eq!(estate.shown()["owner"], "shop-team");

    // The internal CA renews the certificate. The agent of this host deploys it, and verifies that nginx serves it.
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
    house.does(&["cert", "export", NAMES[0], "--key", "--file", "shop.pem"]);
    house.openssl(&["pkey", "-in", "shop.pem", "-out", "shop.key"]);
    house.does(&["key", "seal", "--policy", "here", "--key", "shop.key"]);
    house.until("the terminator", || estate.presented_by_edge().as_deref() == Some(&current));

    // A client calls it through the proxy, which injects a credential.
    std::fs::write(house.path("value"), SECRET).unwrap();
    house.does(&["credential", "set", "/shop/api", "--type", "password", "--file", "value"]);
    let trust = house.path("data/proxy-ca.pem").display().to_string();
    let url = format!("https://localhost:{}/api/stock", estate.edge.rsplit(':').next().unwrap());
    let ask =
        ["-sSv", "--max-time", "60", "--noproxy", "", "--proxy", &estate.proxy, "--cacert", &trust, &url];
    let called = house.program("curl", "apt-get install -y curl", &ask);
    assert!(called.status.success() && called.stdout == b"ok", "{}", describe(&called));
    assert!(!describe(&called).contains(SECRET), "{}", describe(&called));
    let heads = upstream.heads();
    let head = heads.iter().find(|head| head.starts_with("GET /api/stock ")).unwrap();
    let authorization = head.lines().find(|line| line.to_lowercase().starts_with("authorization:")).unwrap();
    assert!(authorization.ends_with(&format!("Bearer {SECRET}")), "{authorization}");

    // Every role answers. Then all roles stop, in order.
    let checks = house.json(&["doctor"]);
    for role in ["server", "keys", "edge", "proxy", "agent"] {
        let is_fine = |row: &&Value| row["check"] == format!("role {role}") && row["state"] == "ok";
        assert!(checks["rows"].as_array().unwrap().iter().any(|row| is_fine(&row)), "{role}: {checks}");
    }
    assert_eq!(house.json(&["audit", "verify"])["good"], true);
    assert_eq!(estate.house.stop(), Some(0));
}

#[test]
fn failed_role_start_stops_the_process_and_names_the_role() {
    let mut estate = Estate::prepared(1);
    let taken = TcpListener::bind(estate.proxy.trim_start_matches("http://")).unwrap();
    let refused = run(estate.house.bulla(&["up"]).env("BULLA_ROLES", ""));
    assert_eq!(refused.status.code(), Some(5), "{}", describe(&refused));
    let said = String::from_utf8_lossy(&refused.stderr);
    // Roles that have started drain.
    for line in [
        "error: the role proxy did not start: cannot listen",
        "stopping the key service",
        "stopping: requests",
    ] {
        assert!(said.lines().any(|said| said.starts_with(line)), "{line}: {said}");
    }
    assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{said}");
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
    let said: Vec<String> = lines
        .by_ref()
        .map_while(Result::ok)
        .take_while(|line| !line.starts_with("  bulla cert list"))
        .collect();
    let steps: Vec<&String> = said.iter().filter(|line| line.starts_with("  \u{2713} ")).collect();
    assert_eq!(steps.len(), 9, "{said:#?}");
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
        assert!(steps.iter().any(|step| step.contains(text)), "{text}: {said:#?}");
    }
    let link = said.iter().find_map(|line| line.strip_prefix("open the console: ")).unwrap();
    assert!(link.starts_with("https://localhost:") && link.contains("#code="), "{link}");
    // The demo keeps running. Commands in another terminal use the variables that it printed.
    let variables = said.iter().find_map(|line| line.trim().strip_prefix("export ")).unwrap();
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
        let said = describe(&named);
        assert!(
            said.contains(&format!("the role {role} did not start: ")) && said.contains(address),
            "{said}"
        );
    }
    house.environment("BULLA_ROLES", "");
    let said = house.start_and_listen();
    for line in [
        "warning: 127.0.0.1:3128 is in use: this process starts without the role proxy",
        "hint: set proxy.listen to another address, or stop the process that listens there",
        "warning: 127.0.0.1:2410 is in use: this process starts without the role keys",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert_eq!(house.stop(), Some(0));
}
