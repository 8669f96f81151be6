//! Removal of old observations. A pass keeps the last observation of an endpoint, its last observation with a certificate, and all
//! observations of a scan that is compared or continued. For removed observations, the pass stores the times at which each endpoint
//! presented each certificate.
//!
//! A [`Pruning`] visits one scan after the other, in steps of at most [`PRUNE_ROWS_MAX`] rows. Each step is one transaction. A scan
//! without remaining observations is removed too, unless it is the newest scan of its targets. A scan that remains is visited again
//! after a week, because newer observations may have superseded its own.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use jiff::Timestamp;
use uuid::Uuid;

use crate::inventory::endpoints::key_values;
use crate::inventory::handle::{Inventory, Scans};
use crate::inventory::model::EndpointKey;
use crate::inventory::scans::scope_of;
use crate::inventory::statements::ENDPOINT_ID;
use crate::series::DAY_US;
use crate::store::Store;
use db::{BulkStatement, Column, Cost, ModuleStatements, Row, StoreError, Tx, Value};

/// Maximum observations that one transaction removes.
pub const PRUNE_ROWS_MAX: i64 = 1_000;

/// Interval in µs after which pruning checks a scan again that still has observations.
const REVISIT_US: i64 = 7 * DAY_US;

/// Time after its start at which a scan that never finished counts as ended, µs.
const UNFINISHED_US: i64 = 30 * DAY_US;

/// `prune_at` that earlier versions set for scans without remaining observations. Those versions did not remove scans.
const EMPTY: i64 = i64::MAX;

/// Maximum rows of a listing of removed observations. A row is one certificate of the endpoint.
const CERTIFICATES_MAX: i64 = 1_000;

/// SQL condition that a scan `s` may be pruned. It ended before ?1. Its id is neither ?2 nor ?3 (the scans of the default
/// comparison). No watch resumes it, or compares its next scan with it.
macro_rules! prunable {
    () => {
        "s.id < ?1 AND COALESCE(s.finished_at, s.started_at + ?4) < ?1 AND s.id <> ?2 AND s.id <> ?3
  AND NOT EXISTS (SELECT 1 FROM watches w WHERE w.run_scan = s.uuid)
  AND NOT EXISTS (SELECT 1 FROM watches w WHERE w.last_scan = s.uuid)"
    };
}

const SCAN_TO_PRUNE: &str = concat!(
    "-- scan_to_prune\nSELECT s.id, s.prune_at FROM scans s WHERE s.prune_at = 0 AND s.id > ?5 AND ",
    prunable!(),
    " ORDER BY s.id LIMIT 1"
);

const SCAN_TO_REVISIT: &str = concat!(
    "-- scan_to_revisit\nSELECT s.id, s.prune_at FROM scans s
WHERE s.prune_at > 0 AND s.prune_at <= ?6 AND (s.prune_at, s.id) > (?7, ?5) AND ",
    prunable!(),
    " ORDER BY s.prune_at, s.id LIMIT 1"
);

/// SQL expression: 1 if an observation `o` is superseded. There must be a newer observation of the same endpoint, and also a
/// newer one with a certificate if `o` has a certificate. This is a scalar subquery, because PostgreSQL would join an EXISTS with
/// all endpoints.
macro_rules! superseded {
    () => {
        "(SELECT CASE WHEN e.last_scan_id <> o.scan_id AND (NOT o.answered OR e.last_answered_at IS NULL
                              OR e.last_answered_at <> o.observed_at) THEN 1 ELSE 0 END
   FROM endpoints e WHERE e.id = o.endpoint_id)"
    };
}

/// Describes the next ?3 observations of a scan after endpoint ?2: the last endpoint, the number of observations, and the number
/// of observations to remove.
const PRUNE_WINDOW: &str = concat!(
    "-- prune_window\nSELECT max(o.endpoint_id), count(*), CAST(COALESCE(sum(",
    superseded!(),
    "), 0) AS BIGINT)
FROM (SELECT endpoint_id, scan_id, answered, observed_at FROM observations
      WHERE scan_id = ?1 AND endpoint_id > ?2 ORDER BY endpoint_id LIMIT ?3) o"
);

