//! Parts of a watch's run: nodes share a run over many endpoints, and a crashed node delays only its own parts.
//!
//! A part belongs to its holder until the lease ends; [`PartRow::claims`] is the fencing token. A part that has neither a result
//! nor a holder can be claimed.

use std::collections::HashMap;

use futures_util::FutureExt;
use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Row, StoreError, Tx, Value, limit_of, storable};

store::handle! {
    /// Table of parts of runs, so that several processes can scan concurrently.
    WatchParts
}

/// Maximum parts of one run: every claim may read all of these rows.
pub const PARTS_MAX: u64 = 64;

/// A claimed part of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PartRow {
    /// The scan that the run records.
    pub scan: Uuid,
    /// Number of the part, from 0.
    pub part: u64,
    /// Number of parts into which the run was split.
    pub parts: u64,
    /// ID of the watch whose run is split.
    pub watch: Uuid,
    /// Number of claims so far: the holder's fencing token.
    pub claims: i64,
}

/// Progress of a run: stored observations, and parts that are held or have ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RunProgress {
    /// Number of endpoints and cloud certificates whose observations are stored.
    pub observations: u64,
    /// Number of parts of the run; 0 when it is not split.
    pub parts: u64,
    /// Number of parts that have ended.
    pub parts_ended: u64,
    /// Number of parts that a node is scanning, with a valid lease.
    pub parts_leased: u64,
}

/// Inserts the parts of a scan, unless they exist: a run that another node continues has the same parts.
const INSERT: BulkStatement = db::bulk! { (scan uuid, part bigint, parts bigint, watch uuid)
    "-- watch_parts_insert
INSERT INTO watch_parts (scan, part, parts, watch, claims) VALUES (:scan, :part, :parts, :watch, 0)
  ON CONFLICT DO NOTHING"
};
const CLAIM: BulkStatement = db::bulk! {
    "-- watch_parts_claim
UPDATE watch_parts SET lease_holder = ?2, lease_until = ?3, claims = claims + 1
WHERE {rowid|(scan, part)} IN (SELECT {rowid|scan, part} FROM watch_parts
  WHERE result IS NULL AND scan = coalesce(?4{|::uuid}, scan) AND (lease_until IS NULL OR lease_until <= ?1)
  ORDER BY scan, part LIMIT ?5{| FOR UPDATE SKIP LOCKED})
RETURNING scan, part, parts, watch, claims"
};
const RENEW: BulkStatement = db::bulk! { (scan uuid, part bigint, claims bigint, holder uuid, until bigint)
    "-- watch_parts_renew
UPDATE watch_parts SET lease_until = :until
WHERE scan = :scan AND part = :part AND claims = :claims AND lease_holder = :holder AND result IS NULL RETURNING scan,
  part"
};
const END: &str = "-- watch_part_end
UPDATE watch_parts SET result = ?5, lease_holder = NULL, lease_until = NULL
WHERE scan = ?1 AND part = ?2 AND lease_holder = ?3 AND claims = ?4";
const RELEASE: &str = "-- watch_parts_release
UPDATE watch_parts SET lease_holder = NULL, lease_until = NULL WHERE lease_holder = ?1";
const RESULTS: &str = "-- watch_part_results
SELECT result FROM watch_parts WHERE scan = ?1 ORDER BY part";
const DELETE: &str = "-- watch_parts_delete
DELETE FROM watch_parts WHERE watch = ?1";

pub(crate) const ALL: &[&str] = &[END, RELEASE, RESULTS, DELETE];
const PROGRESS: BulkStatement = db::bulk! { (scan uuid, now bigint)
    "-- watch_progress
SELECT s.uuid, s.observations,
       (SELECT count(*) FROM watch_parts p WHERE p.scan = s.uuid),
       (SELECT count(*) FROM watch_parts p WHERE p.scan = s.uuid AND p.result IS NOT NULL),
       (SELECT count(*) FROM watch_parts p WHERE p.scan = s.uuid AND p.result IS NULL AND p.lease_until > :now)
FROM scans s WHERE s.uuid = :scan"
};
pub(crate) const BULKS: &[&BulkStatement] = &[&CLAIM, &INSERT, &RENEW, &PROGRESS];

/// Deletes all parts of a watch, when its run has ended or the watch is deleted.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_parts(tx: &mut Tx, watch: Uuid) -> Result<(), StoreError> {
    tx.execute(DELETE, vec![watch.into()]).await.map(drop)
}

