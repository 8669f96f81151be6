//! Settings of the configuration file, tested on a running server.

use serde_json::{Value, json};

use super::House;
use crate::world::{describe, run};

/// Creates a key and a CSR for `names` in the test folder: `NAME.key` and `NAME.csr`.
pub(super) fn request(house: &House, name: &str, names: &str) {
    let (key, csr) = (format!("{name}.key"), format!("{name}.csr"));
    let to = ["-keyout", &key, "-out", &csr, "-subj", "/", "-addext", names];
    let kind = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    house.openssl(&[&kind[..], &to[..]].concat());
}

/// Enrols `NAME.csr` over EST (RFC 7030 section 4.2) with the client certificate of `by`. Returns the HTTP status.
fn enrol(house: &House, name: &str, by: &str) -> String {
    est(house, "simpleenroll", name, by)
}

fn est(house: &House, operation: &str, name: &str, by: &str) -> String {
    let csr = format!("{name}.csr");
    house.openssl(&["req", "-in", &csr, "-outform", "DER", "-out", "csr.der"]);
    house.openssl(&["base64", "-in", "csr.der", "-out", "csr.b64"]);
    let url = format!("{}/.well-known/est/{operation}", house.url());
    let root = house.root().display().to_string();
    let (certificate, key) = (format!("{by}.pem"), format!("{by}.key"));
    let who = ["--cacert", &root, "--cert", &certificate, "--key", &key];
    let what = ["-H", "Content-Type: application/pkcs10", "--data-binary", "@csr.b64", &url];
    let how = ["-sS", "-o", "answer", "-w", "%{http_code}"];
    let curl = house.program("curl", "apt-get install -y curl", &[&how[..], &who[..], &what[..]].concat());
    assert!(curl.status.success(), "{}", describe(&curl));
    String::from_utf8(curl.stdout).unwrap()
}

#[test]
fn configured_est_registrars_enroll_on_behalf_of_others() {
    let mut house = House::up();
    for name in ["registrar", "device"] {
        request(&house, name, &format!("subjectAltName=DNS:{name}.example"));
        let (csr, pem) = (format!("{name}.csr"), format!("{name}.pem"));
        house.does(&["cert", "issue", "--csr", &csr, "--profile", "client", "--file", &pem]);
    }
    request(&house, "other", "subjectAltName=DNS:other.example");
    assert_eq!(enrol(&house, "other", "registrar"), "403", "not told who registers");
    house.openssl(&["pkey", "-in", "registrar.key", "-pubout", "-outform", "DER", "-out", "spki.der"]);
    let hash = house.openssl(&["dgst", "-sha256", "-r", "spki.der"]);
    let hash = hash.split_whitespace().next().unwrap().to_owned();
    assert_eq!(house.stop(), Some(0));
    house.configure(&format!("[est]\nregistrars = [\"{hash}\"]\n"));
    house.start();
    assert_eq!(enrol(&house, "other", "registrar"), "200");
    assert_eq!(enrol(&house, "other", "device"), "403", "no registrar");
}

#[test]
fn default_profile_certificate_reenrolls_over_est_but_cannot_log_in() {
    let house = House::up_with("[est]\nprofiles = [\"default\"]\ndefault_profile = \"default\"\n", None);
    request(&house, "server", "subjectAltName=DNS:server.example");
    house.does(&["cert", "issue", "--csr", "server.csr", "--profile", "default", "--file", "server.pem"]);
    assert_eq!(est(&house, "simplereenroll", "server", "server"), "200");
    // Decodes as scripts do. coreutils rejects text that is not base64, and lines that end with CR.
    let decode = "base64 -d answer | openssl pkcs7 -inform DER -print_certs -out renewed.pem";
    let decoded = house.program("bash", "apt-get install -y bash", &["-o", "pipefail", "-c", decode]);
    assert!(decoded.status.success(), "{}", describe(&decoded));
    let renewed = house.openssl(&["x509", "-in", "renewed.pem", "-noout", "-subject"]);
    assert!(renewed.contains("server.example"), "{renewed}");

    // Only a client certificate identifies a client. The error names the setting.
    assert_eq!(est(&house, "simpleenroll", "server", "server"), "403");
    let response = std::fs::read_to_string(house.path("answer")).unwrap();
    assert!(response.contains("extended_key_usage"), "{response}");
    let url = format!("{}/api/v1/auth/me", house.url());
    let root = house.root().display().to_string();
    let curl = ["-sS", "--cacert", &root, "--cert", "server.pem", "--key", "server.key", &url];
    let response = house.program("curl", "apt-get install -y curl", &curl);
    let response = String::from_utf8(response.stdout).unwrap();
    assert!(response.contains("\"status\":401") && response.contains("clientAuth"), "{response}");
}

