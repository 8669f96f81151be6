//! A fleet from start to stop: values decided by the seed, and cleanup.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use fleet::{Fleet, Plan, Truth};

use crate::{address_of, of_kind};

/// Reached only if a task never ends.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn truth_of(plan: &Plan) -> Vec<Truth> {
    let fleet = Fleet::start(plan).await.expect("a fleet on loopback");
    let truth = fleet.truth();
    fleet.stop().await;
    truth
}

/// Removes keys and free ports, which do not depend on the seed.
fn without_chance(truth: Vec<Truth>) -> Vec<Truth> {
    let bare = |t: Truth| Truth { target: String::new(), port: 0, leaf_sha256: None, ..t };
    truth.into_iter().map(bare).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_seed_gives_the_same_fleet_and_another_seed_differs() {
    let plan = |seed| Plan { endpoints: 300, seed, ..Plan::default() };
    let first = without_chance(truth_of(&plan(5)).await);
    assert_eq!(first, without_chance(truth_of(&plan(5)).await));
    assert_ne!(first, without_chance(truth_of(&plan(6)).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_each_plan_has_every_kind_and_unique_targets() {
    let truth = truth_of(&Plan::one_of_each()).await;
    let kinds: BTreeSet<_> = truth.iter().map(|t| t.kind).collect();
    let targets: BTreeSet<_> = truth.iter().map(|t| &t.target).collect();
    assert!(kinds.len() > 80, "{}", kinds.len());
    assert_eq!(targets.len(), truth.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_of_3000_stops_without_leftover_tasks() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 0);
    let fleet = Fleet::start(&Plan { endpoints: 3_000, ..Plan::default() }).await.expect("a fleet");
    assert!(fleet.truth().len() >= 3_000);
    let stalled = address_of(&of_kind(&fleet, "stall"));
    let greeted = address_of(&of_kind(&fleet, "ssh"));
    let connections: Vec<_> = (0..50).map(|_| TcpStream::connect(stalled).unwrap()).collect();
    let mut greeting = TcpStream::connect(greeted).unwrap();
    greeting.read_exact(&mut [0; 4]).unwrap();
    assert!(tasks() > 0);
    fleet.stop().await;
    // The runtime removes a task slightly after its waiters learn of its end.
    let all_ended = async {
        while tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, all_ended).await.expect("no task outlives the fleet");
    drop(connections);
}
