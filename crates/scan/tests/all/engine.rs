//! What the engine promises: fresh evidence, nothing left behind, nobody held up by the dead.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fleet::{Latency, Mix, Plan};
use outbound::guard::Guard;
use scan::{Known, Limits, ProbeOutcome, ScanOptions, TargetOptions, Targets};
use tokio_util::sync::CancellationToken;

use crate::limits::patient;
use crate::world::{World, scan_with};

fn healthy(endpoints: usize) -> Plan {
    Plan { endpoints, dead_fraction: 0.0, mix: Mix::Healthy, ..Plan::default() }
}

async fn targets_of(world: &World) -> Vec<String> {
    world.fleet.truth().into_iter().map(|truth| truth.target).collect()
}

/// What is not connected to is told, by literal addresses in every notation that leads there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_keeps_a_scan_from_metadata_services() {
    let world = World::of(&healthy(2)).await;
    let here = targets_of(&world).await;
    let away = ["169.254.169.254:80", "[::ffff:169.254.169.254]:443", "100.100.100.200:443", "[fe80::1]:443"];
    let targets: Vec<String> = here.iter().cloned().chain(away.map(str::to_owned)).collect();
    let guarded = ScanOptions { guard: Some(Guard::default()), ..patient() };
    let seen = world.scan(guarded, &targets).await;
    let refused: Vec<_> = seen
        .observations
        .iter()
        .filter(|seen| seen.detail.as_ref().is_some_and(|detail| detail.contains("link-local")))
        .collect();
    assert_eq!(refused.len(), away.len(), "{:?}", seen.observations);
    assert!(
        refused.iter().all(|seen| seen.outcome == ProbeOutcome::Unknown && seen.timing.dial_us.is_none())
    );
    let answered = seen.observations.iter().filter(|seen| seen.outcome == ProbeOutcome::Answered).count();
    assert_eq!(answered, here.len());
    world.fleet.stop().await;
}

/// Servers resume whenever they are asked; the scanner never asks, so a replaced certificate shows at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_certificate_is_seen_by_the_next_scan() {
    let world = World::of(&healthy(4)).await;
    let truth = world.fleet.truth();
    let target = truth.iter().find(|t| t.kind == "p256").expect("an ordinary host").clone();
    let scanner = world.scanner(ScanOptions { finish_handshake: true, ..patient() });
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

/// The old address goes on serving the old certificate: anyone who keeps an answer longer than its TTL sees
/// a mismatch that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_moves_is_followed_when_its_ttl_is_over() {
    let world = World::of(&healthy(200)).await;
    let truth = world.fleet.truth();
    let moving = truth.iter().find(|t| t.kind == "short-ttl").expect("one with a TTL of a second").clone();
    let scanner = world.scanner(patient());
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
async fn every_healthy_endpoint_costs_one_full_handshake_and_no_second_hello() {
    let world = World::of(&healthy(300)).await;
    let targets = targets_of(&world).await;
    // The short handshakes that ask what else a server accepts count as certificates chosen, and end before any is sent.
    let seen = world.scan(ScanOptions { accepted: false, ..patient() }, &targets).await;
    assert!(seen.observations.iter().all(|o| o.outcome == ProbeOutcome::Answered));
    let counters = world.fleet.counters();
    assert_eq!(counters.certificates_sent, 300);
    assert_eq!((counters.handshakes_resumed, counters.hello_retries), (0, 0));
    world.fleet.stop().await;
}

/// 200 names on one address, at most so many at once, and all of them answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_behind_one_address_wait_for_their_turn_and_all_get_it() {
    let world = World::of(&Plan { mix: Mix::Balancer { names: 200 }, ..healthy(200) }).await;
    let targets = targets_of(&world).await;
    let seen = world.scan(ScanOptions { per_address: 8, ..patient() }, &targets).await;
    assert_eq!(seen.observations.len(), 200);
    assert!(seen.observations.iter().all(|o| o.outcome == ProbeOutcome::Answered));
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_given_twice_is_looked_at_once_and_a_known_one_not_at_all() {
    let world = World::of(&healthy(3)).await;
    let targets = targets_of(&world).await;
    let twice: Vec<_> = targets.iter().chain(&targets).cloned().collect();
    let scanner = world.scanner(patient());
    let known = Known { observed: HashSet::from([targets[0].clone()]), ..Known::default() };
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

/// Nobody reads: looks end and wait with their observation, so that no more begin than fit into the channel
/// and the budget. Then somebody reads, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_slows_the_scan_and_loses_nothing() {
    const IN_CHANNEL: u64 = 256;
    const IN_FLIGHT: usize = 64;
    let world = World::of(&healthy(2_000)).await;
    let targets = targets_of(&world).await;
    let scanner = world.scanner(ScanOptions { in_flight: Some(IN_FLIGHT), ..patient() });
    let input = Box::new(Targets::new(targets.clone(), TargetOptions::default()));
    let mut run = scanner.start(input, Known::default(), CancellationToken::new());
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

/// The first limit is far below what any endpoint takes: the last try decides, and it shows the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_endpoints_are_not_dead_and_show_what_they_show_to_everybody() {
    let slow = Duration::from_millis(400)..=Duration::from_millis(600);
    let none = Duration::ZERO..=Duration::ZERO;
    let latency = Latency::Custom { dns: none.clone(), dial: none, handshake: slow };
    let world = World::of(&Plan { latency, ..healthy(60) }).await;
    let targets = targets_of(&world).await;
    let tiny = Limits { handshake: Duration::from_millis(20), ..patient().first };
    let seen = world.scan(ScanOptions { first: tiny, ..patient() }, &targets).await;
    let lost: Vec<_> = seen.observations.iter().filter(|o| o.outcome != ProbeOutcome::Answered).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let modern = seen.observations.iter().filter(|o| o.profile == Some("modern")).count();
    assert_eq!(modern, targets.len());
    world.fleet.stop().await;
}

/// What has not ended at the deadline is reported as such, and not as dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_the_scan_and_reports_every_target() {
    let never = Duration::from_secs(3_600)..=Duration::from_secs(3_600);
    let none = Duration::ZERO..=Duration::ZERO;
    let latency = Latency::Custom { dns: none.clone(), dial: none, handshake: never };
    let world = World::of(&Plan { latency, ..healthy(40) }).await;
    let targets = targets_of(&world).await;
    let deadline = Some(Duration::from_secs(1));
    let seen = world.scan(ScanOptions { deadline, in_flight: Some(8), ..patient() }, &targets).await;
    assert_eq!(seen.observations.len(), targets.len());
    assert!(
        seen.observations.iter().all(|o| o.outcome == ProbeOutcome::Cancelled),
        "{:?}",
        seen.observations
    );
    world.fleet.stop().await;
}
