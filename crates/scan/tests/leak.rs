//! Tests that a cancelled scan ends immediately and that all its tasks have ended.
//!
//! This is a separate test binary: tasks are counted for the whole process, and other tests would add theirs.

use std::time::{Duration, Instant};

use fleet::{Fleet, Latency, Mix, Plan};
use outbound::resolve::{Families, Resolver};
use scan::{KnownEndpoints, ScanOptions, Scanner, TargetOptions, Targets, Trusted};
use tokio_util::sync::CancellationToken;

/// Returns the live tasks of the scanner and its resolver, as counted by the telemetry.
fn live() -> Vec<(&'static str, i64)> {
    let kinds = telemetry::tasks::live().into_iter();
    kinds
        .filter(|(kind, live)| (kind.starts_with("scan-") || kind.starts_with("dns-")) && *live > 0)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_scan_leaves_no_task_behind() {
    let slow = Latency::Custom {
        dns: Duration::ZERO..=Duration::ZERO,
        dial: Duration::from_secs(60)..=Duration::from_secs(60),
        handshake: Duration::ZERO..=Duration::ZERO,
    };
    let plan =
        Plan { endpoints: 100, dead_fraction: 0.0, mix: Mix::Healthy, latency: slow, ..Plan::default() };
    let fleet = Fleet::start(&plan).await.expect("a fleet on loopback");
    let targets: Vec<_> = fleet.truth().into_iter().map(|truth| truth.target).collect();
    // The limits are so long that no probe times out during the test.
    let limits = scan::Limits::each(Duration::from_secs(120));
    let options =
        ScanOptions { families: Families::V4, first: limits, second: limits, ..ScanOptions::default() };
    let resolver = Resolver::with_upstreams(vec![fleet.dns()]);
    let scanner = Scanner::new(options, resolver, Trusted::trusting_none()).expect("a scanner");
    let stop = CancellationToken::new();
    let input = Box::new(Targets::new(targets, TargetOptions::default()));
    let mut run = scanner.start(input, KnownEndpoints::default(), stop.clone());
    while run.progress.snapshot().in_flight == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!live().is_empty(), "a scan under way is counted");

    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(20), async {
        while run.observations.recv().await.is_some() {}
    });
    ended.await.expect("the channel ends at once");
    drop((run, scanner));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !live().is_empty() {
        assert!(Instant::now() < deadline, "still alive: {:?}", live());
        tokio::task::yield_now().await;
    }
    fleet.stop().await;
}
