//! Keys restricted to some sites: sealed to a policy, opened by the nodes that match it, used remotely by all other nodes.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use fleet::free_port;
use keyless::native::proto::{Scheme, SignRequest, sign_request::Key};
use keyless::native::{CallOptions, Client};
use tokio::runtime::Runtime;

use super::House;
use super::signing::{Service, started_saying};
use crate::world::{describe, run, stderr};

/// Deadline of a signature request.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// A node with its own folder.
pub(super) struct Node {
    name: String,
    address: Ipv4Addr,
    port: u16,
    service: Option<Service>,
    /// The address of its metrics.
    pub(super) figures: String,
}

impl Node {
    /// Joins the node to the site.
    pub(super) fn join(house: &House, runtime: &Runtime, name: &str, site: &str) -> (Self, Client) {
        Self::join_at(house, runtime, (name, Ipv4Addr::LOCALHOST), site)
    }

    /// Like [`Self::join`], for a host that listens on `address`.
    pub(super) fn join_at(
        house: &House,
        runtime: &Runtime,
        (name, address): (&str, Ipv4Addr),
        site: &str,
    ) -> (Self, Client) {
        let made = house.json(&["node", "token", "--site", site]);
        let token = made["token"].as_str().unwrap().to_owned();
        std::fs::create_dir(house.path(name)).unwrap();
        let (port, figures) = (free_port(), String::new());
        let mut node = Self { name: name.to_owned(), address, port, service: None, figures };
        node.start(house, &["--token", &token, "--node-name", name]);
        let socket = house.path(&format!("{name}/native.sock"));
        let client = runtime.block_on(async { Client::socket(socket) });
        (node, client)
    }

    fn command(&self, house: &House, more: &[&str]) -> Command {
        let address = format!("{}:{}", self.address, self.port);
        let socket = house.path(&format!("{}/native.sock", self.name)).display().to_string();
        let (url, root) = (house.url(), house.root().display().to_string());
        let mut arguments = vec!["keys", "serve", "--join", &url, "--ca", &root, "--nodes-listen", &address];
        arguments.extend([
            "--advertise",
            &address,
            "--native-socket",
            &socket,
            "--metrics-listen",
            "127.0.0.1:0",
        ]);
        arguments.extend(more);
        let mut command = house.bulla(&arguments);
        command.env("BULLA_DATA", house.path(&self.name));
        command
    }

    pub(super) fn start(&mut self, house: &House, more: &[&str]) {
        let (service, _, printed) =
            started_saying(&mut self.command(house, more), "this service is the node ");
        let figures = printed.split("metrics at ").nth(1).unwrap().split("/metrics").next().unwrap();
        (self.service, self.figures) = (Some(service), figures.to_owned());
    }

    pub(super) fn kill(&mut self) {
        self.service = None;
    }
}

pub(super) fn request(house: &House, name: &str) -> SignRequest {
    let hash = hash_of(house, name).as_bytes().to_vec();
    let mut request = SignRequest { key: Some(Key::SpkiSha256(hash)), ..SignRequest::default() };
    request.input = vec![7; 32];
    request.set_scheme(Scheme::EcdsaSha256);
    request
}

/// Signs with the key of `NAME.pub`, and verifies the signature with OpenSSL.
pub(super) fn signs(house: &House, runtime: &Runtime, client: &Client, name: &str) -> Result<(), String> {
    let request = request(house, name);
    let signed = runtime.block_on(client.sign(request, CallOptions::within(TIMEOUT)));
    std::fs::write(house.path("signature"), signed.map_err(|status| status.to_string())?).unwrap();
    std::fs::write(house.path("digest"), [7; 32]).unwrap();
    let public = format!("{name}.pub");
    house.openssl(&[
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        &public,
        "-in",
        "digest",
        "-sigfile",
        "signature",
    ]);
    Ok(())
}

