//! Benchmark: the API under load over HTTPS with keep-alive connections: read one certificate, a page of 100, all pages and the summary,
//! and create a certificate. The client runs in a separate process, so that the server's processor time is measured separately.
//!
//! ```console
//! $ cargo run --release -p server --example api_load -- sqlite 1000 100000 1000000
//! $ cargo run --release -p server --example api_load -- postgres 1000 100000 1000000
//! ```

#![allow(clippy::unwrap_used, reason = "a bench ends where something fails")]

#[path = "../../lifecycle/examples/filled/mod.rs"]
#[allow(dead_code, reason = "shared with another bench that uses the rest")]
mod filled;
mod load;

use std::process::Command;
use std::sync::Arc;

use authority::keystore::KeyStore;
use filled::{NOW, NullIssuerSource, fill};
use keys::Keyring;
use lifecycle::tables::managed::{ManagedFilter, ManagedOrder};
use lifecycle::{InternalAuthority, Lifecycle, LifecycleOptions};
use load::{LoadRequest, Plan, listener, processor_us};
use secrecy::ExposeSecret;
use server::limit::LimitOptions;
use server::{Components, Server, ServerOptions, State, access};
use store::testing::Cluster;
use store::{Clock, Store, StoreUrl};
use uuid::Uuid;

/// Number of certificates that are read by id, from all parts of the table.
const KNOWN: usize = 5_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        // The client process of this benchmark.
        Some("client") => load::client(&arguments.next().unwrap()),
        database => {
            let sizes: Vec<usize> = arguments.map(|text| text.parse().unwrap()).collect();
            let sizes = if sizes.is_empty() { vec![1_000] } else { sizes };
            println!(
                "{:>9} {:<44} {:>9} {:>9} {:>9} {:>9}",
                "at", "what", "a second", "p50 ms", "p99 ms", "our µs"
            );
            for count in sizes {
                tokio::runtime::Runtime::new()
                    .unwrap()
                    .block_on(measure(database.unwrap_or("sqlite"), count));
            }
        }
    }
}

/// Returns the ids of certificates from all parts of the table.
async fn known(life: &Lifecycle, count: usize) -> Vec<Uuid> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    let filter = ManagedFilter::default();
    while ids.len() < KNOWN.min(count) {
        let page = life.page(&filter, ManagedOrder::Name, cursor.as_ref(), 500).await.unwrap();
        ids.extend(page.rows.iter().map(|one| one.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    ids
}

async fn measure(database: &str, count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = (database == "postgres").then(Cluster::start);
    let url = match &cluster {
        Some(cluster) => cluster.database(),
        None => StoreUrl::sqlite(folder.path().join("bulla.db")),
    };
    let store = Store::open(&url).await.unwrap();
    fill(&store, 0, count).await;
    let clock = Clock::manual(NOW);
    let nobody = Arc::new(NullIssuerSource);
    let life = Lifecycle::open_with(
        store.clone(),
        Arc::clone(&nobody) as Arc<dyn InternalAuthority>,
        nobody,
        KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone()),
        clock.clone(),
        LifecycleOptions::default(),
    );
    let token = access::bootstrap(&store, &clock).await.unwrap().unwrap().expose_secret().to_owned();
    let ids = known(&life, count).await;
    let unlimited = LimitOptions::unlimited();
    let components = Components { certificates: Some(life), ..Components::default() };
    let state = State::builder(store, clock).limits(unlimited).components(components).build();
    let options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), listener());
    let running = Server::start(options, state).await.unwrap();
    let list = folder.path().join("ids");
    std::fs::write(&list, ids.iter().map(|id| format!("{id}\n")).collect::<String>()).unwrap();

    for (what, request, connections, seconds) in [
        ("one certificate, 8 connections", LoadRequest::One, 8, 5),
        ("one certificate, 32 connections", LoadRequest::One, 32, 5),
        ("one certificate, unchanged (304), 32", LoadRequest::Unchanged, 32, 5),
        ("page of 100 by expiry, 8 connections", LoadRequest::Page, 8, 5),
        ("page of 100 by expiry, one at a time", LoadRequest::Page, 1, 3),
        ("summary, 8 connections", LoadRequest::Summary, 8, 3),
        ("entered, 64 connections", LoadRequest::Create, 64, 5),
        ("entered by batches of 100, 4 connections", LoadRequest::CreateMany, 4, 5),
        ("the whole walk, pages of 500 (at most 200)", LoadRequest::Walk, 1, 0),
    ] {
        let plan = Plan {
            address: running.address,
            token: token.clone(),
            ids: list.clone(),
            request,
            connections,
            seconds,
            names: format!("{}-{count}", Uuid::now_v7().simple()),
        };
        let before = processor_us();
        let ran = tokio::task::spawn_blocking(move || {
            Command::new(std::env::current_exe().unwrap()).args(["client", &plan.to_text()]).output().unwrap()
        });
        let ran = ran.await.unwrap();
        let spent = processor_us() - before;
        assert!(ran.status.success(), "{what}: {}", String::from_utf8_lossy(&ran.stderr));
        let [done, seconds, middle, slow] = load::parse_results(&ran.stdout);
        println!(
            "{count:>9} {what:<44} {:>9.0} {middle:>9.3} {slow:>9.3} {:>9.0}",
            done / seconds,
            spent as f64 / done
        );
    }
    running.stop().await;
}
