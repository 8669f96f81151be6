//! What was measured over the last days, in sketches, and the drifts that people were told of.
//!
//! A row is what one node measured of a series in one stretch of time. Rows of stretches long over are folded: those of
//! all nodes and of an hour become one, of [`FOLDED`]. What a sketch says is the reader's.

use uuid::Uuid;

use db::{Bulk, Column, Cost, Row, StoreError, Tx, limit_of};

store::handle! {
    /// Measured series of the last days, in sketches, and the drifts that were reported.
    History
}

/// The node of rows that are of all nodes.
pub const FOLDED: Uuid = Uuid::nil();

/// Which row. The order is that of pages; the default is before every row.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct HistoryKey {
    /// When the stretch begins, µs.
    pub from_us: i64,
    /// The measured series.
    pub series: String,
    /// The node that measured it.
    pub node: Uuid,
}

/// What was measured of a series in a stretch of time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HistoryRow {
    /// Which row.
    pub key: HistoryKey,
    /// The text of a sketch.
    pub sketch: String,
}

/// A drift that people were told of, and that is not over.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DriftRow {
    /// The series.
    pub series: String,
    /// Since when, µs.
    pub began_at_us: i64,
}

const PUT: Bulk = db::bulk! { (from_at bigint, series text, node uuid, sketch text)
    "-- history_put
INSERT INTO history_sketches (from_at, series, node, sketch) VALUES (:from_at, :series, :node, :sketch)
ON CONFLICT (from_at, series, node) DO UPDATE SET sketch = excluded.sketch"
};
const DELETE: Bulk = db::bulk! { (from_at bigint, series text, node uuid)
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
pub(crate) const BULKS: &[&Bulk] = &[&PUT, &DELETE];

/// Stores rows in place of those with the same keys: one statement. No key may be given twice.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn put_history(tx: &mut Tx, rows: &[HistoryRow]) -> Result<(), StoreError> {
    let mut columns = key_columns(rows.iter().map(|row| &row.key));
    columns.push(Column::Text(rows.iter().map(|row| row.sketch.clone()).collect()));
    tx.bulk(&PUT, columns).await.map(drop)
}

/// Removes rows by key: one statement.
///
/// # Errors
/// Those of the database.
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

/// The first rows of single nodes whose stretch begins before `before_us`, at most `limit`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn unfolded_history(
    tx: &mut Tx,
    before_us: i64,
    limit: usize,
) -> Result<Vec<HistoryRow>, StoreError> {
    let parameters = vec![before_us.into(), FOLDED.into(), (limit_of(limit).0 as i64).into()];
    tx.rows(UNFOLDED, parameters).await?.into_iter().map(row_of).collect()
}

/// The rows of [`FOLDED`] whose stretch begins at or after `from_us` and before `before_us`, at most `limit`.
///
/// # Errors
/// Those of the database.
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

/// Notes that people are told of a drift; false when they were told before and it is not over.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn begin_drift(tx: &mut Tx, series: &str, at_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(DRIFT_BEGIN, vec![series.into(), at_us.into()]).await? == 1)
}

/// Ends a drift; false if there was none.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn end_drift(tx: &mut Tx, series: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(DRIFT_END, vec![series.into()]).await? == 1)
}

impl History<'_> {
    /// Rows behind `after` whose stretch begins before `before_us`, in the order of their keys. At most `limit`; fewer
    /// are the last.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Removes rows whose stretch begins before `before_us`; says how many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn trim(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(TRIM, vec![before_us.into()]).await
    }

    /// The drifts that people were told of and that are not over, by series; at most `limit`.
    ///
    /// # Errors
    /// Those of the database.
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
