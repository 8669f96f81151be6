//! Keys of managed certificates: the key service signs with them, whichever process renews.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use keyless::native::proto::{Scheme, SignRequest, sign_request::Key};
use keyless::native::{CallOptions, Client};

use super::House;
use crate::world::{describe, run, stderr};

/// A command that runs until it is dropped.
pub(super) struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `bulla key serve`, and waits until it signs. Returns the number of keys that it reports.
fn serve(house: &House) -> (Service, usize) {
    let (service, printed) =
        started(&mut house.bulla(&["keys", "serve", "--inventory"]), "bulla signs with ");
    (service, printed.split(' ').next().unwrap().parse().unwrap())
}

/// Starts a command, and waits for a line with this beginning. Returns the rest of the line.
pub(super) fn started(command: &mut Command, begin: &str) -> (Service, String) {
    let (service, rest, _) = started_saying(command, begin);
    (service, rest)
}

/// Like [`started`], and also returns the earlier output.
pub(super) fn started_saying(command: &mut Command, begin: &str) -> (Service, String, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let service = Service(child);
    let mut printed = String::new();
    loop {
        let line = lines.next().unwrap_or_else(|| panic!("it ended: {printed}")).unwrap();
        if let Some(rest) = line.strip_prefix(begin) {
            let rest = rest.to_owned();
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return (service, rest, printed);
        }
        printed += &(line + "\n");
    }
}

/// Writes the current chain and its public key. Returns the SHA-256 of the key.
fn current(house: &House, name: &str) -> [u8; 32] {
    let path = |ending: &str| house.path(&format!("{name}.{ending}")).display().to_string();
    let _ = std::fs::remove_file(path("pem"));
    house.does(&["cert", "export", name, "--file", &path("pem")]);
    house.openssl(&["x509", "-in", &path("pem"), "-pubkey", "-noout", "-out", &path("pub")]);
    let text = std::fs::read(path("pem")).unwrap();
    let (_, der) = x509::pem::certificates(&text).next().unwrap();
    *x509::Certificate::parse(&der).unwrap().public_key.spki_sha256.as_bytes()
}

fn is_active(house: &House, name: &str, versions: usize) -> bool {
    let shown = house.json(&["cert", "show", name]);
    let all = house.json(&["cert", "versions", name]);
    let count = all["rows"].as_array().map_or(0, Vec::len);
    shown["status"] == "active" && count == versions
}

#[test]
fn key_service_signs_with_keys_renewed_by_the_control_plane() {
    let more = "[keys]\nnative_socket = \"native.sock\"\nmetrics_listen = \"\"\nreload_s = 1\n";
    let house = House::up_with(more, None);
    house.does(&["cert", "create", "a.example.org", "--profile", "default"]);
    house.until("the first version", || is_active(&house, "a.example.org", 1));
    let (_service, count) = serve(&house);
    assert_eq!(count, 1, "the authorities' own keys sign for nobody");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(async { Client::socket(house.path("native.sock")) });
    let sign = |spki: [u8; 32]| {
        let mut request = SignRequest { key: Some(Key::SpkiSha256(spki.to_vec())), ..SignRequest::default() };
        request.input = vec![7; 32];
        request.set_scheme(Scheme::EcdsaSha256);
        runtime.block_on(client.sign(request, CallOptions::within(std::time::Duration::from_secs(30))))
    };
    std::fs::write(house.path("digest"), [7; 32]).unwrap();
    let verified = |name: &str, spki: [u8; 32]| {
        std::fs::write(house.path("signature"), sign(spki).unwrap()).unwrap();
        house.openssl(&[
            "pkeyutl",
            "-verify",
            "-pubin",
            "-inkey",
            &format!("{name}.pub"),
            "-in",
            "digest",
            "-sigfile",
            "signature",
        ]);
    };
    let first = current(&house, "a.example.org");
    verified("a.example.org", first);

    // After a renewal the key service signs with the new key. It also signs with the old one while that version is served.
    house.does(&["cert", "renew", "a.example.org"]);
    house.until("the second version", || is_active(&house, "a.example.org", 2));
    let second = current(&house, "a.example.org");
    assert_ne!(first, second);
    house.until("it is signed for", || sign(second).is_ok());
    verified("a.example.org", second);
    assert!(sign(first).is_ok());
}

