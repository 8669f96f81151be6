//! Crash tests: a deployment stops before and after every step. The next start leaves one complete set of files, and the job can
//! run again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent::deploy::{Fault, Outcome, Target};
use enrollment::Material;
use serde_json::json;

use super::world::{Host, target};

struct Case {
    name: &'static str,
    /// Whether the files of an earlier deployment exist.
    before: bool,
    /// The reload command. `$0` is a copy of the previous certificate, `$1` the deployed one.
    reload: &'static str,
    ends: Outcome,
}

const CASES: &[Case] = &[
    Case { name: "a renewal", before: true, reload: "exit 0", ends: Outcome::Deployed },
    Case { name: "a first deployment", before: false, reload: "exit 0", ends: Outcome::Deployed },
    // This case continues with a rollback, which is stopped as well.
    Case {
        name: "a renewal that is rolled back",
        before: true,
        reload: "cmp -s $0 $1",
        ends: Outcome::RolledBack,
    },
];

/// Returns a fault that records the steps in order, and stops at the step `stop_at`.
fn fault(stop_at: Option<String>, passed: &Arc<Mutex<Vec<String>>>) -> Fault {
    let passed = Arc::clone(passed);
    Fault::new(move |step| {
        passed.lock().unwrap().push(step.to_owned());
        stop_at.as_deref() == Some(step)
    })
}

fn pair(host: &Host, reload: &str) -> Target {
    target(json!({"type": "files", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
        "combined": host.etc("c.pem"), "validate": ["true"],
        "reload": ["sh", "-c", reload, host.etc("before"), host.etc("f.pem")]}))
}

/// Returns which complete set of files exists: "none" without files, otherwise the name of the certificate. Returns "mixed" for an
/// incomplete set.
fn set(host: &Host, known: &[(&'static str, &Material)]) -> &'static str {
    let read = |name: &str| std::fs::read_to_string(host.etc(name)).ok();
    let found = [read("f.pem"), read("k.pem"), read("c.pem")];
    if found.iter().all(Option::is_none) {
        return "none";
    }
    for (name, material) in known {
        let (full, key) = (material.fullchain_pem(), material.key_pem().to_string());
        let whole = [Some(full.clone()), Some(key.clone()), Some(format!("{full}{key}"))];
        if found == whole {
            return name;
        }
    }
    "mixed"
}

fn litter(host: &Host) -> Vec<String> {
    host.listing().into_iter().filter(|name| name.starts_with('.')).collect()
}

async fn prepared(case: &Case, host: &Host, old: &Material) {
    std::fs::write(host.etc("before"), old.fullchain_pem()).unwrap();
    if case.before {
        let report = host.deployer().deploy(host.target, &pair(host, "exit 0"), old).await;
        assert_eq!(report.outcome, Outcome::Deployed);
    }
}

/// Runs a deployment until it stops at `step`, or to its end. Returns the outcome and the recorded steps.
async fn run(case: &Case, host: &Host, new: &Material, step: Option<String>) -> (Outcome, Vec<String>) {
    let passed = Arc::new(Mutex::new(Vec::new()));
    let deployer = host.deployer_with(fault(step, &passed));
    let report = deployer.deploy(host.target, &pair(host, case.reload), new).await;
    drop(deployer);
    let passed = passed.lock().unwrap().clone();
    (report.outcome, passed)
}

#[tokio::test]
async fn crash_at_any_step_leaves_a_complete_file_set_after_restart() {
    for case in CASES {
        let host = Host::new();
        let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
        prepared(case, &host, &old).await;
        let (outcome, steps) = run(case, &host, &new, None).await;
        assert_eq!(outcome, case.ends, "{}", case.name);
        let steps: BTreeSet<String> = steps.into_iter().collect();
        let pairs = steps.iter().filter(|step| step.starts_with("before ")).count();
        assert!(pairs >= 10, "{}: {steps:?}", case.name);
        for step in steps {
            crash_at(case, &step).await;
        }
    }
}

async fn crash_at(case: &Case, step: &str) {
    let context = format!("{}, stopped {step}", case.name);
    let host = Host::new();
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let known = [("old", &old), ("new", &new)];
    prepared(case, &host, &old).await;
    run(case, &host, &new, Some(step.to_owned())).await;
    // The agent restarts.
    let deployer = host.deployer();
    for recovery in deployer.recover().await.unwrap() {
        assert_eq!(recovery.error, None, "{context}");
    }
    let expected: &[&str] = if case.before { &["old", "new"] } else { &["none", "new"] };
    let found = set(&host, &known);
    assert!(expected.contains(&found), "{context}: {found}");
    assert_eq!(litter(&host), Vec::<String>::new(), "{context}");
    assert_eq!(journals(&host.state()), 0, "{context}");
    // The same job runs again.
    let report = deployer.deploy(host.target, &pair(&host, "exit 0"), &new).await;
    assert!(matches!(report.outcome, Outcome::Deployed | Outcome::Unchanged), "{context}: {report:?}");
    assert_eq!(set(&host, &known), "new", "{context}");
    assert_eq!(litter(&host), Vec::<String>::new(), "{context}");
}

fn journals(state: &Path) -> usize {
    std::fs::read_dir(state.join("journal")).unwrap().count()
}

#[tokio::test]
async fn next_deployment_undoes_an_interrupted_one_without_restart() {
    let host = Host::new();
    let (old, new, newer) = (
        host.issuer.material("a.example"),
        host.issuer.material("a.example"),
        host.issuer.material("a.example"),
    );
    prepared(&CASES[0], &host, &old).await;
    run(&CASES[0], &host, &new, Some("after commit 0".to_owned())).await;
    assert_eq!(set(&host, &[("old", &old), ("new", &new)]), "mixed", "the crash is a real one");
    let report = host.deployer().deploy(host.target, &pair(&host, "exit 1"), &newer).await;
    assert_eq!(report.outcome, Outcome::Broken, "{report:?}");
    assert_eq!(set(&host, &[("old", &old)]), "old", "not the mixture from before");
}

#[tokio::test]
async fn recovery_reloads_the_server_after_a_crash_during_reload() {
    let host = Host::new();
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    prepared(&CASES[0], &host, &old).await;
    let reload_output = host.root().join("told");
    let reload = format!("cat {} > {}", host.etc("f.pem").display(), reload_output.display());
    let passed = Arc::new(Mutex::new(Vec::new()));
    let stopping = fault(Some("after reload".to_owned()), &passed);
    let deployer = host.deployer_with(stopping);
    deployer.deploy(host.target, &pair(&host, &reload), &new).await;
    drop(deployer);
    assert_eq!(std::fs::read_to_string(&reload_output).unwrap(), new.fullchain_pem());
    host.deployer().recover().await.unwrap();
    assert_eq!(
        std::fs::read_to_string(&reload_output).unwrap(),
        old.fullchain_pem(),
        "the server has the old one again"
    );
}
