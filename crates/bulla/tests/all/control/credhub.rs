//! CredHub's own client, built from its published module, with every one of its commands. A second program uses its library and
//! sends requests as Concourse does.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::House;
use crate::world::describe;

const INSTALL: &str = "run .ci/interop credhub, which builds it";

struct CredHub {
    house: House,
    token: String,
}

impl CredHub {
    fn new(exact: &str) -> Self {
        let mut house = House::prepared("", None);
        house.environment("BULLA_CREDENTIALS_EXACT_NAME_LIKE", exact);
        house.start();
        let made = house.json(&["token", "create", "ci", "--role", "admin"]);
        Self { token: made["token"].as_str().unwrap().to_owned(), house }
    }

    fn server(&self) -> String {
        std::fs::read_to_string(self.house.path("data/credentials.url")).unwrap().trim().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("credhub");
        command.current_dir(self.house.path("")).env("HOME", self.house.path("")).args(arguments);
        command
    }

    fn tries(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        output.unwrap_or_else(|error| panic!("this test needs credhub: {INSTALL} ({error})"))
    }

    fn does(&self, arguments: &[&str]) -> String {
        let output = self.tries(arguments);
        assert!(output.status.success(), "credhub {}: {}", arguments.join(" "), describe(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.does(&[arguments, &["-j"]].concat())).unwrap()
    }
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn credhub_client_runs_every_command_successfully() {
    let hub = CredHub::new("");
    let root = hub.house.root().display().to_string();
    hub.does(&["api", "--server", &hub.server(), "--ca-cert", &root]);
    let wrong = hub.tries(&["login", "--client-name", "ci", "--client-secret", "wrong"]);
    assert!(!wrong.status.success(), "{}", describe(&wrong));
    hub.does(&["login", "--client-name", "ci", "--client-secret", &hub.token]);
    assert!(hub.does(&["--version"]).contains("Server Version: 2.15"));
    // Every type is set and read.
    hub.does(&["set", "-n", "/t/value", "-t", "value", "-v", "text"]);
    hub.does(&["set", "-n", "/t/json", "-t", "json", "-v", r#"{"a":[1,2]}"#]);
    hub.does(&["set", "-n", "/t/password", "-t", "password", "-w", "pw"]);
    hub.does(&["set", "-n", "/t/user", "-t", "user", "-z", "u", "-w", "pw"]);
    hub.does(&["set", "-n", "/t/ssh", "-t", "ssh", "-u", "ssh-rsa AAAA", "-p", "private"]);
    hub.does(&["set", "-n", "/t/rsa", "-t", "rsa", "-u", "public", "-p", "private"]);
    assert_eq!(hub.does(&["get", "-n", "/t/value", "-q"]).trim(), "text");
    assert_eq!(hub.does(&["get", "-n", "/T/User", "-k", "username"]).trim(), "u");
    assert_eq!(hub.json(&["get", "-n", "/t/json"])["value"], json!({ "a": [1, 2] }));
    // Every generated type is regenerated, with the same parameters.
    for (kind, more) in [
        ("password", &["--length", "40"][..]),
        ("user", &["--username", "x"]),
        ("ssh", &["--ssh-comment", "c"]),
        ("rsa", &[]),
        ("certificate", &["--common-name", "ca", "--is-ca"]),
    ] {
        let at = format!("/g/{kind}");
        let make = ["generate", "-n", &at, "-t", kind];
        let first = hub.json(&[&make[..], more].concat());
        let second = hub.json(&[&make[..], more, &["--no-overwrite"]].concat());
        assert_eq!(first["id"], second["id"], "{kind}");
        assert_ne!(hub.json(&["regenerate", "-n", &at])["id"], first["id"], "{kind}");
    }
    hub.does(&["generate", "-n", "/g/leaf", "-t", "certificate", "-c", "leaf", "--ca", "/g/certificate"]);
    assert!(hub.does(&["bulk-regenerate", "--signed-by", "/g/certificate"]).contains("/g/leaf"));
    assert_eq!(hub.json(&["find", "-p", "/t"])["credentials"].as_array().unwrap().len(), 6);
    assert_eq!(hub.json(&["find", "-n", "LEA"])["credentials"][0]["name"], "/g/leaf");
    // Export, then import.
    hub.does(&["export", "-p", "/t", "-f", "exported.yml"]);
    hub.does(&["delete", "-p", "/t"]);
    assert!(!hub.tries(&["get", "-n", "/t/value"]).status.success());
    hub.does(&["import", "-f", "exported.yml"]);
    assert_eq!(hub.does(&["get", "-n", "/t/password", "-q"]).trim(), "pw");
    // The client's file is imported here, and Bulla's file by the client.
    let export = hub.house.path("exported.yml").display().to_string();
    let read = hub.house.json(&["credential", "import", &export]);
    assert_eq!((&read["unchanged"], &read["failed"]), (&json!(6), &json!([])), "{read}");
    let ours = hub.house.path("ours.yml").display().to_string();
    hub.house.does(&["credential", "export", "--path", "/t", "--to", &ours, "--plain"]);
    hub.does(&["delete", "-p", "/t"]);
    hub.does(&["import", "-f", "ours.yml"]);
    let read = hub.house.json(&["credential", "import", &export]);
    assert_eq!((&read["unchanged"], &read["failed"]), (&json!(6), &json!([])), "{read}");
    // A file with references, and a raw request.
    std::fs::write(hub.house.path("template.yml"), "password: ((/t/password))\nname: ((/t/user.username))\n")
        .unwrap();
    let rendered = hub.does(&["interpolate", "-f", "template.yml"]);
    assert!(rendered.contains("password: pw") && rendered.contains("name: u"), "{rendered}");
    let usage: Value = serde_json::from_str(&hub.does(&["curl", "-p", "/api/v1/key-usage"])).unwrap();
    assert_eq!(usage["unknown_keys"], 0);
    // Permissions.
    let permission = ["-a", "uaa-client:other", "-p", "/t/*"];
    hub.does(&[&["set-permission"], &permission[..], &["-o", "read"]].concat());
    hub.does(&[&["set-permission"], &permission[..], &["-o", "read, write"]].concat());
    let shown = hub.json(&[&["get-permission"], &permission[..]].concat());
    assert_eq!(shown["operations"], json!(["read", "write"]));
    hub.does(&[&["delete-permission"], &permission[..]].concat());
    assert!(!hub.tries(&[&["get-permission"], &permission[..]].concat()).status.success());
    hub.does(&["delete", "-n", "/t/value"]);
    // Log in as a user, refresh the token, log out.
    hub.does(&["login", "-u", "ci", "-p", &hub.token]);
    assert_eq!(hub.does(&["get", "-n", "/t/password", "-q"]).trim(), "pw");
    let token = hub.does(&["--token"]);
    hub.does(&["logout"]);
    assert!(!hub.tries(&["get", "-n", "/t/password"]).status.success());
    let header = format!("Authorization: {}", token.trim());
    let url = format!("{}/version", hub.server());
    let ended =
        hub.house.program("curl", "apt-get install -y curl", &["-s", "--cacert", &root, "-H", &header, &url]);
    assert!(String::from_utf8_lossy(&ended.stdout).contains("access_token_expired"), "{}", describe(&ended));
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn concourse_style_lookups_share_connections() {
    const PIPELINES: usize = 20;
    const WORKERS: usize = 8;
    let hub = CredHub::new("uaa-client:ci");
    let set = |name: String, value: String| {
        std::fs::write(hub.house.path("value"), value).unwrap();
        hub.house.does(&["credential", "set", &name, "--file", "value"]);
    };
    for secret in 0..3 {
        for pipeline in 0..PIPELINES {
            set(format!("/concourse/main/p{pipeline}/s{secret}"), format!("p{pipeline}-{secret}"));
        }
    }
    for secret in 3..5 {
        set(format!("/concourse/main/s{secret}"), format!("team-{secret}"));
    }
    // A longer name with the same beginning: a search for part of a name also matches it.
    set("/concourse/main/p0/s3-longer".to_owned(), "wrong".to_owned());
    let root = hub.house.root().display().to_string();
    let (workers, pipelines) = (WORKERS.to_string(), PIPELINES.to_string());
    let arguments = [&hub.server(), &root, "ci", &hub.token, &workers, "2000", &pipelines];
    let output = hub.house.program("credhub-lookups", INSTALL, &arguments);
    assert!(output.status.success(), "credhub-lookups: {}", describe(&output));
    let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
    eprintln!("{counted}");
    let count = |name: &str| counted[name].as_u64().unwrap();
    assert_eq!(count("lookups"), 2_000);
    // The program has a connection for each worker. The server closes none of them.
    assert!(count("handshakes") <= WORKERS as u64, "{counted}");
    // Workers that start together each request a token: the library does not wait for the first.
    assert!(count("logins") <= WORKERS as u64, "{counted}");
}
