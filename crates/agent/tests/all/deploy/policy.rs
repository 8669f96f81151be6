//! Tests of the policy by which the host's owner limits the server, even a compromised server.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use agent::deploy::{DeniedAction, Deployer, Fault, Outcome, Policy, Report, Target, missing_rules};
use serde_json::json;

use super::world::{Host, target};

/// Returns the UID of this process, as a policy names it.
fn own_user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

/// Returns a policy rule that allows only the server's directory.
fn folder_rule(host: &Host) -> String {
    format!("[[files]]\npath = \"{}/\"\n", host.etc("").display().to_string().trim_end_matches('/'))
}

fn command_rule(name: &str, argv: &[&str]) -> String {
    format!("[commands.{name}]\nargv = {argv:?}\nuser = \"{}\"\n", own_user())
}

fn write_policy(host: &Host, text: &str) {
    std::fs::write(host.policy().path(), text).unwrap();
}

async fn deployed(host: &Host, of: &Target) -> Report {
    let deployer = Deployer::open(&host.state(), host.policy()).unwrap();
    deployer.deploy(host.target, of, &host.issuer.material("a.example")).await
}

async fn refused(host: &Host, of: &Target) -> String {
    let report = deployed(host, of).await;
    assert_eq!((report.outcome, report.written.len()), (Outcome::Failed, 0), "{report:?}");
    report.error.unwrap()
}

fn pair(host: &Host, reload: serde_json::Value) -> Target {
    target(json!({"type": "nginx", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
        "validate": [], "reload": reload}))
}

fn policy(host: &Host) -> Arc<Policy> {
    Arc::new(host.policy().load(&host.state()).unwrap())
}

#[tokio::test]
async fn job_without_policy_is_refused_with_the_lines_that_allow_it() {
    let host = Host::new();
    let ran = host.root().join("ran");
    let job = pair(&host, json!(["touch", ran]));
    let error = refused(&host, &job).await;
    assert!(error.contains("which does not exist: nothing is allowed without it"), "{error}");
    assert_eq!((host.listing(), ran.exists()), (vec![], false));
    let (_, lines) = error.split_once("Lines that allow it:\n").unwrap();
    write_policy(&host, lines);
    let report = deployed(&host, &job).await;
    assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    assert!(ran.exists());
}

#[tokio::test]
async fn command_not_in_the_policy_is_not_run() {
    let host = Host::new();
    let ran = host.root().join("ran").display().to_string();
    let rule = command_rule("reload", &["true", "x"]);
    write_policy(&host, &(folder_rule(&host) + &rule));
    for command in [
        json!(["touch", ran]),
        json!(["true"]),
        json!(["true", "x", "y"]),
        json!(["/bin/true", "x"]),
        json!(["sh", "-c", format!("touch {ran}")]),
        json!("other"),
    ] {
        let error = refused(&host, &pair(&host, command.clone())).await;
        assert!(error.contains("does not allow the command"), "{command}: {error}");
        assert_eq!(host.listing(), Vec::<String>::new(), "{command}");
    }
    assert!(!host.root().join("ran").exists());
    for allowed in [json!(["true", "x"]), json!("reload")] {
        let report = deployed(&host, &pair(&host, allowed)).await;
        assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    }
}

#[tokio::test]
async fn path_outside_the_policy_is_refused_even_through_symlinks() {
    let host = Host::new();
    let outside = host.root().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("authorized_keys"), "mine").unwrap();
    symlink(outside.join("authorized_keys"), host.etc("link.pem")).unwrap();
    symlink(&outside, host.etc("folder")).unwrap();
    write_policy(&host, &folder_rule(&host));
    for path in [
        outside.join("authorized_keys"),
        host.etc("link.pem"),
        host.etc("folder/authorized_keys"),
        host.etc("folder/new"),
        host.etc(".hidden"),
        outside.join("none/at/all"),
    ] {
        let error = refused(&host, &target(json!({"type": "files", "fullchain": path}))).await;
        assert!(error.contains("does not allow the file"), "{path:?}: {error}");
    }
    let outside_is = std::fs::read_dir(&outside).unwrap().count();
    assert_eq!(
        (std::fs::read_to_string(outside.join("authorized_keys")).unwrap().as_str(), outside_is),
        ("mine", 1)
    );
    let above: Target =
        serde_json::from_value(json!({"type": "files", "key": host.etc("../outside/x")})).unwrap();
    assert!(refused(&host, &above).await.contains("is not an absolute path without \"..\""));
    // Refused paths are not examined: the error does not depend on whether the file exists.
    let masked = |error: String, name: &str| error.replace(name, "NAME");
    let existing =
        refused(&host, &target(json!({"type": "files", "cert": outside.join("authorized_keys")}))).await;
    let none = refused(&host, &target(json!({"type": "files", "cert": outside.join("none")}))).await;
    assert_eq!(masked(existing, "authorized_keys"), masked(none, "none"));
}

