//! Key policies, from the formula to the key that opens at one site and not at another.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keys::sealed::{NodeKey, PolicyKey, SealContext, WrapContext};
use keys::{PrivateKey, Signer as _};
use serde_json::{Value, json};
use uuid::Uuid;

use super::House;
use crate::world::{describe, run};

/// A host that has joined: its keys and its certificate.
struct Node<'h> {
    house: &'h House,
    name: &'static str,
    id: Uuid,
    key: NodeKey,
}

impl<'h> Node<'h> {
    fn join(house: &'h House, name: &'static str, site: &str) -> Self {
        let token = house.json(&["node", "token", "--site", site])["token"].clone();
        let (file, csr) = (format!("{name}.key"), format!("{name}.csr"));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        house.openssl(
            &[&["req", "-new", "-subj", "/CN=x"][..], &curve, &["-keyout", &file, "-out", &csr]].concat(),
        );
        let key = NodeKey::generate().unwrap();
        let body = json!({
            "token": token,
            "csr_pem": std::fs::read_to_string(house.path(&csr)).unwrap(),
            "kem": key.public().to_text(),
            "address": "127.0.0.1:2410",
            "name": name,
        })
        .to_string();
        let post = ["-X", "POST", "-H", "content-type: application/json", "--data-binary", &body];
        let joined = send_request(house, "enroll", &post);
        let certificate = joined["certificate_pem"].as_str().unwrap();
        std::fs::write(house.path(&format!("{name}.pem")), certificate).unwrap();
        Self { house, name, id: joined["node"].as_str().unwrap().parse().unwrap(), key }
    }

    fn state(&self) -> Value {
        let (certificate, key) = (format!("{}.pem", self.name), format!("{}.key", self.name));
        let state = send_request(self.house, "self/state?after=0", &["--cert", &certificate, "--key", &key]);
        assert_eq!(state["more"], false);
        state
    }

    /// Returns the public halves of the sealed keys that this node can open, from the state the server sends.
    fn opens(&self) -> Vec<Vec<u8>> {
        let (state, mut pairs) = (self.state(), HashMap::new());
        let bytes = |text: &Value| STANDARD.decode(text.as_str().unwrap()).unwrap();
        let part = |of: &Value| -> (Uuid, u32) {
            (of["policy"].as_str().unwrap().parse().unwrap(), of["generation"].as_u64().unwrap() as u32)
        };
        for wrap in state["wraps"].as_array().unwrap().iter().filter(|wrap| !wrap["blob"].is_null()) {
            let (policy, generation) = part(wrap);
            let (policy, node) = (policy.into_bytes(), self.id.into_bytes());
            let context = WrapContext { policy, generation, node };
            let pair: PolicyKey = self.key.unwrap_seed(&bytes(&wrap["blob"]), &context).unwrap();
            pairs.insert(part(wrap), pair);
        }
        let mut open = Vec::new();
        for key in state["keys"].as_array().unwrap().iter().filter(|key| !key["blob"].is_null()) {
            let Some(pair) = pairs.get(&part(key)) else { continue };
            let ((policy, generation), spki) = (part(key), bytes(&key["spki"]));
            let spki_sha256 = *x509::SpkiHash::of(&spki).as_bytes();
            let context = SealContext { policy: policy.into_bytes(), generation, spki_sha256 };
            open.push(pair.open_key(&bytes(&key["blob"]), &context).unwrap().spki().to_vec());
        }
        open
    }
}

