//! Benchmark: cost of a scheduler tick, a page, the summary, a read and an insertion by the number of certificates.
//!
//! ```console
//! $ cargo run --release -p lifecycle --example tick -- sqlite 1000 100000 1000000
//! $ cargo run --release -p lifecycle --example tick -- postgres 1000 100000 1000000
//! ```

#![allow(clippy::unwrap_used, reason = "a bench ends where something fails")]

mod filled;

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use filled::{DAY, NOW, NullIssuerSource, REVOCABLE, fill};
use futures_util::FutureExt;
use keys::Keyring;
use lifecycle::managed::NewCertificate;
use lifecycle::tables::jobs::claim_jobs;
use lifecycle::tables::managed::{ManagedFilter, ManagedOrder};
use lifecycle::{InternalAuthority, Lifecycle, LifecycleOptions, RevokeRequest, Selection};
use store::testing::Cluster;
use store::{Clock, Store, StoreUrl};
use uuid::Uuid;
use x509::crl::Reason;

/// Maximum runs claimed by one statement.
const CLAIM: i64 = 10_000;
/// Concurrent insertions.
const CREATE_AT_ONCE: usize = 256;

/// Returns the median and the 99th percentile in ms.
fn percentiles(mut all: Vec<Duration>) -> (f64, f64) {
    all.sort();
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize].as_secs_f64() * 1_000.0;
    (at(0.5), at(0.99))
}

async fn timed<T>(times: usize, work: impl AsyncFn(usize) -> T) -> (f64, f64) {
    let mut all = Vec::with_capacity(times);
    for number in 0..times {
        let began = Instant::now();
        let _ = work(number).await;
        all.push(began.elapsed());
    }
    percentiles(all)
}

async fn measure(life: &Lifecycle, store: &Store, clock: &Clock, count: usize) {
    let say =
        |what: &str, (middle, slow): (f64, f64)| println!("{count:>9} {what:<44} {middle:>9.3} {slow:>9.3}");
    clock.set(NOW);
    let ids: Vec<Uuid> = {
        let page = life.page(&ManagedFilter::default(), ManagedOrder::Created, None, 500).await.unwrap();
        page.rows.iter().map(|one| one.id).collect()
    };
    say("one certificate", timed(2_000, async |n| life.get(ids[n * 7 % ids.len()]).await.unwrap()).await);
    let text = || Some("team7".to_owned());
    let filters = [
        ("page of 100, by expiry", ManagedFilter::default(), ManagedOrder::Expiry),
        ("page of 100, by name", ManagedFilter::default(), ManagedOrder::Name),
        (
            "page of 100, one team",
            ManagedFilter { team: text(), ..ManagedFilter::default() },
            ManagedOrder::Expiry,
        ),
        (
            "page of 100, one tag",
            ManagedFilter { tag: Some(("cost".to_owned(), "7".to_owned())), ..ManagedFilter::default() },
            ManagedOrder::Expiry,
        ),
        (
            "page of 100, one suffix",
            ManagedFilter { suffix: Some("0007.e7.example.org".to_owned()), ..ManagedFilter::default() },
            ManagedOrder::Name,
        ),
        (
            "page of 100, one environment, by name",
            ManagedFilter { environment: Some("prod".to_owned()), ..ManagedFilter::default() },
            ManagedOrder::Name,
        ),
    ];
    for (what, filter, order) in filters {
        say(what, timed(100, async |_| life.page(&filter, order, None, 100).await.unwrap().rows.len()).await);
    }
    let began = Instant::now();
    let (mut cursor, mut pages) = (None, 0);
    while pages < 1_000 {
        let filter = ManagedFilter::default();
        let page = life.page(&filter, ManagedOrder::Expiry, cursor.as_ref(), 100).await.unwrap();
        pages += 1;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    println!("{count:>9} walk of {pages:<4} pages, s {:>32.3}", began.elapsed().as_secs_f64());
    say("summary", timed(100, async |_| life.counts().await.unwrap()).await);

    // First no run is due, then all runs.
    say("scheduling, nothing due", timed(50, async |_| life.schedule().await.unwrap()).await);
    clock.set(NOW + 70 * DAY);
    say("scheduling, all due", timed(50, async |_| life.schedule().await.unwrap()).await);
    say("summary, all due", timed(20, async |_| life.counts().await.unwrap()).await);

    let new = move |number: usize| NewCertificate::new(&[&format!("new{count}-{number}.example.net")], "web");
    let entries = 10_000_usize;
    let began = Instant::now();
    let each = (0..CREATE_AT_ONCE).map(|lane| {
        let life = life.clone();
        tokio::spawn(async move {
            for number in (lane..entries).step_by(CREATE_AT_ONCE) {
                life.create(new(number), "user:bench").await.unwrap();
            }
        })
    });
    futures_util::future::join_all(each.collect::<Vec<_>>()).await;
    let rate = entries as f64 / began.elapsed().as_secs_f64();
    println!("{count:>9} entries a second, {CREATE_AT_ONCE} under way {rate:>25.0}");

    let some = Selection::Ids(ids.clone());
    say(
        "renew 500 by ids",
        timed(5, async |_| life.renew(&some, "bench", "user:bench").await.unwrap()).await,
    );

    let began = Instant::now();
    let first = life.page(&ManagedFilter::default(), ManagedOrder::Created, None, REVOCABLE).await.unwrap();
    let first = Selection::Ids(first.rows.iter().map(|one| one.id).collect());
    let request = RevokeRequest { reason: Reason::Superseded, replace: false };
    let report = life.revoke(&first, request, "user:bench").await.unwrap();
    let took = began.elapsed().as_secs_f64() * 1_000.0;
    println!("{count:>9} {} revoked, the authority's part left out, ms {took:>9.0}", report.done);

    // Claims every due run once, in batches, without an issuer.
    let began = Instant::now();
    let (mut claimed, mut batches) = (0, 0);
    loop {
        let now = clock.now_us();
        let some = store.write("claim", move |tx| {
            async move {
                let wanted = [("internal".to_owned(), CLAIM)];
                Ok(claim_jobs(tx, &wanted, now, Uuid::nil(), now + DAY).await?.len())
            }
            .boxed()
        });
        let some = some.await.unwrap();
        if some == 0 {
            break;
        }
        claimed += some;
        batches += 1;
    }
    let took = began.elapsed().as_secs_f64();
    println!("{count:>9} {claimed} runs claimed in {batches} statements, s {took:>18.3}");
    // The leases of these runs expire.
    clock.set(NOW + 72 * DAY);
    let began = Instant::now();
    let reaped = life.schedule().await.unwrap().reaped;
    println!("{count:>9} {reaped} leases reaped, s {:>31.3}", began.elapsed().as_secs_f64());
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().unwrap_or_else(|| "sqlite".to_owned());
    let sizes: Vec<usize> = arguments.map(|text| text.parse().unwrap()).collect();
    println!("{:>9} {:<44} {:>9} {:>9}", "at", "what", "p50 ms", "p99 ms");
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
            clock.clone(),
            LifecycleOptions::default(),
        );
        let began = Instant::now();
        fill(&store, 0, count).await;
        println!("{count:>9} filled, s {:>43.1}", began.elapsed().as_secs_f64());
        measure(&life, &store, &clock, count).await;
    }
}