/// Removes the superseded observations of a scan for the endpoints after ?2, up to and including ?3.
const PRUNE: &str = concat!(
    "-- prune\nDELETE FROM observations AS o WHERE o.scan_id = ?1 AND o.endpoint_id > ?2 AND o.endpoint_id <= ?3 AND ",
    superseded!(),
    " = 1\nRETURNING endpoint_id, leaf_id, observed_at, change_kind"
);

const PRUNED_ADD: BulkStatement = db::bulk! {
    (endpoint_id bigint, certificate_id bigint, seen_at bigint, pruned_at bigint)
    "-- pruned_add
INSERT INTO pruned_observations (endpoint_id, certificate_id, first_seen_at, last_seen_at, observations, pruned_at)
VALUES (:endpoint_id, :certificate_id, :seen_at, :seen_at, 1, :pruned_at)
ON CONFLICT (endpoint_id, certificate_id) DO UPDATE SET
  first_seen_at = CASE WHEN excluded.first_seen_at < pruned_observations.first_seen_at
                       THEN excluded.first_seen_at ELSE pruned_observations.first_seen_at END,
  last_seen_at = CASE WHEN excluded.last_seen_at > pruned_observations.last_seen_at
                      THEN excluded.last_seen_at ELSE pruned_observations.last_seen_at END,
  observations = pruned_observations.observations + 1, pruned_at = excluded.pruned_at"
};

/// Adds ?1 to the number of stored observations, and ?2 to the number of removed ones. ?3: time of the last removed change; ?4:
/// time of the removal. Rows are written in the order of their names, as in the writer of observations, to avoid deadlocks.
const PRUNED_TOTALS: &str = "-- pruned_totals
INSERT INTO totals (name, value) VALUES ('observations', ?1), ('pruned.at', ?4), ('pruned.changes_until', ?3),
                                        ('pruned.observations', ?2)
ON CONFLICT (name) DO UPDATE SET value =
  CASE WHEN totals.name IN ('observations', 'pruned.observations') THEN totals.value + excluded.value
       WHEN excluded.value > totals.value THEN excluded.value
       ELSE totals.value END";

const SCAN_PRUNED: &str = "-- scan_pruned
UPDATE scans SET pruned_at = ?2 WHERE id = ?1 AND pruned_at IS NULL";

/// SQL condition that a scan `s` may be removed: it may be pruned, and there is a newer scan of the scope ?6.
macro_rules! removable {
    () => {
        concat!(
            "s.id = ?5 AND EXISTS (SELECT 1 FROM scans n WHERE n.scope = ?6 AND n.id > s.id) AND ",
            prunable!()
        )
    };
}

const SCAN_TO_REMOVE: &str = concat!("-- scan_to_remove\nSELECT s.id FROM scans s WHERE ", removable!());

const SCAN_REMOVE: &str = concat!(
    "-- scan_remove\nDELETE FROM scans AS s WHERE NOT EXISTS (SELECT 1 FROM observations o WHERE o.scan_id = s.id) AND ",
    removable!()
);

const SCAN_BY_ROW: &str = "-- scan_by_row
SELECT uuid, spec FROM scans WHERE id = ?1";

/// Counts a removed scan, and stores the latest time of a removed scan. ?1: time in the scan's id.
const REMOVED_TOTALS: &str = "-- removed_totals
INSERT INTO totals (name, value) VALUES ('pruned.scans', 1), ('pruned.scans_until', ?1)
ON CONFLICT (name) DO UPDATE SET value =
  CASE WHEN totals.name = 'pruned.scans' THEN totals.value + excluded.value
       WHEN excluded.value > totals.value THEN excluded.value
       ELSE totals.value END";

const SCANS_REMOVED_UNTIL: &str = "-- scans_removed_until
SELECT value FROM totals WHERE name = 'pruned.scans_until'";

const SCAN_VISITED: &str = "-- scan_visited
UPDATE scans SET prune_at = ?2 WHERE id = ?1";

