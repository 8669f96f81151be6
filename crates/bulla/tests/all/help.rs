//! Help texts and other documentation of the command line.

use crate::world::{bulla, describe, run, stderr, stdout};

#[test]
fn help_texts_match_the_snapshots() {
    for (name, arguments) in [
        ("bulla", &["--help"][..]),
        ("scan", &["scan", "--help"]),
        ("inventory", &["inventory", "--help"]),
        ("inventory_list", &["inventory", "list", "--help"]),
        ("inventory_diff", &["inventory", "diff", "--help"]),
        ("fleet_up", &["fleet", "up", "--help"]),
    ] {
        let output = run(bulla().args(arguments));
        assert!(output.status.success(), "{}", describe(&output));
        insta::assert_snapshot!(name, stdout(&output));
    }
}

#[test]
fn shell_completions_and_manual_pages_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(bulla().args(["completions", shell]));
        assert!(output.status.success() && stdout(&output).contains("inventory"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = run(bulla().arg("man").arg(folder.path().join("man1")));
    assert!(output.status.success(), "{}", describe(&output));
    let page = std::fs::read_to_string(folder.path().join("man1/bulla-scan.1")).unwrap();
    assert!(page.contains("fail\\-on"));
}

#[test]
fn each_rule_is_listed_and_explained() {
    let output = run(bulla().args(["rules", "--json"]));
    let rules: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rules.len() > 40, "{}", rules.len());
    let mut codes = std::collections::BTreeSet::new();
    for rule in &rules {
        let text = |name: &str| rule[name].as_str().unwrap().to_owned();
        assert!(codes.insert(text("code")), "{} twice", text("code"));
        assert!(!text("source").is_empty() && !text("advice").is_empty(), "{}", text("code"));
    }
    let one = stdout(&run(bulla().args(["rules", "certificate.expired"])));
    assert!(one.contains("critical") && one.contains("5280"), "{one}");
    let wrong = run(bulla().args(["rules", "expired"]));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("hint: did you mean"), "{}", stderr(&wrong));
}
