//! History and drift detection: scan durations, error rates and resource usage of the last week, and whether they have become
//! worse.
//!
//! Every process measures ([`Samples`]) and stores its sketches once a minute, in slots of five minutes. Every server reads the
//! sketches of all processes once a minute and compares each [`Series`] with its own last seven days ([`judge`]). One server, which
//! has the lease, sends alerts when drifts begin and end, and merges slots older than two hours into hours.

mod judge;
mod samples;
mod series;
mod slot;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use clouds::Pools;
use events::{Drift, Event};
use futures_util::FutureExt;
use parking_lot::Mutex;
use shared::Shared;
use store::{Clock, NewEvent, Store, StoreError, Tx, emit, new_event};
use telemetry::sketch::Sketch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::slot::{DAY_US, HOUR_US, SLOT_US, slot_start};

pub use judge::{Judgement, OpenDriftAlert, SeriesHistory, SketchSummary, SlotMeasurements, Verdict, judge};
pub use samples::{CloudCalls, Samples};
pub use series::{CallTarget, FleetSize, Series};

use crate::tables;
use crate::tables::history::{
    FOLDED, HistoryKey, HistoryRow, begin_drift, delete_history, end_drift, folded_history, put_history,
    unfolded_history,
};

/// Length of the baseline.
const BASE_US: i64 = 7 * DAY_US;
/// Age at which measurements are deleted: a day more than the baseline.
const RETENTION_US: i64 = 8 * DAY_US;
/// Age in µs at which the slots of all nodes are merged into one slot per hour. By then every node has stored its measurements.
const FOLD_AFTER_US: i64 = 2 * HOUR_US;

/// Interval between samples of gauges: tasks, connections.
const SAMPLE_EVERY: Duration = Duration::from_secs(15);
/// Number of samples between two rounds, which are a minute apart.
const ROUND_EVERY: u64 = 4;
/// Number of rounds between two clean-ups, which are ten minutes apart.
const TIDY_EVERY: u64 = 10;
/// Duration of the lease of the node that sends alerts, µs: three times the interval between rounds.
const LEASE_US: i64 = 180_000_000;
const LEASE: &str = "history";
/// Timeout for storing the last measurements during shutdown.
const LAST_TRY: Duration = Duration::from_secs(2);

/// Maximum rows per page, a few kilobytes each.
const PAGE: usize = 1_000;
/// Maximum pages per round: enough for sixteen series of a hundred nodes in the last two hours, and the merged hours of all days.
const PAGES_MAX: usize = 64;

/// Drift detection of one node, for the measurements of the whole cluster. Cheap to clone.
#[derive(Clone)]
pub struct History(Shared<HistoryState>);

struct HistoryState {
    store: Store,
    clock: Clock,
    node: Uuid,
    samples: Samples,
    /// Call counters of the cloud listings of this process.
    clouds: Option<Mutex<CloudCalls>>,
    /// Measurements older than a day, read once an hour.
    older: tokio::sync::Mutex<OlderMeasurements>,
    seen: Mutex<Vec<SeriesStatus>>,
}

/// Measurements older than a day.
#[derive(Default)]
struct OlderMeasurements {
    until_us: i64,
    sketches: HashMap<Series, Sketch>,
    began_us: HashMap<Series, i64>,
}

/// The latest judgement of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesStatus {
    /// The comparison of the series with its baseline.
    pub judgement: Judgement,
    /// Start of the open alert, µs since 1970-01-01 UTC.
    pub since_us: Option<i64>,
}

impl History {
    /// Creates the history. `pools` are the call pools of this process's cloud listings. Before [`History::run`], only calls of
    /// [`History::samples`] measure anything.
    #[must_use]
    pub fn new(store: Store, clock: Clock, pools: Option<Pools>) -> Self {
        let samples = Samples::new(clock.clone());
        let clouds = pools.map(|pools| Mutex::new(CloudCalls::new(pools)));
        Self(Shared::new(HistoryState {
            store,
            clock,
            node: Uuid::now_v7(),
            samples,
            clouds,
            older: tokio::sync::Mutex::default(),
            seen: Mutex::default(),
        }))
    }

    /// Returns the recorder of this process's measurements.
    #[must_use]
    pub fn samples(&self) -> &Samples {
        &self.0.samples
    }

    /// Returns the judgements of the last round, for all series with measurements in the last eight days. Empty before the first
    /// round.
    #[must_use]
    pub fn seen(&self) -> Vec<SeriesStatus> {
        self.0.seen.lock().clone()
    }