#[tokio::test]
async fn agent_state_policy_and_command_programs_are_never_written() {
    let host = Host::new();
    let program = host.root().join("reload.sh");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let root = host.root().display();
    let all = format!("[[files]]\npath = \"{root}/\"\n[[files]]\npath = \"{root}/state/\"\n");
    write_policy(&host, &(all + &command_rule("reload", &[&program.display().to_string()])));
    drop(Deployer::open(&host.state(), host.policy()).unwrap());
    for path in [host.state().join("agent.json"), host.policy().path().to_owned(), program] {
        let error = refused(&host, &target(json!({"type": "files", "cert": path}))).await;
        assert!(error.contains("belongs to the agent") || error.contains("is the program"), "{error}");
    }
}

#[tokio::test]
async fn owners_groups_and_modes_must_be_allowed_by_the_policy() {
    let host = Host::new();
    write_policy(&host, &folder_rule(&host));
    let of = |attributes: serde_json::Value| {
        let mut key = json!({"path": host.etc("k.pem")});
        key.as_object_mut().unwrap().extend(attributes.as_object().unwrap().clone());
        target(json!({"type": "files", "key": key}))
    };
    for wanted in [
        json!({"owner": "12345"}),
        json!({"group": "12345"}),
        json!({"mode": "0644"}),
        json!({"mode": "0777"}),
    ] {
        let error = refused(&host, &of(wanted.clone())).await;
        assert!(error.contains("does not allow the file") && error.contains(" with "), "{wanted}: {error}");
    }
    write_policy(
        &host,
        &(folder_rule(&host) + "owners = [\"12345\"]\ngroups = [\"12345\"]\nmode = \"0644\"\n"),
    );
    let report = deployed(&host, &of(json!({"mode": "0644"}))).await;
    assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    assert!(refused(&host, &of(json!({"mode": "0664"}))).await.contains("mode = \"0664\""));
    if rustix::process::geteuid().is_root() {
        let report = deployed(&host, &of(json!({"owner": "12345", "group": "12345"}))).await;
        assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    }
}

#[tokio::test]
async fn policy_writable_by_others_allows_nothing() {
    let host = Host::new();
    write_policy(&host, &folder_rule(&host));
    std::fs::set_permissions(host.policy().path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let error = refused(&host, &target(json!({"type": "files", "key": host.etc("k.pem")}))).await;
    assert!(error.contains("is writable by other users: chmod go-w"), "{error}");
    assert_eq!(host.listing(), Vec::<String>::new());
}

#[tokio::test]
async fn verify_connects_only_to_addresses_in_the_policy() {
    let host = Host::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let of = |name: &str| {
        target(json!({"type": "files", "key": host.etc("k.pem"), "reload": [],
            "verify": {"host": name, "port": port, "seconds": 1}}))
    };
    write_policy(&host, &(folder_rule(&host) + "[[verify]]\naddress = \"127.0.0.2:*\"\n"));
    for name in ["127.0.0.1", "localhost"] {
        let error = refused(&host, &of(name)).await;
        assert!(error.contains(&format!("[[verify]]\naddress = \"{name}:{port}\"")), "{error}");
    }
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(1), listener.accept()).await;
    assert!(nobody.is_err(), "a connection was made");
    assert_eq!(host.listing(), Vec::<String>::new());
    write_policy(&host, &(folder_rule(&host) + &format!("[[verify]]\naddress = \"127.0.0.0/8:{port}\"\n")));
    let allowed = of("127.0.0.1");
    let (report, connected) = tokio::join!(deployed(&host, &allowed), async {
        let connected = listener.accept().await.is_ok();
        drop(listener);
        connected
    });
    assert!(connected && report.outcome == Outcome::RolledBack, "{report:?}");
}

/// Creates a deployment that was interrupted by a crash after its reload, with a backup of the old files.
async fn cut_off(host: &Host) -> (Target, String) {
    let log = host.root().join("reloads").display().to_string();
    let script = format!("echo run >> {log}");
    let reload = command_rule("reload", &["sh", "-c", &script]);
    write_policy(host, &(folder_rule(host) + &reload));
    let job = pair(host, json!("reload"));
    deployed(host, &job).await;
    let old = host.read("f.pem");
    let stop = Fault::new(|step| step == "after reload");
    let deployer = Deployer::open_with(&host.state(), host.policy(), stop).unwrap();
    deployer.deploy(host.target, &job, &host.issuer.material("a.example")).await;
    assert_ne!(host.read("f.pem"), old, "the crash is a real one");
    assert_eq!(reloads(host), 2);
    (job, old)
}

