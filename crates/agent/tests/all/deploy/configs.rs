//! Tests of files in the formats of servers, and of the commands of each server type.

use agent::deploy::Outcome;
use serde_json::{Value, json};

use super::world::{Host, target};

#[tokio::test]
async fn traefik_file_names_certificate_and_key_and_changes_on_renewal() {
    let host = Host::new();
    let described =
        target(json!({"type": "traefik", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
        "config": host.etc("tls.yaml")}));
    let deployer = host.deployer();
    let mut before = String::new();
    for _ in 0..2 {
        let material = host.issuer.material("a.example");
        assert_eq!(deployer.deploy(host.target, &described, &material).await.outcome, Outcome::Deployed);
        let text = host.read("tls.yaml");
        assert!(
            text.contains(&material.fingerprint().to_string()),
            "the watcher has to see a change: {text}"
        );
        assert_ne!(text, before);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let (full, key) = (host.etc("f.pem"), host.etc("k.pem"));
        let expected = [
            "tls:".to_owned(),
            "  certificates:".to_owned(),
            format!("    - certFile: \"{}\"", full.display()),
            format!("      keyFile: \"{}\"", key.display()),
        ];
        assert_eq!(lines, expected);
        before = text;
    }
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&host.etc("tls.yaml").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644, "no key is in it");
}

#[tokio::test]
async fn envoy_secret_contains_the_key_or_its_file_name() {
    let host = Host::new();
    let material = host.issuer.material("a.example");
    let inline = target(json!({"type": "envoy", "config": host.etc("sds.yaml"), "secret_name": "web/tls"}));
    let deployer = host.deployer();
    assert_eq!(deployer.deploy(host.target, &inline, &material).await.outcome, Outcome::Deployed);
    let text = host.read("sds.yaml");
    let unindented: String = text.lines().map(|line| format!("{}\n", line.trim_start())).collect();
    assert!(unindented.contains(&material.fullchain_pem()), "{text}");
    assert!(unindented.contains(&*material.key_pem()));
    assert!(text.contains("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"));
    assert!(text.contains("\n  name: \"web/tls\"\n"));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&host.etc("sds.yaml").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "a key is in it");

    let other_target =
        target(json!({"type": "envoy", "config": host.etc("sds2.yaml"), "fullchain": host.etc("f.pem"),
        "key": host.etc("k.pem")}));
    let report = deployer.deploy(uuid::Uuid::now_v7(), &other_target, &material).await;
    assert_eq!(report.outcome, Outcome::Deployed);
    let text = host.read("sds2.yaml");
    assert!(!text.contains("PRIVATE KEY"), "{text}");
    assert!(
        text.contains(&format!("private_key: {{ filename: \"{}\" }}", host.etc("k.pem").display())),
        "{text}"
    );
}

#[tokio::test]
async fn default_commands_can_be_replaced_or_disabled() {
    let host = Host::new();
    for kind in ["nginx", "apache", "haproxy", "caddy", "postfix", "dovecot"] {
        let mut text: Value = json!({"type": kind, "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
            "validate": ["false"]});
        let material = host.issuer.material("a.example");
        let report = host.deployer().deploy(host.target, &target(text.clone()), &material).await;
        assert_eq!(report.outcome, Outcome::RolledBack, "{kind}");
        text["validate"] = json!([]);
        text["reload"] = json!([]);
        let report = host.deployer().deploy(host.target, &target(text), &material).await;
        assert_eq!((report.outcome, report.error), (Outcome::Deployed, None), "{kind}");
    }
}
