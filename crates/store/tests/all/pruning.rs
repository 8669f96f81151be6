//! Tests of the retention of observations.

use store::{
    ChangeKind, Inventory, NewObservation, PRUNE_ROWS_MAX, PruneMode, Pruned, PrunedObservations, ScanState,
    Scans, Store, StoreError,
};
use testbed::tables::{DAY, NOW, Scan, World, certificate, key};
use testbed::walk;

const WEEK: i64 = 7 * DAY;

/// Runs a pass over all scans that ended before `before_us`.
async fn pass(store: &Store, before_us: i64, now_us: i64, mode: PruneMode) -> Pruned {
    let mut pruning = Scans::of(store).pruning(before_us, now_us, mode).await.unwrap();
    while pruning.step().await.unwrap().is_some() {}
    pruning.done()
}

async fn finish(scan: &Scan<'_>) {
    Scans::of(&scan.world.store).finish(scan.id, scan.at + 1, ScanState::Finished, "{}").await.unwrap();
}

/// Records a finished scan.
async fn scanned<'w>(world: &'w World, rows: impl FnOnce(&Scan<'w>) -> Vec<NewObservation>) -> Scan<'w> {
    let scan = world.scan().await;
    scan.record(&rows(&scan)).await;
    finish(&scan).await;
    scan
}

/// Returns the number of stored observations of a host.
async fn history(world: &World, host: &str) -> usize {
    walk!(50, |after, size| Inventory::of(&world.store).endpoint_history(&key(host), after, size)).len()
}

async fn sightings(world: &World, host: &str) -> Vec<PrunedObservations> {
    Inventory::of(&world.store).pruned_observations(&key(host)).await.unwrap()
}

fn sighting(sha256: Option<[u8; 32]>, first: i64, last: i64, observations: u64) -> PrunedObservations {
    let pruned_at_us = NOW + 9 * DAY;
    PrunedObservations {
        leaf_sha256: sha256,
        first_seen_us: first,
        last_seen_us: last,
        observations,
        pruned_at_us,
    }
}

pub(crate) async fn superseded_observations_are_removed_and_their_certificates_and_times_stay(world: World) {
    let (old, new) = (certificate("l", "CN=CA", NOW + DAY), certificate("l", "CN=CA", NOW + 9 * DAY));
    let one = scanned(&world, |s| {
        vec![s.leaf_observation("a", &old), s.leaf_observation("b", &old), s.leaf_observation("c", &old)]
    })
    .await;
    let two = scanned(&world, |s| vec![s.leaf_observation("a", &new), s.silent("b"), s.silent("d")]).await;
    let three = scanned(&world, |s| vec![s.leaf_observation("a", &new), s.silent("b")]).await;
    let four = scanned(&world, |s| vec![s.leaf_observation("a", &new), s.silent("b")]).await;
    let now = NOW + 9 * DAY;
    let young = pass(&world.store, one.at, now, PruneMode::Remove).await;
    assert_eq!(young, Pruned::default(), "no scan ended before");

    // The last two scans are those of `inventory diff`.
    let counted = pass(&world.store, four.at + DAY, now, PruneMode::Count).await;
    assert_eq!((counted.observations, counted.scans, counted.kept), (3, 2, 3));
    assert_eq!((history(&world, "a").await, sightings(&world, "a").await.len()), (4, 0), "only counted");
    let done = pass(&world.store, four.at + DAY, now, PruneMode::Remove).await;
    assert_eq!((done.observations, done.scans, done.kept), (3, 2, 3));

    let left = [history(&world, "a").await, history(&world, "b").await, history(&world, "c").await];
    assert_eq!(left, [2, 3, 1], "the last ones, and the last one with a certificate");
    let of_a = [sighting(Some(new.sha256), two.at, two.at, 1), sighting(Some(old.sha256), one.at, one.at, 1)];
    assert_eq!(sightings(&world, "a").await, of_a);
    assert_eq!(sightings(&world, "b").await, [sighting(None, two.at, two.at, 1)]);
    assert_eq!(sightings(&world, "c").await, []);
    let endpoint = Inventory::of(&world.store).endpoint(&key("a")).await.unwrap().unwrap();
    assert_eq!((endpoint.first_seen_us, endpoint.last_observed_us), (one.at, four.at));
    let silent = Inventory::of(&world.store).endpoint(&key("c")).await.unwrap().unwrap();
    assert_eq!(silent.last.unwrap().scan, one.id, "the detail of the last observation");
    let so_far = Inventory::of(&world.store).pruned_so_far().await.unwrap();
    assert_eq!((so_far.stored, so_far.removed, so_far.at_us), (7, 3, Some(now)));
    let summary = Inventory::of(&world.store).summary(now, DAY).await.unwrap();
    assert_eq!(summary.observations, 7);

    let compared = Inventory::of(&world.store).diff_scans(one.id, four.id, None, 10).await;
    let Err(StoreError::Pruned(text)) = compared else { panic!("{compared:?}") };
    assert!(text.contains(&one.id.to_string()) && text.contains("2026-11-30"), "{text}");
    let compared = Inventory::of(&world.store).diff_scans(three.id, four.id, None, 10).await.unwrap();
    assert_eq!(compared.rows, []);
    let since = Inventory::of(&world.store).diff(two.at, None, 10).await;
    assert!(
        matches!(&since, Err(StoreError::Pruned(text)) if text.contains("2026-11-21T01:00:00Z")),
        "{since:?}"
    );
    let since = Inventory::of(&world.store).diff(two.at + 1, None, 10).await.unwrap();
    assert_eq!(since.rows, []);
    let repeated = pass(&world.store, four.at + DAY, now, PruneMode::Remove).await;
    assert_eq!(repeated, Pruned::default(), "a scan is visited again after a week");
}

pub(crate) async fn a_newer_observation_makes_a_kept_one_removable(world: World) {
    let leaf = certificate("l", "CN=CA", NOW + DAY);
    let one =
        scanned(&world, |s| vec![s.leaf_observation("rare", &leaf), s.leaf_observation("a", &leaf)]).await;
    for _ in 0..2 {
        scanned(&world, |s| vec![s.leaf_observation("a", &leaf)]).await;
    }
    let now = NOW + 9 * DAY;
    assert_eq!(pass(&world.store, NOW + DAY, now, PruneMode::Remove).await.observations, 1);
    let first = Scans::of(&world.store).get(one.id).await.unwrap().unwrap();
    assert_eq!((first.observations, first.pruned_at_us), (2, Some(now)));
    let last =
        scanned(&world, |s| vec![s.leaf_observation("rare", &leaf), s.leaf_observation("a", &leaf)]).await;
    scanned(&world, |s| vec![s.leaf_observation("a", &leaf)]).await;
    assert_eq!(history(&world, "rare").await, 2);
    let done = pass(&world.store, NOW + DAY, now + WEEK, PruneMode::Remove).await;
    // `a` in scans two and three, `rare` in scan one.
    assert_eq!(done.observations, 3);
    let rows =
        walk!(5, |after, size| Inventory::of(&world.store).endpoint_history(&key("rare"), after, size));
    assert_eq!(rows.iter().map(|row| row.scan).collect::<Vec<_>>(), [last.id]);
    assert!(Scans::of(&world.store).get(one.id).await.unwrap().is_none(), "it has no observation any more");
}

pub(crate) async fn an_unfinished_scan_is_pruned_thirty_days_after_its_start(world: World) {
    let leaf = certificate("l", "CN=CA", NOW + DAY);
    let killed = world.scan().await;
    // `rare` keeps the scan: without an observation its row would be removed.
    killed.record(&[killed.leaf_observation("a", &leaf), killed.leaf_observation("rare", &leaf)]).await;
    for _ in 0..2 {
        scanned(&world, |s| vec![s.leaf_observation("a", &leaf)]).await;
    }
    assert_eq!(pass(&world.store, NOW + 29 * DAY, NOW + 29 * DAY, PruneMode::Remove).await.observations, 0);
    assert_eq!(pass(&world.store, NOW + 31 * DAY, NOW + 31 * DAY, PruneMode::Remove).await.observations, 1);
    let row = Scans::of(&world.store).get(killed.id).await.unwrap().unwrap();
    assert_eq!(row.pruned_at_us, Some(NOW + 31 * DAY));
}

pub(crate) async fn a_scan_without_observations_is_removed_unless_it_is_the_newest_of_its_targets(
    world: World,
) {
    let leaf = certificate("l", "CN=CA", NOW + DAY);
    // The first scan of other targets: none is newer.
    let alone = world.scan_of(r#"{"targets":["alone"]}"#).await;
    alone.record(&[alone.leaf_observation("a", &leaf)]).await;
    finish(&alone).await;
    let one = scanned(&world, |s| vec![s.leaf_observation("a", &leaf)]).await;
    let empty = scanned(&world, |_| Vec::new()).await;
    let two =
        scanned(&world, |s| vec![s.leaf_observation("a", &leaf), s.leaf_observation("rare", &leaf)]).await;
    let three = scanned(&world, |s| vec![s.leaf_observation("a", &leaf)]).await;
    let four = scanned(&world, |s| vec![s.leaf_observation("a", &leaf)]).await;
    let left = async || {
        let page = Scans::of(&world.store).page(None, 10).await.unwrap();
        page.rows.into_iter().map(|scan| scan.id).collect::<Vec<_>>()
    };
    let stored = [four.id, three.id, two.id, empty.id, one.id, alone.id];
    assert_eq!(left().await, stored);

    let counted = pass(&world.store, NOW + DAY, NOW + 9 * DAY, PruneMode::Count).await;
    assert_eq!((counted.observations, counted.scans_removed), (3, 2));
    assert_eq!(left().await, stored, "only counted");
    let done = pass(&world.store, NOW + DAY, NOW + 9 * DAY, PruneMode::Remove).await;
    assert_eq!((done.observations, done.scans_removed, done.kept), (3, 2, 1));
    assert_eq!(left().await, [four.id, three.id, two.id, alone.id]);

    let compared = Inventory::of(&world.store).diff_scans(one.id, four.id, None, 10).await;
    let Err(StoreError::Pruned(text)) = compared else { panic!("{compared:?}") };
    assert!(text.contains(&one.id.to_string()) && text.contains("removed"), "{text}");
    let never = uuid::Uuid::now_v7();
    let compared = Inventory::of(&world.store).diff_scans(never, four.id, None, 10).await;
    assert!(matches!(compared, Err(StoreError::UnknownScan(id)) if id == never), "{compared:?}");
    assert_eq!(Inventory::of(&world.store).pruned_so_far().await.unwrap().removed, 3);
    let endpoint = Inventory::of(&world.store).endpoint(&key("a")).await.unwrap().unwrap();
    assert_eq!(endpoint.first_seen_us, alone.at, "the time stays");

    // Later the scan that kept the last observation of `rare` loses it, and the scan of other targets has a successor.
    let repeated = world.scan_of(r#"{"targets":["alone"]}"#).await;
    repeated.record(&[repeated.leaf_observation("rare", &leaf)]).await;
    finish(&repeated).await;
    let later = [(); 2].map(|()| scanned(&world, |s| vec![s.leaf_observation("a", &leaf)]));
    for scan in later {
        scan.await;
    }
    let done = pass(&world.store, NOW + DAY, NOW + 17 * DAY, PruneMode::Remove).await;
    assert_eq!(done.scans_removed, 4, "two, three, four, alone");
}

/// Records scans of `endpoints` endpoints each; `inventory diff` compares the newest two.
async fn estate(world: &World, scans: usize, endpoints: usize) {
    let leaf = certificate("l", "CN=CA", NOW + DAY);
    for _ in 0..scans {
        scanned(world, |s| {
            (0..endpoints).map(|number| s.leaf_observation(&format!("h{number}"), &leaf)).collect()
        })
        .await;
    }
}

pub(crate) async fn a_pass_removes_at_most_a_thousand_rows_a_transaction(world: World) {
    let endpoints = 2 * PRUNE_ROWS_MAX as usize + 5;
    estate(&world, 3, endpoints).await;
    let mut pruning = Scans::of(&world.store).pruning(NOW + DAY, NOW + DAY, PruneMode::Remove).await.unwrap();
    let (mut steps, mut before) = (Vec::new(), 0);
    let sent = world.store.statements_sent();
    while pruning.step().await.unwrap().is_some() {
        steps.push(pruning.done().observations - before);
        before = pruning.done().observations;
    }
    assert_eq!(steps, [1_000, 1_000, 5]);
    let sent = world.store.statements_sent() - sent;
    assert!(sent < 40, "{sent} statements for {endpoints} rows");
    assert_eq!(sightings(&world, "h7").await[0].observations, 1);
}

pub(crate) async fn concurrent_passes_count_each_observation_once(world: World) {
    let endpoints = 300;
    estate(&world, 6, endpoints).await;
    let one = || pass(&world.store, NOW + DAY, NOW + DAY, PruneMode::Remove);
    let (a, b, c) = tokio::join!(one(), one(), one());
    let total = 4 * endpoints as u64;
    assert_eq!(a.observations + b.observations + c.observations, total);
    let so_far = Inventory::of(&world.store).pruned_so_far().await.unwrap();
    assert_eq!((so_far.removed, so_far.stored), (total, 2 * endpoints as u64));
    let seen = sightings(&world, "h0").await;
    assert_eq!((seen.len(), seen[0].observations), (1, 4));
    let changed = Inventory::of(&world.store).diff(NOW + DAY, None, 10).await.unwrap();
    assert!(changed.rows.iter().all(|row| row.kind != ChangeKind::New));
}
