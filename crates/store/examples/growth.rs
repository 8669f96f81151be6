//! Benchmark: rates and latencies of the store by the size of the inventory: `cargo run --release -p store --example growth --
//! [both|sqlite|postgres] [ENDPOINTS…]`. Default: both databases, 1,000 and 100,000 endpoints. Each size gets an empty database in a
//! temporary folder. PostgreSQL is a separate server with `fsync=off`, so that the disk does not matter with either database.

// A bench: what fails ends it, with the reason.
#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::ProbeOutcome;
use store::testing::Cluster;
use store::{
    EndpointKey, InventoryFilter, InventoryOrder, NewCertificate, NewObservation, Store, StoreUrl, Writer,
    WriterOptions,
};
use uuid::Uuid;

/// 2026-11-21, µs.
const NOW: i64 = 1_795_219_200_000_000;
const DAY: i64 = 86_400_000_000;
const HOUR: i64 = 3_600_000_000;

/// Number of endpoints that share a leaf, and of leaves that share an issuer certificate.
const ENDPOINTS_A_LEAF: usize = 3;
const ISSUERS: usize = 40;

/// Repetitions of each measured read.
const READS: usize = 51;

fn hash(seed: u64) -> [u8; 32] {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

fn certificate(number: usize, round: usize, issuer: usize) -> Arc<NewCertificate> {
    let seed = (number as u64) << 8 | round as u64;
    Arc::new(NewCertificate {
        sha256: hash(seed),
        der: vec![0x30; 1_100].into(),
        subject: format!("CN=service-{number}.example"),
        issuer: format!("CN=Issuing CA {issuer}, O=Example"),
        serial: format!("{seed:032x}"),
        not_before_us: NOW - 30 * DAY,
        not_after_us: NOW + (seed.wrapping_mul(2_654_435_761) % 90) as i64 * DAY + number as i64,
        key_algorithm: "EC P-256".to_owned(),
        key_bits: 256,
        spki_sha256: hash(!seed),
        names: vec![format!("service-{number}.example"), format!("www.service-{number}.example")],
    })
}

/// Returns an observation. One endpoint in twenty does not respond. In the second round, one leaf in fifty is new.
fn observation(number: usize, round: usize, at: i64, issuers: &[Arc<NewCertificate>]) -> NewObservation {
    let leaf = number / ENDPOINTS_A_LEAF;
    let issuer = leaf % ISSUERS;
    let silent = number % 20 == 7;
    let renewed = if leaf.is_multiple_of(50) { round } else { 0 };
    NewObservation {
        endpoint: EndpointKey {
            host: format!("host-{:07}.service-{leaf}.example", number.wrapping_mul(7_919) % 10_000_000),
            port: 443,
            protocol: "tls".to_owned(),
            server_name: String::new(),
            address: String::new(),
        },
        address: Some("192.0.2.1".parse().unwrap()),
        observed_at_us: at + number as i64,
        outcome: if silent { ProbeOutcome::BlackHole } else { ProbeOutcome::Answered },
        answered: !silent,
        tls_version: Some(0x0304),
        cipher_suite: Some(0x1301),
        chain: if silent {
            Vec::new()
        } else {
            vec![certificate(leaf, renewed, issuer), Arc::clone(&issuers[issuer])]
        },
        trust: "trusted".to_owned(),
        severity: x509::Severity::from_code((number % 5) as i64),
        findings: r#"[{"code":"expires-soon","severity":"warning","evidence":"in 12 days"}]"#.to_owned(),
        detail: r#"{"dns_us":12000,"connect_us":30000,"handshake_us":90000,"alpn":"h2"}"#.to_owned(),
    }
}

async fn scan(store: &Store, endpoints: usize, round: usize) -> (Uuid, f64, Duration) {
    let (id, at) = (Uuid::now_v7(), NOW + round as i64 * HOUR);
    store::Scans::of(store).begin(id, at, "{}").await.unwrap();
    let issuers: Vec<_> = (0..ISSUERS).map(|n| certificate(10_000_000 + n, 0, 1_000)).collect();
    let began = Instant::now();
    let (sender, writer) = Writer::start(store.clone(), id, WriterOptions::default());
    for number in 0..endpoints {
        sender.send(observation(number, round, at, &issuers)).await.unwrap();
    }
    let totals = writer.finish().await.unwrap();
    assert_eq!(totals.recorded.inserted, endpoints as u64);
    (id, endpoints as f64 / began.elapsed().as_secs_f64(), totals.flush_time_max)
}

macro_rules! measured {
    ($name:expr, $read:expr) => {{
        let mut times: Vec<Duration> = Vec::with_capacity(READS);
        for _ in 0..READS {
            let began = Instant::now();
            std::hint::black_box($read.await.unwrap());
            times.push(began.elapsed());
        }
        times.sort();
        println!("  {:<34} p50 {:>9.3?}   max {:>9.3?}", $name, times[READS / 2], times[READS - 1]);
    }};
}

async fn grow(name: &str, url: &StoreUrl, endpoints: usize) {
    let store = Store::open(url).await.unwrap();
    println!("{name}, {endpoints} endpoints");
    let (first, rate, slowest) = scan(&store, endpoints, 0).await;
    println!("  {:<34} {rate:>9.0} rows/s, slowest transaction {slowest:.1?}", "first scan");
    let (second, rate, slowest) = scan(&store, endpoints, 1).await;
    println!("  {:<34} {rate:>9.0} rows/s, slowest transaction {slowest:.1?}", "second scan");

    let all = InventoryFilter::default();
    let by_host = InventoryFilter { order: InventoryOrder::Host, ..all.clone() };
    let began = Instant::now();
    let (mut cursor, mut middle, mut rows) = (None, None, 0);
    loop {
        let page = store::Inventory::of(&store).page(&all, cursor.as_ref(), 1_000).await.unwrap();
        rows += page.rows.len();
        if rows >= endpoints / 2 && middle.is_none() {
            middle = page.next.clone();
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(rows, endpoints);
    println!("  {:<34} {:>9.3?}", "walk of everything, 1,000 a page", began.elapsed());
    measured!("page of 100 by expiry, first", store::Inventory::of(&store).page(&all, None, 100));
    measured!("page of 100 by expiry, middle", store::Inventory::of(&store).page(&all, middle.as_ref(), 100));
    measured!("page of 100 by host", store::Inventory::of(&store).page(&by_host, None, 100));
    let issuer = InventoryFilter { issuer_contains: Some("CA 7,".to_owned()), ..all.clone() };
    measured!("page of 100 of one issuer", store::Inventory::of(&store).page(&issuer, None, 100));
    let worst = InventoryFilter { severity_at_least: Some(x509::Severity::Critical), ..all.clone() };
    measured!("page of 100 by severity", store::Inventory::of(&store).page(&worst, None, 100));
    let rare = InventoryFilter { host_contains: Some("no such host".to_owned()), ..all.clone() };
    measured!("host that is nowhere (worst walk)", store::Inventory::of(&store).page(&rare, None, 100));
    let known = certificate(0, 0, 0).sha256;
    let key = observation(endpoints / 2, 0, NOW, &vec![certificate(0, 0, 0); ISSUERS]).endpoint;
    measured!("one endpoint", store::Inventory::of(&store).endpoint(&key));
    measured!("its history", store::Inventory::of(&store).endpoint_history(&key, None, 100));
    measured!("certificate by fingerprint", store::Inventory::of(&store).certificate_by_sha256(&known));
    measured!("changes since the second scan, 100", store::Inventory::of(&store).diff(NOW + HOUR, None, 100));
    measured!(
        "changes between the scans, 100",
        store::Inventory::of(&store).diff_scans(first, second, None, 100)
    );
    measured!("issuers, 100", store::Inventory::of(&store).issuers(None, 100));
    measured!(
        "names under a domain",
        store::Inventory::of(&store).certificates_below_domain("service-17.example", None, 100)
    );
    measured!("summary", store::Inventory::of(&store).summary(NOW, 30 * DAY));
}

#[tokio::main]
async fn main() {
    let mut which = "both".to_owned();
    let mut sizes = Vec::new();
    for word in std::env::args().skip(1) {
        match word.parse() {
            Ok(size) => sizes.push(size),
            Err(_) => which = word,
        }
    }
    if sizes.is_empty() {
        sizes = vec![1_000, 100_000];
    }
    if which != "postgres" {
        for size in &sizes {
            let folder = std::env::temp_dir().join(format!("bulla-growth-{}-{size}", std::process::id()));
            let path = folder.join("inventory.db");
            grow("SQLite", &StoreUrl::sqlite(&path), *size).await;
            let bytes = std::fs::metadata(&path).unwrap().len();
            println!("  {:<34} {:>9} bytes an endpoint and two observations", "file", bytes / *size as u64);
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    if which != "sqlite" {
        let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
        for size in &sizes {
            grow("PostgreSQL", &cluster.database(), *size).await;
        }
    }
}