const PRUNED_OF_ENDPOINT: &str = "-- pruned_of_endpoint
SELECT c.sha256, p.first_seen_at, p.last_seen_at, p.observations, p.pruned_at
FROM pruned_observations p LEFT JOIN certificates c ON c.id = p.certificate_id
WHERE p.endpoint_id = ?1 ORDER BY p.last_seen_at DESC, p.certificate_id LIMIT ?2";

const PRUNED_SO_FAR: &str = "-- pruned_so_far
SELECT name, value FROM totals WHERE name IN ('observations', 'pruned.at', 'pruned.changes_until', 'pruned.observations')";

const SCAN_PRUNED_AT: &str = "-- scan_pruned_at
SELECT started_at, pruned_at FROM scans WHERE uuid = ?1";

pub(crate) const SENDS: ModuleStatements = ModuleStatements::of(
    &[
        SCAN_TO_PRUNE,
        SCAN_TO_REVISIT,
        PRUNE_WINDOW,
        PRUNE,
        PRUNED_TOTALS,
        SCAN_PRUNED,
        SCAN_TO_REMOVE,
        SCAN_REMOVE,
        SCAN_BY_ROW,
        REMOVED_TOTALS,
        SCANS_REMOVED_UNTIL,
        SCAN_VISITED,
        PRUNED_OF_ENDPOINT,
        PRUNED_SO_FAR,
        SCAN_PRUNED_AT,
    ],
    &[&PRUNED_ADD],
);

/// Whether a [`Pruning`] removes observations or only counts them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PruneMode {
    /// Remove observations.
    Remove,
    /// Count the observations that would be removed. Changes nothing.
    Count,
}

/// Totals of a [`Pruning`] so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pruned {
    /// Number of removed observations.
    pub observations: u64,
    /// Number of scans with removed observations.
    pub scans: u64,
    /// Number of scans removed because they have no observations left.
    pub scans_removed: u64,
    /// Number of observations that remain in the visited scans.
    pub kept: u64,
    /// Duration of the longest transaction of the pass.
    pub longest: Duration,
}

/// A pruning pass over the scans that ended before a given time.
pub struct Pruning {
    store: Store,
    mode: PruneMode,
    before_us: i64,
    now_us: i64,
    /// Row ids of the scans that are compared by default; 0 for none.
    baseline: [i64; 2],
    part: Part,
    /// `prune_at` and row id of the last visited scan.
    last_visited: (i64, i64),
    visit: Option<Visit>,
    done: Pruned,
}

/// Part of a [`Pruning`] pass: a group of scans to visit. The parts run one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    /// Scans that were never visited.
    New,
    /// Scans to visit again.
    Due,
    /// Scans without observations that an earlier version has left.
    Empty,
}

/// Progress within one scan.
#[derive(Clone, Copy)]
struct Visit {
    scan: i64,
    /// The last endpoint that was read.
    after: i64,
    removed: u64,
    kept: u64,
}

impl Scans<'_> {
    /// Begins a pass that removes superseded observations of scans that ended before `before_us`. Removes nothing yet.
    ///
    /// # Errors
    /// Database errors.
    pub async fn pruning(self, before_us: i64, now_us: i64, mode: PruneMode) -> Result<Pruning, StoreError> {
        let baseline = match self.last_comparable_scans().await? {
            Some((a, b)) => [self.row_id(a).await?, self.row_id(b).await?],
            None => [0, 0],
        };
        Ok(Pruning {
            store: self.0.clone(),
            mode,
            before_us,
            now_us,
            baseline,
            part: Part::New,
            last_visited: (0, 0),
            visit: None,
            done: Pruned::default(),
        })
    }

    /// Returns an error if observations of the scan were removed.
    ///
    /// # Errors
    /// [`StoreError::Pruned`]; database errors.
    pub(crate) async fn check_complete(self, scan: Uuid) -> Result<(), StoreError> {
        let Some(mut row) = self.0.row(SCAN_PRUNED_AT, vec![scan.into()]).await? else { return Ok(()) };
        let (started_us, pruned_us) = (row.int()?, row.maybe_int()?);
        match pruned_us {
            None => Ok(()),
            Some(pruned_us) => Err(StoreError::Pruned(format!(
                "the observations of scan {scan} of {} were pruned on {} (inventory.observations_days): compare newer scans",
                day(started_us),
                day(pruned_us)
            ))),
        }
    }

    /// Returns the error for a scan that is not stored: [`StoreError::Pruned`] if a scan with the same or a later time was removed,
    /// else [`StoreError::UnknownScan`].
    ///
    /// # Errors
    /// Database errors.
    pub(crate) async fn missing(self, scan: Uuid) -> Result<StoreError, StoreError> {
        let until_us = self.0.row(SCANS_REMOVED_UNTIL, Vec::new()).await?;
        let until_us = until_us.map(|mut row| row.int()).transpose()?;
        Ok(match (id_time_us(scan), until_us) {
            (Some(at_us), Some(until_us)) if at_us <= until_us => StoreError::Pruned(format!(
                "scan {scan} is not stored: scans of {} were removed with their observations (inventory.observations_days): compare newer scans",
                day(at_us)
            )),
            _ => StoreError::UnknownScan(scan),
        })
    }
}

