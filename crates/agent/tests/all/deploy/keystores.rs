//! Tests of key stores, read by OpenSSL and by our own reader. `tests/java.rs` tests them with Java.

use std::path::Path;
use std::process::Command;

use agent::deploy::Outcome;
use keys::KeyType;
use serde_json::json;

use super::world::{Host, target};

fn openssl(arguments: &[&str], file: &Path) -> String {
    let output = Command::new("openssl").args(arguments).arg(file).output();
    let output = output.expect("openssl is needed: apt-get install -y openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn openssl_reads_the_pkcs12_file_and_redeploying_changes_nothing() {
    for kind in [KeyType::P256, KeyType::Rsa2048] {
        let host = Host::new();
        let material = host.issuer.material_with("a.example", kind);
        let store = target(
            json!({"type": "pkcs12", "file": host.etc("a.p12"), "password": "changeit", "alias": "web"}),
        );
        let deployer = host.deployer();
        let report = deployer.deploy(host.target, &store, &material).await;
        assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
        let file = host.etc("a.p12");
        let text = openssl(&["pkcs12", "-passin", "pass:changeit", "-nodes", "-in"], &file);
        let certificates: Vec<_> = x509::pem::certificates(text.as_bytes()).map(|(_, der)| der).collect();
        assert_eq!(certificates, material.chain());
        assert!(text.contains("friendlyName: web"), "{text}");
        let key = keys::PrivateKey::from_pem(&text).unwrap();
        assert_eq!(key.to_pkcs8_pem(), material.key_pem());
        assert_eq!(deployer.deploy(host.target, &store, &material).await.outcome, Outcome::Unchanged);
        let other =
            target(json!({"type": "pkcs12", "file": file, "password": "changed now", "alias": "web"}));
        assert_eq!(deployer.deploy(host.target, &other, &material).await.outcome, Outcome::Deployed);
    }
}

#[tokio::test]
async fn jks_file_is_unchanged_on_redeployment() {
    let host = Host::new();
    let material = host.issuer.material("a.example");
    let store =
        target(json!({"type": "jks", "format": "jks", "file": host.etc("a.jks"), "password": "changeit"}));
    let deployer = host.deployer();
    assert_eq!(deployer.deploy(host.target, &store, &material).await.outcome, Outcome::Deployed);
    assert_eq!(deployer.deploy(host.target, &store, &material).await.outcome, Outcome::Unchanged);
    assert_eq!(std::fs::read(host.etc("a.jks")).unwrap()[..4], [0xfe, 0xed, 0xfe, 0xed]);
}