fn hash_of(house: &House, name: &str) -> x509::SpkiHash {
    let text = std::fs::read(house.path(&format!("{name}.pub"))).unwrap();
    let (_, spki) = x509::pem::blocks(&text).next().unwrap();
    x509::SpkiHash::of(&spki)
}

/// Generates a P-256 key: `NAME.key` and `NAME.pub`.
pub(super) fn make_key(house: &House, name: &str) {
    let (key, public) = (format!("{name}.key"), format!("{name}.pub"));
    house.openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", &key]);
    house.openssl(&["pkey", "-in", &key, "-pubout", "-out", &public]);
}

/// A request with the key's policy is signed, on the node that opens the key and on others. A request with another policy is
/// rejected.
fn goes_by_its_policy(house: &House, runtime: &Runtime, client: &Client) {
    let under = |policy: &str| {
        let request = SignRequest { policy: policy.to_owned(), ..request(house, "shop") };
        runtime.block_on(client.sign(request, CallOptions::within(TIMEOUT)))
    };
    // Retry, because the other node may briefly be unreachable.
    house.until("it is signed for under its policy", || under("europe").is_ok());
    let status = under("asia").unwrap_err();
    assert_eq!(status.code() as i32, 9, "FAILED_PRECONDITION: {status}");
    assert!(status.message().contains("it is sealed to \"europe\""), "{status}");
}

/// A request from newyork that frankfurt signed is one trace tree, whichever of the two is queried first.
fn is_followed(house: &House, runtime: &Runtime, client: &Client, (newyork, frankfurt): (&Node, &Node)) {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut request = request(house, "shop");
    request.traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    // Retry, because the other node may briefly be unreachable. The last request is the one shown.
    house.until("it is signed for, with a trace", || {
        runtime.block_on(client.sign(request.clone(), CallOptions::within(TIMEOUT))).is_ok()
    });
    let mut command =
        house.bulla(&["keys", "trace", TRACE, "--url", &frankfurt.figures, "--url", &newyork.figures]);
    let shown = run(command.arg("--json"));
    let tree: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
    let [root] = tree["requests"].as_array().unwrap().as_slice() else { panic!("{}", describe(&shown)) };
    assert_eq!((&root["node"], &root["site"]), (&"nyc-1".into(), &"newyork".into()), "{tree}");
    assert!(root["stages"]["wire_us"].is_u64() && root["stages"]["connect_us"].is_u64(), "{tree}");
    let hops = root["asked"].as_array().unwrap();
    let hop = hops.iter().find(|hop| hop["outcome"] == "done").unwrap();
    assert_eq!((&hop["node"], &hop["why"]), (&"fra-1".into(), &"first".into()), "{tree}");
    let below = &hop["request"];
    assert_eq!((&below["node"], &below["outcome"]), (&"fra-1".into(), &"done".into()), "{tree}");
    assert_eq!(below["parent_id"], root["span_id"], "{tree}");
    assert!(below["stages"]["sign_us"].is_u64(), "{tree}");
    let shown = run(&mut house.bulla(&["keys", "trace", TRACE, "--url", &newyork.figures]));
    let printed = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        printed.contains("by nyc-1 at newyork") && printed.contains("first fra-1 at frankfurt"),
        "{printed}"
    );
    house.until("top to show frankfurt", || {
        let arguments = ["keys", "top", "--json", "--interval", "100ms", "--url", &newyork.figures];
        let top: serde_json::Value =
            serde_json::from_slice(&run(&mut house.bulla(&arguments)).stdout).unwrap_or_default();
        let site = &top["sites"][0];
        site["site"] == "frankfurt"
            && site["nodes_up"] == 1.0
            && site["in_flight_max"] == keyless::routing::IN_FLIGHT_MAX as f64
    });
}

