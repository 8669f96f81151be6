//! Dashboards and alert rules must name existing metrics. A renamed metric leaves an empty panel and an alert that never fires.

use std::collections::BTreeSet;

use crate::{entries, files_below, read, root};

/// Suffixes that the Prometheus client library and its histograms append to a registered name.
const SUFFIXES: &[&str] = &["", "_total", "_bucket", "_count", "_sum"];

/// Returns the string literals of a source file.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    text.split('"').filter(is_name)
}

/// Returns the metric name prefixes in a file: `sub_registry_with_prefix("bulla_x")` and `format!("bulla_x_{name}")`.
fn prefixes(text: &str) -> Vec<String> {
    let of_registries =
        text.split("sub_registry_with_prefix(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let of_formats = text.split("format!(\"bulla_").skip(1).filter_map(|rest| rest.split("{name}").next());
    let of_formats = of_formats.filter(|prefix| prefix.len() < 40).map(|prefix| format!("bulla_{prefix}"));
    of_registries.map(|prefix| format!("{prefix}_")).chain(of_formats).collect()
}

/// Returns the metric names that the sources register. A prefix counts in all files of its crate, because they pass registries to
/// each other.
fn registered() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in entries(&root().join("crates")) {
        let files = files_below(&folder.join("src"), &["rs"]);
        let sources: Vec<String> = files
            .iter()
            .filter(|file| !file.components().any(|part| part.as_os_str() == "tests"))
            .map(|file| read(file))
            .collect();
        let prefixes: Vec<String> = sources.iter().flat_map(|text| prefixes(text)).collect();
        for literal in sources.iter().flat_map(|text| literals(text)) {
            names.extend(prefixes.iter().map(|prefix| format!("{prefix}{literal}")));
            if literal.starts_with("bulla_") {
                names.insert(literal.to_owned());
            }
        }
    }
    names
}

/// Returns the words that begin with `bulla_`.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("bulla_")).collect()
}

#[test]
fn dashboards_and_alert_rules_name_existing_metrics() {
    let registered = registered();
    let mut unknown = Vec::new();
    let mut seen = 0;
    for folder in ["packaging/grafana", "docs/prometheus"] {
        for file in files_below(&root().join(folder), &["json", "yml"]) {
            let text = read(&file);
            for metric in named(&text) {
                seen += 1;
                let registers =
                    |suffix: &str| metric.strip_suffix(suffix).is_some_and(|stem| registered.contains(stem));
                if !SUFFIXES.iter().any(|suffix| registers(suffix)) {
                    unknown.push(format!("{}: {metric}", file.display()));
                }
            }
        }
    }
    assert!(seen > 50, "the dashboards and rules were not found");
    assert!(unknown.is_empty(), "metrics that no source registers:\n{}", unknown.join("\n"));
}
