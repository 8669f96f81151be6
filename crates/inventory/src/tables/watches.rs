//! Watches: repeated scans of the server, their due times, and the node that runs each.
//!
//! A run belongs to its holder until the lease ends; [`WatchRow::claims`] is the fencing token. A run without a holder stays due,
//! and the node that claims it continues the scan that it was recording.

use futures_util::FutureExt;
use uuid::Uuid;

use crate::tables::watch_parts::delete_parts;
use db::{
    BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page, storable,
};

store::handle! {
    /// Table of watches: repeated scans.
    Watches
}

/// Maximum watches: every claim may read all of these rows. An organization usually has a few dozen.
pub const WATCHES_MAX: i64 = 10_000;

/// Settings of a watch that users can change: name, targets, schedule and state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchSettings {
    /// Unique name.
    pub name: String,
    /// Group for listings; may be empty.
    pub group: String,
    /// Targets and options, JSON.
    pub spec: String,
    /// Interval between two planned times, µs.
    pub interval_us: i64,
    /// Maximum delay of a run after its planned time, µs.
    pub jitter_us: i64,
    /// Whether the watch is enabled. False: the watch is paused.
    pub enabled: bool,
}

/// Times of a watch's next run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WatchTimes {
    /// Planned time, µs since 1970-01-01 UTC. Planned times differ by whole intervals.
    pub planned_at_us: i64,
    /// Time at which the run is due, µs since 1970-01-01 UTC: the planned time plus jitter.
    pub next_run_at_us: i64,
}

coded::named! {
    /// The outcome of a run: all targets were scanned, or the run failed.
    pub enum WatchOutcome: "outcome of a watch" {
        /// The run scanned all targets.
        Finished => "finished",
        /// The run failed.
        Failed => "failed",
    }
}

/// Result of a watch run that finished or failed, and the times of the next run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchEnd {
    /// The scan that the run recorded; `None` when it never began.
    pub scan: Option<Uuid>,
    /// End time, µs since 1970-01-01 UTC.
    pub ended_at_us: i64,
    /// Whether the run scanned all its targets.
    pub outcome: WatchOutcome,
    /// The error, if the run failed.
    pub error: Option<String>,
    /// Counters of the run as JSON; `None` when nothing was counted.
    pub counts: Option<String>,
    /// Times of the next run.
    pub times: WatchTimes,
}

/// The last run of a watch that ended: its scan, times and result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchLast {
    /// The scan that the run recorded.
    pub scan: Option<Uuid>,
    /// Start time, µs since 1970-01-01 UTC.
    pub began_at_us: i64,
    /// End time, µs since 1970-01-01 UTC.
    pub ended_at_us: i64,
    /// Whether the run scanned all its targets.
    pub outcome: WatchOutcome,
    /// The error, if the run failed.
    pub error: Option<String>,
    /// Counters of the run as JSON; `None` when nothing was counted.
    pub counts: Option<String>,
}

/// The run of a watch that is in progress: its scan and its lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchRun {
    /// Start time, µs since 1970-01-01 UTC.
    pub began_at_us: i64,
    /// The scan that the run records, once it has begun.
    pub scan: Option<Uuid>,
    /// The node that executes the run; `None` if it was released.
    pub holder: Option<Uuid>,
    /// End of the node's lease, µs since 1970-01-01 UTC.
    pub until_us: Option<i64>,
}

/// A watch as stored: its settings, next times, current run and last run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchRow {
    /// Unique identifier.
    pub id: Uuid,
    /// Settings of the watch.
    pub settings: WatchSettings,
    /// Number of the settings' version: starts at 1, and changes with every update of the settings.
    pub revision: i64,
    /// Times of the next runs.
    pub times: WatchTimes,
    /// Number of claims so far: the holder's fencing token.
    pub claims: i64,
    /// The run in progress; `None` between runs.
    pub run: Option<WatchRun>,
    /// The last run that ended; `None` before the end of the first run.
    pub last: Option<WatchLast>,
    /// Creation time, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Time of the last change of the settings, µs since 1970-01-01 UTC.
    pub updated_at_us: i64,
}

