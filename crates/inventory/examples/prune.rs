//! What the retention of observations costs, and how long a scan at the same time waits for it:
//! `cargo run --release -p inventory --example prune -- [both|sqlite|postgres] [ENDPOINTS] [SCANS]`. Default: both databases, 100,000
//! endpoints and 12 scans of them, of which the last two stay: a million observations are removed. Each database is empty and in a
//! temporary folder; PostgreSQL is a server of its own with fsync off. A scan over its own connections stores batches of 500
//! observations before and during the removal.

// A bench: what fails ends it, with the reason.
#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::ProbeOutcome;
use inventory::retention::prune;
use store::testing::Cluster;
use store::{
    EndpointKey, NewCertificate, NewObservation, PruneMode, ScanState, Scans, Store, StoreUrl, Writer,
    WriterOptions,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// 2026-11-21, µs.
const NOW: i64 = 1_795_219_200_000_000;
const DAY: i64 = 86_400_000_000;
/// Endpoints that share a leaf.
const ENDPOINTS_A_LEAF: usize = 3;
/// Observations that the scan stores in one transaction.
const BATCH: usize = 500;
/// Batches that are stored before the removal begins.
const BATCHES_BEFORE: usize = 200;
/// Pause between two batches: the scan stores at most 10,000 observations a second.
const PAUSE: Duration = Duration::from_millis(50);

fn certificate(number: u64) -> Arc<NewCertificate> {
    let mut sha256 = [0; 32];
    sha256[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    sha256[8..16].copy_from_slice(&number.to_be_bytes());
    Arc::new(NewCertificate {
        sha256,
        der: vec![0x30; 1_100].into(),
        subject: format!("CN=service-{number}.example"),
        issuer: "CN=Issuing CA, O=Example".to_owned(),
        serial: format!("{number:032x}"),
        not_before_us: NOW - 30 * DAY,
        not_after_us: NOW + 60 * DAY,
        key_algorithm: "EC P-256".to_owned(),
        key_bits: 256,
        spki_sha256: sha256,
        names: vec![format!("service-{number}.example")],
    })
}

/// A twentieth is silent; every leaf is renewed after six scans.
fn observation(number: usize, scan: usize, at_us: i64) -> NewObservation {
    let silent = number % 20 == 7;
    let leaf = (number / ENDPOINTS_A_LEAF) as u64 * 2 + (scan / 6 % 2) as u64;
    NewObservation {
        endpoint: EndpointKey {
            host: format!("host-{:07}.example", number.wrapping_mul(7_919) % 10_000_000),
            port: 443,
            protocol: "tls".to_owned(),
            server_name: String::new(),
            address: String::new(),
        },
        address: Some("192.0.2.1".parse().unwrap()),
        observed_at_us: at_us + number as i64,
        outcome: if silent { ProbeOutcome::BlackHole } else { ProbeOutcome::Answered },
        answered: !silent,
        tls_version: Some(0x0304),
        cipher_suite: Some(0x1301),
        chain: if silent { Vec::new() } else { vec![certificate(leaf)] },
        trust: "trusted".to_owned(),
        severity: x509::Severity::from_code((number % 5) as i64),
        findings: r#"[{"code":"expires-soon","severity":"warning","evidence":"in 12 days"}]"#.to_owned(),
        detail: r#"{"dns_us":12000,"connect_us":30000,"handshake_us":90000,"alpn":"h2"}"#.to_owned(),
    }
}

async fn fill(store: &Store, endpoints: usize, scans: usize) {
    for scan in 0..scans {
        let (id, at_us) = (Uuid::now_v7(), NOW + scan as i64 * DAY);
        Scans::of(store).begin(id, at_us, r#"{"targets":["all"]}"#).await.unwrap();
        let (sender, writer) = Writer::start(store.clone(), id, WriterOptions::default());
        for number in 0..endpoints {
            sender.send(observation(number, scan, at_us)).await.unwrap();
        }
        writer.finish().await.unwrap();
        Scans::of(store).finish(id, at_us + DAY / 2, ScanState::Finished, "{}").await.unwrap();
    }
}

/// Stores batches until `stop`. Returns the durations of their transactions.
async fn scan_at_the_same_time(
    store: Store,
    endpoints: usize,
    scans: usize,
    stop: CancellationToken,
    batches_max: usize,
) -> Vec<Duration> {
    let (mut times, mut number, mut scan) = (Vec::new(), endpoints, Uuid::nil());
    let mut at_us = NOW + 400 * DAY + i64::from(batches_max == usize::MAX) * DAY;
    while !stop.is_cancelled() && times.len() < batches_max {
        if number >= endpoints {
            (number, scan) = (0, Uuid::now_v7());
            at_us += 60_000_000;
            Scans::of(&store).begin(scan, at_us, "{}").await.unwrap();
        }
        let end = (number + BATCH).min(endpoints);
        let batch: Vec<_> = (number..end).map(|number| observation(number, scans, at_us)).collect();
        number = end;
        let began = Instant::now();
        Scans::of(&store).record(scan, &batch).await.unwrap();
        times.push(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    times
}

fn print_times(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[(times.len() * share / 1_000).min(times.len() - 1)];
    println!(
        "  {name:<44} p50 {:>8.1?}   p99 {:>8.1?}   max {:>8.1?}   of {}",
        at(500),
        at(990),
        at(1_000),
        times.len()
    );
}

async fn measure(name: &str, url: &StoreUrl, endpoints: usize, scans: usize) {
    let store = Store::open(url).await.unwrap();
    println!("{name}: {endpoints} endpoints, {scans} scans");
    let began = Instant::now();
    fill(&store, endpoints, scans).await;
    println!("  {:<44} {:.0?}", "stored", began.elapsed());

    let other = Store::open(url).await.unwrap();
    let stop = CancellationToken::new();
    let alone = scan_at_the_same_time(other.clone(), endpoints, scans, stop.clone(), BATCHES_BEFORE).await;
    let scan = tokio::spawn(scan_at_the_same_time(other, endpoints, scans, stop.clone(), usize::MAX));
    let before_us = NOW + 300 * DAY;
    let began = Instant::now();
    let counted = prune(&store, before_us, before_us, PruneMode::Count, None).await.unwrap();
    println!("  {:<44} {:.1?}", format!("counted {} observations", counted.observations), began.elapsed());
    let began = Instant::now();
    let done = prune(&store, before_us, before_us, PruneMode::Remove, None).await.unwrap();
    let took = began.elapsed();
    stop.cancel();
    println!(
        "  {:<44} {:.1?}: {:.0} a second, longest transaction {:.1?}",
        format!("removed {} observations", done.observations),
        took,
        done.observations as f64 / took.as_secs_f64(),
        done.longest
    );
    print_times("the scan's transactions before", alone);
    print_times("the scan's transactions at the same time", scan.await.unwrap());
}

#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let which = words.next().unwrap_or_else(|| "both".to_owned());
    let mut number = |usual: usize| words.next().map_or(usual, |word| word.parse().unwrap());
    let (endpoints, scans) = (number(100_000), number(12));
    if which != "postgres" {
        let folder = std::env::temp_dir().join(format!("bulla-prune-{}", std::process::id()));
        let path = folder.join("inventory.db");
        measure("SQLite", &StoreUrl::sqlite(&path), endpoints, scans).await;
        let _ = std::fs::remove_dir_all(folder);
    }
    if which != "sqlite" {
        let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
        measure("PostgreSQL", &cluster.database(), endpoints, scans).await;
    }
}
