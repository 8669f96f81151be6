//! Benchmark: cost of a leaf certificate that is not in memory, with each kind of second level of the certificate store, sequentially
//! and concurrently. "cold": the leaf does not exist; "found": another proxy has stored it.
//!
//! `cargo run --release -p proxy --example store_costs -- [NAMES] [POSTGRESQL URL]`. Without a URL, starts a server in a temporary
//! folder, with `fsync=off`. `… -- memory NAMES` prints the memory for this number of names, without a limit and with the usual limit.

#![allow(clippy::unwrap_used, reason = "an example")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use keys::{KeyType, Keyring, PrivateKey};
use proxy::certificate_store::{
    BYTES_MAX, CertificateStore, KeyRecipients, LeafId, NewNameLimit, SecondLevel, SecondLevelOptions,
};
use proxy::mint::{Authority, LeafKeyKind, LeafKeySharing, LeafKeys, Minter, new_root};
use store::testing::Cluster;
use store::{Store, StoreOptions, StoreUrl};
use x509::{HostOrIp, UnixTime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Concurrent names in the concurrent measurements.
const AT_ONCE: usize = 64;

fn now() -> UnixTime {
    UnixTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64)
}

fn level(store: &Store, ring: &Arc<Keyring>) -> SecondLevel {
    let trip_timeout = Duration::from_secs(60);
    SecondLevel::new(
        store.clone(),
        Arc::clone(ring),
        SecondLevelOptions { trip_timeout, ..Default::default() },
    )
}

async fn fetch(store: &CertificateStore, minter: &Minter, name: String) -> Duration {
    let id = LeafId {
        name: HostOrIp::parse(&name).unwrap(),
        authority: minter.authority().fingerprint(),
        kind: LeafKeyKind::P256,
        keys: LeafKeySharing::Shared,
        user: None,
        profile: "default".into(),
        mirrored: None,
        key_recipients: KeyRecipients::Nobody,
    };
    let (minter, host) = (minter.clone(), id.name.clone());
    let mint = move || async move { minter.mint(&host, LeafKeyKind::P256, now()).await };
    let began = Instant::now();
    store.fetch(&id, IpAddr::V4(Ipv4Addr::LOCALHOST), now(), mint).await.unwrap();
    began.elapsed()
}

/// Requests all names of one kind, `at_once` of them concurrently. Prints one line.
async fn row(
    what: &str,
    level: Option<SecondLevel>,
    minter: &Minter,
    names: usize,
    at_once: usize,
    prefix: &str,
) {
    let name_limit = NewNameLimit::new(1_000_000, 1_000_000);
    let store = CertificateStore::with_second_level(1 << 30, name_limit, level);
    let began = Instant::now();
    let fetches = futures_util::stream::iter(0..names)
        .map(|number| fetch(&store, minter, format!("{prefix}{number}.example")))
        .buffer_unordered(at_once);
    let mut took: Vec<Duration> = fetches.collect().await;
    let whole = began.elapsed();
    took.sort();
    let micros = |part: usize| took[(names * part / 100).min(names - 1)].as_micros();
    let counts = store.counts();
    println!(
        "{what:<22} {at_once:>8} {:>10.0} {:>10} {:>10} {:>8} {:>8}",
        names as f64 / whole.as_secs_f64(),
        micros(50),
        micros(99),
        counts.minted,
        counts.second.found
    );
}

async fn both(what: &str, store: &Store, minter: &Minter, names: usize) {
    let ring = Arc::new(Keyring::ephemeral());
    for at_once in [1, AT_ONCE] {
        let prefix = format!("{at_once}-");
        let before = store.statements_sent();
        row(&format!("{what}, cold"), Some(level(store, &ring)), minter, names, at_once, &prefix).await;
        let cold = store.statements_sent() - before;
        row(&format!("{what}, found"), Some(level(store, &ring)), minter, names, at_once, &prefix).await;
        let found = store.statements_sent() - before - cold;
        println!("  statements a name: {:.2} cold, {:.2} found", per(cold, names), per(found, names));
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1_024
}

/// Requests new names from a store with a limit of `bytes` bytes.
async fn memory(minter: &Minter, names: usize, bytes: u64) {
    let store = CertificateStore::new(bytes, NewNameLimit::new(1_000_000_000, 1_000_000_000));
    let before = resident();
    let began = Instant::now();
    let fetches = futures_util::stream::iter(0..names)
        .map(|number| fetch(&store, minter, format!("host-{number}.memory.example")))
        .buffer_unordered(AT_ONCE);
    fetches.for_each(|_| std::future::ready(())).await;
    let (took, grown) = (began.elapsed().as_secs_f64(), resident() - before);
    println!(
        "{names:>9} names, {:>5} MiB allowed: {:>6.1} MiB more, {:>8.2} KiB a name, {:>7.0}/s",
        bytes >> 20,
        grown as f64 / 1_048_576.0,
        grown as f64 / 1_024.0 / names as f64,
        names as f64 / took
    );
}

fn per(statements: u64, names: usize) -> f64 {
    statements as f64 / names as f64
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let root = new_root(&key, now()).unwrap();
    let authority = Authority::new(&[root], Arc::new(key), Vec::new()).unwrap();
    let minter = Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(7 * 86_400));
    if first.as_deref() == Some("memory") {
        let names = arguments.next().map_or(1_000_000, |text| text.parse().unwrap());
        for bytes in [1 << 32, BYTES_MAX] {
            memory(&minter, names, bytes).await;
        }
        return;
    }
    let names: usize = first.map_or(2_000, |text| text.parse().unwrap());
    println!("{names} names a row, P-256");
    println!(
        "{:<22} {:>8} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "kept", "at once", "names/s", "p50 us", "p99 us", "minted", "found"
    );
    for at_once in [1, AT_ONCE] {
        row("memory, cold", None, &minter, names, at_once, &format!("{at_once}-")).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = StoreUrl::sqlite(folder.path().join("proxy-leaves.db"));
    let disk = Store::open_with(&file, &StoreOptions { lossy: true, ..Default::default() }).await.unwrap();
    both("disk", &disk, &minter, names).await;
    let (url, _cluster): (StoreUrl, Option<Cluster>) = match arguments.next() {
        Some(text) => (text.parse().unwrap(), None),
        None => {
            let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
            (cluster.database(), Some(cluster))
        }
    };
    both("PostgreSQL", &Store::open(&url).await.unwrap(), &minter, names).await;
}
