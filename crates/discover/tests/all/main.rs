//! `bulla-scan` as its users see it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::process::{Command, Output};

/// Runs `bulla-scan` with its own home folder, and a configuration file that also has sections for other programs.
fn bulla_scan(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("bulla.toml");
    std::fs::write(
        &file,
        "roles = [\"server\"]\n[server]\nlisten = \"127.0.0.1:1\"\n[proxy.policy]\ndefault = \"deny\"\n\
         [scan]\ntable_rows = 3\n",
    )
    .unwrap();
    Command::new(env!("CARGO_BIN_EXE_bulla-scan"))
        .args(arguments)
        .env("HOME", home.path())
        .env("BULLA_DATA", home.path())
        .env("BULLA_CONFIG", &file)
        .env("BULLA_PROXY_LISTEN", "127.0.0.1:2")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn demo_is_scanned_with_the_scan_section_of_a_shared_configuration_file() {
    let output = bulla_scan(&["scan", "--demo", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let shown = text(&output);
    assert!(shown.contains("certificate.expired"), "{shown}");
    assert!(shown.contains("--limit"), "three rows, and how to see more: {shown}");
}

#[test]
fn clouds_are_rejected_with_the_program_that_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clouds.toml");
    std::fs::write(&file, "[[aws]]\naccount = \"111122223333\"\n").unwrap();
    let output = bulla_scan(&["scan", "--no-store", "--clouds", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("bulla scan --clouds"), "{}", text(&output));
}

#[test]
fn errors_in_the_scan_section_are_reported_and_other_sections_are_not_read() {
    let output = bulla_scan(&["--config", "/nonexistent.toml", "inventory", "list"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let output = bulla_scan(&["inventory", "list"]);
    assert!(text(&output).contains("scan first"), "{}", text(&output));
}
