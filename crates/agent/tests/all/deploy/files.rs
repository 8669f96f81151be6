//! Tests of written files, kept attributes and refused paths.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use agent::deploy::{BACKUPS_KEPT, Deployer, Outcome, Target};
use serde_json::json;

use super::world::{Host, target};

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

/// Returns a hook that appends a line at each run.
fn counting(host: &Host, name: &str) -> serde_json::Value {
    json!(["sh", "-c", format!("echo run >> {}", host.root().join(name).display())])
}

fn runs(host: &Host, name: &str) -> usize {
    std::fs::read_to_string(host.root().join(name)).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn each_file_contains_the_parts_its_name_says() {
    let host = Host::new();
    let material = host.issuer.material("a.example");
    let all = target(json!({"type": "files", "cert": host.etc("cert.pem"), "chain": host.etc("chain.pem"),
        "fullchain": host.etc("fullchain.pem"), "key": host.etc("key.pem"), "combined": host.etc("all.pem")}));
    let report = host.deployer().deploy(host.target, &all, &material).await;
    assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    assert_eq!(report.written.len(), 5);
    let (cert, chain, key) = (host.read("cert.pem"), host.read("chain.pem"), host.read("key.pem"));
    assert_eq!(host.read("fullchain.pem"), format!("{cert}{chain}"));
    assert_eq!(host.read("all.pem"), format!("{cert}{chain}{key}"));
    assert_eq!(*material.key_pem(), key);
    assert_eq!(cert.matches("BEGIN CERTIFICATE").count(), 1);
    for (name, expected) in
        [("cert.pem", 0o644), ("fullchain.pem", 0o644), ("key.pem", 0o600), ("all.pem", 0o600)]
    {
        assert_eq!(mode(&host.etc(name)), expected, "{name}");
    }
}

#[tokio::test]
async fn redeploying_the_same_certificate_writes_and_reloads_nothing() {
    let host = Host::new();
    let material = host.issuer.material("a.example");
    let pair = target(json!({"type": "nginx", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
        "validate": counting(&host, "validated"), "reload": counting(&host, "reloaded")}));
    let deployer = host.deployer();
    assert_eq!(deployer.deploy(host.target, &pair, &material).await.outcome, Outcome::Deployed);
    let before = (inode(&host.etc("f.pem")), inode(&host.etc("k.pem")));
    let second = deployer.deploy(host.target, &pair, &material).await;
    assert_eq!((second.outcome, second.written), (Outcome::Unchanged, vec![]));
    assert_eq!((inode(&host.etc("f.pem")), inode(&host.etc("k.pem"))), before);
    assert_eq!((runs(&host, "validated"), runs(&host, "reloaded")), (1, 1));
    // Another certificate replaces the files. It is never written into them.
    let other = host.issuer.material("a.example");
    assert_eq!(deployer.deploy(host.target, &pair, &other).await.outcome, Outcome::Deployed);
    assert_ne!(inode(&host.etc("f.pem")), before.0);
    assert_eq!((runs(&host, "validated"), runs(&host, "reloaded")), (2, 2));
}

#[tokio::test]
async fn owner_and_mode_are_kept_unless_configured_or_unsafe_for_a_key() {
    let host = Host::new();
    // Only root can give files to other users, and agents run as root. Every user can keep the owner of its own files.
    let root = rustix::process::geteuid().is_root();
    for (name, bits) in [("f.pem", 0o664), ("k.pem", 0o644), ("c.pem", 0o400)] {
        std::fs::write(host.etc(name), "old").unwrap();
        std::fs::set_permissions(host.etc(name), std::fs::Permissions::from_mode(bits)).unwrap();
        if root {
            chown(host.etc(name), Some(1_234), Some(2_345)).unwrap();
        }
    }
    let kept = target(json!({"type": "files", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
        "cert": {"path": host.etc("c.pem"), "mode": "0444"}}));
    let report = host.deployer().deploy(host.target, &kept, &host.issuer.material("a.example")).await;
    assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    assert_eq!(mode(&host.etc("f.pem")), 0o664);
    assert_eq!(mode(&host.etc("k.pem")), 0o640, "a key that others could read is closed to them");
    assert_eq!(mode(&host.etc("c.pem")), 0o444, "as configured");
    if root {
        for name in ["f.pem", "k.pem", "c.pem"] {
            let found = host.etc(name).metadata().unwrap();
            assert_eq!((found.uid(), found.gid()), (1_234, 2_345), "{name}");
        }
        let given = target(
            json!({"type": "files", "key": {"path": host.etc("k.pem"), "owner": "65534", "group": "root"}}),
        );
        let report = host.deployer().deploy(host.target, &given, &host.issuer.material("a.example")).await;
        assert_eq!(report.outcome, Outcome::Deployed);
        let found = host.etc("k.pem").metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (65_534, 0));
    }
}

