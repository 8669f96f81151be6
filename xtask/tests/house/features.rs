//! Builds of this workspace share their dependencies. Cargo chooses the features of a dependency for the packages that a command
//! names, and compiles everything above the dependency again where they differ.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::{read, root};

/// Returns the lines that `cargo tree` prints with `arguments`: dependencies that are compiled for the target.
fn tree(arguments: &[&str], edges: &str, format: &str) -> Vec<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(root()).args(["tree", "--locked", "--prefix", "none", "--format", format]);
    let output = tree
        .args(["--edges", &format!("{edges},no-proc-macro")])
        .args(arguments)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// Returns the features of each dependency in a build of the tests with `arguments`.
fn features(arguments: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree(arguments, "normal,dev", "{p}|{f}") {
        let (package, features) = line.split_once('|').unwrap_or((&line, ""));
        let features = features.split(',').filter(|one| !one.is_empty()).map(str::to_owned);
        found.entry(package.to_owned()).or_default().extend(features);
    }
    found
}

/// Returns the packages and features of `.ci/features`.
fn with_clouds() -> Vec<String> {
    let file = read(&root().join(".ci/features"));
    let array =
        file.split_once("FEATURES=(").and_then(|(_, rest)| rest.split_once(')')).expect("FEATURES=(…)");
    array.0.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn builds_with_clouds_use_the_same_dependencies() {
    let clouds = with_clouds();
    let clouds: Vec<&str> = clouds.iter().map(String::as_str).collect();
    let (usual, with_clouds) = (features(&["--workspace"]), features(&clouds));
    // Dependencies of the crates that both builds compile.
    let shared: BTreeSet<String> = tree(&["--package", "bulla"], "normal", "{p}").into_iter().collect();
    let is_ours = |package: &str| package.contains(" (/");
    let differ: Vec<String> = with_clouds
        .iter()
        .filter(|(package, _)| shared.contains(*package) && !is_ours(package))
        .filter_map(|(package, features)| {
            let of_usual = usual.get(package)?;
            let (more, fewer) = (features - of_usual, of_usual - features);
            (!more.is_empty() || !fewer.is_empty())
                .then(|| format!("{package}: only with clouds {more:?}, only without {fewer:?}"))
        })
        .collect();
    assert!(shared.len() > 100 && usual.len() > 100, "cargo tree printed {} packages", shared.len());
    assert!(
        differ.is_empty(),
        "these dependencies and all crates above them are compiled twice; name their features in \
         crates/workspace-hack/Cargo.toml:\n{}",
        differ.join("\n")
    );
}
