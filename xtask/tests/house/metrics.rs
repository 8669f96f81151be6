//! Dashboards and alert rules must name existing metrics. A renamed metric leaves an empty panel and an alert that never fires.

use std::collections::{BTreeMap, BTreeSet};

use crate::metric_reference::{Metric, all};
use crate::{files_below, read, root};

/// Returns the names that a metric has in Prometheus.
fn series(name: &str, metric: &Metric) -> Vec<String> {
    let suffixes: &[&str] = match metric.kind {
        "counter" => &["_total"],
        "histogram" => &["_bucket", "_count", "_sum"],
        _ => &[""],
    };
    suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect()
}

/// Returns the words that begin with `bulla_`.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("bulla_")).collect()
}

#[test]
fn dashboards_and_alert_rules_name_existing_metrics() {
    let metrics: BTreeMap<String, Metric> = all().into_values().flatten().collect();
    let known: BTreeSet<String> = metrics.iter().flat_map(|(name, metric)| series(name, metric)).collect();
    let mut unknown = Vec::new();
    let mut seen = 0;
    for folder in ["packaging/grafana", "docs/prometheus"] {
        for file in files_below(&root().join(folder), &["json", "yml"]) {
            let text = read(&file);
            let names = named(&text);
            seen += names.len();
            let missing = names.into_iter().filter(|name| !known.contains(*name));
            unknown.extend(missing.map(|name| format!("{}: {name}", file.display())));
        }
    }
    assert!(seen > 50, "the dashboards and rules were not found");
    assert!(unknown.is_empty(), "metrics that no source registers:\n{}", unknown.join("\n"));
}
