//! Tests of a command that deploys the certificate itself.

use agent::deploy::Outcome;
use serde_json::json;

use super::world::{Host, target};

fn script(host: &Host, text: &str) -> serde_json::Value {
    let out = host.root().display();
    json!(["sh", "-c", text.replace("OUT", &out.to_string())])
}

#[tokio::test]
async fn exec_command_gets_the_file_paths_and_runs_once_per_certificate() {
    let host = Host::new();
    let material = host.issuer.material("a.example");
    let command = script(
        &host,
        "cat $BULLA_FULLCHAIN $BULLA_KEY > OUT/got; echo $BULLA_FINGERPRINT >> OUT/runs; cat > OUT/json",
    );
    let exec = target(json!({"type": "exec", "command": command}));
    let deployer = host.deployer();
    let report = deployer.deploy(host.target, &exec, &material).await;
    assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    let read = |name: &str| std::fs::read_to_string(host.root().join(name)).unwrap();
    assert_eq!(read("got"), format!("{}{}", material.fullchain_pem(), *material.key_pem()));
    let passed: serde_json::Value = serde_json::from_str(&read("json")).unwrap();
    assert_eq!(passed["fingerprint"], material.fingerprint().to_string());
    assert_eq!(passed["names"], json!(["a.example"]));
    assert_eq!(passed["not_after"], material.leaf().not_after.0);
    assert!(!read("json").contains("PRIVATE"), "the key is in a file only");
    assert_eq!(deployer.deploy(host.target, &exec, &material).await.outcome, Outcome::Unchanged);
    assert_eq!(read("runs"), format!("{}\n", material.fingerprint()));
}

#[tokio::test]
async fn failed_exec_command_runs_again_with_the_previous_files() {
    let host = Host::new();
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = host.deployer();
    let good = target(json!({"type": "exec", "command": script(&host, "cp $BULLA_CERT OUT/installed")}));
    deployer.deploy(host.target, &good, &old).await;
    // The command installs every certificate, and then fails for the new one.
    std::fs::write(host.root().join("old"), old.cert_pem()).unwrap();
    let picky = script(&host, "cp $BULLA_CERT OUT/installed; cmp -s OUT/installed OUT/old");
    let bad = target(json!({"type": "exec", "command": picky}));
    let report = deployer.deploy(host.target, &bad, &new).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None));
    assert_eq!(std::fs::read_to_string(host.root().join("installed")).unwrap(), old.cert_pem());
}

#[tokio::test]
async fn failed_first_exec_command_is_not_repeated() {
    let host = Host::new();
    let command = script(&host, "echo run >> OUT/runs; exit 1");
    let exec = target(json!({"type": "exec", "command": command}));
    let report = host.deployer().deploy(host.target, &exec, &host.issuer.material("a.example")).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None));
    assert_eq!(std::fs::read_to_string(host.root().join("runs")).unwrap(), "run\n");
}

#[tokio::test]
async fn agent_environment_is_not_passed_to_commands() {
    let host = Host::new();
    let command = script(&host, "env > OUT/env");
    let exec = target(json!({"type": "exec", "command": command}));
    host.deployer().deploy(host.target, &exec, &host.issuer.material("a.example")).await;
    let env = std::fs::read_to_string(host.root().join("env")).unwrap();
    // Shells set some variables themselves.
    let shells = ["PWD", "OLDPWD", "SHLVL", "_"];
    let names = env.lines().filter_map(|line| Some(line.split_once('=')?.0));
    let mut names: Vec<&str> = names.filter(|name| !shells.contains(name)).collect();
    names.sort_unstable();
    let passed = ["BULLA_CERT", "BULLA_CHAIN", "BULLA_FINGERPRINT", "BULLA_FULLCHAIN", "BULLA_KEY"];
    assert_eq!(names, [&passed[..], &["HOME", "LANG", "LOGNAME", "PATH", "USER"]].concat());
    let secrets = std::env::vars().filter(|(name, _)| name.starts_with("CARGO")).count();
    assert!(secrets > 0, "the test's own environment has something to keep");
    assert!(!env.contains("CARGO"), "{env}");
}
