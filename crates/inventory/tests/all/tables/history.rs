//! Tests of stored measurements, as rows that this crate does not interpret, and of reported drifts.

use futures_util::FutureExt;
use inventory::tables::history::{
    DriftRow, FOLDED, HistoryKey, HistoryRow, begin_drift, delete_history, end_drift, folded_history,
    put_history, unfolded_history,
};
use store::Store;
use uuid::Uuid;

use testbed::tables::{NOW, World};

const HOUR: i64 = 3_600_000_000;
const SLOT: i64 = HOUR / 12;

fn row(from_us: i64, series: &str, node: Uuid, sketch: &str) -> HistoryRow {
    let key = HistoryKey { from_us, series: series.to_owned(), node };
    HistoryRow { key, sketch: sketch.to_owned() }
}

async fn put(store: &Store, rows: Vec<HistoryRow>) {
    store.write("put", move |tx| async move { put_history(tx, &rows).await }.boxed()).await.unwrap();
}

async fn all(store: &Store, from_us: i64, before_us: i64, limit: usize) -> Vec<HistoryRow> {
    let (mut rows, mut after) = (Vec::new(), HistoryKey { from_us, ..HistoryKey::default() });
    loop {
        let page = inventory::tables::History::of(store).page(&after, before_us, limit).await.unwrap();
        let more = page.len() == limit;
        rows.extend(page);
        match rows.last() {
            Some(last) if more => after = last.key.clone(),
            _ => return rows,
        }
    }
}

pub(crate) async fn sketches_are_stored_paged_and_trimmed(world: World) {
    let store = &world.store;
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut rows = Vec::new();
    for slot in 0..5 {
        for (series, node) in [("b", two), ("b", one), ("a.B", one), ("a.b", two)] {
            rows.push(row(NOW + slot * SLOT, series, node, "s"));
        }
    }
    let before = store.statements_sent();
    put(store, rows.clone()).await;
    assert_eq!(store.statements_sent() - before, 1, "twenty by one statement");
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    for limit in [1, 3, 4, 20, 100] {
        assert_eq!(all(store, NOW, NOW + 5 * SLOT, limit).await, rows, "{limit} a page");
    }
    assert_eq!(all(store, NOW + SLOT, NOW + 2 * SLOT, 100).await, rows[4..8], "from, and before");

    // A later row replaces the stored row of the same key.
    put(store, vec![row(NOW, "b", one, "more")]).await;
    let now = all(store, NOW, NOW + SLOT, 100).await;
    assert_eq!(now.iter().map(|row| row.sketch.as_str()).collect::<Vec<_>>(), ["s", "s", "more", "s"]);

    assert_eq!(inventory::tables::History::of(store).trim(NOW + 4 * SLOT).await.unwrap(), 16);
    assert_eq!(all(store, 0, i64::MAX, 100).await, rows[16..]);
}

pub(crate) async fn measurements_of_all_nodes_are_folded_by_hour(world: World) {
    let store = &world.store;
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let folded = row(NOW, "a", FOLDED, "old");
    let single = [row(NOW, "a", one, "x"), row(NOW + SLOT, "a", two, "y")];
    let next = row(NOW + HOUR, "a", one, "z");
    put(store, [&[folded.clone(), next.clone()], &single[..]].concat()).await;
    let expected = (single.to_vec(), vec![folded]);
    let found = store
        .write("read", |tx| {
            async move {
                let single = unfolded_history(tx, NOW + HOUR, 10).await?;
                Ok((single, folded_history(tx, NOW, NOW + HOUR, 10).await?))
            }
            .boxed()
        })
        .await
        .unwrap();
    assert_eq!(found, expected);
    let keys: Vec<HistoryKey> = single.iter().map(|row| row.key.clone()).collect();
    let sum = row(NOW, "a", FOLDED, "sum");
    let put = sum.clone();
    store
        .write("fold", move |tx| {
            async move {
                delete_history(tx, &keys).await?;
                put_history(tx, &[put]).await
            }
            .boxed()
        })
        .await
        .unwrap();
    assert_eq!(all(store, NOW, i64::MAX, 10).await, [sum, next]);
}

pub(crate) async fn drift_begins_and_ends_once(world: World) {
    let store = &world.store;
    let begin =
        |at_us| store.write("begin", move |tx| async move { begin_drift(tx, "tasks", at_us).await }.boxed());
    let end = || store.write("end", |tx| async move { end_drift(tx, "tasks").await }.boxed());
    // Two nodes that judge at the same time report the drift once.
    let (a, b) = tokio::join!(begin(NOW), begin(NOW));
    assert_eq!(u8::from(a.unwrap()) + u8::from(b.unwrap()), 1);
    assert!(!begin(NOW + 1).await.unwrap());
    let reported = DriftRow { series: "tasks".to_owned(), began_at_us: NOW };
    assert_eq!(inventory::tables::History::of(store).drifts(10).await.unwrap(), [reported]);
    assert!(end().await.unwrap() && !end().await.unwrap());
    assert_eq!(inventory::tables::History::of(store).drifts(10).await.unwrap(), []);
}

pub(crate) async fn pool_connections_in_use_are_reported(world: World) {
    let store = &world.store;
    let writers = |store: &Store| store.pools().into_iter().find(|pool| pool.name == "writers").unwrap();
    assert!(store.pools().iter().all(|pool| pool.in_use == 0 && pool.size > 0), "{:?}", store.pools());
    if store.is_postgres() {
        let (taken, waits) = (tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel::<()>());
        let (report, reported) = taken;
        let (release, wait) = waits;
        let (busy, other) = (store.clone(), store);
        let busy_write = tokio::spawn(async move {
            let work = busy.write("held", move |_| {
                async move {
                    report.send(()).unwrap();
                    wait.await.unwrap();
                    Ok(())
                }
                .boxed()
            });
            work.await.unwrap();
        });
        reported.await.unwrap();
        assert_eq!(writers(other).in_use, 1);
        release.send(()).unwrap();
        busy_write.await.unwrap();
    }
    assert_eq!(writers(store).in_use, 0);
}
