//! Measurements of the last days as sketches, and the reported drifts.
//!
//! A row contains the measurements of one series by one node in one time slot. Old rows are folded: the rows of all nodes within an
//! hour become one row with the node [`FOLDED`]. The format of the sketch is defined by the caller.

use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Row, StoreError, Tx, limit_of};

store::handle! {
    /// Table of measurements of the last days, as sketches, and of reported drifts.
    History
}

/// Node id of folded rows, which contain the measurements of all nodes.
pub const FOLDED: Uuid = Uuid::nil();

/// Key of a row. Pages are in key order; the default key is before every row.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct HistoryKey {
    /// Start of the time slot, µs since 1970-01-01 UTC.
    pub from_us: i64,
    /// Name of the measured series.
    pub series: String,
    /// ID of the node that measured; [`FOLDED`] for folded rows.
    pub node: Uuid,
}

/// Measurements of a series in one time slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HistoryRow {
    /// Key of the row.
    pub key: HistoryKey,
    /// Sketch of the measurements, in its text form.
    pub sketch: String,
}

/// A reported drift that has not ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DriftRow {
    /// Name of the series that drifts.
    pub series: String,
    /// Start of the drift, µs since 1970-01-01 UTC.
    pub began_at_us: i64,
}

const PUT: BulkStatement = db::bulk! { (from_at bigint, series text, node uuid, sketch text)
    "-- history_put
INSERT INTO history_sketches (from_at, series, node, sketch) VALUES (:from_at, :series, :node, :sketch)
ON CONFLICT (from_at, series, node) DO UPDATE SET sketch = excluded.sketch"
};
const DELETE: BulkStatement = db::bulk! { (from_at bigint, series text, node uuid)
    "-- history_delete
DELETE FROM history_sketches WHERE from_at = :from_at AND series = :series AND node = :node"
};
const PAGE: &str = "-- history_page
SELECT from_at, series, node, sketch FROM history_sketches
WHERE (from_at, series, node) > (?1, ?2, ?3) AND from_at < ?4 ORDER BY from_at, series, node LIMIT ?5";
const UNFOLDED: &str = "-- history_unfolded
SELECT from_at, series, node, sketch FROM history_sketches WHERE from_at < ?1 AND node <> ?2
ORDER BY from_at, series, node LIMIT ?3";
const FOLDED_ROWS: &str = "-- history_folded
SELECT from_at, series, node, sketch FROM history_sketches WHERE from_at >= ?1 AND from_at < ?2 AND node = ?3
ORDER BY from_at, series, node LIMIT ?4";
const TRIM: &str = "-- history_trim
DELETE FROM history_sketches WHERE from_at < ?1";
const DRIFTS: &str = "-- drifts
SELECT series, began_at FROM history_drifts ORDER BY series LIMIT ?1";
const DRIFT_BEGIN: &str = "-- drift_begin
INSERT INTO history_drifts (series, began_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
const DRIFT_END: &str = "-- drift_end
DELETE FROM history_drifts WHERE series = ?1";

pub(crate) const ALL: &[&str] = &[PAGE, UNFOLDED, FOLDED_ROWS, TRIM, DRIFTS, DRIFT_BEGIN, DRIFT_END];
pub(crate) const BULKS: &[&BulkStatement] = &[&PUT, &DELETE];

/// Stores rows and replaces those with the same keys, in one statement. Keys must be distinct.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_history(tx: &mut Tx, rows: &[HistoryRow]) -> Result<(), StoreError> {
    let mut columns = key_columns(rows.iter().map(|row| &row.key));
    columns.push(Column::Text(rows.iter().map(|row| row.sketch.clone()).collect()));
    tx.bulk(&PUT, columns).await.map(drop)
}

/// Deletes rows by key, in one statement.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_history(tx: &mut Tx, keys: &[HistoryKey]) -> Result<(), StoreError> {
    tx.bulk(&DELETE, key_columns(keys.iter())).await.map(drop)
}

fn key_columns<'k>(keys: impl Iterator<Item = &'k HistoryKey> + Clone) -> Vec<Column> {
    vec![
        Column::Int(keys.clone().map(|key| key.from_us).collect()),
        Column::Text(keys.clone().map(|key| key.series.clone()).collect()),
        Column::Uuid(keys.map(|key| key.node).collect()),
    ]
}

/// Returns the first `limit` rows that are not folded yet, and whose slot begins before `before_us`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn unfolded_history(
    tx: &mut Tx,
    before_us: i64,
    limit: usize,
) -> Result<Vec<HistoryRow>, StoreError> {
    let parameters = vec![before_us.into(), FOLDED.into(), (limit_of(limit).0 as i64).into()];
    tx.rows(UNFOLDED, parameters).await?.into_iter().map(row_of).collect()
}

/// Returns the folded rows whose slot begins at or after `from_us` and before `before_us`, at most `limit`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn folded_history(
    tx: &mut Tx,
    from_us: i64,
    before_us: i64,
    limit: usize,
) -> Result<Vec<HistoryRow>, StoreError> {
    let parameters = vec![from_us.into(), before_us.into(), FOLDED.into(), (limit_of(limit).0 as i64).into()];
    tx.rows(FOLDED_ROWS, parameters).await?.into_iter().map(row_of).collect()
}

/// Records the beginning of a drift; false when it is already recorded and has not ended.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn begin_drift(tx: &mut Tx, series: &str, at_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(DRIFT_BEGIN, vec![series.into(), at_us.into()]).await? == 1)
}

/// Ends a drift; false if there was none.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn end_drift(tx: &mut Tx, series: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(DRIFT_END, vec![series.into()]).await? == 1)
}

impl History<'_> {
    /// Returns rows after `after` whose slot begins before `before_us`, in key order. At most `limit`; fewer mean the last page.
    ///
    /// # Errors
    /// Database errors.
    pub async fn page(
        self,
        after: &HistoryKey,
        before_us: i64,
        limit: usize,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        let parameters = vec![
            after.from_us.into(),
            after.series.as_str().into(),
            after.node.into(),
            before_us.into(),
            (limit_of(limit).0 as i64).into(),
        ];
        self.0.rows(Cost::Walk, PAGE, parameters).await?.into_iter().map(row_of).collect()
    }

    /// Deletes rows whose slot begins before `before_us`; returns their number.
    ///
    /// # Errors
    /// Database errors.
    pub async fn trim(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(TRIM, vec![before_us.into()]).await
    }

    /// Returns the reported drifts that have not ended, in the order of the series names; at most `limit`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn drifts(self, limit: usize) -> Result<Vec<DriftRow>, StoreError> {
        let rows = self.0.rows(Cost::Point, DRIFTS, vec![(limit_of(limit).0 as i64).into()]).await?;
        let drift = |mut row: Row| Ok(DriftRow { series: row.text()?, began_at_us: row.int()? });
        rows.into_iter().map(drift).collect()
    }
}

fn row_of(mut row: Row) -> Result<HistoryRow, StoreError> {
    let key = HistoryKey { from_us: row.int()?, series: row.text()?, node: row.uuid()? };
    Ok(HistoryRow { key, sketch: row.text()? })
}
