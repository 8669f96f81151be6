//! What changed: since a time, or between two scans.

use uuid::Uuid;

use crate::cursor::{Cursor, Page};
use crate::error::StoreError;
use crate::model::{ChangeKind, ChangeRow};
use crate::scans::{endpoint_key, key_or, page, with_limit};
use crate::sql::read as sql;
use crate::store::{Cost, Store, limit_of};
use crate::value::{Row, Value};

impl Store {
    /// Changes observed at or after `since_us`, oldest first, one row for each change. The writer notes a change as it
    /// stores it, so this is a walk of an index that holds changes only.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn diff(
        &self,
        since_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ChangeRow>, StoreError> {
        let first = [Value::Int(since_us.saturating_sub(1)), Value::Int(i64::MAX), Value::Int(i64::MAX)];
        let key = key_or(after, "changes", &first)?;
        let (limit, asked) = limit_of(limit);
        let rows = self.rows(Cost::Walk, sql::CHANGES, with_limit(key, asked)).await?;
        page(rows, limit, "changes", |row| {
            let (change, endpoint, scan) = change_row(row)?;
            let key = vec![change.observed_at_us.into(), endpoint.into(), scan.into()];
            Ok((change, key))
        })
    }

    /// How scan `b` differs from scan `a`, endpoint by endpoint: compares what the two saw, whatever other scans saw
    /// between them. Endpoints that only `a` looked at are [`ChangeKind::NotScanned`].
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`], [`StoreError::BadCursor`]; those of the database.
    pub async fn diff_scans(
        &self,
        a: Uuid,
        b: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ChangeRow>, StoreError> {
        let mut parameters = vec![self.scan_row_id(a).await?.into(), self.scan_row_id(b).await?.into()];
        parameters.extend(key_or(after, "between", &[Value::Int(0)])?);
        let (limit, asked) = limit_of(limit);
        let rows = self.rows(Cost::Walk, sql::CHANGES_BETWEEN, with_limit(parameters, asked)).await?;
        page(rows, limit, "between", |row| {
            let (change, endpoint, _) = change_row(row)?;
            Ok((change, vec![endpoint.into()]))
        })
    }
}

fn change_row(mut row: Row) -> Result<(ChangeRow, i64, i64), StoreError> {
    let code = row.int()?;
    let kind =
        ChangeKind::from_code(code).ok_or_else(|| StoreError::Corrupt(format!("change kind {code}")))?;
    let change = ChangeRow {
        kind,
        endpoint: endpoint_key(&mut row)?,
        observed_at_us: row.int()?,
        old_sha256: row.maybe_hash()?,
        new_sha256: row.maybe_hash()?,
        old_outcome: row.maybe_text()?,
        new_outcome: row.maybe_text()?,
        severity: row.maybe_number()?,
    };
    Ok((change, row.int()?, row.int()?))
}