fn reloads(host: &Host) -> usize {
    std::fs::read_to_string(host.root().join("reloads")).unwrap().lines().count()
}

#[tokio::test]
async fn recovery_checks_journaled_commands_against_the_current_policy() {
    let host = Host::new();
    let (_, old) = cut_off(&host).await;
    write_policy(&host, &folder_rule(&host));
    let undone = Deployer::open(&host.state(), host.policy()).unwrap().recover().await.unwrap();
    let error = undone[0].error.as_deref().unwrap();
    assert!(error.contains("does not allow the command named \"reload\""), "{error}");
    assert_eq!((host.read("f.pem"), reloads(&host)), (old, 2), "files are back, nothing was run");
}

#[tokio::test]
async fn recovery_checks_journaled_paths_against_the_current_policy() {
    let host = Host::new();
    let (_, old) = cut_off(&host).await;
    let allowed = std::fs::read_to_string(host.policy().path()).unwrap();
    write_policy(&host, "");
    let cut = host.read("f.pem");
    let recover = || async { Deployer::open(&host.state(), host.policy()).unwrap().recover().await.unwrap() };
    let error = recover().await.remove(0).error.unwrap();
    assert!(error.contains("does not allow the file") && error.contains("/journal/"), "{error}");
    assert_eq!((host.read("f.pem"), reloads(&host)), (cut, 2), "nothing is written and nothing run");
    write_policy(&host, &allowed);
    assert_eq!(recover().await.remove(0).error, None);
    assert_eq!((host.read("f.pem"), reloads(&host)), (old, 3));
}

#[tokio::test]
async fn command_runs_as_its_user_without_the_agent_groups() {
    let host = Host::new();
    let root = rustix::process::geteuid().is_root();
    let rule = "[commands.who]\nargv = [\"sh\", \"-c\", \"id -un; id -G; pwd; exit 1\"]\nuser = \"nobody\"\n";
    write_policy(&host, &(folder_rule(&host) + rule));
    let report = deployed(&host, &pair(&host, json!("who"))).await;
    let error = report.error.unwrap();
    if root {
        let group = String::from_utf8(
            std::process::Command::new("id").args(["-g", "nobody"]).output().unwrap().stdout,
        );
        let expected = format!("exit code 1: nobody {} /", group.unwrap().trim());
        assert!(error.ends_with(&expected), "{error}");
    } else {
        assert!(error.contains("runs as another user, which requires the"), "{error}");
    }
    // The user cannot read the files that the command is given.
    let exec = target(json!({"type": "exec", "command": "who"}));
    let error = refused(&host, &exec).await;
    assert!(error.contains("gets files in the agent's folder, which only") || !root, "{error}");
}

#[tokio::test]
async fn command_runs_with_the_groups_of_its_user() {
    if !rustix::process::geteuid().is_root() {
        return; // Others run commands as themselves alone, with their own groups.
    }
    // On Debian this user is in the group ssl-cert. `cargo xtask setup` installs the package.
    let host = Host::new();
    let rule = "[commands.who]\nargv = [\"sh\", \"-c\", \"id -un; id -G; exit 1\"]\nuser = \"postgres\"\n";
    write_policy(&host, &(folder_rule(&host) + rule));
    let error = deployed(&host, &pair(&host, json!("who"))).await.error.unwrap();
    let output = std::process::Command::new("id").args(["-G", "postgres"]).output().unwrap();
    let groups = String::from_utf8(output.stdout).unwrap();
    assert!(groups.split_whitespace().count() > 1, "postgres has no second group here: {groups}");
    assert!(error.ends_with(&format!("exit code 1: postgres {}", groups.trim())), "{error}");
}

#[tokio::test]
async fn policy_check_lists_all_missing_rules_at_once() {
    let host = Host::new();
    let job = target(json!({"type": "nginx", "fullchain": host.etc("f.pem"), "key": host.etc("k.pem"),
        "verify": {"host": "::1", "port": 443}}));
    let missing = missing_rules(&policy(&host), &job).await.unwrap();
    let words = |text: &str| DeniedAction::Command(text.split(' ').map(str::to_owned).collect());
    assert_eq!(missing.len(), 5, "{missing:?}");
    for expected in
        [words("nginx -t"), words("nginx -s reload"), DeniedAction::Address("[::1]:443".to_owned())]
    {
        assert!(missing.contains(&expected), "{expected:?}");
    }
    write_policy(&host, &policy(&host).policy_lines_for(&missing));
    assert_eq!(missing_rules(&policy(&host), &job).await.unwrap(), []);
    assert_eq!(host.listing(), Vec::<String>::new(), "a check writes nothing");
}