macro_rules! watch_columns {
    () => {
        "uuid, name, group_name, spec, interval_us, jitter_us, enabled, revision, planned_at, next_run_at, claims, \
         lease_holder, lease_until, run_scan, run_began_at, last_scan, last_began_at, last_ended_at, last_outcome, \
         last_error, last_counts, created_at, updated_at"
    };
}

const WATCH: &str = concat!("-- watch\nSELECT ", watch_columns!(), " FROM watches WHERE uuid = ?1");
const WATCH_NAMED: &str =
    concat!("-- watch_named\nSELECT ", watch_columns!(), " FROM watches WHERE name = ?1");
const WATCHES: &str =
    concat!("-- watches\nSELECT ", watch_columns!(), " FROM watches WHERE name > ?1 ORDER BY name LIMIT ?2");
const COUNT: &str = "-- watches_count
SELECT count(*) FROM watches";
const INSERT: &str = "-- watch_insert
INSERT INTO watches (uuid, name, group_name, spec, interval_us, jitter_us, enabled, revision, planned_at, next_run_at,
  claims, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?9, 0, ?10, ?10) ON CONFLICT DO NOTHING";
const UPDATE: &str = "-- watch_update
UPDATE watches SET name = ?2, group_name = ?3, spec = ?4, interval_us = ?5, jitter_us = ?6, enabled = ?7,
  planned_at = ?8, next_run_at = ?9, updated_at = ?10, revision = revision + 1
WHERE uuid = ?1 AND revision = ?11";
const DELETE: &str = "-- watch_delete
DELETE FROM watches WHERE uuid = ?1";
/// Makes a watch due. Has no effect during a run, whose end plans the next run.
const SET_DUE: &str = "-- watch_want
UPDATE watches SET next_run_at = ?2 WHERE uuid = ?1 AND enabled = 1 AND run_began_at IS NULL";

const CLAIM: BulkStatement = db::bulk! {
    concat!(
    "-- watches_claim
UPDATE watches SET lease_holder = ?2, lease_until = ?3, claims = claims + 1, run_began_at = coalesce(run_began_at, ?1)
WHERE id IN (SELECT id FROM watches WHERE enabled = 1 AND next_run_at <= ?1
             AND (lease_until IS NULL OR lease_until <= ?1) ORDER BY next_run_at, id LIMIT ?4{| FOR UPDATE SKIP LOCKED})
RETURNING ",
    watch_columns!()
)
};
const RENEW: BulkStatement = db::bulk! { (id uuid, claims bigint, holder uuid, until bigint)
    "-- watches_renew
UPDATE watches SET lease_until = :until WHERE uuid = :id AND claims = :claims AND lease_holder = :holder RETURNING uuid"
};
const RELEASE: &str = "-- watches_release
UPDATE watches SET lease_holder = NULL, lease_until = NULL WHERE lease_holder = ?1";
const SET_SCAN: &str = "-- watch_fill
UPDATE watches SET run_scan = ?4 WHERE uuid = ?1 AND lease_holder = ?2 AND claims = ?3";
const END: &str = "-- watch_end
UPDATE watches SET lease_holder = NULL, lease_until = NULL, last_began_at = run_began_at, run_scan = NULL,
  run_began_at = NULL, last_scan = ?4, last_ended_at = ?5, last_outcome = ?6, last_error = ?7, last_counts = ?8,
  planned_at = ?9, next_run_at = ?10
WHERE uuid = ?1 AND lease_holder = ?2 AND claims = ?3";

pub(crate) const ALL: &[&str] =
    &[WATCH, WATCH_NAMED, WATCHES, COUNT, INSERT, UPDATE, DELETE, SET_DUE, RELEASE, SET_SCAN, END];
pub(crate) const BULKS: &[&BulkStatement] = &[&CLAIM, &RENEW];

/// Result of creating a watch: created, name taken, or too many watches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchInsertion {
    /// The watch was created.
    Made,
    /// Another watch has the name.
    Taken,
    /// There are already [`WATCHES_MAX`] watches.
    Full,
}

