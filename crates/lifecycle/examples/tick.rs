//! What a tick, a page, the summary, a read and an entry cost, at a number of certificates.
//!
//! ```console
//! $ cargo run --release -p lifecycle --example tick -- sqlite 1000 100000 1000000
//! $ cargo run --release -p lifecycle --example tick -- postgres 1000 100000 1000000
//! ```

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keys::Keyring;
use lifecycle::issuers::{Delivered, Issuer, IssuerError, Order, Window};
use lifecycle::lifecycle::{
    IssuerSource, Lifecycle, LifecycleError, LifecycleOptions, OwnAuthority, ProfileFacts, RevokeRequest,
    Selection,
};
use lifecycle::managed::NewCertificate;
use store::jobs::{NewJob, claim_jobs, insert_jobs};
use store::managed::{
    ManagedFilter, ManagedOrder, ManagedRow, ManagedTotal, NewManaged, NewManagedVersion,
    adjust_managed_totals, insert_managed, insert_versions, managed_by_ids, update_managed,
};
use store::testing::Cluster;
use store::{Clock, Store, StoreError, StoreUrl, Tx};
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Certificate, Fingerprint};

const DAY: i64 = 86_400_000_000;
const NOW: i64 = 1_795_219_200_000_000;
/// Rows entered in one transaction while the database is filled.
const FILL: usize = 10_000;
/// Runs claimed in one statement.
const CLAIM: i64 = 10_000;
/// Entries under way at once.
const CREATE_AT_ONCE: usize = 256;

struct Nobody;

impl IssuerSource for Nobody {
    fn issuer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Issuer>, IssuerError>> {
        async move {
            let _ = name;
            Ok(Arc::new(Own) as Arc<dyn Issuer>)
        }
        .boxed()
    }

    fn places<'a>(&'a self, _: &'a str) -> BoxFuture<'a, usize> {
        async { 0 }.boxed()
    }
}

/// Answers to the name of our authority, and issues nothing.
#[derive(Debug)]
struct Own;

impl Issuer for Own {
    fn kind(&self) -> &'static str {
        "internal"
    }

    fn issue<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<Delivered, IssuerError>> {
        async { Err(IssuerError::Unsupported { what: "issue in a bench" }) }.boxed()
    }

    fn revoke<'a>(&'a self, _: &'a Certificate, _: Reason) -> BoxFuture<'a, Result<(), IssuerError>> {
        async { Ok(()) }.boxed()
    }

    fn renewal_window<'a>(
        &'a self,
        _: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>> {
        async { Ok(None) }.boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        async { Ok(String::new()) }.boxed()
    }
}

impl OwnAuthority for Nobody {
    fn profile<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<ProfileFacts>, LifecycleError>> {
        async { Ok(Some(ProfileFacts { requires_approval: false, renew_at: 2.0 / 3.0 })) }.boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificates: &'a [Fingerprint],
        _: i64,
        _: &'a str,
    ) -> BoxFuture<'a, Result<usize, LifecycleError>> {
        async move { Ok(certificates.len()) }.boxed()
    }
}

