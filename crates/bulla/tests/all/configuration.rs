//! Configuration from files, environment variables and flags.

use crate::world::{bulla, describe, run, stderr, stdout};

#[test]
fn unknown_config_key_is_rejected_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bulla.toml");
    std::fs::write(&file, "[scan]\nper_address = 3\ntimeout = 5\n").unwrap();
    let output = run(bulla().args(["config", "check", "--config"]).arg(&file));
    assert_eq!(output.status.code(), Some(2), "{}", describe(&output));
    let message = stderr(&output);
    assert!(
        message.contains("line 3") && message.contains("timeout_ms") && message.contains("hint:"),
        "{message}"
    );
}

#[test]
fn config_show_reports_the_source_of_each_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bulla.toml");
    std::fs::write(&file, "[scan]\nper_address = 3\n").unwrap();
    let output = run(bulla()
        .args(["config", "show"])
        .env("BULLA_CONFIG", &file)
        .env("BULLA_SCAN_TIMEOUT_MS", "700")
        .env("BULLA_STORE_URL", "postgres://u:hidden@db/x"));
    let shown = stdout(&output);
    assert!(shown.contains(&format!("from: {})\nper_address = 3", file.display())), "{shown}");
    assert!(shown.contains("from: BULLA_SCAN_TIMEOUT_MS)\ntimeout_ms = 700"), "{shown}");
    assert!(shown.contains("from: default)\nretry = true"), "{shown}");
    assert!(!shown.contains("hidden"), "{shown}");
}

#[test]
fn config_check_rejects_an_unknown_cloud_kind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clouds.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(bulla().args(["config", "check"]).env("BULLA_WATCH_CLOUDS_FILE", &file))
    };
    let output = check("[[oracle]]\naccount = \"1\"\n");
    assert_eq!(output.status.code(), Some(2), "{}", describe(&output));
    assert!(stderr(&output).contains("oracle"), "{}", stderr(&output));
    let output = check("[[kubernetes]]\nname = \"prod\"\n");
    assert!(stdout(&output).contains("has 1 clouds and clusters"), "{}", describe(&output));
}

#[test]
fn unknown_environment_variable_is_rejected() {
    let output = run(bulla().args(["config", "check"]).env("BULLA_SCAN_TIMEOUT", "1"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("BULLA_SCAN_TIMEOUT is unknown"));
}

#[test]
fn config_check_rejects_invalid_credential_store_settings() {
    for (variable, text, wanted) in [
        ("BULLA_CREDENTIALS_RETENTION", "/ci/*", "is not a retention rule: write a path, then"),
        ("BULLA_CREDENTIALS_CA_MINIMUM_DAYS", "100000", "credentials.ca_minimum_days is 100000"),
        ("BULLA_CREDENTIALS_LEAF_MINIMUM_DAYS", "100000", "credentials.leaf_minimum_days is 100000"),
    ] {
        let output = run(bulla().args(["config", "check"]).env(variable, text));
        assert_eq!(output.status.code(), Some(2), "{variable}: {}", describe(&output));
        let message = stderr(&output);
        assert!(message.contains(wanted) && message.contains("hint:"), "{message}");
    }
}

#[test]
fn invalid_scan_arguments_are_rejected_with_an_explanation() {
    for (arguments, wanted) in [
        (&["scan"][..], "no targets given"),
        (&["scan", "a.example", "--timeout", "5"], "has no unit"),
        (&["scan", "a.example", "--starttls", "gopher"], "hint: use one of: smtp"),
        (&["scan", "a.example", "--dns", "resolver"], "hint: give an IP address"),
        (&["scan", "a.example", "--port", "0-70000"], "hint: for example --port"),
        (&["scan", "a.example", "--fail-on", "bad"], "use info, low, medium, high or critical"),
        (&["scan", "a.example", "--ca", "/nowhere.pem"], "/nowhere.pem"),
        (&["scan", "a.example", "--output-file", "/nowhere/x"], "/nowhere/x"),
    ] {
        let mut arguments = arguments.to_vec();
        arguments.push("--no-store");
        let output = run(bulla().args(&arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", describe(&output));
        assert!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
    }
}