impl Pruning {
    /// Runs one step: reads at most [`PRUNE_ROWS_MAX`] observations and removes the superseded ones among them in one transaction.
    /// Returns the duration of the step, or `None` at the end of the pass.
    ///
    /// # Errors
    /// Database errors. The step can be repeated.
    #[crate::boxed]
    pub async fn step(&mut self) -> Result<Option<Duration>, StoreError> {
        let Some(visit) = self.visit().await? else { return Ok(None) };
        let began = Instant::now();
        let window = vec![visit.scan.into(), visit.after.into(), PRUNE_ROWS_MAX.into()];
        // On PostgreSQL, always use the indexes: the planner would read whole tables that have grown since their last ANALYZE.
        let cost = if self.store.is_postgres() { Cost::Point } else { Cost::Walk };
        let mut rows = self.store.rows(cost, PRUNE_WINDOW, window).await?.into_iter();
        let mut row = rows.next().ok_or(StoreError::Closed)?;
        let (last, read, due) = (row.maybe_int()?, row.int()?, row.int()?);
        let removed = match last {
            Some(last) if due > 0 && self.mode == PruneMode::Remove => {
                let began = Instant::now();
                let removed = self.remove(visit, last).await?;
                self.done.longest = self.done.longest.max(began.elapsed());
                removed
            }
            _ => due.unsigned_abs(),
        };
        let visit = Visit {
            scan: visit.scan,
            after: last.unwrap_or(visit.after),
            removed: visit.removed + removed,
            kept: visit.kept + read.unsigned_abs().saturating_sub(removed),
        };
        self.done.observations += removed;
        self.visit = Some(visit);
        if read < PRUNE_ROWS_MAX {
            self.end_visit(visit).await?;
        }
        Ok(Some(began.elapsed()))
    }

    /// Returns the totals of this pass so far.
    #[must_use]
    pub fn done(&self) -> Pruned {
        self.done
    }

    /// Returns the scan in progress, or begins the next one.
    async fn visit(&mut self) -> Result<Option<Visit>, StoreError> {
        while self.visit.is_none() {
            if let Some(mut row) = self.next_scan().await? {
                let scan = row.int()?;
                self.last_visited = (row.int()?, scan);
                self.visit = Some(Visit { scan, after: 0, removed: 0, kept: 0 });
                break;
            }
            (self.part, self.last_visited) = match self.part {
                Part::New => (Part::Due, (0, 0)),
                Part::Due => (Part::Empty, (EMPTY - 1, 0)),
                Part::Empty => return Ok(None),
            };
        }
        Ok(self.visit)
    }

    /// Returns the next scan of the current part: its row id and `prune_at`.
    async fn next_scan(&self) -> Result<Option<Row>, StoreError> {
        let (prune_at, scan) = self.last_visited;
        let parameters = self.prunable(scan);
        let until_us = match self.part {
            Part::New => return self.store.row(SCAN_TO_PRUNE, parameters.to_vec()).await,
            Part::Due => self.now_us,
            Part::Empty => EMPTY,
        };
        let parameters = parameters.into_iter().chain([until_us.into(), prune_at.into()]);
        self.store.row(SCAN_TO_REVISIT, parameters.collect()).await
    }

