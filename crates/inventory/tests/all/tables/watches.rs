//! Tests of watches: settings, leases and runs.

use futures_util::FutureExt;
use inventory::tables::watch_parts::RunProgress;
use inventory::tables::watches::{
    WatchEnd, WatchInsertion, WatchOutcome, WatchRow, WatchSettings, WatchTimes, delete_watch, end_watch,
    insert_watch, set_watch_due, set_watch_scan, update_watch, watch,
};
use store::{ScanState, Store, StoreError};
use uuid::Uuid;

use testbed::tables::{NOW, World};
use testbed::walk;

const HOUR: i64 = 3_600_000_000;
const LEASE: i64 = 60_000_000;

fn settings(name: &str) -> WatchSettings {
    WatchSettings {
        name: name.to_owned(),
        group: "edge".to_owned(),
        spec: r#"{"targets":["a.example"]}"#.to_owned(),
        interval_us: HOUR,
        jitter_us: 0,
        enabled: true,
    }
}

fn at(at_us: i64) -> WatchTimes {
    WatchTimes { planned_at_us: at_us, next_run_at_us: at_us }
}

pub(super) async fn make(store: &Store, name: &str, due_us: i64) -> Uuid {
    let (id, settings) = (Uuid::now_v7(), settings(name));
    let made = store
        .write("make", move |tx| {
            async move { insert_watch(tx, id, &settings, at(due_us), NOW).await }.boxed()
        })
        .await
        .unwrap();
    assert_eq!(made, WatchInsertion::Made);
    id
}

pub(super) async fn claim(store: &Store, holder: Uuid, now_us: i64) -> Vec<WatchRow> {
    inventory::tables::Watches::of(store).claim(holder, now_us, now_us + LEASE, 10).await.unwrap()
}

