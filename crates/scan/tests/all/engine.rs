//! Tests of the engine: evidence is fresh, no tasks are left behind, and dead endpoints do not delay others.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fleet::{Latency, Mix, Plan};
use outbound::guard::Guard;
use scan::{KnownEndpoints, Limits, ProbeOutcome, ScanOptions, TargetOptions, Targets};
use tokio_util::sync::CancellationToken;

use crate::limits::long_timeout_options;
use crate::world::{World, scan_with};

fn healthy(endpoints: usize) -> Plan {
    Plan { endpoints, dead_fraction: 0.0, mix: Mix::Healthy, ..Plan::default() }
}

async fn targets_of(world: &World) -> Vec<String> {
    world.fleet.truth().into_iter().map(|truth| truth.target).collect()
}

/// Addresses that the guard blocks are reported, in every notation of a literal address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_blocks_metadata_addresses_in_a_scan() {
    let world = World::of(&healthy(2)).await;
    let local_targets = targets_of(&world).await;
    let blocked_targets =
        ["169.254.169.254:80", "[::ffff:169.254.169.254]:443", "100.100.100.200:443", "[fe80::1]:443"];
    let targets: Vec<String> =
        local_targets.iter().cloned().chain(blocked_targets.map(str::to_owned)).collect();
    let guarded = ScanOptions { guard: Some(Guard::default()), ..long_timeout_options() };
    let seen = world.scan(guarded, &targets).await;
    let refused: Vec<_> = seen
        .observations
        .iter()
        .filter(|seen| seen.detail.as_ref().is_some_and(|detail| detail.contains("link-local")))
        .collect();
    assert_eq!(refused.len(), blocked_targets.len(), "{:?}", seen.observations);
    assert!(
        refused.iter().all(|seen| seen.outcome == ProbeOutcome::Unknown && seen.timing.dial_us.is_none())
    );
    let answered = seen.observations.iter().filter(|seen| seen.outcome == ProbeOutcome::Answered).count();
    assert_eq!(answered, local_targets.len());
    world.fleet.stop().await;
}

/// The servers resume sessions on request. The scanner never requests it, so a replaced certificate is seen immediately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_certificate_is_seen_by_the_next_scan() {
    let world = World::of(&healthy(4)).await;
    let truth = world.fleet.truth();
    let target = truth.iter().find(|t| t.kind == "p256").expect("an ordinary host").clone();
    let scanner = world.scanner(ScanOptions { finish_handshake: true, ..long_timeout_options() });
    let leaf = |seen: &crate::world::Seen| {
        seen.observations[0].leaf().map(|leaf| leaf.fingerprint.to_string()).expect("a leaf")
    };
    let targets = [target.target.clone()];
    assert_eq!(Some(leaf(&scan_with(&scanner, &targets).await)), target.leaf_sha256);
    let replaced = world.fleet.replace_certificate(&target.host).expect("the host");
    assert_eq!(leaf(&scan_with(&scanner, &targets).await), replaced);
    assert_eq!(world.fleet.counters().handshakes_resumed, 0);
    world.fleet.stop().await;
}

/// The old address continues to serve the old certificate. A client that keeps an answer longer than its TTL reports a mismatch
/// that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_name_is_resolved_again_after_its_ttl() {
    let world = World::of(&healthy(200)).await;
    let truth = world.fleet.truth();
    let moving = truth.iter().find(|t| t.kind == "short-ttl").expect("one with a TTL of a second").clone();
    let scanner = world.scanner(long_timeout_options());
    let targets = [moving.target.clone()];
    scan_with(&scanner, &targets).await;
    let (leaf, address) = world.fleet.move_address(&moving.host).expect("the host");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = scan_with(&scanner, &targets).await;
        let shown = &seen.observations[0];
        if shown.address == Some(address.into()) {
            assert_eq!(shown.leaf().map(|l| l.fingerprint.to_string()), Some(leaf));
            break;
        }
        assert!(Instant::now() < deadline, "still at the old address long after the TTL of one second");
    }
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_endpoint_needs_one_full_handshake_without_retry() {
    let world = World::of(&healthy(300)).await;
    let targets = targets_of(&world).await;
    // The short handshakes that probe accepted versions and suites select a certificate and end before it is sent. They are
    // disabled, because they would be counted.
    let seen = world.scan(ScanOptions { accepted: false, ..long_timeout_options() }, &targets).await;
    assert!(seen.observations.iter().all(|o| o.outcome == ProbeOutcome::Answered));
    let counters = world.fleet.counters();
    assert_eq!(counters.certificates_sent, 300);
    assert_eq!((counters.handshakes_resumed, counters.hello_retries), (0, 0));
    world.fleet.stop().await;
}

