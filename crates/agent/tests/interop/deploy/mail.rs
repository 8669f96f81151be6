//! Tests with Dovecot and Postfix. Root must start them, because they switch to other users.

use std::process::Command;

use agent::deploy::{Outcome, Target};
use fleet::free_port;
use keys::KeyType;
use serde_json::{Value, json};

use super::daemon::{Daemon, first};
use super::world::{Host, target};

/// Deploys a new certificate, which is served. Then deploys one with a key that the server cannot read, which is rolled back.
async fn deploys_and_takes_back(host: &Host, described: &Target) {
    let deployer = host.deployer();
    let new = host.issuer.material("a.example");
    let report = deployer.deploy(host.target, described, &new).await;
    assert_eq!(
        (report.outcome, report.error, report.served),
        (Outcome::Deployed, None, Some(new.fingerprint()))
    );
    let unreadable = host.issuer.material_with("a.example", KeyType::MlDsa44);
    let mut hasty = serde_json::to_value(described).unwrap();
    hasty["verify"]["seconds"] = json!(3);
    let report = deployer.deploy(host.target, &target(hasty), &unreadable).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None), "{:?}", report.error);
    let report = deployer.deploy(host.target, described, &new).await;
    assert_eq!((report.outcome, report.served), (Outcome::Unchanged, Some(new.fingerprint())));
}

fn described(host: &Host, kind: &str, port: u16, protocol: &str, commands: Value) -> Target {
    target(json!({"type": kind, "fullchain": host.etc("fullchain.pem"), "key": host.etc("key.pem"),
        "validate": commands["validate"], "reload": commands["reload"],
        "verify": {"port": port, "server_name": "a.example", "protocol": protocol}}))
}

/// Makes the directory searchable for other users, because a mail server's processes run as other users.
fn open_to_pass(host: &Host) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(host.root(), std::fs::Permissions::from_mode(0o711)).unwrap();
    host.root().display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dovecot_serves_the_new_certificate_after_a_reload() {
    let (host, port) = (Host::new(), free_port());
    let folder = open_to_pass(&host);
    first(&host, &["fullchain", "key"], &host.issuer.material("a.example")).await;
    let config = format!(
        "base_dir = {folder}/run\nstate_dir = {folder}/state\nlog_path = {folder}/log\nprotocols = imap\n\
         listen = 127.0.0.1\nssl = yes\nssl_cert = <{folder}/etc/fullchain.pem\nssl_key = <{folder}/etc/key.pem\n\
         service imap-login {{\n  inet_listener imap {{\n    port = {port}\n  }}\n  inet_listener imaps {{\n    port = 0\n  }}\n}}\n\
         passdb {{\n  driver = static\n  args = nopassword=y\n}}\n\
         userdb {{\n  driver = static\n  args = uid=nobody gid=nogroup home=/nonexistent\n}}\n"
    );
    let file = host.root().join("dovecot.conf");
    std::fs::write(&file, config).unwrap();
    let file = file.display().to_string();
    let _daemon =
        Daemon::start("dovecot", &["-F", "-c", &file], "apt-get install -y dovecot-imapd, and be root", port);
    let commands =
        json!({"validate": ["doveconf", "-n", "-c", file], "reload": ["doveadm", "-c", file, "reload"]});
    deploys_and_takes_back(&host, &described(&host, "dovecot", port, "imap", commands)).await;
}

/// Stops Postfix with all its processes.
struct Postfix(String, #[expect(dead_code, reason = "kept until it is dropped, after the stop")] Daemon);

impl Drop for Postfix {
    fn drop(&mut self) {
        let _ = Command::new("postfix").args(["-c", &self.0, "stop"]).output();
    }
}

const POSTFIX_SERVICES: &str = "\
pickup unix n - n 60 1 pickup\n\
cleanup unix n - n - 0 cleanup\n\
qmgr unix n - n 300 1 qmgr\n\
rewrite unix - - n - - trivial-rewrite\n\
proxymap unix - - n - - proxymap\n\
anvil unix - - n - 1 anvil\n\
tlsmgr unix - - n 1000? 1 tlsmgr\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postfix_serves_the_new_certificate_after_a_reload() {
    let (host, port) = (Host::new(), free_port());
    let folder = open_to_pass(&host);
    first(&host, &["fullchain", "key"], &host.issuer.material("a.example")).await;
    for name in ["postfix", "spool", "data"] {
        std::fs::create_dir(host.root().join(name)).unwrap();
    }
    let owned = Command::new("chown").args(["postfix", &format!("{folder}/data")]).status().unwrap();
    assert!(owned.success(), "chown: be root, and apt-get install -y postfix");
    let config = format!("{folder}/postfix");
    let main = format!(
        "compatibility_level = 3.6\nqueue_directory = {folder}/spool\ndata_directory = {folder}/data\n\
         mail_owner = postfix\nsetgid_group = postdrop\ninet_interfaces = 127.0.0.1\ninet_protocols = ipv4\n\
         myhostname = a.example\nsmtpd_tls_security_level = may\n\
         smtpd_tls_cert_file = {folder}/etc/fullchain.pem\nsmtpd_tls_key_file = {folder}/etc/key.pem\n"
    );
    std::fs::write(format!("{config}/main.cf"), main).unwrap();
    std::fs::write(
        format!("{config}/master.cf"),
        format!("127.0.0.1:{port} inet n - n - - smtpd\n{POSTFIX_SERVICES}"),
    )
    .unwrap();
    let arguments = ["-c", &config, "start-fg"];
    let daemon = Daemon::start("postfix", &arguments, "apt-get install -y postfix, and be root", port);
    let _postfix = Postfix(config.clone(), daemon);
    let commands = json!({"validate": ["postfix", "-c", config, "check"], "reload": ["postfix", "-c", config, "reload"]});
    deploys_and_takes_back(&host, &described(&host, "postfix", port, "smtp", commands)).await;
}