/// Two sites, a policy, and a key under it: both sites sign with the key, one opens it.
#[test]
fn sealed_key_signs_on_all_nodes_and_opens_only_by_policy() {
    let mut house = House::up_with("[keys]\nmetrics_listen = \"\"\nsocket = \"none\"\n", None);
    let runtime = Runtime::new().unwrap();
    house.does(&["site", "create", "frankfurt", "--attribute", "country=DE", "--attribute", "region=EU"]);
    house.does(&["site", "create", "newyork", "--attribute", "country=US", "--attribute", "region=NA"]);
    let (mut frankfurt, in_frankfurt) = Node::join(&house, &runtime, "fra-1", "frankfurt");
    let (mut newyork, in_newyork) = Node::join(&house, &runtime, "nyc-1", "newyork");
    house.until("both are there", || {
        let listed = house.json(&["node", "list"]);
        listed["rows"].as_array().unwrap().iter().filter(|node| node["present"] == true).count() == 2
    });

    make_key(&house, "shop");
    house.does(&["key-policy", "create", "europe", "region: EU", "--yes"]);
    house.does(&[
        "key",
        "seal",
        "--policy",
        "europe",
        "--key",
        &house.path("shop.key").display().to_string(),
    ]);
    house.until("it signs in frankfurt", || signs(&house, &runtime, &in_frankfurt, "shop").is_ok());
    house.until("it is signed for in newyork", || signs(&house, &runtime, &in_newyork, "shop").is_ok());
    is_followed(&house, &runtime, &in_newyork, (&newyork, &frankfurt));
    [&in_frankfurt, &in_newyork].iter().for_each(|client| goes_by_its_policy(&house, &runtime, client));

    // A node outside the policy cannot open the key: not while the other node is down, and not from its folder.
    frankfurt.kill();
    house.until("nobody is left", || {
        // Requests sent while the node died are lost.
        let refused = signs(&house, &runtime, &in_newyork, "shop").unwrap_err();
        refused.contains("none of the nodes that may use this key")
    });
    assert!(!opens(&house, "nyc-1"), "a wrap for the node in newyork");

    // The node restarts, and signs while the control plane is down.
    frankfurt.start(&house, &[]);
    house.until("it signs again", || signs(&house, &runtime, &in_newyork, "shop").is_ok());
    assert_eq!(house.stop(), Some(0));
    newyork.kill();
    newyork.start(&house, &[]);
    house.until("it is signed for", || signs(&house, &runtime, &in_newyork, "shop").is_ok());
    house.start();

    // Rotate the policy's keys: signing works meanwhile.
    house.does(&["key-policy", "rotate", "europe"]);
    house.until("it is signed for still", || signs(&house, &runtime, &in_newyork, "shop").is_ok());
    house.until("the keys are sealed anew", || {
        let shown = house.json(&["key-policy", "show", "europe"]);
        shown["generations"].as_array().is_some_and(|all| all.len() == 1 && all[0]["generation"] == 2)
    });
    signs(&house, &runtime, &in_frankfurt, "shop").unwrap();
    house.until("it is signed for still", || signs(&house, &runtime, &in_newyork, "shop").is_ok());

    // A withdrawn key can no longer be used.
    house.does(&["key", "withdraw", &hash_of(&house, "shop").to_string(), "--yes"]);
    house.until("it is withdrawn", || signs(&house, &runtime, &in_frankfurt, "shop").is_err());

    // A retired node can no longer sign with the keys it opened.
    make_key(&house, "till");
    house.does(&[
        "key",
        "seal",
        "--policy",
        "europe",
        "--key",
        &house.path("till.key").display().to_string(),
    ]);
    house.until("it signs", || signs(&house, &runtime, &in_frankfurt, "till").is_ok());
    house.does(&["node", "retire", "fra-1"]);
    house.until("the retired node no longer signs", || {
        signs(&house, &runtime, &in_frankfurt, "till").is_err()
    });
}