pub(super) async fn end(
    store: &Store,
    row: &WatchRow,
    holder: Uuid,
    scan: Option<Uuid>,
    ended_at_us: i64,
) -> bool {
    let (id, claims) = (row.id, row.claims);
    let end = WatchEnd {
        scan,
        ended_at_us,
        outcome: WatchOutcome::Finished,
        error: None,
        counts: Some(r#"{"endpoints":1}"#.to_owned()),
        times: at(ended_at_us + HOUR),
    };
    store
        .write("end", move |tx| async move { end_watch(tx, id, holder, claims, &end).await }.boxed())
        .await
        .unwrap()
}

async fn get(store: &Store, id: Uuid) -> WatchRow {
    inventory::tables::Watches::of(store).get(id).await.unwrap().unwrap()
}

pub(crate) async fn watch_is_created_updated_and_deleted(world: World) {
    let store = &world.store;
    let id = make(store, "b", NOW).await;
    make(store, "a", NOW + HOUR).await;
    make(store, "c", NOW).await;
    let rows = walk!(2, |after, size| inventory::tables::Watches::of(store).page(after, size));
    assert_eq!(rows.iter().map(|row| row.settings.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let row = get(store, id).await;
    assert_eq!((&row.settings, row.revision, row.times), (&settings("b"), 1, at(NOW)));
    assert_eq!((&row.run, &row.last), (&None, &None));
    assert_eq!(inventory::tables::Watches::of(store).named("b").await.unwrap().as_ref(), Some(&row));
    assert_eq!(inventory::tables::Watches::of(store).named("B").await.unwrap(), None);

    let repeated = settings("b");
    let taken = store
        .write("again", move |tx| {
            async move { insert_watch(tx, Uuid::now_v7(), &repeated, at(NOW), NOW).await }.boxed()
        })
        .await
        .unwrap();
    assert_eq!(taken, WatchInsertion::Taken);

    let change = |name: &'static str, revision| {
        let changed = WatchSettings { enabled: false, interval_us: 2 * HOUR, ..settings(name) };
        store.write("change", move |tx| {
            async move { update_watch(tx, id, revision, &changed, at(NOW + 5), NOW + 9).await }.boxed()
        })
    };
    assert!(change("b2", 1).await.unwrap());
    assert!(!change("b3", 1).await.unwrap(), "it was changed by another request");
    assert!(matches!(change("a", 2).await, Err(StoreError::Conflict { .. })));
    let row = get(store, id).await;
    assert_eq!((row.settings.name.as_str(), row.settings.enabled, row.revision), ("b2", false, 2));
    assert_eq!((row.times, row.created_at_us, row.updated_at_us), (at(NOW + 5), NOW, NOW + 9));
    let want = store.write("want", move |tx| set_watch_due(tx, id, NOW).boxed()).await.unwrap();
    assert!(!want, "it is paused");

    let delete = || store.write("delete", move |tx| delete_watch(tx, id).boxed());
    assert!(delete().await.unwrap() && !delete().await.unwrap());
    assert_eq!(inventory::tables::Watches::of(store).get(id).await.unwrap(), None);
}

pub(crate) async fn due_watch_is_claimed_by_one_node_and_finished_once(world: World) {
    let store = &world.store;
    let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
    let id = make(store, "a", NOW + 10).await;
    assert!(claim(store, one, NOW + 9).await.is_empty(), "it is not due");
    // Both nodes claim at the same time.
    let (first, second) = tokio::join!(claim(store, one, NOW + 10), claim(store, two, NOW + 10));
    assert_eq!(first.len() + second.len(), 1);
    let (claimed, holder, other) = match (first.first(), second.first()) {
        (Some(row), None) => (row.clone(), one, two),
        (None, Some(row)) => (row.clone(), two, one),
        rows => panic!("one of them has it: {rows:?}"),
    };
    let run = claimed.run.clone().unwrap();
    assert_eq!((run.began_at_us, run.scan, run.holder), (NOW + 10, None, Some(holder)));
    assert_eq!(run.until_us, Some(NOW + 10 + LEASE));
    let want = store.write("want", move |tx| set_watch_due(tx, id, NOW).boxed()).await.unwrap();
    assert!(!want, "a run is under way");

    let scan = Uuid::now_v7();
    let fill = |by, claims| store.write("fill", move |tx| set_watch_scan(tx, id, by, claims, scan).boxed());
    assert!(fill(holder, claimed.claims).await.unwrap());
    assert!(!fill(other, claimed.claims).await.unwrap() && !fill(holder, claimed.claims + 1).await.unwrap());
    assert!(!end(store, &claimed, other, Some(scan), NOW + 20).await);
    assert!(end(store, &claimed, holder, Some(scan), NOW + 20).await);
    assert!(!end(store, &claimed, holder, Some(scan), NOW + 30).await, "it has ended");
    let row =
        store.write("read", move |tx| async move { watch(tx, id).await }.boxed()).await.unwrap().unwrap();
    let last = row.last.unwrap();
    assert_eq!((row.run, row.times), (None, at(NOW + 20 + HOUR)));
    assert_eq!((last.scan, last.began_at_us, last.ended_at_us), (Some(scan), NOW + 10, NOW + 20));
    assert_eq!((last.outcome, last.counts.as_deref()), (WatchOutcome::Finished, Some(r#"{"endpoints":1}"#)));
    assert!(claim(store, one, NOW + HOUR).await.is_empty(), "the next run is later");
    assert!(store.write("want", move |tx| set_watch_due(tx, id, NOW + 40).boxed()).await.unwrap());
    assert_eq!(claim(store, one, NOW + 40).await.len(), 1);
}

pub(crate) async fn expired_watch_lease_is_taken_over_with_its_scan(world: World) {
    let store = &world.store;
    let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
    let id = make(store, "a", NOW).await;
    let first = claim(store, one, NOW).await.remove(0);
    let scan = Uuid::now_v7();
    let claims = first.claims;
    store::Scans::of(store).begin(scan, NOW, "{}").await.unwrap();
    store.write("fill", move |tx| set_watch_scan(tx, id, one, claims, scan).boxed()).await.unwrap();
    assert_eq!(store::Scans::of(store).latest_unfinished().await.unwrap(), None, "the watch goes on with it");

    assert!(claim(store, two, NOW + LEASE - 1).await.is_empty());
    let keep = |until| async move {
        inventory::tables::Watches::of(store).renew(one, &[(id, claims)], until).await.unwrap()
    };
    assert_eq!(keep(NOW + 2 * LEASE).await, [id]);
    assert!(claim(store, two, NOW + LEASE).await.is_empty(), "the lease was kept");
    let second = claim(store, two, NOW + 2 * LEASE).await.remove(0);
    let run = second.run.clone().unwrap();
    assert_eq!((run.scan, run.began_at_us, run.holder), (Some(scan), NOW, Some(two)));
    assert!(keep(NOW + 9 * LEASE).await.is_empty());
    assert!(!end(store, &first, one, Some(scan), NOW).await, "it is another's now");

    // A holder that stops releases its claim. The next node need not wait.
    inventory::tables::Watches::of(store).release(two).await.unwrap();
    let third = claim(store, one, NOW + 2 * LEASE).await.remove(0);
    assert_eq!((third.run.clone().unwrap().scan, third.claims), (Some(scan), claims + 2));
    store::Scans::of(store).finish(scan, NOW, ScanState::Interrupted, "{}").await.unwrap();
    assert!(end(store, &third, one, Some(scan), NOW + 3 * LEASE).await);
    assert_eq!(
        store::Scans::of(store).latest_unfinished().await.unwrap().unwrap().id,
        scan,
        "no watch goes on with it"
    );
}

pub(crate) async fn many_watches_are_claimed_or_renewed_in_one_statement(world: World) {
    let store = &world.store;
    let one = Uuid::now_v7();
    for n in 0..20 {
        make(store, &format!("w{n:02}"), NOW + n).await;
    }
    let before = store.statements_sent();
    let claimed = inventory::tables::Watches::of(store).claim(one, NOW + 100, NOW + LEASE, 15).await.unwrap();
    let runs: Vec<_> = claimed.iter().map(|row| (row.id, row.claims)).collect();
    assert_eq!(
        inventory::tables::Watches::of(store).renew(one, &runs, NOW + 2 * LEASE).await.unwrap().len(),
        15
    );
    let sent = store.statements_sent() - before;
    assert!(sent <= 2, "{sent} statements");
    let mut names: Vec<_> = claimed.iter().map(|row| row.settings.name.clone()).collect();
    names.sort();
    assert_eq!((names.len(), names[14].as_str()), (15, "w14"), "the longest due");
    assert_eq!(claim(store, Uuid::now_v7(), NOW + 100).await.len(), 5);
}

pub(crate) async fn run_parts_have_one_holder_each_and_are_deleted_with_the_run(world: World) {
    let store = &world.store;
    let id = make(store, "wide", NOW).await;
    let (one, two, scan) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let run = claim(store, one, NOW).await.remove(0);
    assert!(inventory::tables::WatchParts::of(store).results(scan).await.unwrap().is_empty());
    inventory::tables::WatchParts::of(store).split_run(id, scan, 5).await.unwrap();
    inventory::tables::WatchParts::of(store).split_run(id, scan, 9).await.unwrap();
    assert_eq!(
        inventory::tables::WatchParts::of(store).results(scan).await.unwrap(),
        vec![None; 5],
        "cut once"
    );

    let claim = async |holder, of, now_us, limit| {
        let parts = inventory::tables::WatchParts::of(store)
            .claim(holder, of, now_us, now_us + LEASE, limit)
            .await
            .unwrap();
        let mut numbers: Vec<u64> = parts.iter().map(|part| part.part).collect();
        numbers.sort_unstable();
        (parts, numbers)
    };
    let (mine, numbers) = claim(one, Some(scan), NOW, 2).await;
    assert_eq!((numbers, mine[0].parts, mine[0].watch), (vec![0, 1], 5, id));
    assert_eq!(claim(two, Some(Uuid::now_v7()), NOW, 9).await.1, Vec::<u64>::new(), "of another scan");
    let (theirs, numbers) = claim(two, None, NOW, 9).await;
    assert_eq!(numbers, [2, 3, 4]);
    assert_eq!(claim(one, None, NOW, 9).await.1, Vec::<u64>::new(), "all are held");

    // The progress of a run that has begun.
    assert!(inventory::tables::WatchParts::of(store).progress(vec![scan], NOW).await.unwrap().is_empty());
    store::Scans::of(store).begin(scan, NOW, "{}").await.unwrap();
    let progress = async |now_us| {
        let found = inventory::tables::WatchParts::of(store)
            .progress(vec![scan, Uuid::now_v7()], now_us)
            .await
            .unwrap();
        assert_eq!(found.len(), 1);
        let RunProgress { observations, parts, parts_ended, parts_leased } = found[&scan];
        (observations, parts, parts_ended, parts_leased)
    };
    assert_eq!((progress(NOW).await, progress(NOW + LEASE).await), ((0, 5, 0, 5), (0, 5, 0, 0)));

    // One part is ended by its holder, once. The lease of the other part expires, and its former holder is fenced off.
    assert!(inventory::tables::WatchParts::of(store).end(&mine[0], one, "{}").await.unwrap());
    assert!(!inventory::tables::WatchParts::of(store).end(&mine[0], one, "{}").await.unwrap());
    assert!(
        !inventory::tables::WatchParts::of(store).end(&theirs[0], one, "{}").await.unwrap(),
        "it is another's"
    );
    assert_eq!(progress(NOW).await, (0, 5, 1, 4));
    let renewed = inventory::tables::WatchParts::of(store).renew(one, &mine, NOW + LEASE / 2).await.unwrap();
    assert_eq!(renewed, [(scan, mine[1].part)], "the ended one is nobody's to keep");
    let (repeated, numbers) = claim(two, None, NOW + LEASE / 2, 9).await;
    assert_eq!((numbers, repeated[0].claims), (vec![mine[1].part], 2));
    assert!(!inventory::tables::WatchParts::of(store).end(&mine[1], one, "{}").await.unwrap());
    assert!(
        inventory::tables::WatchParts::of(store).renew(one, &mine, NOW + LEASE).await.unwrap().is_empty()
    );

    // A released claim is free immediately.
    inventory::tables::WatchParts::of(store).release(two).await.unwrap();
    assert_eq!(claim(one, Some(scan), NOW, 9).await.1.len(), 4);
    let ended =
        inventory::tables::WatchParts::of(store).results(scan).await.unwrap().iter().flatten().count();
    assert_eq!(ended, 1);

    assert!(end(store, &run, one, Some(scan), NOW).await);
    assert!(
        inventory::tables::WatchParts::of(store).results(scan).await.unwrap().is_empty(),
        "gone with the run"
    );
    inventory::tables::WatchParts::of(store).split_run(id, scan, 64).await.unwrap();
    assert!(store.write("delete", move |tx| delete_watch(tx, id).boxed()).await.unwrap());
    assert!(
        inventory::tables::WatchParts::of(store).results(scan).await.unwrap().is_empty(),
        "and with the watch"
    );
}
