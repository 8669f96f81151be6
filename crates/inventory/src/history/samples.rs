//! Measurements of this process that are not stored yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clouds::{Pools, Provider};
use futures_util::FutureExt;
use parking_lot::Mutex;
use scan::Snapshot;
use store::{Clock, OnFlush, Store, StoreError};
use telemetry::sketch::Sketch;
use uuid::Uuid;

use super::series::{CallTarget, FleetSize, Series};
use super::slot::{SLOT_US, slot_start};
use crate::tables::history::{HistoryKey, HistoryRow, put_history};

/// Maximum time slots buffered while the database is unavailable: two hours. Older slots are dropped.
const SLOTS_MAX: usize = 24;

/// Sketches by time slot and series, until they are stored. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub struct Samples(Arc<SampleBuffer>);

#[derive(Debug)]
struct SampleBuffer {
    clock: Clock,
    /// Identifier of this process in the rows; random, chosen at startup.
    node: Uuid,
    // Locked only to add one value, never across an await.
    slots: Mutex<BTreeMap<i64, BTreeMap<Series, Sketch>>>,
}

impl Samples {
    /// Creates an empty buffer.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(SampleBuffer { clock, node: Uuid::now_v7(), slots: Mutex::default() }))
    }

    /// Records a value at the current time.
    pub fn record(&self, series: Series, value: f64) {
        self.record_many(series, &[(value, 1)]);
    }

    fn record_many(&self, series: Series, values: &[(f64, u64)]) {
        if values.iter().all(|(_, times)| *times == 0) {
            return;
        }
        let mut slots = self.0.slots.lock();
        let slot = slots.entry(slot_start(self.0.clock.now_us(), SLOT_US)).or_default();
        let sketch = slot.entry(series).or_default();
        values.iter().for_each(|(value, times)| sketch.record_many(*value, *times));
        while slots.len() > SLOTS_MAX {
            slots.pop_first();
            tracing::warn!("history: the database is unreachable; the oldest measurements are dropped");
        }
    }

    /// Records a number of calls to a destination, and how many of them failed.
    pub fn calls(&self, target: CallTarget, calls: u64, failed: u64) {
        let failed = failed.min(calls);
        self.record_many(Series::ProviderErrors(target), &[(0.0, calls - failed), (1.0, failed)]);
    }

    /// Records the probes of a scan. A probe that saw no certificate counts as failed.
    pub fn probes(&self, progress: &Snapshot) {
        self.calls(
            CallTarget::Endpoints,
            progress.finished,
            progress.finished.saturating_sub(progress.answered),
        );
    }

    /// Records the duration of a scan that covered all of its endpoints.
    pub fn scanned(&self, endpoints: u64, took: Duration) {
        if let Some(size) = FleetSize::of(endpoints) {
            self.record(Series::ScanDuration(size), took.as_secs_f64());
        }
    }

    /// Records the duration of a complete run that listed clouds. Separate from scans, because clouds have their own rate limits.
    pub fn listed(&self, seen: u64, took: Duration) {
        if let Some(size) = FleetSize::of(seen) {
            self.record(Series::ListDuration(size), took.as_secs_f64());
        }
    }

    /// Returns a callback for a writer that records the writer's transactions.
    #[must_use]
    pub fn on_flush(&self) -> OnFlush {
        let samples = self.clone();
        OnFlush(Arc::new(move |rows, took| {
            samples.record(Series::WriterBatch, rows as f64);
            samples.record(Series::WriterFlush, took.as_secs_f64());
        }))
    }

    /// Stores all samples in one statement. Samples of the current slot are stored again with later ones; samples of finished slots
    /// are dropped from memory.
    ///
    /// # Errors
    /// Database errors; no sample is dropped then.
    #[crate::boxed]
    pub async fn store(&self, store: &Store) -> Result<(), StoreError> {
        // Read the current slot before the rows: nothing is added to an earlier slot afterwards.
        let under_way = slot_start(self.0.clock.now_us(), SLOT_US);
        let rows = self.rows();
        if rows.is_empty() {
            return Ok(());
        }
        let write = store.write("history_put", move |tx| async move { put_history(tx, &rows).await }.boxed());
        write.await?;
        self.0.slots.lock().retain(|from, _| *from >= under_way);
        Ok(())
    }

    fn rows(&self) -> Vec<HistoryRow> {
        let slots = self.0.slots.lock();
        let of_slot = |(from, sketches): (&i64, &BTreeMap<Series, Sketch>)| {
            let (from_us, node) = (*from, self.0.node);
            let row = move |(series, sketch): (&Series, &Sketch)| HistoryRow {
                key: HistoryKey { from_us, series: series.name().to_owned(), node },
                sketch: sketch.to_string(),
            };
            sketches.iter().map(row).collect::<Vec<_>>()
        };
        slots.iter().flat_map(of_slot).collect()
    }
}