#[test]
fn incomplete_master_key_rotation_reports_remaining_and_is_resumed() {
    let mut house = House::up();
    let issuer = |name: &str| json!({"name": name, "config": {"type": "webhook", "url": "https://127.0.0.1:1/", "secret": "0123456789abcdef0123456789abcdef"}});
    let keys = |current: &str, older: &[&str]| {
        format!("[authority]\nmaster_key_file = {current:?}\nold_master_key_files = {older:?}\n")
    };
    let first = house.path("data/master.key").display().to_string();
    let second = house.path("second.key").display().to_string();
    house.openssl(&["rand", "-out", &second, "32"]);
    std::fs::set_permissions(&second, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(house.stop(), Some(0));

    // Seal a value with the second key, then remove that key from the configuration.
    house.configure(&keys(&second, &[&first]));
    house.start();
    std::fs::write(house.path("issuer.json"), issuer("hook").to_string()).unwrap();
    house.does(&["issuer", "create", "--file", "issuer.json"]);
    assert_eq!(house.stop(), Some(0));
    house.configure(&keys(&first, &[]));
    house.start();
    let rotated = run(&mut house.bulla(&["key", "rotate", "--output", "json"]));
    assert_eq!(rotated.status.code(), Some(1), "{}", describe(&rotated));
    let report: Value = serde_json::from_slice(&rotated.stdout).unwrap();
    assert!(
        report["remaining"].as_u64().unwrap() >= 1 && !report["failed"].as_array().unwrap().is_empty(),
        "{report}"
    );
    assert_eq!(house.stop(), Some(0));

    // The second key is configured again, as an older key. The rotation completes, and the second key is no longer needed.
    house.configure(&keys(&first, &[&second]));
    house.start();
    let report = house.json(&["key", "rotate"]);
    assert_eq!((&report["remaining"], &report["failed"]), (&json!(0), &json!([])), "{report}");
    assert!(report["rewrapped"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(house.stop(), Some(0));
    house.configure(&keys(&first, &[]));
    house.start();
    let repeated = house.json(&["key", "rotate"]);
    assert_eq!((&repeated["remaining"], &repeated["rewrapped"]), (&json!(0), &json!(0)), "{repeated}");
    assert_eq!(house.stop(), Some(0));
}

#[test]
fn agent_groups_are_managed_by_command_and_raw_api_calls() {
    let house = House::up();
    let group = json!({"name": "web", "selector": {"role": "web"}, "description": "web servers"});
    std::fs::write(house.path("group.json"), group.to_string()).unwrap();
    house.does(&["agent", "group", "create", "--file", "group.json"]);
    let change = json!({"selector": {"role": "proxy"}});
    std::fs::write(house.path("change.json"), change.to_string()).unwrap();
    house.does(&["agent", "group", "update", "web", "--file", "change.json"]);
    assert_eq!(house.json(&["agent", "group", "show", "web"])["selector"]["role"], "proxy");
    let by_route = house.does(&["api", "/api/v1/agent-groups?limit=1"]);
    let page: Value = serde_json::from_slice(&by_route.stdout).unwrap();
    assert_eq!(page["items"][0]["name"], "web", "{page}");
    house.does(&["api", "-X", "DELETE", "/api/v1/agent-groups/web"]);
    assert_eq!(house.json(&["agent", "group", "list"])["rows"], json!([]));
    let elsewhere = run(&mut house.bulla(&["api", "https://example.net/"]));
    assert_eq!(elsewhere.status.code(), Some(2), "{}", describe(&elsewhere));
}

#[test]
fn limits_in_effect_are_listed_with_their_source() {
    let mut house =
        House::prepared("[limits]\naccount_failures_per_s = 3\n[audit]\nseal_after_days = 31\n", None);
    house.environment("BULLA_SERVER_READ_TIMEOUT_S", "77");
    house.start();
    let all = house.json(&["config", "limits", "--all"])["rows"].clone();
    let of = |name: &str| {
        let one = all.as_array().unwrap().iter().find(|one| one["name"] == *name);
        let one = one.unwrap_or_else(|| panic!("no {name}: {all}"));
        (one["kind"].clone(), one["value"].clone(), one["unit"].clone(), one["source"].clone())
    };
    let row = |kind: &str, value: Value, unit: Value, source: &str| (json!(kind), value, unit, json!(source));
    assert_eq!(of("audit.seal_after_days"), row("retention", json!(31), json!("days"), "file"));
    assert_eq!(of("server.read_timeout_s"), row("timeout", json!(77), json!("seconds"), "environment"));
    assert_eq!(of("limits.account_failures_per_s"), row("limit", json!(3), json!("per second"), "file"));
    assert_eq!(of("inventory.observations_days").3, "default");
    assert_eq!(of("events"), row("retention", json!(7), json!("days"), "built-in"));
    // A viewer may not see the settings.
    let made = house.json(&["token", "create", "viewer", "--role", "viewer"]);
    let made = made["rows"].get(0).unwrap_or(&made);
    std::fs::write(house.path("viewer.token"), made["token"].as_str().unwrap()).unwrap();
    let refused = house.bulla(&["config", "limits", "--token-file", "viewer.token"]).output().unwrap();
    assert!(describe(&refused).contains("access.read"), "{}", describe(&refused));
}