/// Sends a request as a node.
fn send_request(house: &House, path: &str, how: &[&str]) -> Value {
    let (root, url) =
        (house.root().display().to_string(), format!("{}/api/v1/key-nodes/{path}", house.url()));
    let with = ["-sS", "--fail-with-body", "--max-time", "60", "--cacert", &root];
    let output = house.program("curl", "apt-get install -y curl", &[&with[..], how, &[&url]].concat());
    assert!(output.status.success(), "{}", describe(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn sealed_key_opens_only_on_nodes_matching_its_policy() {
    let house = House::up();
    for (site, country) in [("frankfurt", "country=DE"), ("tokyo", "country=JP")] {
        house.does(&["site", "create", site, "--attribute", country]);
    }
    let (f1, f2) = (Node::join(&house, "f1", "frankfurt"), Node::join(&house, "f2", "frankfurt"));
    let t1 = Node::join(&house, "t1", "tokyo");

    let resolved = house.json(&["key-policy", "check", "country: DE or not country: JP"]);
    let nodes = resolved["nodes"].as_array().unwrap().iter();
    let names: Vec<_> = nodes.map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!((names, &resolved["enrolled"]), (vec!["f1", "f2"], &json!(3)));
    let nobody = run(&mut house.bulla(&["key-policy", "create", "us", "country: US", "--yes"]));
    let message = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(!nobody.status.success() && message.contains("the nodes have country: DE, JP"), "{message}");
    let wrong = run(&mut house.bulla(&["key-policy", "check", "country: DE or"]));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("column 15"), "{}", describe(&wrong));
    let unasked = run(&mut house.bulla(&["key-policy", "create", "de", "country: DE"]));
    let message = String::from_utf8_lossy(&unasked.stderr).into_owned();
    assert!(
        !unasked.status.success() && message.contains("f1 at frankfurt") && message.contains("--yes"),
        "{message}"
    );
    let made = house.json(&["key-policy", "create", "de", "country: DE", "--yes"]);
    assert_eq!((&made["nodes"], &made["generations"][0]["wrapped"]), (&json!(2), &json!(2)));

    // The key is sealed on this host. The server's database and log do not have it.
    house.openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "www.key"]);
    let file = house.path("www.key").display().to_string();
    let sealed = house.json(&["key", "seal", "--policy", "de", "--key", &file]);
    let key = PrivateKey::from_file(&house.path("www.key")).unwrap();
    assert_eq!(sealed["spki_sha256"], key.spki_hash().to_string());
    assert_eq!((&sealed["name"], &sealed["kind"]), (&json!("www"), &json!("p256")));
    for node in [&f1, &f2] {
        assert_eq!(node.opens(), [key.spki()]);
    }
    let state = t1.state();
    assert_eq!((state["keys"].as_array().unwrap().len(), state["wraps"].as_array().unwrap().len()), (1, 0));

    // One node is no longer trusted: the policy gets a new key pair, and the key is re-encrypted to it.
    let unasked = run(&mut house.bulla(&["node", "retire", "f2", "--hostile"]));
    let message = String::from_utf8_lossy(&unasked.stderr).into_owned();
    assert_eq!(unasked.status.code(), Some(2), "{}", describe(&unasked));
    assert!(message.contains("sealed under them: de") && message.contains("--yes"), "{message}");
    assert_eq!(house.json(&["node", "show", "f2"])["hostile"], false);
    let unasked = run(&mut house.bulla(&["site", "update", "frankfurt", "--attribute", "country=AT"]));
    let message = String::from_utf8_lossy(&unasked.stderr).into_owned();
    assert!(!unasked.status.success() && message.contains("de: lost by 2 nodes (f1, f2)"), "{message}");
    house.does(&["node", "retire", "f2", "--hostile", "--yes"]);
    house.until("the key to be sealed anew and the former pair to be gone", || {
        let shown = house.json(&["key-policy", "show", "de"]);
        let generations = shown["generations"].as_array().unwrap();
        generations.len() == 1 && generations[0]["generation"] == 2 && generations[0]["keys"] == 1
    });
    assert_eq!(f1.opens(), [key.spki()]);
    house.until("the wraps of the former pair to be withdrawn", || {
        let wraps = f1.state()["wraps"].as_array().unwrap().clone();
        wraps.iter().filter(|wrap| !wrap["blob"].is_null()).count() == 1
    });
    // A node that joins later gets its keys automatically.
    let f3 = Node::join(&house, "f3", "frankfurt");
    house.until("the new node to open the key", || f3.opens() == [key.spki()]);

    let listed = house.json(&["key", "sealed"]);
    assert_eq!(listed["rows"][0]["generation"], 2, "{listed}");
    assert_eq!(listed["rows"][0]["policy_name"], "de", "{listed}");
    let table = run(&mut house.bulla(&["key", "sealed"]));
    let shown = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(shown.lines().any(|line| line.split_whitespace().any(|word| word == "de")), "{shown}");
    let full = run(&mut house.bulla(&["key-policy", "delete", "de"]));
    assert_eq!(full.status.code(), Some(6), "{}", describe(&full));
    house.does(&["key", "withdraw", &key.spki_hash().to_string(), "--yes"]);
    assert_eq!(f1.opens(), [[0_u8; 0]; 0]);
    house.does(&["key-policy", "delete", "de"]);
    assert_eq!(house.json(&["key-policy", "list"])["rows"], json!([]));
    let audit = house.json(&["audit", "list", "--all"]);
    for action in [
        "key_policy.create",
        "key_policy.rotate",
        "key_policy.retire_generations",
        "key_policy.delete",
        "sealed_key.put",
        "sealed_key.withdraw",
    ] {
        let is_recorded = audit["rows"].as_array().unwrap().iter().any(|row| row["action"] == action);
        assert!(is_recorded, "no {action} in the audit");
    }
}
