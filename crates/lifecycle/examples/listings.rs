//! Benchmark: cost of filters, totals, groups and searches by the number of certificates. The processor time is of this process.
//! With PostgreSQL it does not include the database server.
//!
//! ```console
//! $ cargo run --release -p lifecycle --example listings -- sqlite 1000 100000 1000000
//! ```

#![allow(clippy::unwrap_used, reason = "a bench ends where something fails")]
#![allow(dead_code, reason = "the generator serves other benches too")]

mod filled;

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use filled::{NOW, NullIssuerSource, fill};
use keys::Keyring;
use lifecycle::tables::managed::{
    Direction, GroupBy, ManagedFilter, ManagedOrder, ManagedSearch, ManagedSort,
};
use lifecycle::{InternalAuthority, Lifecycle, LifecycleOptions};
use store::testing::Cluster;
use store::{Clock, Store, StoreUrl};

/// Repetitions of each operation.
const TIMES: usize = 100;

/// Returns the processor time of this process so far, in steps of 10 ms.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = stat.rsplit_once(')').unwrap().1;
    let ticks = after.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

async fn say<T>(count: usize, what: &str, work: impl AsyncFn() -> T) {
    let before = processor();
    let mut all = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let began = Instant::now();
        let _ = work().await;
        all.push(began.elapsed());
    }
    all.sort();
    let processor = (processor() - before).as_secs_f64() * 1_000.0 / TIMES as f64;
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize].as_secs_f64() * 1_000.0;
    println!("{count:>9} {what:<40} {processor:>9.2} {:>9.2} {:>9.2}", at(0.5), at(0.99));
}

async fn measure(life: &Lifecycle, count: usize) {
    let none = ManagedFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let filters = [
        ("all", none()),
        ("one serial number", ManagedFilter { serial: text("01aa"), ..none() }),
        ("one fingerprint", ManagedFilter { fingerprint: Some([7; 32]), ..none() }),
        ("one key algorithm, all match", ManagedFilter { key_type: text("p256"), ..none() }),
        ("one owner", ManagedFilter { owner: text("owner7"), ..none() }),
        ("one issuer, all match", ManagedFilter { issuer: text("internal"), ..none() }),
        ("one violated rule", ManagedFilter { finding: text("key_type"), ..none() }),
    ];
    let sorts = [("soonest end", ManagedOrder::Expiry), ("newest", ManagedOrder::Issued)];
    for (what, filter) in &filters {
        for (order, by) in sorts {
            for direction in [Direction::Ascending, Direction::Descending] {
                let sort = ManagedSort { by, direction };
                let page = async || life.sorted_page(filter, sort, None, 50).await.unwrap().rows.len();
                say(count, &format!("50, {what}, {order}, {direction:?}"), page).await;
            }
        }
        say(count, &format!("total, {what}"), async || life.count(filter).await.unwrap()).await;
    }
    for by in [GroupBy::Issuer, GroupBy::Owner, GroupBy::ExpiryDay] {
        say(count, &format!("groups by {by}"), async || life.groups(by, &none()).await.unwrap()).await;
    }
    let one_team = ManagedFilter { team: text("team7"), ..none() };
    say(count, "groups by owner, one team", async || life.groups(GroupBy::Owner, &one_team).await.unwrap())
        .await;
    for (what, search) in [
        ("a beginning", ManagedSearch::NamePrefix("host00007".to_owned())),
        ("an end", ManagedSearch::NameSuffix("7.e7.example.org".to_owned())),
        ("a rare part", ManagedSearch::Part("0777.e2".to_owned())),
        ("a part of nothing", ManagedSearch::Part("shop".to_owned())),
        ("common letters of nothing", ManagedSearch::Part("example.net".to_owned())),
        ("a part of all", ManagedSearch::Part("example".to_owned())),
        ("a serial number", ManagedSearch::Serial("01".to_owned())),
        ("a fingerprint", ManagedSearch::Fingerprint(vec![7; 4], vec![8; 4])),
    ] {
        say(count, &format!("search, {what}"), async || life.search(&search, 11).await.unwrap().len()).await;
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().unwrap_or_else(|| "sqlite".to_owned());
    let sizes: Vec<usize> = arguments.map(|text| text.parse().unwrap()).collect();
    println!("{:>9} {:<40} {:>9} {:>9} {:>9}", "at", "what", "CPU ms", "p50 ms", "p99 ms");
    for count in if sizes.is_empty() { vec![1_000] } else { sizes } {
        let folder = tempfile::tempdir().unwrap();
        let cluster = (database == "postgres").then(Cluster::start);
        let url = match &cluster {
            Some(cluster) => cluster.database(),
            None => StoreUrl::sqlite(folder.path().join("bulla.db")),
        };
        let store = Store::open(&url).await.unwrap();
        let clock = Clock::manual(NOW);
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let nobody = Arc::new(NullIssuerSource);
        let life = Lifecycle::open_with(
            store.clone(),
            Arc::clone(&nobody) as Arc<dyn InternalAuthority>,
            nobody,
            keystore,
            clock,
            LifecycleOptions::default(),
        );
        fill(&store, 0, count).await;
        measure(&life, count).await;
    }
}
