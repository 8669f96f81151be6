//! Tests of history and drift on a database, over a simulated week.

use std::time::Duration;

use inventory::history::{CallTarget, History, Series, SeriesStatus, Verdict};
use inventory::tables::history::{FOLDED, HistoryKey, HistoryRow};
use store::{Clock, OutboxPosition, Store};
use testbed::Database;

/// 2026-11-21, µs.
const NOW: i64 = 1_795_219_200_000_000;
const HOUR: Duration = Duration::from_secs(3_600);
const SLOT: Duration = Duration::from_secs(300);
/// The number of hours in a week.
const WEEK: usize = 7 * 24;
/// The usual duration of a scan of 1,800 endpoints, in seconds.
const USUAL: f64 = 87.0;

struct World {
    store: Store,
    clock: Clock,
    // Last field: connections of the store are dropped before the database.
    _database: Database,
}

impl World {
    async fn sqlite() -> Self {
        Self::over(Database::sqlite()).await
    }

    async fn postgres() -> Self {
        Self::over(Database::postgres().await).await
    }

    async fn over(database: Database) -> Self {
        Self { store: database.open().await, clock: Clock::manual(NOW), _database: database }
    }

    /// Creates a newly started node.
    fn node(&self) -> History {
        History::new(self.store.clone(), self.clock.clone(), None)
    }

    /// Simulates `hours` hours with one scan of `seconds` each. The node stores and judges its measurements every hour, and tidies
    /// up at the end.
    async fn hours(&self, node: &History, hours: usize, seconds: f64) {
        for _ in 0..hours {
            node.samples().scanned(1_800, Duration::from_secs_f64(seconds));
            self.clock.advance(SLOT);
            node.samples().store(&self.store).await.unwrap();
            self.clock.advance(HOUR - SLOT);
            node.judge_measurements().await.unwrap();
            node.send_drift_events().await.unwrap();
        }
        node.tidy().await.unwrap();
    }

