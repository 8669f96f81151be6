//! A fleet and a scanner for it.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet::{Fleet, Plan};
use outbound::resolve::Resolver;
use scan::{
    Estate, EstateFinding, KnownEndpoints, Observation, ScanOptions, Scanner, TargetOptions, Targets, Trusted,
};
use tokio_util::sync::CancellationToken;

/// Long enough for any scan on a busy machine; reached only by a hang.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) fleet: Fleet,
}

/// The result of a scan of some targets.
pub(crate) struct Seen {
    pub(crate) observations: Vec<Observation>,
    pub(crate) estate: Vec<EstateFinding>,
}

impl World {
    pub(crate) async fn of(plan: &Plan) -> Self {
        Self { fleet: Fleet::start(plan).await.expect("a fleet on loopback") }
    }

    pub(crate) fn scanner(&self, options: ScanOptions) -> Scanner {
        let resolver = Resolver::with_upstreams(vec![self.fleet.dns()]);
        let mut trusted = Trusted::trusting_none();
        trusted.add_bytes(self.fleet.roots_pem().as_bytes());
        Scanner::new(options, resolver, trusted).expect("a scanner")
    }

    pub(crate) async fn scan(&self, options: ScanOptions, targets: &[String]) -> Seen {
        scan_with(&self.scanner(options), targets).await
    }
}

pub(crate) async fn scan_with(scanner: &Scanner, targets: &[String]) -> Seen {
    let targets = Targets::new(targets, TargetOptions::default());
    let mut run = scanner.start(Box::new(targets), KnownEndpoints::default(), CancellationToken::new());
    let mut seen = Seen { observations: Vec::new(), estate: Vec::new() };
    let mut estate = Estate::with_named_max(usize::MAX);
    tokio::time::timeout(TIMEOUT, async {
        while let Some(observation) = run.observations.recv().await {
            estate.observe(&observation);
            seen.observations.push(observation);
        }
    })
    .await
    .expect("the scan ends");
    assert!(run.refused.recv().await.is_none(), "every target was understood");
    seen.estate = estate.finish();
    seen
}

impl Seen {
    /// Returns the observation of the endpoint `target`.
    pub(crate) fn of(&self, target: &str) -> Option<&Observation> {
        self.observations.iter().find(|observation| written(observation) == target)
    }

    /// Returns, by endpoint, the outcome and the sorted codes of its findings without duplicates. Findings about the estate are
    /// included.
    pub(crate) fn verdicts(&self) -> BTreeMap<String, (&'static str, Vec<&'static str>)> {
        let mut together: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
        for finding in &self.estate {
            assert_eq!(finding.count, finding.endpoints.len(), "all are named");
            for endpoint in &finding.endpoints {
                together.entry(endpoint).or_default().push(finding.finding.rule.code);
            }
        }
        self.observations
            .iter()
            .map(|observation| {
                let mut codes: Vec<_> = observation.findings.iter().map(|f| f.rule.code).collect();
                codes.extend(together.get(&*observation.label()).into_iter().flatten());
                codes.sort_unstable();
                codes.dedup();
                (written(observation), (observation.outcome.name(), codes))
            })
            .collect()
    }
}

/// Returns the target in the notation of the ground truth.
fn written(observation: &Observation) -> String {
    observation.target.identity()
}