impl WatchParts<'_> {
    /// Splits a run into `parts`, at most [`PARTS_MAX`]; does nothing when it is already split.
    ///
    /// # Errors
    /// Database errors.
    pub async fn split_run(self, watch: Uuid, scan: Uuid, parts: u64) -> Result<(), StoreError> {
        if !self.results(scan).await?.is_empty() {
            return Ok(());
        }
        let count = parts.clamp(1, PARTS_MAX) as usize;
        let columns = vec![
            Column::Uuid(vec![scan; count]),
            Column::Int((0..count as i64).collect()),
            Column::Int(vec![count as i64; count]),
            Column::Uuid(vec![watch; count]),
        ];
        self.0.write("watch_cut", move |tx| tx.bulk(&INSERT, columns).boxed()).await.map(drop)
    }

    /// Claims up to `limit` parts for `holder` until `until_us`, of one scan or of any, in one statement. Skips parts with a valid
    /// lease of another node.
    ///
    /// # Errors
    /// Database errors.
    pub async fn claim(
        self,
        holder: Uuid,
        scan: Option<Uuid>,
        now_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<PartRow>, StoreError> {
        let statement = CLAIM.of(self.0);
        let parameters = vec![
            now_us.into(),
            holder.into(),
            until_us.into(),
            scan.map_or(Value::Null, Value::from),
            (limit_of(limit).0 as i64).into(),
        ];
        let claimed = self.0.write("watch_parts_claim", move |tx| tx.rows(statement, parameters).boxed());
        claimed.await?.into_iter().map(part_row).collect()
    }

    /// Extends the leases of parts that `holder` has claimed to `until_us`. Returns the parts that `holder` still has, as pairs of
    /// scan and part number.
    ///
    /// # Errors
    /// Database errors.
    pub async fn renew(
        self,
        holder: Uuid,
        parts: &[PartRow],
        until_us: i64,
    ) -> Result<Vec<(Uuid, u64)>, StoreError> {
        let columns = vec![
            Column::Uuid(parts.iter().map(|part| part.scan).collect()),
            Column::Int(parts.iter().map(|part| part.part as i64).collect()),
            Column::Int(parts.iter().map(|part| part.claims).collect()),
            Column::Uuid(vec![holder; parts.len()]),
            Column::Int(vec![until_us; parts.len()]),
        ];
        let renewed = self.0.write("watch_parts_renew", move |tx| tx.bulk(&RENEW, columns).boxed());
        renewed.await?.into_iter().map(|mut row| Ok((row.uuid()?, row.int()? as u64))).collect()
    }

    /// Ends a claimed part and stores its result; false when `holder` has lost it.
    ///
    /// # Errors
    /// Database errors.
    pub async fn end(self, part: &PartRow, holder: Uuid, result: &str) -> Result<bool, StoreError> {
        let parameters = vec![
            part.scan.into(),
            (part.part as i64).into(),
            holder.into(),
            part.claims.into(),
            storable(result).into_owned().into(),
        ];
        Ok(self.0.execute(END, parameters).await? == 1)
    }

    /// Releases every part that `holder` has claimed.
    ///
    /// # Errors
    /// Database errors.
    pub async fn release(self, holder: Uuid) -> Result<(), StoreError> {
        self.0.execute(RELEASE, vec![holder.into()]).await.map(drop)
    }

    /// Returns a map from scans to the progress of their runs at `now_us`. Runs that have not begun are missing. One statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn progress(
        self,
        scans: Vec<Uuid>,
        now_us: i64,
    ) -> Result<HashMap<Uuid, RunProgress>, StoreError> {
        let now = vec![now_us; scans.len()];
        let columns = vec![Column::Uuid(scans), Column::Int(now)];
        let rows = self.0.write("watch_progress", move |tx| tx.bulk(&PROGRESS, columns).boxed()).await?;
        let progress = |mut row: Row| {
            let scan = row.uuid()?;
            let (observations, parts) = (row.number()?, row.number()?);
            let (parts_ended, parts_leased) = (row.number()?, row.number()?);
            Ok((scan, RunProgress { observations, parts, parts_ended, parts_leased }))
        };
        rows.into_iter().map(progress).collect()
    }

    /// Returns the results of a scan's parts in their order, `None` for parts in progress; empty when the scan is not split.
    ///
    /// # Errors
    /// Database errors.
    pub async fn results(self, scan: Uuid) -> Result<Vec<Option<String>>, StoreError> {
        let rows = self.0.rows(Cost::Point, RESULTS, vec![scan.into()]).await?;
        rows.into_iter().map(|mut row| row.maybe_text()).collect()
    }
}

fn part_row(mut row: Row) -> Result<PartRow, StoreError> {
    Ok(PartRow {
        scan: row.uuid()?,
        part: row.int()? as u64,
        parts: row.int()? as u64,
        watch: row.uuid()?,
        claims: row.int()?,
    })
}
