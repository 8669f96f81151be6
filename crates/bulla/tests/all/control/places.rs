//! Nodes of the key service: they join with a token, are present while they send heartbeats, and expire soon after.

use std::sync::mpsc;

use keys::sealed::NodeKey;
use serde_json::{Value, json};

use super::House;
use crate::world::{describe, run, stderr};

/// A host with a key, a certificate after it has joined, and curl.
struct Node<'h> {
    house: &'h House,
    name: &'static str,
    id: String,
}

impl<'h> Node<'h> {
    /// Makes a key and a CSR with openssl, and joins.
    fn join(house: &'h House, name: &'static str, site: &str) -> Self {
        let made = house.json(&["node", "token", "--site", site, "--attribute", "security=high"]);
        assert_eq!(made["site"], site);
        let (key, csr) = (format!("{name}.key"), format!("{name}.csr"));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        house.openssl(
            &[&["req", "-new", "-subj", "/CN=x"][..], &curve, &["-keyout", &key, "-out", &csr]].concat(),
        );
        let body = json!({
            "token": made["token"],
            "csr_pem": std::fs::read_to_string(house.path(&csr)).unwrap(),
            "kem": NodeKey::generate().unwrap().public().to_text(),
            "address": "127.0.0.1:2410",
            "name": name,
        });
        let (status, joined) = send_request(house, "enroll", &[], &body);
        assert_eq!(status, 200, "{joined}");
        assert_eq!((&joined["name"], &joined["site"]), (&json!(name), &json!(site)));
        let message: Value = serde_json::from_str(joined["statement"]["payload"].as_str().unwrap()).unwrap();
        assert_eq!(message["attributes"], json!({ "country": "DE", "region": "EU", "security": "high" }));
        std::fs::write(house.path(&format!("{name}.pem")), joined["certificate_pem"].as_str().unwrap())
            .unwrap();
        let second = send_request(
            house,
            "enroll",
            &[],
            &json!({ "kem": body["kem"], "address": body["address"],
            "csr_pem": other_csr(house), "token": body["token"] }),
        );
        assert_eq!(second.0, 401, "a token makes one node: {}", second.1);
        Self { house, name, id: joined["node"].as_str().unwrap().to_owned() }
    }

    fn beat(&self, since: i64) -> (u16, Value) {
        let (certificate, key) = (format!("{}.pem", self.name), format!("{}.key", self.name));
        send_request(
            self.house,
            "self/beat",
            &["--cert", &certificate, "--key", &key],
            &json!({ "since": since }),
        )
    }

    /// Sends a heartbeat. Returns whether the response lists the other node.
    fn sees(&self, other: &Self) -> bool {
        let (status, found) = self.beat(0);
        assert_eq!(status, 200, "{found}");
        let nodes = found["membership"]["nodes"].as_array().unwrap();
        let of = |node: &Value| -> Value { serde_json::from_str(node["payload"].as_str().unwrap()).unwrap() };
        nodes.iter().any(|node| of(node)["node"] == other.id.as_str())
    }

    fn shown(&self) -> Value {
        self.house.json(&["node", "show", self.name])
    }
}

fn other_csr(house: &House) -> String {
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "other.key"];
    house.openssl(&[&["req", "-new", "-subj", "/CN=x", "-out", "other.csr"][..], &curve].concat());
    std::fs::read_to_string(house.path("other.csr")).unwrap()
}

