//! What a name costs that is not in memory, with each thing that may keep leaves behind it: one after the other, and many at once.
//! "cold": nobody has it; "found": another proxy has put it.
//!
//! `cargo run --release -p intercept --example store_costs -- [NAMES] [POSTGRESQL'S ADDRESS]`; without an address a server is made in
//! a temporary folder, which does not wait for its disk (`fsync=off`).

#![allow(clippy::unwrap_used, reason = "an example")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use intercept::certificate_store::{
    CertificateStore, KeyGoesTo, LeafId, Newcomers, SecondLevel, SecondLevelOptions,
};
use intercept::mint::{Authority, KeysOfLeaves, LeafKeyKind, LeafKeys, LeafName, Minter, new_root};
use keys::{KeyType, Keyring, PrivateKey};
use store::testing::Cluster;
use store::{Store, StoreUrl};
use x509::UnixTime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Names under way, where they are many.
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
        name: LeafName::parse(&name).unwrap(),
        authority: minter.authority().fingerprint(),
        kind: LeafKeyKind::P256,
        keys: KeysOfLeaves::Shared,
        user: None,
        profile: "default".into(),
        mirrored: None,
        key_goes_to: KeyGoesTo::Nobody,
    };
    let (minter, host) = (minter.clone(), id.name.clone());
    let mint = move || async move { minter.mint(&host, LeafKeyKind::P256, now()).await };
    let began = Instant::now();
    store.fetch(&id, IpAddr::V4(Ipv4Addr::LOCALHOST), now(), mint).await.unwrap();
    began.elapsed()
}

/// All names of one kind, `at_once` of them; a line.
async fn row(
    what: &str,
    level: Option<SecondLevel>,
    minter: &Minter,
    names: usize,
    at_once: usize,
    prefix: &str,
) {
    let newcomers = Newcomers::new(1_000_000, 1_000_000);
    let store = CertificateStore::with_second_level(1 << 30, newcomers, level);
    let began = Instant::now();
    let asked = futures_util::stream::iter(0..names)
        .map(|number| fetch(&store, minter, format!("{prefix}{number}.example")))
        .buffer_unordered(at_once);
    let mut took: Vec<Duration> = asked.collect().await;
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

fn per(statements: u64, names: usize) -> f64 {
    statements as f64 / names as f64
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let names: usize = arguments.next().map_or(2_000, |text| text.parse().unwrap());
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let root = new_root(&key, now()).unwrap();
    let authority = Authority::new(&[root], Arc::new(key), Vec::new()).unwrap();
    let minter = Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(7 * 86_400));
    println!("{names} names a row, P-256");
    println!(
        "{:<22} {:>8} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "kept", "at once", "names/s", "p50 us", "p99 us", "minted", "found"
    );
    for at_once in [1, AT_ONCE] {
        row("memory, cold", None, &minter, names, at_once, &format!("{at_once}-")).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = Store::open(&StoreUrl::sqlite(folder.path().join("proxy-leaves.db"))).await.unwrap();
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
