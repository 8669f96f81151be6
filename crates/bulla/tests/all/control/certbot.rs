//! certbot, as packaged by Debian.

use std::path::Path;
use std::process::{Command, Output};

use super::House;
use crate::world::describe;

const INSTALL: &str = "apt-get install -y certbot";

fn certbot(house: &House, arguments: &[&str]) -> Output {
    let port = house.http_port.to_string();
    let directory = format!("{}/acme/directory", house.url());
    let folder = house.path("certbot");
    let of = |name: &str| folder.join(name).display().to_string();
    let output = Command::new("certbot")
        .env("REQUESTS_CA_BUNDLE", house.root())
        .args(arguments)
        .args(["--server", &directory, "--non-interactive", "--http-01-port", &port])
        .args(["--http-01-address", "127.0.0.1"])
        .args(["--config-dir", &of("config"), "--work-dir", &of("work"), "--logs-dir", &of("logs")])
        .output()
        .unwrap_or_else(|error| panic!("this test needs certbot: {INSTALL} ({error})"));
    assert!(output.status.success(), "certbot {}: {}", arguments.join(" "), describe(&output));
    output
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn certbot_gets_renews_and_revokes_a_certificate() {
    let house = House::up();
    let names = ["-d", "www.shop.example", "-d", "shop.example"];
    let options = ["certonly", "--standalone", "--agree-tos", "--register-unsafely-without-email"];
    certbot(&house, &[&options[..], &names[..]].concat());
    let live = house.path("certbot/config/live/www.shop.example");
    let leaf = live.join("cert.pem");
    let (root, chain) = (house.root().display().to_string(), live.join("chain.pem").display().to_string());
    let leaf_text = leaf.display().to_string();
    let verify =
        ["verify", "-CAfile", &root, "-untrusted", &chain, "-verify_hostname", "shop.example", &leaf_text];
    house.openssl(&verify);
    let first = read(&leaf);
    certbot(&house, &["renew", "--force-renewal", "--no-random-sleep-on-renew"]);
    assert_ne!(first, read(&leaf), "renewed");
    house.openssl(&verify);
    // Certificates issued by ACME are recorded like all others.
    let found = house.json(&["audit", "list", "--action", "certificate.issue", "--all"]);
    let by_acme = found["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["actor"].as_str().unwrap().starts_with("acme:"));
    assert_eq!(by_acme.count(), 2);
    // The certificate is good until it is revoked, by CRL and by OCSP.
    let responder = format!("http://127.0.0.1:{}", house.public_port);
    let ocsp_url = house.openssl(&["x509", "-noout", "-ocsp_uri", "-in", &leaf_text]);
    assert!(ocsp_url.contains(&house.public_port.to_string()), "{ocsp_url} {responder}");
    let ocsp_status = || {
        house.openssl(&[
            "ocsp",
            "-issuer",
            &chain,
            "-cert",
            &leaf_text,
            "-url",
            ocsp_url.trim(),
            "-CAfile",
            &root,
            "-no_nonce",
        ])
    };
    let status = ocsp_status();
    assert!(status.contains(": good"), "{status}");
    certbot(
        &house,
        &["revoke", "--cert-path", &leaf_text, "--reason", "superseded", "--no-delete-after-revoke"],
    );
    house.until("the revocation by OCSP", || ocsp_status().contains(": revoked"));
    house.until("the revocation by CRL", || crl_check(&house, &root, &chain, &leaf_text));
}

/// Returns whether openssl finds the certificate revoked on the CRL that the certificate names.
pub(super) fn crl_check(house: &House, root: &str, chain: &str, leaf: &str) -> bool {
    let text = house.openssl(&["x509", "-noout", "-text", "-in", leaf]);
    let url = text
        .lines()
        .map(str::trim)
        .find_map(|line| line.strip_prefix("URI:").filter(|url| url.contains("/crl/")));
    let url = url.unwrap_or_else(|| panic!("no CRL is named: {text}"));
    let fetched = house.program("curl", "apt-get install -y curl", &["-fsS", "-o", "leaf.crl", url]);
    assert!(fetched.status.success(), "{}", describe(&fetched));
    house.openssl(&["crl", "-inform", "DER", "-in", "leaf.crl", "-out", "leaf.crl.pem"]);
    let arguments =
        ["verify", "-crl_check", "-CRLfile", "leaf.crl.pem", "-CAfile", root, "-untrusted", chain, leaf];
    let output = house.program("openssl", "apt-get install -y openssl", &arguments);
    String::from_utf8_lossy(&output.stderr).contains("certificate revoked")
        || String::from_utf8_lossy(&output.stdout).contains("certificate revoked")
}
