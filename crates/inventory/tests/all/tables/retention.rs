//! Tests of the retention of observations.

use futures_util::FutureExt;
use inventory::retention::{Retention, prune};
use inventory::tables::watches::set_watch_scan;
use store::{AuditFilter, Clock, Inventory, PruneMode, Pruned, ScanState, Scans, Store};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::watches::{claim, end, make};
use testbed::tables::{DAY, NOW, World, answered, certificate, key};
use testbed::walk;

const HOUR: i64 = 3_600_000_000;

/// Records a finished scan of one endpoint. Scans with other targets are not compared by default.
async fn scanned(store: &Store, id: Uuid, at_us: i64, target: &str) {
    let leaf = certificate("l", "CN=CA", NOW + DAY);
    let spec = format!(r#"{{"targets":["{target}"]}}"#);
    Scans::of(store).begin(id, at_us, &spec).await.unwrap();
    Scans::of(store).record(id, &[answered("a", &leaf, at_us + 1)]).await.unwrap();
    Scans::of(store).finish(id, at_us + 2, ScanState::Finished, "{}").await.unwrap();
}

async fn removed(store: &Store) -> Pruned {
    prune(store, NOW + DAY, NOW + DAY, PruneMode::Remove, None).await.unwrap()
}

async fn history(store: &Store) -> Vec<Uuid> {
    let rows = walk!(9, |after, size| Inventory::of(store).endpoint_history(&key("a"), after, size));
    rows.into_iter().map(|row| row.scan).collect()
}

pub(crate) async fn scans_of_watches_keep_their_observations(world: World) {
    let store = &world.store;
    let (node, scans) = (Uuid::now_v7(), [(); 3].map(|()| Uuid::now_v7()));
    let id = make(store, "w", NOW).await;
    let run = claim(store, node, NOW).await.remove(0);
    let (claims, first) = (run.claims, scans[0]);
    scanned(store, first, NOW, "w").await;
    store.write("fill", move |tx| set_watch_scan(tx, id, node, claims, first).boxed()).await.unwrap();
    scanned(store, scans[1], NOW + HOUR, "other").await;
    scanned(store, scans[2], NOW + 2 * HOUR, "third").await;
    let done = removed(store).await;
    assert_eq!((done.observations, done.scans), (1, 1), "a run in progress continues the first scan");
    assert_eq!(history(store).await, [scans[2], first]);

    assert!(end(store, &run, node, Some(first), NOW + 3 * HOUR).await);
    assert_eq!(removed(store).await.observations, 0, "the next run is compared with it");
    assert_eq!(history(store).await, [scans[2], first]);

    let run = claim(store, node, NOW + DAY).await.remove(0);
    let next = Uuid::now_v7();
    scanned(store, next, NOW + 4 * HOUR, "w").await;
    // The newest two scans of the same targets are compared by default.
    scanned(store, Uuid::now_v7(), NOW + 5 * HOUR, "w").await;
    assert!(end(store, &run, node, Some(next), NOW + DAY).await);
    assert_eq!(removed(store).await.observations, 1, "of the first scan");
}

pub(crate) async fn one_node_prunes_and_records_it_in_the_audit_log(world: World) {
    let store = &world.store;
    for hour in 0..4 {
        scanned(store, Uuid::now_v7(), NOW + hour * HOUR, "same").await;
    }
    let (clock, stop) = (Clock::manual(NOW + 3 * DAY), CancellationToken::new());
    let other = Uuid::now_v7();
    assert!(store.lease("inventory-retention", other, clock.now_us(), HOUR).await.unwrap());
    let keeps = Retention::new(store.clone(), clock.clone(), 4);
    let retention = Retention::new(store.clone(), clock.clone(), 2);
    assert!(!retention.round(&stop).await.unwrap(), "another node has the lease");
    assert_eq!(history(store).await.len(), 4);
    store.release("inventory-retention", other).await.unwrap();
    assert!(keeps.round(&stop).await.unwrap());
    assert_eq!(history(store).await.len(), 4, "the scans are not four days old");
    assert!(retention.round(&stop).await.unwrap());
    assert_eq!(history(store).await.len(), 2);
    assert!(retention.round(&stop).await.unwrap());

    let filter = AuditFilter { action: Some("inventory.prune".to_owned()), ..AuditFilter::default() };
    let events = store.audit_page(&filter, None, 10).await.unwrap().rows;
    assert_eq!(events.len(), 1, "a pass that removes nothing is not recorded");
    assert_eq!(events[0].actor, "system:inventory");
    assert!(events[0].details.contains(r#""observations":2"#), "{}", events[0].details);
    assert!(events[0].details.contains(r#""ended_before":"2026-11-22T00:00:00Z""#), "{}", events[0].details);
}