    /// Measures, stores and judges until `stop`; sends alerts while this node has the lease.
    pub async fn run(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("history");
        let mut samples = 0_u64;
        loop {
            self.sample();
            if samples.is_multiple_of(ROUND_EVERY)
                && let Err(error) = self.run_round(samples / ROUND_EVERY).await
            {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the scanner's history could not be maintained"
                );
            }
            samples += 1;
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(SAMPLE_EVERY) => {}
            }
        }
        let last = async {
            self.0.samples.store(&self.0.store).await?;
            // Another node can take over immediately.
            self.0.store.release(LEASE, self.0.node).await
        };
        if !matches!(tokio::time::timeout(LAST_TRY, last).await, Ok(Ok(()))) {
            tracing::warn!("the last minute's measurements could not be stored");
        }
    }

    async fn run_round(&self, round: u64) -> Result<(), StoreError> {
        self.0.samples.store(&self.0.store).await?;
        let now_us = self.0.clock.now_us();
        self.judge_measurements().await?;
        if self.0.store.lease(LEASE, self.0.node, now_us, LEASE_US).await? {
            self.send_drift_events().await?;
            if round.is_multiple_of(TIDY_EVERY) {
                self.tidy().await?;
            }
        }
        Ok(())
    }

    /// Takes one sample of each gauge.
    fn sample(&self) {
        let tasks: i64 = telemetry::tasks::live().into_iter().map(|(_, live)| live).sum();
        self.0.samples.record(Series::Tasks, tasks as f64);
        let share = |pool: store::PoolUse| pool.in_use as f64 / pool.size.max(1) as f64;
        let busiest = self.0.store.pools().into_iter().map(share).fold(0.0, f64::max);
        self.0.samples.record(Series::DatabasePool, busiest);
        if let Some(clouds) = &self.0.clouds {
            clouds.lock().count(&self.0.samples);
        }
    }

    /// Reads and judges the measurements of all nodes.
    ///
    /// # Errors
    /// Database errors; the previous judgements stay.
    #[crate::boxed]
    pub async fn judge_measurements(&self) -> Result<(), StoreError> {
        let now_us = self.0.clock.now_us();
        let day_us = slot_start(now_us, HOUR_US) - DAY_US;
        let mut recent: HashMap<Series, Vec<SlotMeasurements>> = HashMap::new();
        self.read(day_us, now_us.saturating_add(SLOT_US), |series, slot| {
            recent.entry(series).or_default().push(slot);
        })
        .await?;
        let open_drifts = tables::History::of(&self.0.store).drifts(Series::all().count()).await?;
        let mut older = self.0.older.lock().await;
        if older.until_us != day_us {
            *older = self.older(day_us).await?;
        }
        let mut seen = Vec::new();
        for series in Series::all() {
            let recent = recent.remove(&series).unwrap_or_default();
            let first = recent.first().map(|slot| slot.from_us);
            let past = SeriesHistory {
                began_us: older.began_us.get(&series).copied().or(first),
                older: older.sketches.get(&series).cloned().unwrap_or_default(),
                recent,
            };
            let since_us =
                open_drifts.iter().find(|drift| drift.series == series.name()).map(|drift| drift.began_at_us);
            if past.began_us.is_some() || since_us.is_some() {
                let reported =
                    if since_us.is_some() { OpenDriftAlert::Drift } else { OpenDriftAlert::Nothing };
                let judgement = judge(series, &past, reported, now_us);
                seen.push(SeriesStatus { judgement, since_us });
            }
        }
        *self.0.seen.lock() = seen;
        Ok(())
    }

    async fn older(&self, until_us: i64) -> Result<OlderMeasurements, StoreError> {
        let mut older = OlderMeasurements { until_us, ..OlderMeasurements::default() };
        self.read(until_us + DAY_US - BASE_US, until_us, |series, slot| {
            older.began_us.entry(series).or_insert(slot.from_us);
            older.sketches.entry(series).or_default().merge(&slot.sketch);
        })
        .await?;
        Ok(older)
    }

    /// Calls the callback with every row of a time range, oldest first. Skips series of newer versions of Bulla, and invalid
    /// sketches.
    async fn read(
        &self,
        from_us: i64,
        before_us: i64,
        mut give: impl FnMut(Series, SlotMeasurements),
    ) -> Result<(), StoreError> {
        let mut after = HistoryKey { from_us, ..HistoryKey::default() };
        for _ in 0..PAGES_MAX {
            let rows = tables::History::of(&self.0.store).page(&after, before_us, PAGE).await?;
            let last = rows.last().filter(|_| rows.len() == PAGE).map(|row| row.key.clone());
            for HistoryRow { key, sketch } in rows {
                if let (Some(series), Ok(sketch)) = (Series::named(&key.series), sketch.parse()) {
                    give(series, SlotMeasurements { from_us: key.from_us, node: key.node, sketch });
                }
            }
            match last {
                Some(key) => after = key,
                None => return Ok(()),
            }
        }
        tracing::warn!(rows = PAGES_MAX * PAGE, "history: more rows than the limit; the rest is ignored");
        Ok(())
    }

    /// Sends an event for each drift that began or ended since the last call. Each event is sent once, whichever node detects the
    /// drift.
    ///
    /// # Errors
    /// Database errors; no event is sent then.
    #[crate::boxed]
    pub async fn send_drift_events(&self) -> Result<(), StoreError> {
        let at_us = self.0.clock.now_us();
        let drifts = |one: &SeriesStatus| one.judgement.verdict == Verdict::Drifting;
        let changed: Vec<SeriesStatus> =
            self.seen().into_iter().filter(|one| drifts(one) != one.since_us.is_some()).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let write = self.0.store.write("history_tell", move |tx| {
            async move {
                let mut events = Vec::new();
                for one in &changed {
                    let (series, drifting) = (one.judgement.series, drifts(one));
                    let news = if drifting {
                        begin_drift(tx, series.name(), at_us).await?
                    } else {
                        end_drift(tx, series.name()).await?
                    };
                    events.extend(event_of(&one.judgement, drifting, at_us).filter(|_| news));
                }
                emit(tx, events).await
            }
            .boxed()
        });
        write.await?;
        // Reads the start times of the new alerts.
        self.judge_measurements().await
    }

    /// Merges old slots of all nodes into slots of one hour, and deletes measurements older than eight days.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn tidy(&self) -> Result<(), StoreError> {
        let now_us = self.0.clock.now_us();
        let before_us = slot_start(now_us - FOLD_AFTER_US, HOUR_US);
        for _ in 0..PAGES_MAX {
            let fold = self
                .0
                .store
                .write("history_fold", move |tx| async move { fold(tx, before_us).await }.boxed());
            if fold.await? < PAGE {
                break;
            }
        }
        tables::History::of(&self.0.store).trim(now_us - RETENTION_US).await.map(drop)
    }
}