#[tokio::test]
async fn different_mode_is_corrected_for_unchanged_content() {
    let host = Host::new();
    let material = host.issuer.material("a.example");
    let plain = target(json!({"type": "files", "key": host.etc("k.pem")}));
    let stricter = target(json!({"type": "files", "key": {"path": host.etc("k.pem"), "mode": "0400"}}));
    let deployer = host.deployer();
    deployer.deploy(host.target, &plain, &material).await;
    assert_eq!(deployer.deploy(host.target, &stricter, &material).await.outcome, Outcome::Deployed);
    assert_eq!(mode(&host.etc("k.pem")), 0o400);
}

#[tokio::test]
async fn last_three_backups_are_kept_readable_only_by_the_agent() {
    let host = Host::new();
    let one =
        target(json!({"type": "haproxy", "combined": host.etc("all.pem"), "validate": [], "reload": []}));
    let deployer = host.deployer();
    let mut before = Vec::new();
    for _ in 0..BACKUPS_KEPT + 2 {
        assert_eq!(
            deployer.deploy(host.target, &one, &host.issuer.material("a.example")).await.outcome,
            Outcome::Deployed
        );
        before.push(host.read("all.pem"));
    }
    let folder = host.state().join("backups").join(host.target.to_string());
    let mut sets: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    sets.sort();
    assert_eq!(sets.len(), BACKUPS_KEPT);
    let kept: Vec<_> = sets.iter().map(|set| std::fs::read_to_string(set.join("0")).unwrap()).collect();
    assert_eq!(kept, before[1..4]);
    for set in sets {
        assert_eq!(
            (mode(&set), mode(&set.join("0")), mode(&set.join("manifest.json"))),
            (0o700, 0o600, 0o600)
        );
    }
    assert_eq!(mode(&host.state()), 0o700);
    assert_eq!(host.listing(), ["all.pem"], "nothing is left beside the file");
}

#[tokio::test]
async fn failed_validation_is_rolled_back_without_reload() {
    let host = Host::new();
    let old = host.issuer.material("a.example");
    let describe = |validate: serde_json::Value| {
        target(json!({"type": "nginx", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
            "validate": validate, "reload": counting(&host, "reloaded")}))
    };
    let deployer = host.deployer();
    deployer.deploy(host.target, &describe(json!([])), &old).await;
    let before = (host.read("f.pem"), host.read("k.pem"), mode(&host.etc("k.pem")));
    let failing = describe(json!(["sh", "-c", "echo this is wrong; exit 1"]));
    let report = deployer.deploy(host.target, &failing, &host.issuer.material("a.example")).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None));
    let error = report.error.unwrap();
    assert!(error.contains("validation failed") && error.contains("this is wrong"), "{error}");
    assert_eq!((host.read("f.pem"), host.read("k.pem"), mode(&host.etc("k.pem"))), before);
    assert_eq!(runs(&host, "reloaded"), 1);
    assert_eq!(host.listing(), ["f.pem", "k.pem"]);
    // The journal is deleted, so a restart has nothing to undo.
    drop(deployer);
    assert_eq!(host.deployer().recover().await.unwrap(), []);
}

#[tokio::test]
async fn failed_reload_is_rolled_back_and_reloaded_again() {
    let host = Host::new();
    let describe = |reload: String| {
        target(json!({"type": "nginx", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
            "validate": [], "reload": ["sh", "-c", reload]}))
    };
    let deployer = host.deployer();
    deployer.deploy(host.target, &describe("true".into()), &host.issuer.material("a.example")).await;
    let before = host.read("f.pem");
    // Fails only with the new certificate.
    let log = host.root().join("reloaded");
    let picky = format!(
        "cat {f} >> {log}; cmp -s {f} {old}",
        f = host.etc("f.pem").display(),
        log = log.display(),
        old = host.root().join("old").display()
    );
    std::fs::write(host.root().join("old"), &before).unwrap();
    let report = deployer.deploy(host.target, &describe(picky), &host.issuer.material("a.example")).await;
    assert_eq!((report.outcome, &report.rollback_error), (Outcome::RolledBack, &None), "{report:?}");
    assert!(report.error.unwrap().contains("reload failed"));
    assert_eq!(host.read("f.pem"), before);
    assert!(std::fs::read_to_string(&log).unwrap().ends_with(&before), "reloaded with the old one last");
    // If the reload after the rollback fails too, both errors are reported.
    let never = describe("echo no; exit 9".into());
    let report = deployer.deploy(host.target, &never, &host.issuer.material("a.example")).await;
    assert_eq!(report.outcome, Outcome::Broken);
    assert!(report.error.unwrap().contains("exit code 9"));
    assert!(report.rollback_error.unwrap().contains("exit code 9"));
    assert_eq!(host.read("f.pem"), before, "the files are the old ones even so");
}