    /// Asserts that the events so far are `wanted`. On PostgreSQL an event becomes visible once no older transaction is open in any
    /// database of the cluster. Other tests have open transactions.
    async fn reported(&self, wanted: &[&str]) {
        loop {
            let all = self.store.outbox_after(OutboxPosition::default(), 1_000).await.unwrap();
            let reported: Vec<String> =
                all.into_iter().map(|event| format!("{} {}", event.kind, event.subject)).collect();
            if reported.len() >= wanted.len() {
                assert_eq!(reported, wanted);
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn rows(&self) -> Vec<HistoryRow> {
        inventory::tables::History::of(&self.store)
            .page(&HistoryKey::default(), i64::MAX, 10_000)
            .await
            .unwrap()
    }
}

fn of(node: &History, name: &str) -> SeriesStatus {
    node.seen().into_iter().find(|one| one.judgement.series.name() == name).unwrap()
}

const SLOW: &str = "drift.scan_slow drift/scan.duration/1000-9999";
const SLOW_OVER: &str = "drift.scan_slow_over drift/scan.duration/1000-9999";
const ERRORS: &str = "drift.provider_errors drift/provider.errors/aws";
const ERRORS_OVER: &str = "drift.provider_errors_over drift/provider.errors/aws";
const DURATION: &str = "scan.duration/1000-9999";

async fn slow_scans_are_reported_once_until_they_recover(world: World) {
    let node = world.node();
    world.hours(&node, 3, 5.0 * USUAL).await;
    assert_eq!(of(&node, DURATION).judgement.verdict, Verdict::Learning, "nothing is known of before");
    world.hours(&node, WEEK, USUAL).await;
    assert_eq!(of(&node, DURATION).judgement.verdict, Verdict::Steady);
    world.hours(&node, 6, 1.24 * USUAL).await;
    assert_eq!(of(&node, DURATION).judgement.verdict, Verdict::Steady);
    world.reported(&[]).await;

    world.hours(&node, 6, 1.26 * USUAL).await;
    // The drift is reported once, however often it is judged.
    world.reported(&[SLOW]).await;
    let seen = of(&node, DURATION);
    assert!(seen.since_us.is_some_and(|since| since < world.clock.now_us()), "{seen:?}");
    let ratio = seen.judgement.ratio().unwrap();
    assert!((1.25..1.27).contains(&ratio), "{seen:?}");
    // Another node, or the same node after a restart, knows that the drift was reported.
    let (other, third) = (world.node(), world.node());
    for node in [&other, &third] {
        node.judge_measurements().await.unwrap();
    }
    let (a, b) = tokio::join!(other.send_drift_events(), third.send_drift_events());
    a.and(b).unwrap();
    assert_eq!(of(&other, DURATION), of(&node, DURATION));
    world.reported(&[SLOW]).await;

    // Between the thresholds for the start and the end of a drift nothing is reported.
    world.hours(&node, 6, 1.2 * USUAL).await;
    world.reported(&[SLOW]).await;
    world.hours(&node, 3, USUAL).await;
    world.reported(&[SLOW, SLOW_OVER]).await;
    assert_eq!(of(&node, DURATION).since_us, None);
}

async fn drift_detected_by_several_nodes_is_reported_once(world: World) {
    let node = world.node();
    for _ in 0..12 {
        node.samples().calls(CallTarget::Endpoints, 10, 0);
        world.clock.advance(SLOT);
    }
    let cloud = CallTarget::Cloud(clouds::Provider::Aws);
    node.samples().calls(cloud, 1_000, 11);
    node.samples().store(&world.store).await.unwrap();
    let nodes = [world.node(), world.node(), world.node()];
    for node in &nodes {
        node.judge_measurements().await.unwrap();
        assert_eq!(of(node, "provider.errors/aws").judgement.verdict, Verdict::Drifting);
    }
    let (a, b, c) = tokio::join!(
        nodes[0].send_drift_events(),
        nodes[1].send_drift_events(),
        nodes[2].send_drift_events()
    );
    a.and(b).and(c).unwrap();
    world.reported(&[ERRORS]).await;
    // No more calls are made. After a day there are no measurements to judge.
    world.clock.advance(25 * HOUR);
    nodes[1].judge_measurements().await.unwrap();
    nodes[1].send_drift_events().await.unwrap();
    world.reported(&[ERRORS, ERRORS_OVER]).await;
}

async fn measurements_are_folded_into_hours_and_deleted_after_eight_days(world: World) {
    let nodes = [world.node(), world.node()];
    for slot in 0..36 {
        for node in &nodes {
            node.samples().record(Series::Tasks, 40.0);
            node.samples().record(Series::WriterBatch, f64::from(slot));
            node.samples().store(&world.store).await.unwrap();
        }
        world.clock.advance(SLOT);
    }
    assert_eq!(world.rows().await.len(), 36 * 2 * 2);
    nodes[0].judge_measurements().await.unwrap();
    let before = of(&nodes[0], "writer.batch");
    nodes[0].tidy().await.unwrap();
    // Three hours have passed. For the first hour, one row for each series is left.
    let rows = world.rows().await;
    let folded: Vec<&HistoryRow> = rows.iter().filter(|row| row.key.node == FOLDED).collect();
    assert_eq!((rows.len(), folded.len()), (24 * 2 * 2 + 2, 2));
    assert!(folded.iter().all(|row| row.key.from_us == NOW));
    // Merging rows lost no measurements, and a second merge changes nothing.
    nodes[1].judge_measurements().await.unwrap();
    assert_eq!(of(&nodes[1], "writer.batch"), before);
    nodes[1].tidy().await.unwrap();
    assert_eq!(world.rows().await, rows);
    // Late measurements of a node are added.
    let count = |rows: &[HistoryRow]| -> u64 {
        let sketch = |row: &HistoryRow| row.sketch.parse::<telemetry::sketch::Sketch>().unwrap().count();
        rows.iter().filter(|row| row.key.series == "tasks").map(sketch).sum()
    };
    assert_eq!(count(&rows), 72);
    let late = HistoryKey { from_us: NOW, series: "tasks".to_owned(), node: uuid::Uuid::now_v7() };
    let late = HistoryRow { key: late, sketch: "1;40;0;738:1".to_owned() };
    let put = world.store.write("late", move |tx| {
        Box::pin(async move { inventory::tables::history::put_history(tx, &[late]).await })
    });
    put.await.unwrap();
    nodes[0].tidy().await.unwrap();
    let rows = world.rows().await;
    assert_eq!((rows.len(), count(&rows)), (24 * 2 * 2 + 2, 73));

    world.clock.advance(9 * 24 * HOUR);
    nodes[0].tidy().await.unwrap();
    assert_eq!(world.rows().await, []);
}

testbed::on_both! { super::World:
    slow_scans_are_reported_once_until_they_recover
    drift_detected_by_several_nodes_is_reported_once
    measurements_are_folded_into_hours_and_deleted_after_eight_days
}
