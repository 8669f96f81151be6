//! Tests with processes that are killed as by `kill -9` at random moments.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent::deploy::{Fault, Outcome, Target};
use enrollment::Material;
use keys::PrivateKey;
use serde_json::json;
use uuid::Uuid;

use super::world::{Host, HostDeployer, target};

/// Names the directory that the process to be killed deploys into.
const FOLDER: &str = "BULLA_TEST_KILLED_IN";
const ID: Uuid = Uuid::from_u128(7);
const KILLS: u64 = 25;
const TIMEOUT: Duration = Duration::from_secs(120);

fn described(folder: &Path) -> Target {
    let etc = |name: &str| folder.join("etc").join(name);
    target(json!({"type": "files", "fullchain": etc("f.pem"), "key": etc("k.pem"), "combined": etc("c.pem"),
        "validate": ["true"], "reload": ["true"]}))
}

fn write(folder: &Path, name: &str, material: &Material) {
    std::fs::write(folder.join(format!("{name}.pem")), material.fullchain_pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), &*material.key_pem()).unwrap();
}

fn read(folder: &Path, name: &str) -> Material {
    let text = |end: &str| std::fs::read_to_string(folder.join(format!("{name}.{end}"))).unwrap();
    Material::from_pem(&text("pem"), PrivateKey::from_pem(&text("key")).unwrap()).unwrap()
}

/// Deploys two certificates in turn: until it is killed when it runs as a child process, otherwise for a few rounds.
#[tokio::test]
async fn two_certificates_take_turns() {
    let own = Host::new();
    let (folder, rounds) = match std::env::var_os(FOLDER) {
        Some(folder) => (folder.into(), usize::MAX),
        None => {
            write(own.root(), "a", &own.issuer.material("a.example"));
            write(own.root(), "b", &own.issuer.material("a.example"));
            (own.root().to_owned(), 4)
        }
    };
    let (a, b) = (read(&folder, "a"), read(&folder, "b"));
    let deployer = HostDeployer::open(&folder, Fault::default());
    deployer.recover().await.unwrap();
    for round in 0..rounds {
        let material = if round.is_multiple_of(2) { &a } else { &b };
        let report = deployer.deploy(ID, &described(&folder), material).await;
        // The first certificate may already be deployed by an earlier process.
        assert!(matches!(report.outcome, Outcome::Deployed | Outcome::Unchanged), "{report:?}");
    }
}

#[tokio::test]
async fn kill_at_any_time_leaves_a_complete_file_set_after_restart() {
    let host = Host::new();
    write(host.root(), "a", &host.issuer.material("a.example"));
    write(host.root(), "b", &host.issuer.material("a.example"));
    let sets = ["a", "b"].map(|name| {
        let material = read(host.root(), name);
        let (full, key) = (material.fullchain_pem(), material.key_pem().to_string());
        [full.clone(), key.clone(), format!("{full}{key}")]
    });
    let (mut cut_off, began) = (0, Instant::now());
    for kill in 0.. {
        // On a loaded machine all kills may miss the deployments. Then more kills follow.
        if kill >= KILLS && (cut_off > 0 || began.elapsed() > TIMEOUT) {
            break;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "deploy::killed::two_certificates_take_turns", "--nocapture"])
            .env(FOLDER, host.root())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Backups are created and deleted with each deployment, which shows that the process is deploying.
        let backups = host.state().join("backups").join(ID.to_string());
        let newest = || {
            std::fs::read_dir(&backups)
                .ok()?
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .max()
        };
        let before = newest();
        let started = Instant::now();
        while newest() == before {
            assert!(started.elapsed() < TIMEOUT, "nothing is deployed");
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_micros(kill * 1_300 % 17_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let deployer = host.deployer();
        let undone = deployer.recover().await.unwrap();
        assert!(undone.iter().all(|one| one.error.is_none()), "{undone:?}");
        cut_off += undone.len();
        let found = ["f.pem", "k.pem", "c.pem"]
            .map(|name| std::fs::read_to_string(host.etc(name)).unwrap_or_default());
        assert!(sets.contains(&found) || found.iter().all(String::is_empty), "a mixture after kill {kill}");
        let litter: Vec<_> = host.listing().into_iter().filter(|name| name.starts_with('.')).collect();
        assert_eq!(litter, Vec::<String>::new(), "after kill {kill}");
    }
    // Without an interrupted deployment the test proves nothing.
    assert!(cut_off > 0, "no kill has met a deployment");
}