/// Counters of call pools, and the values recorded last.
pub struct CloudCalls {
    pools: Pools,
    counted: BTreeMap<Provider, [u64; 2]>,
}

impl CloudCalls {
    /// Creates a counter for calls from now on.
    #[must_use]
    pub fn new(pools: Pools) -> Self {
        Self { pools, counted: BTreeMap::new() }
    }

    /// Records the calls since the previous call of this method.
    pub fn count(&mut self, samples: &Samples) {
        let mut now: BTreeMap<Provider, [u64; 2]> = BTreeMap::new();
        for pool in self.pools.gauges() {
            if let Some(provider) = Provider::from_source_name(&pool.name) {
                let [calls, failed] = now.entry(provider).or_default();
                *calls += pool.calls;
                *failed += pool.failed;
            }
        }
        for (provider, [calls, failed]) in &now {
            let [before, failed_before] = self.counted.get(provider).copied().unwrap_or_default();
            let (new, new_failed) = (calls.saturating_sub(before), failed.saturating_sub(failed_before));
            samples.calls(CallTarget::Cloud(*provider), new, new_failed);
        }
        self.counted = now;
    }
}

#[cfg(test)]
mod tests {
    use outbound::Deadline;

    use super::*;
    use clouds::{ApiError, Machine, PoolSettings};

    const NOW: i64 = 1_795_219_200_000_000;

    #[test]
    fn unstored_samples_are_bounded_and_the_newest_are_kept() {
        let clock = Clock::manual(NOW);
        let samples = Samples::new(clock.clone());
        for _ in 0..3 * SLOTS_MAX {
            Series::all().for_each(|series| samples.record(series, 1.0));
            clock.advance(Duration::from_secs(300));
        }
        let rows = samples.rows();
        assert_eq!(rows.len(), SLOTS_MAX * Series::all().count());
        assert_eq!(rows[0].key.from_us, NOW + 2 * SLOTS_MAX as i64 * SLOT_US, "the newest stay");
    }

    #[test]
    fn calls_are_recorded_as_zeros_and_errors_as_ones() {
        let samples = Samples::new(Clock::manual(NOW));
        samples.calls(CallTarget::Endpoints, 0, 0);
        assert!(samples.rows().is_empty());
        samples.calls(CallTarget::Endpoints, 200, 3);
        samples.calls(CallTarget::Endpoints, 1, 9);
        let rows = samples.rows();
        let sketch: Sketch = rows[0].sketch.parse().unwrap();
        assert_eq!((rows.len(), sketch.count()), (1, 201));
        assert!((sketch.mean().unwrap() - 4.0 / 201.0).abs() < 1e-12);
    }
    #[tokio::test]
    async fn pool_calls_are_counted_once() {
        let machine = Machine { descriptors: 1_024, database: None };
        let pools = Pools::new(PoolSettings::default(), machine).unwrap();
        let samples = Samples::new(Clock::manual(NOW));
        let mut calls = CloudCalls::new(pools.clone());
        let count = |calls: &mut CloudCalls| {
            calls.count(&samples);
            let rows = samples.rows();
            let sketch = |row: &HistoryRow| row.sketch.parse::<Sketch>().unwrap();
            let of = |row: &HistoryRow| (row.key.series.clone(), sketch(row).count(), sketch(row).mean());
            rows.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(count(&mut calls), []);
        let call = async |project: &str, status: u16| {
            let answer = || async move {
                if status == 200 { Ok(()) } else { Err(ApiError::of_status(status, "", "", None)) }
            };
            let pool = pools.of(Provider::Gcp, project);
            let _ = pool.call("compute:Read", Deadline::within(Duration::from_secs(60)), answer).await;
        };
        // Two pools of one provider belong to the same series.
        for (project, status) in [("a", 200), ("b", 200), ("a", 403), ("b", 200)] {
            call(project, status).await;
        }
        let gcp = |calls, part| ("provider.errors/gcp".to_owned(), calls, Some(part));
        assert_eq!(count(&mut calls), [gcp(4, 0.25)]);
        assert_eq!(count(&mut calls), [gcp(4, 0.25)], "nothing new was called");
        call("a", 403).await;
        assert_eq!(count(&mut calls), [gcp(5, 0.4)]);
    }
}