/// The TPM seals the seed of a node. The seed opens after a restart of both, and a copy of the disk cannot open it.
#[test]
fn seed_in_tpm_opens_after_restart_and_not_with_another_tpm() {
    let mut tpm = testbed::SoftTpm::new();
    let house = House::up_with(
        &format!(
            "[keys]\nmetrics_listen = \"\"\nsocket = \"none\"\n\
             [keys.node]\nseed_key = {{ tpm = {{ wrapped_file = \"seed.tpm\", device = \"{}\", pcrs = [7] }} }}\n",
            tpm.address()
        ),
        None,
    );
    let runtime = Runtime::new().unwrap();
    house.does(&["site", "create", "frankfurt", "--attribute", "region=EU"]);
    let (mut node, client) = Node::join(&house, &runtime, "fra-1", "frankfurt");
    make_key(&house, "shop");
    house.does(&["key-policy", "create", "europe", "region: EU", "--yes"]);
    let key = house.path("shop.key").display().to_string();
    house.does(&["key", "seal", "--policy", "europe", "--key", &key]);
    house.until("it signs", || signs(&house, &runtime, &client, "shop").is_ok());
    assert!(house.path("seed.tpm").exists() && !house.path("fra-1/key-node/kem.key").exists());

    node.kill();
    tpm.restart();
    node.start(&house, &[]);
    house.until("it signs again", || signs(&house, &runtime, &client, "shop").is_ok());

    node.kill();
    tpm.replace();
    let refused = run(&mut node.command(&house, &[]));
    assert_eq!(refused.status.code(), Some(5), "{}", describe(&refused));
    assert!(stderr(&refused).contains("the key was not sealed by this TPM"), "{}", stderr(&refused));
}

/// A blocked disk delays storing new keys, but no heartbeat: the node stays present for the others.
#[test]
fn blocked_disk_does_not_stop_node_heartbeats() {
    let house = House::up_with("[keys]\nmetrics_listen = \"\"\nsocket = \"none\"\n", None);
    let runtime = Runtime::new().unwrap();
    house.does(&["site", "create", "frankfurt", "--attribute", "region=EU"]);
    let (_frankfurt, _) = Node::join(&house, &runtime, "fra-1", "frankfurt");
    let lease = || house.json(&["node", "list"])["rows"][0]["lease_until"].as_str().map(str::to_owned);
    house.until("it is there", || lease().is_some());
    // Opening one of these pipes for writing blocks until there is a reader.
    for name in ["sealed.log", "sealed.new"] {
        let path = house.path("fra-1/key-node").join(name);
        let _ = std::fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    make_key(&house, "shop");
    house.does(&["key-policy", "create", "europe", "region: EU", "--yes"]);
    let key = house.path("shop.key").display().to_string();
    house.does(&["key", "seal", "--policy", "europe", "--key", &key]);
    // Some seconds of heartbeats. The node heard of the key long before.
    let mut leases = std::collections::HashSet::new();
    house.until("it goes on to be there", || {
        leases.extend(lease());
        leases.len() > 30
    });
}

/// Returns whether the node's folder has a key wrapped for the node.
fn opens(house: &House, node: &str) -> bool {
    let log = std::fs::read_to_string(house.path(node).join("key-node/sealed.log")).unwrap_or_default();
    let pages = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    pages.into_iter().any(|page| page["wraps"].as_array().is_some_and(|wraps| !wraps.is_empty()))
}

#[test]
fn failed_node_join_reports_the_reason() {
    let house = House::up_with("[keys]\nmetrics_listen = \"\"\nsocket = \"none\"\n", None);
    std::fs::create_dir(house.path("lost")).unwrap();
    let (address, port, figures) = (Ipv4Addr::LOCALHOST, free_port(), String::new());
    let node = Node { name: "lost".to_owned(), address, port, service: None, figures };
    for (more, exit, says) in [
        (&[][..], 2, "bulla key node token"),
        (&["--token", "bulla-node-nonsense"], 6, "unknown, used, or expired"),
    ] {
        let refused = run(&mut node.command(&house, more));
        assert!(stderr(&refused).contains(says), "{}", describe(&refused));
        assert_eq!(refused.status.code(), Some(exit), "{}", describe(&refused));
    }
    assert!(!house.path("lost/key-node/node.json").exists());
}