/// Sends a request as a node. Returns status and response.
fn send_request(house: &House, path: &str, who: &[&str], body: &Value) -> (u16, Value) {
    let (root, url) =
        (house.root().display().to_string(), format!("{}/api/v1/key-nodes/{path}", house.url()));
    let body = body.to_string();
    let how = ["-sS", "--max-time", "60", "--cacert", &root, "-w", "\n%{http_code}", "-X", "POST"];
    let what = ["-H", "content-type: application/json", "--data-binary", &body, &url];
    let output = house.program("curl", "apt-get install -y curl", &[&how[..], who, &what].concat());
    assert!(output.status.success(), "{}", describe(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (answer, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(answer).unwrap_or(Value::Null))
}

#[test]
fn nodes_join_see_each_other_and_expire_without_heartbeats() {
    let house = House::up();
    let site = ["site", "create", "frankfurt", "--attribute", "country=DE", "--attribute", "region=EU"];
    assert_eq!(house.json(&site)["attributes"], json!({ "country": "DE", "region": "EU" }));
    let (a, b) = (Node::join(&house, "a", "frankfurt"), Node::join(&house, "b", "frankfurt"));
    let listed = house.json(&["node", "list", "--site", "frankfurt"]);
    assert_eq!(listed["rows"].as_array().unwrap().len(), 2, "{listed}");
    // A client that is not a node.
    let (status, refused) = send_request(&house, "self/beat", &[], &json!({}));
    assert_eq!(status, 401, "{refused}");

    house.until("a to see b", || {
        assert_eq!(b.beat(0).0, 200);
        a.sees(&b)
    });
    // Heartbeats go on meanwhile: on a slow machine the command takes longer than a lease.
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let b = &b;
        scope.spawn(move || {
            while matches!(is_done.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                assert_eq!(b.beat(0).0, 200);
            }
        });
        house.until("b to be there", || b.shown()["present"] == true);
        drop(done);
    });
    // Node b sends no more heartbeats.
    house.until("b to be gone", || !a.sees(&b));
    assert_eq!(b.shown()["present"], false);
    let lease_until: jiff::Timestamp = b.shown()["lease_until"].as_str().unwrap().parse().unwrap();
    assert!(jiff::Timestamp::now() >= lease_until, "not before its lease was over");
    house.until("b to be back", || {
        assert_eq!(b.beat(0).0, 200);
        a.sees(&b)
    });

    // A node's attributes follow its site.
    let update = ["site", "update", "frankfurt", "--attribute", "tier=1", "--without", "region"];
    let unasked = run(&mut house.bulla(&update));
    let message = stderr(&unasked);
    assert_eq!(unasked.status.code(), Some(2), "{}", describe(&unasked));
    assert!(message.contains("2 nodes at the site frankfurt") && message.contains("--yes"), "{message}");
    assert_eq!(a.shown()["attributes"]["region"], "EU", "nothing was changed");
    house.does(&[&update[..], &["--yes"]].concat());
    assert_eq!(a.shown()["attributes"], json!({ "country": "DE", "security": "high", "tier": "1" }));
    let full = run(&mut house.bulla(&["site", "delete", "frankfurt"]));
    assert_eq!(full.status.code(), Some(6), "{}", describe(&full));

    let unknown = run(&mut house.bulla(&["node", "token", "--site", "nosuch"]));
    assert_eq!(unknown.status.code(), Some(6), "{}", describe(&unknown));
    let message = stderr(&unknown);
    assert!(
        message.contains("there is no site \"nosuch\"") && message.contains("key site create"),
        "{message}"
    );

    for _ in 0..2 {
        house.does(&["node", "retire", "b", "--hostile", "--yes"]);
    }
    let (status, refused) = b.beat(0);
    assert!([401, 403, 409].contains(&status), "{status} {refused}");
    assert!(!a.sees(&b));
    assert_eq!(b.shown()["hostile"], true);
    assert_eq!(house.json(&["node", "list"])["rows"].as_array().unwrap().len(), 1);
    assert_eq!(house.json(&["node", "list", "--retired"])["rows"].as_array().unwrap().len(), 2);
    let tokens = house.json(&["node", "tokens"]);
    assert!(tokens["rows"].as_array().unwrap().iter().all(|token| token["used_at"].is_string()), "{tokens}");
    let audit = house.json(&["audit", "list", "--all"]);
    for action in
        ["key_site.create", "key_site.update", "key_node_token.create", "key_node.enroll", "key_node.retire"]
    {
        let found = audit["rows"].as_array().unwrap().iter().any(|row| row["action"] == action);
        assert!(found, "no {action} in the audit");
    }
}

#[test]
fn nodes_stay_members_after_a_server_restart() {
    let mut house = House::up();
    house.does(&["site", "create", "frankfurt", "--attribute", "country=DE", "--attribute", "region=EU"]);
    let (id, since) = {
        let node = Node::join(&house, "a", "frankfurt");
        house.until("the node to see itself", || node.sees(&node));
        (node.id.clone(), node.beat(0).1["membership"]["since"].as_i64().unwrap())
    };
    house.kill();
    house.start();
    let node = Node { house: &house, name: "a", id };
    let (status, found) = node.beat(since);
    assert_eq!(status, 200, "{found}");
    assert_eq!(found["membership"]["anew"], false, "it goes on where it was: {found}");
    house.until("the node to see itself", || node.sees(&node));
}
