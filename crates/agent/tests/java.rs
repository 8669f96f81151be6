//! Tests of key stores with Java's `keytool`. `.ci/interop java` installs it and runs these tests.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the modules shared with tests/all have more than is used here"
)]

#[path = "all/deploy/world.rs"]
mod world;

use std::path::Path;
use std::process::Command;

use agent::deploy::Outcome;
use keys::KeyType;
use serde_json::json;

use world::{Host, target};

fn keytool(arguments: &[&str], store: &Path) -> Result<String, String> {
    let output = Command::new("keytool")
        .args(arguments)
        .arg("-keystore")
        .arg(store)
        .args(["-J-Duser.language=en", "-storepass", "changeit"])
        .output()
        .expect("keytool is needed: apt-get install -y default-jre-headless");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// Tests a key store of every format with every key type that Java reads.
#[tokio::test]
async fn keytool_reads_certificate_chain_and_key() {
    for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048, KeyType::Ed25519] {
        for form in ["jks", "pkcs12"] {
            let host = Host::new();
            let material = host.issuer.material_with("a.example", kind);
            let described = target(json!({"type": "jks", "format": form, "alias": "Web",
                "file": host.etc("store"), "password": "changeit"}));
            let report = host.deployer().deploy(host.target, &described, &material).await;
            assert_eq!((report.outcome, report.error), (Outcome::Deployed, None), "{kind} {form}");
            check(&host.etc("store"), form, &material);
            // keytool can create a CSR only if it can read the private key.
            let request = keytool(&["-certreq", "-alias", "web"], &host.etc("store")).unwrap();
            let request = x509::csr::CertificateRequest::from_pem_or_der(request.as_bytes()).unwrap();
            request.verify().unwrap();
            assert_eq!(request.public_key.spki, material.leaf().public_key.spki, "{kind} {form}");
        }
    }
}

fn check(store: &Path, form: &str, material: &enrollment::Material) {
    let listed = keytool(&["-list", "-v"], store).unwrap();
    let kind = format!("Keystore type: {}", form.to_uppercase());
    assert!(listed.contains(&kind), "{listed}");
    assert!(listed.contains("Entry type: PrivateKeyEntry"), "{listed}");
    assert!(listed.to_lowercase().contains("alias name: web"), "{listed}");
    assert!(listed.contains("Certificate chain length: 2"), "{listed}");
    let fingerprint = listed.lines().find_map(|line| line.trim().strip_prefix("SHA256: ")).unwrap();
    assert_eq!(fingerprint.parse::<x509::Fingerprint>().unwrap(), material.fingerprint());
    // The integrity of the store is verified with the password.
    let wrong =
        Command::new("keytool").args(["-list", "-storepass", "another", "-keystore"]).arg(store).output();
    assert!(!wrong.unwrap().status.success());
}

/// A PKCS#12 file made by Java is parsed and replaced.
#[tokio::test]
async fn keystore_created_by_keytool_is_replaced() {
    let host = Host::new();
    let own = ["-genkeypair", "-alias", "web", "-keyalg", "EC", "-dname", "CN=old", "-storetype", "PKCS12"];
    keytool(&own, &host.etc("store")).unwrap();
    let material = host.issuer.material("a.example");
    let described =
        target(json!({"type": "pkcs12", "alias": "web", "file": host.etc("store"), "password": "changeit"}));
    let deployer = host.deployer();
    assert_eq!(deployer.deploy(host.target, &described, &material).await.outcome, Outcome::Deployed);
    check(&host.etc("store"), "pkcs12", &material);
    assert_eq!(deployer.deploy(host.target, &described, &material).await.outcome, Outcome::Unchanged);
}