/// 200 names on one address, with a limit of concurrent connections for each address. All of them are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_names_behind_one_address_are_answered_under_its_limit() {
    let world = World::of(&Plan { mix: Mix::Balancer { names: 200 }, ..healthy(200) }).await;
    let targets = targets_of(&world).await;
    let seen = world.scan(ScanOptions { per_address: 8, ..long_timeout_options() }, &targets).await;
    assert_eq!(seen.observations.len(), 200);
    assert!(seen.observations.iter().all(|o| o.outcome == ProbeOutcome::Answered));
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_targets_are_scanned_once_and_known_ones_skipped() {
    let world = World::of(&healthy(3)).await;
    let targets = targets_of(&world).await;
    let twice: Vec<_> = targets.iter().chain(&targets).cloned().collect();
    let scanner = world.scanner(long_timeout_options());
    let known = KnownEndpoints { observed: HashSet::from([targets[0].clone()]), ..KnownEndpoints::default() };
    let input = Box::new(Targets::new(twice, TargetOptions::default()));
    let mut run = scanner.start(input, known, CancellationToken::new());
    let mut count = 0;
    while run.observations.recv().await.is_some() {
        count += 1;
    }
    let end = run.progress.snapshot();
    assert_eq!((count, end.skipped, end.repeated), (2, 2, 2));
    world.fleet.stop().await;
}

/// Without a receiver, finished scans wait with their observation. No more scans begin than fit into the channel and the
/// concurrency limit. Once a receiver reads, no observation is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_receiver_applies_backpressure_without_loss() {
    const IN_CHANNEL: u64 = 256;
    const IN_FLIGHT: usize = 64;
    let world = World::of(&healthy(2_000)).await;
    let targets = targets_of(&world).await;
    let scanner = world.scanner(ScanOptions { in_flight: Some(IN_FLIGHT), ..long_timeout_options() });
    let input = Box::new(Targets::new(targets.clone(), TargetOptions::default()));
    let mut run = scanner.start(input, KnownEndpoints::default(), CancellationToken::new());
    while run.progress.snapshot().finished < IN_CHANNEL {
        tokio::task::yield_now().await;
    }
    for _ in 0..10_000 {
        assert!(run.progress.snapshot().finished <= IN_CHANNEL + IN_FLIGHT as u64);
        tokio::task::yield_now().await;
    }
    let mut seen = HashSet::new();
    while let Some(observation) = run.observations.recv().await {
        assert!(seen.insert(observation.target.identity()), "none is doubled");
    }
    assert_eq!(seen.len(), targets.len());
    world.fleet.stop().await;
}

/// The first time limit is far below the response time of every endpoint. The retry decides, and it yields the same result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_endpoints_are_answered_on_retry_with_the_same_profile() {
    let slow = Duration::from_millis(400)..=Duration::from_millis(600);
    let none = Duration::ZERO..=Duration::ZERO;
    let latency = Latency::Custom { dns: none.clone(), dial: none, handshake: slow };
    let world = World::of(&Plan { latency, ..healthy(60) }).await;
    let targets = targets_of(&world).await;
    let tiny = Limits { handshake: Duration::from_millis(20), ..long_timeout_options().first };
    let seen = world.scan(ScanOptions { first: tiny, ..long_timeout_options() }, &targets).await;
    let lost: Vec<_> = seen.observations.iter().filter(|o| o.outcome != ProbeOutcome::Answered).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let modern = seen.observations.iter().filter(|o| o.profile == Some("modern")).count();
    assert_eq!(modern, targets.len());
    world.fleet.stop().await;
}

/// Targets that are not finished at the deadline are reported as cancelled, not as dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_ends_the_scan_and_reports_every_target() {
    let never = Duration::from_secs(3_600)..=Duration::from_secs(3_600);
    let none = Duration::ZERO..=Duration::ZERO;
    let latency = Latency::Custom { dns: none.clone(), dial: none, handshake: never };
    let world = World::of(&Plan { latency, ..healthy(40) }).await;
    let targets = targets_of(&world).await;
    let deadline = Some(Duration::from_secs(1));
    let seen =
        world.scan(ScanOptions { deadline, in_flight: Some(8), ..long_timeout_options() }, &targets).await;
    assert_eq!(seen.observations.len(), targets.len());
    assert!(
        seen.observations.iter().all(|o| o.outcome == ProbeOutcome::Cancelled),
        "{:?}",
        seen.observations
    );
    world.fleet.stop().await;
}
