//! The commands of `docs/guides/quick-start.md`, run in order, as a reader pastes them.
//!
//! The page uses the default ports, so the test has its own network namespace.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use crate::world::{bulla, describe, run, stdout};

const PAGE: &str = include_str!("../../../../../docs/guides/quick-start.md");
const NEEDED: &str =
    "this test needs network namespaces (util-linux), iproute2, nginx-light, openssl and curl";

/// Runs the server in the background until it is stopped, and waits for the agent of this machine.
const UP: &str = "bulla up > up.log 2>&1 &\nserver=$!\n\
                  until bulla agent list --output name 2> waiting.log | grep -q .; do kill -0 $server; sleep 0.2; done";
/// Stops the server, as the page says before its last commands.
const STOP: &str = "kill -INT $server\nwait $server";

/// Returns the commands of the console blocks: a line after `$ ` with the lines that continue it, and its here-document.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let (mut is_console, mut is_document, mut goes_on) = (false, false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = !is_console && line == "```console";
        } else if !is_console {
        } else if is_document || goes_on {
            let command = commands.last_mut().unwrap();
            *command += &format!("\n{line}");
            is_document &= line != "END";
            goes_on = !is_document && line.ends_with('\\');
        } else if let Some(command) = line.strip_prefix("$ ") {
            commands.push(command.to_owned());
            is_document = command.contains("<<");
            goes_on = command.ends_with('\\');
        }
    }
    commands
}

/// Returns a script that runs the commands of the page, and prints the number of each before its output.
fn script() -> String {
    let mut script = "set -eo pipefail\nip link set lo up\n".to_owned();
    for (at, command) in commands(PAGE).iter().enumerate() {
        if command.starts_with("nginx -s stop") {
            script += &format!("{STOP}\n");
        }
        let text = if command == "bulla up" { UP } else { command };
        script += &format!("echo 'command {at}'\n{text}\n");
    }
    script
}

/// Returns what the command that starts with this text printed.
fn output_of<'a>(printed: &'a str, start: &str) -> &'a str {
    let at = commands(PAGE).iter().position(|command| command.starts_with(start));
    let at = at.unwrap_or_else(|| panic!("the page has no command {start}"));
    let (_, rest) = printed.split_once(&format!("command {at}\n")).unwrap();
    rest.split("command ").next().unwrap()
}

#[test]
fn commands_of_the_quick_start_renew_a_certificate_on_nginx() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(bulla().get_program(), home.path().join("bin/bulla")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = Command::new("unshare");
    if !is_root {
        command.args(["--map-current-user", "--keep-caps"]);
    }
    command
        .args(["--net", "--pid", "--fork", "--kill-child", "bash", "-c", &script()])
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", format!("{}:{path}:/usr/sbin:/sbin", home.path().join("bin").display()))
        .current_dir(home.path());
    let output = run(&mut command);
    assert!(output.status.success(), "{NEEDED}\n{}", describe(&output));
    let printed = stdout(&output);
    let printed = |start| output_of(&printed, start).to_owned();
    assert_eq!(printed("until curl"), "it works\n");
    let versions = printed("bulla cert versions");
    let rows = versions.lines().filter(|line| line.contains("20")).count();
    assert_eq!(rows, 2, "{versions}");
    let list = printed("bulla cert list");
    assert!(list.contains("shop.example") && list.contains("active") && list.contains("newest"), "{list}");
    assert!(!home.path().join("bulla-quick-start").exists(), "the page removes its files");
}