fn row(number: usize) -> ManagedRow {
    let name = format!("host{number:07}.e{}.example.org", number % 50);
    let mut fingerprint = [0; 32];
    fingerprint[..8].copy_from_slice(&(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    ManagedRow {
        id: 0,
        uuid: Uuid::now_v7(),
        names: format!("[\"{name}\"]"),
        name,
        state: 5,
        revision: 1,
        profile: format!("profile{}", number % 10),
        issuer: "internal".to_owned(),
        owner: Some(format!("owner{}", number % 500)),
        team: Some(format!("team{}", number % 50)),
        environment: Some(["prod", "stage", "test", "dev"][number % 4].to_owned()),
        policy: None,
        key_location: 0,
        agent: None,
        key_type: "p256".to_owned(),
        tags: format!("{{\"cost\":\"{}\"}}", number % 1_000),
        targets: "[]".to_owned(),
        options: "{}".to_owned(),
        version: None,
        fingerprint: Some(fingerprint),
        not_before_us: NOW,
        not_after_us: NOW + 90 * DAY + (number as i64 % 90) * DAY + number as i64,
        revoked: false,
        failures: 0,
        last_error: None,
        created_at_us: NOW,
        updated_at_us: NOW,
    }
}

/// Active certificates, each with its next run planned, all due within the year.
async fn fill(store: &Store, from: usize, to: usize) {
    let mut at = from;
    while at < to {
        let end = (at + FILL).min(to);
        let new: Vec<NewManaged> = (at..end)
            .map(|number| {
                let row = row(number);
                let names = vec![row.name.clone()];
                NewManaged { row, names, tags: vec![("cost".to_owned(), format!("{}", number % 1_000))] }
            })
            .collect();
        let filled = store.write("fill", move |tx| {
            async move {
                let given = insert_managed(tx, &new).await?;
                let jobs: Vec<NewJob> = given
                    .iter()
                    .map(|(id, _)| NewJob {
                        certificate: *id,
                        kind: 1,
                        approval: 0,
                        issuer: "internal".to_owned(),
                        agent: None,
                        version: None,
                        reason: "planned".to_owned(),
                        requested_by: "system:renewal".to_owned(),
                        next_attempt_at_us: NOW + 60 * DAY + (id % 1_000) * DAY / 1_000,
                        deadline_at_us: NOW + 99 * DAY,
                        detail: None,
                        created_at_us: NOW,
                    })
                    .collect();
                insert_jobs(tx, &jobs).await?;
                if at == 0 {
                    add_versions(tx, &given).await?;
                }
                let mut totals = std::collections::BTreeMap::new();
                for one in &new {
                    *totals.entry(ManagedTotal::State(one.row.state)).or_default() += 1;
                    if let Some(day) = ManagedTotal::expiry(one.row.not_after_us) {
                        *totals.entry(day).or_default() += 1;
                    }
                }
                adjust_managed_totals(tx, &totals).await
            }
            .boxed()
        });
        filled.await.unwrap();
        at = end;
    }
    store.analyze().await.unwrap();
}

/// So many of the first certificates have a version that can be revoked.
const REVOCABLE: usize = 1_000;

async fn add_versions(tx: &mut Tx, given: &[(i64, Uuid)]) -> Result<(), StoreError> {
    let ids: Vec<i64> = given.iter().map(|(id, _)| *id).take(REVOCABLE).collect();
    let mut rows = managed_by_ids(tx, ids).await?;
    let versions: Vec<NewManagedVersion> = rows
        .iter()
        .map(|row| NewManagedVersion {
            certificate: row.id,
            job: None,
            fingerprint: row.fingerprint.unwrap_or_default(),
            serial: "01".to_owned(),
            spki_sha256: [0; 32],
            not_before_us: row.not_before_us,
            not_after_us: row.not_after_us,
            issuer: "internal".to_owned(),
            key: None,
            chain: vec![0x30, 0],
            issued_at_us: NOW,
        })
        .collect();
    let given: std::collections::HashMap<i64, i64> =
        insert_versions(tx, &versions).await?.into_iter().map(|(version, of)| (of, version)).collect();
    for row in &mut rows {
        row.version = given.get(&row.id).copied();
    }
    update_managed(tx, &rows).await.map(drop)
}

/// The middle and the slowest of a hundredth, milliseconds.
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

    // Nothing due, then everything.
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
    let request = RevokeRequest { reason: 4, replace: false };
    let report = life.revoke(&first, request, "user:bench").await.unwrap();
    let took = began.elapsed().as_secs_f64() * 1_000.0;
    println!("{count:>9} {} revoked, the authority's part left out, ms {took:>9.0}", report.done);

    // Every due run handed out once, in batches, without an issuer behind.
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
    // They are left to the reaper.
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
        let nobody = Arc::new(Nobody);
        let life = Lifecycle::open_with(
            store.clone(),
            Arc::clone(&nobody) as Arc<dyn OwnAuthority>,
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