/// Returns a watch by its id, in the caller's transaction; `None` if it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn watch(tx: &mut Tx, id: Uuid) -> Result<Option<WatchRow>, StoreError> {
    tx.row(WATCH, vec![id.into()]).await?.map(row_of).transpose()
}

/// Creates a watch.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_watch(
    tx: &mut Tx,
    id: Uuid,
    settings: &WatchSettings,
    times: WatchTimes,
    at_us: i64,
) -> Result<WatchInsertion, StoreError> {
    let count = tx.row(COUNT, Vec::new()).await?.map(|mut row| row.int()).transpose()?.unwrap_or(0);
    if count >= WATCHES_MAX {
        return Ok(WatchInsertion::Full);
    }
    let inserted = tx.execute(INSERT, settings_of(id, settings, times, at_us)).await?;
    Ok(if inserted == 1 { WatchInsertion::Made } else { WatchInsertion::Taken })
}

/// Changes a watch with this revision; false when its revision differs.
///
/// # Errors
/// [`StoreError::Conflict`] when another watch has the name; database errors.
#[crate::boxed]
pub async fn update_watch(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    settings: &WatchSettings,
    times: WatchTimes,
    at_us: i64,
) -> Result<bool, StoreError> {
    let mut parameters = settings_of(id, settings, times, at_us);
    parameters.push(revision.into());
    Ok(tx.execute(UPDATE, parameters).await? == 1)
}

fn settings_of(id: Uuid, settings: &WatchSettings, times: WatchTimes, at_us: i64) -> Vec<Value> {
    vec![
        id.into(),
        settings.name.as_str().into(),
        settings.group.as_str().into(),
        settings.spec.as_str().into(),
        settings.interval_us.into(),
        settings.jitter_us.into(),
        settings.enabled.into(),
        times.planned_at_us.into(),
        times.next_run_at_us.into(),
        at_us.into(),
    ]
}

/// Deletes a watch and the parts of its run; the results of its scans stay. False when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_watch(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    delete_parts(tx, id).await?;
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

/// Makes a watch due at `at_us`; false when it is paused or a run is in progress.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_watch_due(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(SET_DUE, vec![id.into(), at_us.into()]).await? == 1)
}

/// Records the scan to which a claimed run writes. Returns false when `holder` has lost the run.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_watch_scan(
    tx: &mut Tx,
    id: Uuid,
    holder: Uuid,
    claims: i64,
    scan: Uuid,
) -> Result<bool, StoreError> {
    Ok(tx.execute(SET_SCAN, vec![id.into(), holder.into(), claims.into(), scan.into()]).await? == 1)
}

/// Ends a claimed run, deletes its parts and plans the next run; false when `holder` has lost the run.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn end_watch(
    tx: &mut Tx,
    id: Uuid,
    holder: Uuid,
    claims: i64,
    end: &WatchEnd,
) -> Result<bool, StoreError> {
    let maybe =
        |text: &Option<String>| -> Value { text.as_deref().map(|text| storable(text).into_owned()).into() };
    let parameters = vec![
        id.into(),
        holder.into(),
        claims.into(),
        end.scan.map_or(Value::Null, Value::from),
        end.ended_at_us.into(),
        end.outcome.name().into(),
        maybe(&end.error),
        maybe(&end.counts),
        end.times.planned_at_us.into(),
        end.times.next_run_at_us.into(),
    ];
    let ended = tx.execute(END, parameters).await? == 1;
    if ended {
        delete_parts(tx, id).await?;
    }
    Ok(ended)
}