#[tokio::test]
async fn failed_first_deployment_leaves_no_files() {
    let host = Host::new();
    let failing = target(json!({"type": "nginx", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
        "validate": ["false"], "reload": []}));
    let report = host.deployer().deploy(host.target, &failing, &host.issuer.material("a.example")).await;
    assert_eq!(report.outcome, Outcome::RolledBack);
    assert_eq!(host.listing(), Vec::<String>::new());
}

#[tokio::test]
async fn missing_or_world_writable_directory_is_rejected_before_any_change() {
    let host = Host::new();
    let deployer = host.deployer();
    let material = host.issuer.material("a.example");
    let missing =
        target(json!({"type": "nginx", "fullchain": host.etc("f.pem"), "key": host.etc("none/k.pem")}));
    let report = deployer.deploy(host.target, &missing, &material).await;
    assert_eq!((report.outcome, host.listing().len()), (Outcome::Failed, 0), "{report:?}");
    std::fs::create_dir(host.etc("open")).unwrap();
    std::fs::set_permissions(host.etc("open"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let open = target(json!({"type": "files", "key": host.etc("open/k.pem")}));
    let report = deployer.deploy(host.target, &open, &material).await;
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(report.error.unwrap().contains("is world-writable; deploy into a folder that"));
}

#[tokio::test]
async fn state_directory_must_be_private_and_used_by_one_agent() {
    let host = Host::new();
    let first = host.deployer();
    assert!(Deployer::open(&host.state(), host.policy()).unwrap_err().to_string().contains("another agent"));
    drop(first);
    host.deployer();
    std::fs::set_permissions(host.state(), std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(Deployer::open(&host.state(), host.policy()).unwrap_err().to_string().contains("chmod 700"));
}

#[test]
fn invalid_targets_are_rejected() {
    let table = [
        (json!({"type": "nginx", "key": "/a/k"}), "nginx needs fullchain and key"),
        (json!({"type": "haproxy"}), "haproxy needs"),
        (json!({"type": "files"}), "files needs at least one file"),
        (json!({"type": "traefik", "fullchain": "/a/f", "key": "/a/k"}), "traefik needs"),
        (json!({"type": "envoy", "config": "/a/sds.yaml", "key": "/a/k"}), "envoy needs"),
        (json!({"type": "nginx", "fullchain": "/a/f", "key": "/a/f"}), "is given twice"),
        (json!({"type": "files", "key": "relative/k"}), "is not an absolute path without"),
        (json!({"type": "files", "key": "/a/../k"}), "is not an absolute path without"),
        (json!({"type": "files", "key": "/a/k\n"}), "contains a character that is not allowed in"),
        (json!({"type": "files", "key": "/a/k", "reload": [""]}), "no program"),
        (json!({"type": "files", "key": "/a/k", "hook_seconds": 0}), "hook_seconds"),
        (json!({"type": "files", "key": "/a/k", "hook_seconds": 601}), "hook_seconds"),
        (json!({"type": "files", "key": "/a/k", "config": "/a/c"}), "no such file"),
        (json!({"type": "files", "key": "/a/k", "verify": {"port": 0}}), "port 0"),
        (json!({"type": "files", "key": "/a/k", "verify": {"port": 1, "protocol": "gopher"}}), "gopher"),
        (json!({"type": "files", "key": "/a/k", "verify": {"port": 1, "host": "a b"}}), "is not a host name"),
        (json!({"type": "pkcs12", "file": "/a/k", "password": "12345"}), "password"),
        (json!({"type": "exec", "command": []}), "no program"),
        (json!({"type": "envoy", "config": "/a/c", "secret_name": "a\"b"}), "secret_name"),
    ];
    for (text, expected) in table {
        let read: Target = serde_json::from_value(text.clone()).unwrap();
        let error = read.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for text in [
        json!({"type": "nginx", "fullchian": "/a/f"}),
        json!({"type": "iis"}),
        json!({"type": "files", "key": {"path": "/a/k", "mode": "0999"}}),
        json!({"type": "files", "key": {"path": "/a/k", "acl": "x"}}),
        json!({"type": "exec", "command": ["x"], "shell": true}),
    ] {
        assert!(serde_json::from_value::<Target>(text.clone()).is_err(), "{text}");
    }
}

#[test]
fn target_passwords_are_not_shown() {
    let text = json!({"type": "jks", "file": "/a/k", "password": "open sesame"});
    let read = target(text.clone());
    assert!(read.has_password());
    assert!(!format!("{read:?}").contains("sesame"));
    assert!(!serde_json::to_string(&read.redacted()).unwrap().contains("sesame"));
    assert_eq!(serde_json::to_value(&read).unwrap()["password"], "open sesame", "the agent needs it");
}