/// The whole chain: the control plane renews, the key service signs, the terminator serves, and no handshake fails.
#[test]
fn renewal_reaches_the_tls_terminator_without_failed_handshakes() {
    let more = "[keys]\nmetrics_listen = \"\"\nreload_s = 1\n[edge]\nmetrics_listen = \"\"\nreload_s = 1\n";
    let mut house = House::up_with(more, None);
    let create =
        |name: &str, tag: &str| house.does(&["cert", "create", name, "--profile", "default", "--tag", tag]);
    create("a.example.org", "edge=web");
    create("b.example.org", "edge=mail");
    for name in ["a.example.org", "b.example.org"] {
        house.until("the first version", || is_active(&house, name, 1));
    }
    let _service = serve(&house);
    let edge = [
        "edge",
        "--inventory",
        "--inventory-tag",
        "edge=web",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        "127.0.0.1:1",
    ];
    let start = |house: &House| {
        let (service, printed) = started(&mut house.bulla(&edge), "bulla terminates TLS with ");
        let address = printed.split(" at ").nth(1).unwrap().split(',').next().unwrap().to_owned();
        (service, printed, address)
    };
    let (terminator, printed, address) = start(&house);
    assert!(printed.starts_with("1 certificate at "), "{printed}");
    let root = house.root().display().to_string();
    // Every handshake must verify. Returns the serial number of the presented certificate.
    let serial = |address: &str| {
        let script = format!(
            "openssl s_client -connect {address} -servername a.example.org -verify_return_error -CAfile {root} \
             -verify_hostname a.example.org < /dev/null 2>&1 | tee said | openssl x509 -noout -serial"
        );
        let shown = house.program("sh", "apt-get install -y dash", &["-c", &script]);
        let printed = std::fs::read_to_string(house.path("said")).unwrap();
        assert!(printed.contains("Verify return code: 0 (ok)"), "{printed}");
        String::from_utf8(shown.stdout).unwrap()
    };
    let first = serial(&address);
    house.does(&["cert", "renew", "a.example.org"]);
    house.until("the renewed one is presented", || serial(&address) != first);
    let second = serial(&address);

    // The terminator works without the control plane, also after a restart.
    drop(terminator);
    assert_eq!(house.stop(), Some(0));
    let (_terminator, printed, address) = start(&house);
    assert!(printed.starts_with("1 certificate at "), "{printed}");
    let shown = house.program(
        "sh",
        "apt-get install -y dash",
        &["-c", &format!("openssl s_client -connect {address} -servername a.example.org < /dev/null | openssl x509 -noout -serial")],
    );
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), second);
    let files: Vec<String> = std::fs::read_dir(house.path("data/edge"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".pem"))
        .collect();
    assert_eq!(files, ["a.example.org.pem"], "those with the tag alone");
}

#[test]
fn key_service_does_not_start_without_keys_or_the_master_key() {
    let mut house = House::up();
    house.stop();
    let none = run(&mut house.bulla(&["keys", "serve"]));
    assert_eq!(none.status.code(), Some(2), "{}", describe(&none));
    assert!(stderr(&none).contains("--inventory"), "{}", describe(&none));
    std::fs::rename(house.path("data/master.key"), house.path("kept.key")).unwrap();
    let other = run(&mut house.bulla(&["keys", "serve", "--inventory"]));
    assert_eq!(other.status.code(), Some(5), "{}", describe(&other));
    assert!(stderr(&other).contains("master key"), "{}", describe(&other));
    assert!(!house.path("data/master.key").exists(), "none is made");
    let nowhere = house.path("elsewhere");
    let missing = run(house.bulla(&["keys", "serve", "--inventory"]).env("BULLA_DATA", &nowhere));
    assert!(!missing.status.success(), "{}", describe(&missing));
    assert!(stderr(&missing).contains("no inventory at"), "{}", describe(&missing));
    assert!(!nowhere.join("inventory.db").exists());
}