    /// Returns the parameters of `prunable!`, followed by `scan`.
    fn prunable(&self, scan: i64) -> [Value; 5] {
        let [a, b] = self.baseline;
        [self.before_us.into(), a.into(), b.into(), UNFINISHED_US.into(), scan.into()]
    }

    async fn remove(&self, visit: Visit, last: i64) -> Result<u64, StoreError> {
        let now_us = self.now_us;
        let removed = self.store.write_indexed("prune", move |tx| {
            async move {
                let range = vec![visit.scan.into(), visit.after.into(), last.into()];
                let rows = tx.rows(PRUNE, range).await?;
                let removed = rows.into_iter().map(removed_row).collect::<Result<Vec<_>, _>>()?;
                keep_sightings(tx, visit.scan, removed, now_us).await
            }
            .boxed()
        });
        removed.await
    }

    /// Ends the visit of a scan. Removes it if no observation is left.
    async fn end_visit(&mut self, visit: Visit) -> Result<(), StoreError> {
        let removed = visit.kept == 0 && self.remove_scan(visit.scan).await?;
        if self.mode == PruneMode::Remove && !removed {
            let next = self.now_us.saturating_add(REVISIT_US);
            self.store.execute(SCAN_VISITED, vec![visit.scan.into(), next.into()]).await?;
        }
        self.visit = None;
        self.done.scans_removed += u64::from(removed);
        self.done.scans += u64::from(visit.removed > 0);
        self.done.kept += visit.kept;
        Ok(())
    }
}

impl Pruning {
    /// Removes the row of a scan, unless the scan is the newest one of its targets or still has observations. With
    /// [`PruneMode::Count`], only returns whether the row would be removed.
    async fn remove_scan(&self, scan: i64) -> Result<bool, StoreError> {
        let Some(mut row) = self.store.row(SCAN_BY_ROW, vec![scan.into()]).await? else { return Ok(false) };
        let (id, spec) = (row.uuid()?, row.text()?);
        let parameters: Vec<Value> =
            self.prunable(scan).into_iter().chain([scope_of(&spec).into()]).collect();
        if self.mode == PruneMode::Count {
            return Ok(self.store.row(SCAN_TO_REMOVE, parameters).await?.is_some());
        }
        let removed = self.store.write("scan_remove", move |tx| {
            async move {
                let removed = tx.execute(SCAN_REMOVE, parameters).await? == 1;
                if removed {
                    tx.execute(REMOVED_TOTALS, vec![id_time_us(id).unwrap_or(0).into()]).await?;
                }
                Ok(removed)
            }
            .boxed()
        });
        removed.await
    }
}

/// Returns the time in an id of version 7, µs.
fn id_time_us(id: Uuid) -> Option<i64> {
    let (seconds, nanoseconds) = id.get_timestamp()?.to_unix();
    let us = seconds.checked_mul(1_000_000)?.checked_add(u64::from(nanoseconds / 1_000))?;
    i64::try_from(us).ok()
}

/// The data of a removed observation that its summary needs.
struct Removed {
    endpoint: i64,
    certificate: i64,
    at_us: i64,
    changed: bool,
}

fn removed_row(mut row: Row) -> Result<Removed, StoreError> {
    Ok(Removed {
        endpoint: row.int()?,
        certificate: row.maybe_int()?.unwrap_or(0),
        at_us: row.int()?,
        changed: row.int()? != 0,
    })
}

/// Stores the times of removed observations. Returns the number of these observations.
async fn keep_sightings(
    tx: &mut Tx,
    scan: i64,
    mut rows: Vec<Removed>,
    now_us: i64,
) -> Result<u64, StoreError> {
    if rows.is_empty() {
        return Ok(0);
    }
    let until = rows.iter().filter(|row| row.changed).map(|row| row.at_us).fold(0, i64::max);
    // Concurrent passes lock rows in this order.
    rows.sort_unstable_by_key(|row| (row.endpoint, row.certificate));
    let column = |of: fn(&Removed) -> i64| Column::Int(rows.iter().map(of).collect());
    let columns = vec![
        column(|row| row.endpoint),
        column(|row| row.certificate),
        column(|row| row.at_us),
        Column::Int(vec![now_us; rows.len()]),
    ];
    let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    tx.bulk(&PRUNED_ADD, columns).await?;
    tx.execute(PRUNED_TOTALS, vec![(-count).into(), count.into(), until.into(), now_us.into()]).await?;
    tx.execute(SCAN_PRUNED, vec![scan.into(), now_us.into()]).await?;
    Ok(count.unsigned_abs())
}

