//! CA keys in a signer process: the server issues through it, runs without it, and loses nothing.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::House;
use super::configured::request;
use crate::world::{describe, run};

struct Signer(Child);

impl Signer {
    /// Starts a signer on the server's database, with its own folder.
    fn start(house: &House) -> Self {
        let mut command = Self::command(house, &[]);
        let mut signer = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(signer.stderr.take().unwrap()).lines();
        let mut printed = String::new();
        loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("the signer did not start: {:?}\n{printed}", signer.wait());
            };
            printed.push_str(&line);
            printed.push('\n');
            if line.starts_with("the signer listens on ") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(|line| eprintln!("signer: {}", line.unwrap_or_default())));
        Self(signer)
    }

    fn command(house: &House, more: &[&str]) -> Command {
        let database = house.path("data/inventory.db").display().to_string();
        let mut command =
            house.bulla(&[&["serve", "--roles", "signer", "--db", database.as_str()], more].concat());
        command.env("BULLA_DATA", house.path("signer"));
        command
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates a server whose configuration names a signer, and the folders of both.
fn apart() -> House {
    let mut house = House::prepared("", None);
    for folder in ["data", "run"] {
        std::fs::DirBuilder::new().mode(0o700).create(house.path(folder)).unwrap();
    }
    house.configure(&configuration(&house));
    house
}

fn configuration(house: &House) -> String {
    format!("[signer]\nsocket = {:?}\n", house.path("run/socket"))
}

/// Sends a request with curl and the first admin token. Returns head and body of the response.
fn send_request(house: &House, path: &str, body: Option<&str>) -> (String, Value) {
    let token = std::fs::read_to_string(house.path("data/admin.token")).unwrap();
    let who = format!("Authorization: Bearer {}", token.trim());
    let url = format!("{}{path}", house.url());
    let root = house.root().display().to_string();
    let mut arguments = vec!["-sS", "-D", "-", "-o", "answer", "--cacert", &root, "-H", &who];
    if let Some(body) = body {
        arguments.extend(["-H", "Content-Type: application/json", "-H", "Idempotency-Key: the-one"]);
        arguments.extend(["--data-binary", body]);
    }
    arguments.push(&url);
    let output = house.program("curl", "apt-get install -y curl", &arguments);
    assert!(output.status.success(), "{}", describe(&output));
    let answer = std::fs::read_to_string(house.path("answer")).unwrap();
    let head = String::from_utf8(output.stdout).unwrap().to_lowercase();
    (head, serde_json::from_str(&answer).unwrap_or_default())
}

fn status(head: &str) -> &str {
    head.split_whitespace().nth(1).unwrap()
}

/// Starts certbot for one name. It waits for its certificate.
fn certbot(house: &House, name: &str) -> Child {
    let of = |folder: &str| house.path("certbot").join(folder).display().to_string();
    let (port, directory) = (house.http_port.to_string(), format!("{}/acme/directory", house.url()));
    Command::new("certbot")
        .env("REQUESTS_CA_BUNDLE", house.root())
        .args(["certonly", "--standalone", "--agree-tos", "--register-unsafely-without-email"])
        .args(["--server", &directory, "--non-interactive", "--http-01-port", &port])
        .args(["--http-01-address", "127.0.0.1", "-d", name])
        .args(["--config-dir", &of("config"), "--work-dir", &of("work"), "--logs-dir", &of("logs")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs certbot: apt-get install -y certbot ({error})"))
}

fn has_certificate(house: &House, name: &str) -> bool {
    house.path("certbot/config/live").join(name).join("cert.pem").exists()
}

#[test]
fn server_issues_through_a_signer_and_survives_its_outage() {
    let mut house = apart();
    let signer = Signer::start(&house);
    house.start();

    // The server has its own master key for everything but CA keys, and does not have the signer's.
    assert!(house.path("signer/signer.key").exists() && !house.path("data/signer.key").exists());
    let keys = house.json(&["audit", "list", "--action", "key.generate", "--all"]);
    let of_cas: Vec<&Value> = keys["rows"].as_array().unwrap().iter().map(|row| &row["details"]).collect();
    let of_cas: Vec<_> = of_cas
        .iter()
        .filter(|key| key["label"].as_str().is_some_and(|label| label.starts_with("CA ")))
        .collect();
    assert!(of_cas.len() == 2 && of_cas.iter().all(|key| key["provider"] == "signer"), "{keys}");

    request(&house, "first", "subjectAltName=DNS:first.example");
    house.does(&["cert", "issue", "--csr", "first.csr", "--profile", "default", "--file", "first.pem"]);
    let output = certbot(&house, "acme.example").wait_with_output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(status(&send_request(&house, "/readyz", None).0), "200");

    signer.kill();
    let csr = std::fs::read_to_string(house.path("first.csr")).unwrap();
    let body = json!({ "csr": csr }).to_string();
    let issue = || send_request(&house, "/api/v1/profiles/default/certificates", Some(&body));
    let (head, problem) = issue();
    assert_eq!(status(&head), "503", "{problem}");
    assert!(head.contains("retry-after: "), "{head}");
    assert!(problem["detail"].as_str().unwrap().contains("the signer at "), "{problem}");
    let (head, problem) = send_request(&house, "/readyz", None);
    assert_eq!(status(&head), "503", "{problem}");
    assert!(head.contains("retry-after: ") && problem["detail"].as_str().unwrap().contains("signer"));
    assert_eq!(status(&send_request(&house, "/healthz", None).0), "200");
    let waiting = certbot(&house, "later.example");
    let log = house.path("certbot/logs/letsencrypt.log");
    let is_processing = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"processing\""));
    house.until("an order that waits for the signer", is_processing);
    assert!(!has_certificate(&house, "later.example"));

    let _signer = Signer::start(&house);
    let (head, issued) = issue();
    assert_eq!(status(&head), "201", "{issued}");
    let repeated = issue().1;
    assert_eq!(repeated["certificate"], issued["certificate"], "under one idempotency key there is one");
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    assert!(has_certificate(&house, "later.example"), "the order went on");
    assert_eq!(status(&send_request(&house, "/readyz", None).0), "200");
    assert_eq!(house.stop(), Some(0));
}

#[test]
fn ca_keys_are_moved_from_the_server_to_a_signer() {
    let mut house = House::up();
    request(&house, "first", "subjectAltName=DNS:first.example");
    house.does(&["cert", "issue", "--csr", "first.csr", "--profile", "default", "--file", "first.pem"]);
    assert_eq!(house.stop(), Some(0));
    std::fs::DirBuilder::new().mode(0o700).create(house.path("run")).unwrap();
    let socket = configuration(&house);
    let servers = house.path("data/master.key");
    let masters = format!("[authority]\nold_master_key_files = [{servers:?}]\n");

    // Without the server's master key the signer moves nothing, and reports the missing setting.
    house.configure(&socket);
    let refused = run(&mut Signer::command(&house, &["--move-ca-keys"]));
    let printed = describe(&refused);
    assert!(!refused.status.success() && printed.contains("old_master_keys"), "{printed}");
    // The signer does not start with the server's master key as its own.
    house.configure(&format!("{socket}[authority]\nmaster_key_file = {servers:?}\n"));
    let refused = run(&mut Signer::command(&house, &[]));
    let printed = describe(&refused);
    assert!(
        !refused.status.success() && printed.contains("the signer and the server have the same master key"),
        "{printed}"
    );

    house.configure(&format!("{socket}{masters}"));
    let moved = run(&mut Signer::command(&house, &["--move-ca-keys"]));
    assert!(moved.status.success(), "{}", describe(&moved));
    house.configure(&socket);
    let _signer = Signer::start(&house);
    house.start();
    let renewed = ["cert", "issue", "--csr", "first.csr", "--profile", "default", "--file", "second.pem"];
    house.does(&renewed);
    let root = house.root().display().to_string();
    house.openssl(&["verify", "-CAfile", &root, "-untrusted", "second.pem", "second.pem"]);
    let moved = house.json(&["audit", "list", "--action", "key.move", "--all"]);
    assert_eq!(moved["rows"].as_array().unwrap().len(), 2, "{moved}");
    // The server alone can no longer sign.
    assert_eq!(house.stop(), Some(0));
    house.configure("");
    let failed = house.try_start().unwrap_err();
    assert!(failed.contains("\"signer\" is not configured"), "{failed}");
}

#[test]
fn signer_does_not_start_in_a_folder_open_to_others() {
    let mut house = apart();
    std::fs::set_permissions(house.path("run"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = run(&mut Signer::command(&house, &[]));
    let printed = describe(&refused);
    assert!(!refused.status.success() && printed.contains("chmod 700"), "{printed}");
    house.configure("");
    let refused = run(&mut Signer::command(&house, &[]));
    let printed = describe(&refused);
    assert!(!refused.status.success() && printed.contains("signer.socket is empty"), "{printed}");
}
