//! Tests a watch for twelve hours of simulated time: at the end there are no more tasks than after the first run.
//!
//! This is a separate test binary: tasks are counted for the whole process, and other tests would add theirs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleet::{Fleet, Mix, Plan};
use inventory::tables::watches::WatchOutcome;
use inventory::watch::{NewWatch, ScanEnvironment, WatchOptions, WatchSpec, Watches};
use outbound::resolve::{Families, Resolver};
use scan::{Observation, ScanOptions, Scanner, TargetOptions, Targets, Trusted};
use store::{Clock, Store, StoreUrl};

/// 2026-11-21, µs.
const NOW: i64 = 1_795_219_200_000_000;
const INTERVAL: Duration = Duration::from_secs(600);
/// The number of runs in twelve hours.
const RUNS: u32 = 72;
/// After this many runs the node stops during a run, and another node continues.
const STOPS_EVERY: u32 = 12;
/// The number of endpoints, including those that never answer.
const ENDPOINTS: usize = 40;

struct FleetKit {
    resolver: Resolver,
    roots: String,
}

impl ScanEnvironment for FleetKit {
    fn targets(&self, spec: &WatchSpec) -> Result<Targets, String> {
        Targets::of_network(&spec.targets, TargetOptions::default()).map_err(|error| error.to_string())
    }

    fn scanner(&self, _: &WatchSpec) -> Result<Scanner, String> {
        let mut trusted = Trusted::trusting_none();
        trusted.add_bytes(self.roots.as_bytes());
        let limits = scan::Limits::each(Duration::from_millis(100));
        let options =
            ScanOptions { families: Families::V4, first: limits, second: limits, ..ScanOptions::default() };
        Scanner::new(options, self.resolver.clone(), trusted).map_err(|error| error.to_string())
    }

    fn scan_parameters(&self, _: &WatchSpec) -> String {
        "{}".to_owned()
    }

    fn detail(&self, _: &Observation) -> String {
        "{}".to_owned()
    }
}

/// Returns the number of live tasks by kind, without the tasks of the fleet. The fleet serves connections for as long as they are open.
fn live() -> BTreeMap<&'static str, i64> {
    telemetry::tasks::live()
        .into_iter()
        .filter(|(kind, live)| *live != 0 && !kind.starts_with("fleet"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_hours_of_watch_runs_leak_no_tasks() {
    let plan = Plan { endpoints: ENDPOINTS, dead_fraction: 0.1, mix: Mix::Healthy, ..Plan::default() };
    let fleet = Fleet::start(&plan).await.expect("a fleet on loopback");
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(&StoreUrl::sqlite(folder.path().join("watch.db"))).await.expect("a database");
    let clock = Clock::manual(NOW);
    let kit = FleetKit { resolver: Resolver::with_upstreams(vec![fleet.dns()]), roots: fleet.roots_pem() };
    let watches = Watches::new(store.clone(), clock.clone(), kit, WatchOptions::default());
    let spec = WatchSpec {
        targets: fleet.truth().into_iter().map(|truth| truth.target).collect(),
        ..WatchSpec::default()
    };
    let new = NewWatch {
        name: "edge".to_owned(),
        group: String::new(),
        spec,
        interval: INTERVAL,
        jitter: Duration::ZERO,
        enabled: true,
    };
    let id = watches.create(&new, "user:a").await.expect("a watch").id;
    let mut runner = watches.runner();
    assert_eq!(runner.tick().await.expect("a tick"), 1);
    runner.idle().await;
    let at_first = live();
    for run in 1..RUNS {
        clock.advance(INTERVAL);
        assert_eq!(runner.tick().await.expect("a tick"), 1, "run {run}");
        if run % STOPS_EVERY == 0 {
            runner.stop().await;
            runner = watches.runner();
            // On a slow machine, the run may have ended before the stop.
            assert!(runner.tick().await.expect("a tick") <= 1, "run {run}, taken up");
        }
        runner.idle().await;
    }
    let row = inventory::tables::Watches::of(&store).get(id).await.expect("the watch").expect("the watch");
    let last = row.last.expect("it has run");
    assert_eq!((last.outcome, &last.error), (WatchOutcome::Finished, &None));
    assert_eq!(store::Scans::of(&store).page(None, 100).await.expect("scans").rows.len(), RUNS as usize);
    // A task of the first run may have been about to end when tasks were counted.
    let more = || live().iter().any(|(kind, live)| *live > at_first.get(kind).copied().unwrap_or(0));
    let deadline = Instant::now() + Duration::from_secs(60);
    while more() {
        assert!(Instant::now() < deadline, "after the first run {at_first:?}, now {:?}", live());
        tokio::task::yield_now().await;
    }
    fleet.stop().await;
}