/// Summary of the removed observations of one endpoint with one certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PrunedObservations {
    /// SHA-256 of the certificate; `None` for observations without one.
    pub leaf_sha256: Option<[u8; 32]>,
    /// Time of the first removed observation, µs.
    pub first_seen_us: i64,
    /// Time of the last removed observation, µs.
    pub last_seen_us: i64,
    /// Number of removed observations.
    pub observations: u64,
    /// Time of the last removal, µs.
    pub pruned_at_us: i64,
}

/// Numbers of stored and removed observations, with the time of the last removal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PrunedSoFar {
    /// Number of stored observations.
    pub stored: u64,
    /// Number of removed observations.
    pub removed: u64,
    /// Time of the last removed observation that was a change, µs.
    pub changes_until_us: Option<i64>,
    /// Time of the last removal, µs.
    pub at_us: Option<i64>,
}

impl Inventory<'_> {
    /// Returns the summaries of the removed observations of an endpoint, latest first, for at most a thousand certificates.
    ///
    /// # Errors
    /// Database errors.
    pub async fn pruned_observations(self, key: &EndpointKey) -> Result<Vec<PrunedObservations>, StoreError> {
        let Some(mut row) = self.0.row(ENDPOINT_ID, key_values(key)).await? else { return Ok(Vec::new()) };
        let parameters = vec![row.int()?.into(), CERTIFICATES_MAX.into()];
        let rows = self.0.rows(Cost::Walk, PRUNED_OF_ENDPOINT, parameters).await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(PrunedObservations {
                    leaf_sha256: row.maybe_hash()?,
                    first_seen_us: row.int()?,
                    last_seen_us: row.int()?,
                    observations: row.number()?,
                    pruned_at_us: row.int()?,
                })
            })
            .collect()
    }

    /// Returns the number of stored and of removed observations. Reads four rows.
    ///
    /// # Errors
    /// Database errors.
    pub async fn pruned_so_far(self) -> Result<PrunedSoFar, StoreError> {
        let mut all = PrunedSoFar::default();
        for mut row in self.0.rows(Cost::Point, PRUNED_SO_FAR, Vec::new()).await? {
            let (name, value) = (row.text()?, row.int()?);
            let count = u64::try_from(value).unwrap_or(0);
            match name.as_str() {
                "observations" => all.stored = count,
                "pruned.observations" => all.removed = count,
                "pruned.changes_until" => all.changes_until_us = Some(value).filter(|at| *at > 0),
                _ => all.at_us = Some(value),
            }
        }
        Ok(all)
    }

    /// Returns an error if a change at or after `since_us` was removed.
    ///
    /// # Errors
    /// [`StoreError::Pruned`]; database errors.
    pub(crate) async fn check_changes_complete(self, since_us: i64) -> Result<(), StoreError> {
        let all = self.pruned_so_far().await?;
        match (all.changes_until_us, all.at_us) {
            (Some(until_us), Some(at_us)) if since_us <= until_us => Err(StoreError::Pruned(format!(
                "changes until {} were pruned on {} (inventory.observations_days): list changes since {} or later",
                second(until_us),
                day(at_us),
                second(until_us.saturating_add(1_000_000))
            ))),
            _ => Ok(()),
        }
    }
}

fn day(at_us: i64) -> String {
    second(at_us).chars().take(10).collect()
}

/// Formats a time as RFC 3339, without a fraction.
fn second(at_us: i64) -> String {
    Timestamp::from_second(at_us.div_euclid(1_000_000)).map(|at| at.to_string()).unwrap_or_default()
}
