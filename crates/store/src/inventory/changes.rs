//! Queries for changes of endpoints since a time, or between two scans.

use uuid::Uuid;

use crate::inventory::handle::{Inventory, Scans};
use crate::inventory::key::endpoint_key;
use crate::inventory::model::{ChangeKind, ChangeRow};
use crate::inventory::statements as sql;
use db::{Cost, Cursor, Page, Row, StoreError, Value, key_or, limit_of, page, with_limit};

/// Maximum number of endpoints of a scan that one page of a comparison reads.
const RANGE: u32 = 50_000;

impl Inventory<'_> {
    /// Returns changes observed at or after `since_us`, oldest first, one row per change. Scans an index that contains only
    /// changes.
    ///
    /// # Errors
    /// [`StoreError::Pruned`] if changes since then were removed; [`StoreError::BadCursor`]; database errors.
    pub async fn diff(
        self,
        since_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ChangeRow>, StoreError> {
        let first = [Value::Int(since_us.saturating_sub(1)), Value::Int(i64::MAX), Value::Int(i64::MAX)];
        let key = key_or(after, "changes", &first)?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, sql::CHANGES, with_limit(key, fetch_limit)).await?;
        // Checked after the read, because rows that were pruned during the read are missing.
        self.check_changes_complete(since_us).await?;
        page(rows, limit, "changes", |mut row| {
            let change = change_row(&mut row)?;
            let key = vec![change.observed_at_us.into(), row.int()?.into(), row.int()?.into()];
            Ok((change, key))
        })
    }

    /// Returns the two scans whose comparison [`Self::diff_scans`] continues after a cursor.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`].
    pub fn compared_scans(after: &Cursor) -> Result<(Uuid, Uuid), StoreError> {
        let key = after.key(BETWEEN, &between_key(SEEN, 0, Uuid::nil(), Uuid::nil()))?;
        let [_, _, Value::Text(a), Value::Text(b)] = &key[..] else { return Err(StoreError::BadCursor) };
        let id = |text: &String| text.parse().map_err(|_| StoreError::BadCursor);
        Ok((id(a)?, id(b)?))
    }

    /// Compares scan `b` with scan `a`, endpoint by endpoint. Ignores other scans between them. Endpoints that only `a` scanned are
    /// [`ChangeKind::NotScanned`] and come last. A cursor is valid only for the same two scans.
    ///
    /// A page reads at most 50,000 endpoints of each scan. So a page can have fewer rows than requested, or none, although more
    /// pages follow.
    ///
    /// # Errors
    /// [`StoreError::Pruned`] if observations of a scan were removed; [`StoreError::UnknownScan`], [`StoreError::BadCursor`];
    /// database errors.
    pub async fn diff_scans(
        self,
        a: Uuid,
        b: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ChangeRow>, StoreError> {
        self.diff_scans_in(a, b, after, limit, RANGE).await
    }

    /// Like [`Self::diff_scans`], with another number of endpoints per page, for tests.
    ///
    /// # Errors
    /// See [`Self::diff_scans`].
    #[doc(hidden)]
    pub async fn diff_scans_in(
        self,
        a: Uuid,
        b: Uuid,
        after: Option<&Cursor>,
        limit: usize,
        range: u32,
    ) -> Result<Page<ChangeRow>, StoreError> {
        let scans = Scans::of(self.0);
        let key_at = |part: i64, endpoint: i64| between_key(part, endpoint, a, b);
        let first = key_at(SEEN, 0);
        let key = key_or(after, BETWEEN, &first)?;
        let (mut part, mut endpoint) = match key[..] {
            [Value::Int(part), Value::Int(endpoint), ..] if key[2..] == first[2..] => (part, endpoint),
            _ => return Err(StoreError::BadCursor),
        };
        let ids = [a, b];
        let (a, b) = (scans.row_id(a).await?, scans.row_id(b).await?);
        let (limit, fetch_limit) = limit_of(limit);
        let (mut rows, mut rest) = (Vec::new(), None);
        if part == SEEN {
            let end = self.range_end(b, endpoint, range).await?;
            let last = end.unwrap_or(i64::MAX);
            rows = self.between(sql::CHANGES_BETWEEN, [a, b, endpoint, fetch_limit, last]).await?;
            rest = end.map(|end| key_at(SEEN, end));
            (part, endpoint) = (UNSEEN, 0);
        }
        let room = fetch_limit - rows.len() as i64;
        if part == UNSEEN && rest.is_none() && room > 0 {
            let end = self.range_end(a, endpoint, range).await?;
            let last = end.unwrap_or(i64::MAX);
            rows.extend(self.between(sql::NOT_SCANNED, [a, b, endpoint, room, last]).await?);
            rest = end.map(|end| key_at(UNSEEN, end));
        }
        // Checked after the read, because rows that were pruned during the read are missing.
        for id in ids {
            scans.check_complete(id).await?;
        }
        let mut page = page(rows, limit, BETWEEN, |mut row| {
            let change = change_row(&mut row)?;
            let part = if change.kind == ChangeKind::NotScanned { UNSEEN } else { SEEN };
            Ok((change, key_at(part, row.int()?)))
        })?;
        page.next = page.next.or_else(|| rest.map(|key| Cursor::new(BETWEEN, &key)));
        Ok(page)
    }

    /// Returns the last of the next `range` endpoints of a scan; `None` if fewer endpoints are left.
    async fn range_end(self, scan: i64, after: i64, range: u32) -> Result<Option<i64>, StoreError> {
        let parameters = vec![scan.into(), after.into(), range.saturating_sub(1).into()];
        let row = self.0.rows(Cost::Walk, sql::RANGE_END, parameters).await?.into_iter().next();
        row.map(|mut row| row.int()).transpose()
    }

    async fn between(self, statement: &str, parameters: [i64; 5]) -> Result<Vec<Row>, StoreError> {
        self.0.rows(Cost::Walk, statement, parameters.map(Value::Int).to_vec()).await
    }
}

/// Name of this listing, by which its cursors are recognized.
const BETWEEN: &str = "between";

/// Returns the key of a row of a comparison: part, endpoint, and the two scans.
fn between_key(part: i64, endpoint: i64, a: Uuid, b: Uuid) -> Vec<Value> {
    vec![part.into(), endpoint.into(), a.to_string().into(), b.to_string().into()]
}

/// Number of the first part of a comparison: changes that were observed. The second part, [`UNSEEN`], contains endpoints that the
/// later scan did not probe.
const SEEN: i64 = 0;
const UNSEEN: i64 = 1;

fn change_row(row: &mut Row) -> Result<ChangeRow, StoreError> {
    Ok(ChangeRow {
        kind: row.coded("observations.change_kind")?,
        endpoint: endpoint_key(row)?,
        observed_at_us: row.int()?,
        old_sha256: row.maybe_hash()?,
        new_sha256: row.maybe_hash()?,
        old_outcome: row.maybe_named("observations.previous_outcome")?,
        new_outcome: row.maybe_named("observations.outcome")?,
        severity: row.maybe_coded("observations.severity")?,
    })
}