impl Watches<'_> {
    /// Returns a watch by its id; `None` if it does not exist.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<WatchRow>, StoreError> {
        self.0.row(WATCH, vec![id.into()]).await?.map(row_of).transpose()
    }

    /// Returns a watch by its name; `None` if there is none.
    ///
    /// # Errors
    /// Database errors.
    pub async fn named(self, name: &str) -> Result<Option<WatchRow>, StoreError> {
        self.0.row(WATCH_NAMED, vec![name.into()]).await?.map(row_of).transpose()
    }

    /// Returns a page of the watches, in the order of their names.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn page(self, after: Option<&Cursor>, limit: usize) -> Result<Page<WatchRow>, StoreError> {
        let mut parameters = key_or(after, "watches", &[Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, WATCHES, parameters).await?;
        page(rows, limit, "watches", |row| {
            let watch = row_of(row)?;
            let key = vec![watch.settings.name.as_str().into()];
            Ok((watch, key))
        })
    }

    /// Claims up to `limit` runs that are due at `now_us` for `holder`, until `until_us`, in the order of their due times, in one
    /// statement. Skips runs with a valid lease of another node.
    ///
    /// # Errors
    /// Database errors.
    pub async fn claim(
        self,
        holder: Uuid,
        now_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<WatchRow>, StoreError> {
        let statement = CLAIM.of(self.0);
        let parameters =
            vec![now_us.into(), holder.into(), until_us.into(), (limit_of(limit).0 as i64).into()];
        let claimed = self.0.write("watches_claim", move |tx| tx.rows(statement, parameters).boxed());
        claimed.await?.into_iter().map(row_of).collect()
    }

    /// Extends the leases of the given runs (id and fencing token) of `holder` to `until_us`. Returns the runs that `holder`
    /// still has. An expired lease can be extended if no other node has claimed the run.
    ///
    /// # Errors
    /// Database errors.
    pub async fn renew(
        self,
        holder: Uuid,
        runs: &[(Uuid, i64)],
        until_us: i64,
    ) -> Result<Vec<Uuid>, StoreError> {
        let columns = vec![
            Column::Uuid(runs.iter().map(|(id, _)| *id).collect()),
            Column::Int(runs.iter().map(|(_, claims)| *claims).collect()),
            Column::Uuid(vec![holder; runs.len()]),
            Column::Int(vec![until_us; runs.len()]),
        ];
        let renewed = self.0.write("watches_renew", move |tx| tx.bulk(&RENEW, columns).boxed());
        renewed.await?.into_iter().map(|mut row| row.uuid()).collect()
    }

    /// Releases all runs that `holder` has claimed, so that other nodes continue them immediately.
    ///
    /// # Errors
    /// Database errors.
    pub async fn release(self, holder: Uuid) -> Result<(), StoreError> {
        self.0.execute(RELEASE, vec![holder.into()]).await.map(drop)
    }
}

fn row_of(mut row: Row) -> Result<WatchRow, StoreError> {
    let id = row.uuid()?;
    let settings = WatchSettings {
        name: row.text()?,
        group: row.text()?,
        spec: row.text()?,
        interval_us: row.int()?,
        jitter_us: row.int()?,
        enabled: row.flag()?,
    };
    let revision = row.int()?;
    let times = WatchTimes { planned_at_us: row.int()?, next_run_at_us: row.int()? };
    let claims = row.int()?;
    let (holder, until_us) = (row.maybe_uuid()?, row.maybe_int()?);
    let (scan, began) = (row.maybe_uuid()?, row.maybe_int()?);
    let run = began.map(|began_at_us| WatchRun { began_at_us, scan, holder, until_us });
    Ok(WatchRow {
        id,
        settings,
        revision,
        times,
        claims,
        run,
        last: read_last_run(&mut row)?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

fn read_last_run(row: &mut Row) -> Result<Option<WatchLast>, StoreError> {
    let (scan, began, ended) = (row.maybe_uuid()?, row.maybe_int()?, row.maybe_int()?);
    let outcome = row.maybe_named("watches.last_outcome")?;
    let (error, counts) = (row.maybe_text()?, row.maybe_text()?);
    Ok(match (began, ended, outcome) {
        (Some(began_at_us), Some(ended_at_us), Some(outcome)) => {
            Some(WatchLast { scan, began_at_us, ended_at_us, outcome, error, counts })
        }
        _ => None,
    })
}