/// Merges one page of old rows into hourly rows of all nodes. Returns the number of merged rows.
async fn fold(tx: &mut Tx, before_us: i64) -> Result<usize, StoreError> {
    let rows = unfolded_history(tx, before_us, PAGE).await?;
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(0) };
    let (first_us, last_us) = (slot_start(first.key.from_us, HOUR_US), slot_start(last.key.from_us, HOUR_US));
    let mut hours: BTreeMap<(i64, String), Sketch> = BTreeMap::new();
    let mut add = |row: &HistoryRow| match row.sketch.parse::<Sketch>() {
        Ok(sketch) => {
            let hour = (slot_start(row.key.from_us, HOUR_US), row.key.series.clone());
            hours.entry(hour).or_default().merge(&sketch);
        }
        Err(error) => {
            tracing::warn!(%error, series = row.key.series, "history: an unreadable row is ignored")
        }
    };
    rows.iter().for_each(&mut add);
    let limit = usize::try_from(RETENTION_US / HOUR_US).unwrap_or(PAGE) * Series::all().count() * 2;
    let existing = folded_history(tx, first_us, last_us + HOUR_US, limit).await?;
    existing.iter().for_each(&mut add);
    let keys: Vec<HistoryKey> = rows.iter().map(|row| row.key.clone()).collect();
    delete_history(tx, &keys).await?;
    let folded: Vec<HistoryRow> = hours
        .into_iter()
        .map(|((from_us, series), sketch)| HistoryRow {
            key: HistoryKey { from_us, series, node: FOLDED },
            sketch: sketch.to_string(),
        })
        .collect();
    put_history(tx, &folded).await?;
    Ok(keys.len())
}

/// Returns the event for the beginning or end of a drift.
fn event_of(judgement: &Judgement, begins: bool, at_us: i64) -> Option<NewEvent> {
    type Kind = fn(Drift) -> Event;
    let [began, over]: [Kind; 2] = match judgement.series {
        Series::ScanDuration(_) | Series::ListDuration(_) => [Event::DriftScanSlow, Event::DriftScanSlowOver],
        Series::ProviderErrors(_) => [Event::DriftProviderErrors, Event::DriftProviderErrorsOver],
        Series::DatabasePool => [Event::DriftDatabasePool, Event::DriftDatabasePoolOver],
        Series::Tasks => [Event::DriftTasks, Event::DriftTasksOver],
        Series::WriterBatch | Series::WriterFlush => return None,
    };
    let series = judgement.series.name();
    let subject = format!("drift/{series}");
    let drift = Drift {
        name: series.to_owned(),
        unit: judgement.series.unit().to_owned(),
        value: judgement.value,
        baseline: judgement.base_value,
        ratio: judgement.ratio(),
        detail: detail(judgement),
    };
    Some(new_event(at_us, subject, &if begins { began(drift) } else { over(drift) }))
}

/// Returns the text of the alert, with values.
fn detail(judgement: &Judgement) -> String {
    let shown = |value: f64| match judgement.series.unit() {
        "share" => format!("{:.1} %", value * 100.0),
        "seconds" => format!("{value:.2} s"),
        _ => format!("{value:.0}"),
    };
    let before = judgement.base_value.map(|base| format!(", and {} over the seven days before", shown(base)));
    match judgement.value.filter(|_| judgement.verdict != Verdict::Learning) {
        Some(value) => format!("{}{}", shown(value), before.unwrap_or_default()),
        None => "not enough measurements".to_owned(),
    }
}
