//! Tests of the whole scanner with the fleet's ground truth: all expected findings, and no others.

use std::collections::BTreeMap;

use fleet::{Mix, Plan};
use scan::ScanOptions;

use crate::limits::options;
use crate::world::World;

type Verdicts = BTreeMap<String, (String, Vec<String>)>;

/// Returns the differences, one line each; empty if there are none.
fn differences(expected: &Verdicts, found: &Verdicts) -> Vec<String> {
    let mut lines: Vec<_> = expected
        .iter()
        .filter(|(target, verdict)| found.get(*target) != Some(verdict))
        .map(|(target, verdict)| format!("{target}\n  truth {verdict:?}\n  found {:?}", found.get(target)))
        .collect();
    let unexpected = found.keys().filter(|target| !expected.contains_key(*target));
    lines.extend(unexpected.map(|target| format!("{target}: nobody asked for it")));
    lines
}

async fn assert_judged_as_it_is(plan: Plan) {
    let world = World::of(&plan).await;
    let truth = world.fleet.truth();
    let expected: Verdicts = truth
        .iter()
        .map(|t| {
            let findings = t.findings.iter().map(|code| (*code).to_owned()).collect();
            (t.target.clone(), (t.outcome.to_owned(), findings))
        })
        .collect();
    let targets: Vec<_> = truth.iter().map(|t| t.target.clone()).collect();
    let seen = world.scan(options(), &targets).await;
    let found: Verdicts = seen
        .verdicts()
        .into_iter()
        .map(|(target, (outcome, codes))| {
            (target, (outcome.to_owned(), codes.into_iter().map(str::to_owned).collect()))
        })
        .collect();
    let differences = differences(&expected, &found);
    assert!(
        differences.is_empty(),
        "{} of {}:\n{}",
        differences.len(),
        expected.len(),
        differences.join("\n")
    );
    for (truth, observation) in truth.iter().filter_map(|t| Some((t, seen.of(&t.target)?))) {
        if let (Some(leaf), "answered") = (&truth.leaf_sha256, truth.outcome) {
            let shown = observation.leaf().map(|leaf| leaf.fingerprint.to_string());
            assert_eq!(shown.as_ref(), Some(leaf), "{}", truth.target);
        }
    }
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_endpoint_of_each_kind_gets_the_expected_findings() {
    assert_judged_as_it_is(Plan::one_of_each()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_fleet_gets_the_expected_findings() {
    assert_judged_as_it_is(Plan { endpoints: 1_800, seed: 7, mix: Mix::AllKinds, ..Plan::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_with_different_certificates_are_reported() {
    let world = World::of(&Plan::one_of_each()).await;
    let truth = world.fleet.truth();
    let host = truth.iter().find(|t| t.kind == "differs-across-addresses").expect("the kind");
    let options = ScanOptions { all_addresses: true, ..options() };
    let seen = world.scan(options, std::slice::from_ref(&host.target)).await;
    assert_eq!(seen.observations.len(), host.addresses.len());
    let codes: Vec<_> = seen.estate.iter().map(|e| e.finding.rule.code).collect();
    assert_eq!(codes, ["estate.differs-across-addresses"]);
    world.fleet.stop().await;
}
