//! Records of scans: start, end, interruption and resumption.

use serde_json::{Value as Json, json};
use uuid::Uuid;

use crate::inventory::handle::Scans;
use crate::inventory::key::endpoint_key;
use crate::inventory::model::{EndpointKey, ScanRow, ScanState};
use crate::inventory::statements as sql;
use db::{Cost, Cursor, Page, Row, StoreError, Value, hex, key_or, limit_of, page, sha256, with_limit};

/// Maximum number of scans that start in the same microsecond.
const SAME_START_MAX: i64 = 1_000;

impl ScanRow {
    /// Returns a digest of the settings that two scans must share to be comparable: the targets, and options that change the set
    /// of endpoints. If another version of the program recorded the scan, the digest covers all settings.
    #[must_use]
    pub fn scope(&self) -> String {
        scope_of(&self.spec)
    }
}

impl Scans<'_> {
    /// Records the start of a scan. `spec` contains the targets and options as JSON, so that the scan can be resumed. A repetition
    /// with the same id does nothing.
    ///
    /// # Errors
    /// Database errors.
    pub async fn begin(self, id: Uuid, started_at_us: i64, spec: &str) -> Result<(), StoreError> {
        let spec = spec.replace('\0', "");
        for row_id in started_at_us..started_at_us.saturating_add(SAME_START_MAX) {
            self.prepare(row_id).await?;
            let parameters = vec![
                row_id.into(),
                id.into(),
                started_at_us.into(),
                spec.clone().into(),
                scope_of(&spec).into(),
            ];
            if self.0.execute(sql::SCAN_INSERT, parameters).await? == 1 || self.get(id).await?.is_some() {
                return Ok(());
            }
        }
        Err(StoreError::Corrupt(format!("a thousand scans began at {started_at_us}")))
    }

    /// Records the end of a scan; `summary` is JSON. A finished scan can be finished again.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`].
    pub async fn finish(
        self,
        id: Uuid,
        at_us: i64,
        state: ScanState,
        summary: &str,
    ) -> Result<(), StoreError> {
        let summary = Value::from(summary.replace('\0', ""));
        self.set_state(id, state, at_us.into(), summary).await
    }

    /// Records that an unfinished scan was resumed.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`].
    pub async fn resume(self, id: Uuid) -> Result<(), StoreError> {
        self.set_state(id, ScanState::Running, Value::Null, Value::Null).await
    }

    /// Records that the process of a running scan was killed. The time of its end is unknown.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`].
    pub async fn interrupt(self, id: Uuid) -> Result<(), StoreError> {
        self.set_state(id, ScanState::Interrupted, Value::Null, Value::Null).await
    }

    async fn set_state(
        self,
        id: Uuid,
        state: ScanState,
        at: Value,
        summary: Value,
    ) -> Result<(), StoreError> {
        let parameters = vec![id.into(), state.name().into(), at, summary];
        match self.0.execute(sql::SCAN_STATE, parameters).await? {
            0 => Err(StoreError::UnknownScan(id)),
            _ => Ok(()),
        }
    }

    /// Returns the scan with this id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<ScanRow>, StoreError> {
        self.0.row(sql::SCAN, vec![id.into()]).await?.map(|row| Ok(scan_row(row)?.0)).transpose()
    }

    /// Returns the newest scan that did not finish: it is running, was killed or was interrupted. Leaves out scans that a watch
    /// will resume.
    ///
    /// # Errors
    /// Database errors.
    pub async fn latest_unfinished(self) -> Result<Option<ScanRow>, StoreError> {
        self.0.row(sql::SCAN_UNFINISHED, Vec::new()).await?.map(|row| Ok(scan_row(row)?.0)).transpose()
    }

    /// Number of scans per page. The settings of one scan can take up to 1 MiB.
    pub const PAGE_ROWS: usize = 50;

    /// Lists scans, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn page(self, after: Option<&Cursor>, limit: usize) -> Result<Page<ScanRow>, StoreError> {
        let key = key_or(after, "scans", &[Value::Int(i64::MAX)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, sql::SCANS, with_limit(key, fetch_limit)).await?;
        page(rows, limit, "scans", |row| {
            let (scan, id) = scan_row(row)?;
            Ok((scan, vec![id.into()]))
        })
    }

    /// Returns the ids of two finished scans with the same targets: the newest finished scan, and the one before it. The earlier
    /// scan is first. `None` if there are not two.
    ///
    /// # Errors
    /// Database errors.
    pub async fn last_comparable_scans(self) -> Result<Option<(Uuid, Uuid)>, StoreError> {
        /// Maximum number of scans that are read, newest first, to find the two scans to compare. Scans that are not finished, or
        /// have other targets, are skipped.
        const SCANS_MAX: usize = 1_000;
        let (mut newest, mut after) = (None, None);
        for _ in 0..SCANS_MAX / Self::PAGE_ROWS {
            let page = self.page(after.as_ref(), Self::PAGE_ROWS).await?;
            for scan in page.rows.iter().filter(|scan| scan.state == ScanState::Finished) {
                let scope = scan.scope();
                match &newest {
                    None => newest = Some((scan.id, scope)),
                    Some((newest, of_newest)) if *of_newest == scope => return Ok(Some((scan.id, *newest))),
                    Some(_) => {}
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the endpoints that a scan has already observed, so that a resumed scan skips them.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`], [`StoreError::BadCursor`]; database errors.
    pub async fn endpoints(
        self,
        scan: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<EndpointKey>, StoreError> {
        let mut parameters = vec![self.row_id(scan).await?.into()];
        parameters.extend(key_or(after, "scanned", &[Value::Int(0)])?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows =
            self.0.rows(Cost::Walk, sql::SCANNED_ENDPOINTS, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, "scanned", |mut row| Ok((endpoint_key(&mut row)?, vec![row.int()?.into()])))
    }

    /// Returns the row id of a scan.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`]; [`StoreError::Pruned`] when a scan with the same or a later time was removed; database errors.
    pub async fn row_id(self, id: Uuid) -> Result<i64, StoreError> {
        match self.0.row(sql::SCAN_ID, vec![id.into()]).await? {
            Some(mut row) => row.int(),
            None => Err(self.missing(id).await?),
        }
    }
}

/// Returns the digest of [`ScanRow::scope`].
pub(crate) fn scope_of(spec: &str) -> String {
    hex(&sha256(scope(spec).to_string().as_bytes())[..16])
}

/// Returns the settings that [`ScanRow::scope`] covers.
fn scope(spec: &str) -> Json {
    const OF_SPEC: [&str; 6] = ["targets", "again", "sources", "ports", "server_names", "starttls"];
    const OF_SETTINGS: [&str; 3] = ["ports", "families", "all_addresses"];
    let Ok(Json::Object(spec)) = serde_json::from_str(spec) else { return Json::from(spec) };
    // Earlier versions omitted empty members.
    let member =
        |value: Option<&Json>| value.filter(|value| **value != json!([])).cloned().unwrap_or_default();
    let settings = spec.get("settings");
    let own = OF_SPEC.iter().map(|name| member(spec.get(*name)));
    let set = OF_SETTINGS.iter().map(|name| member(settings.and_then(|all| all.get(*name))));
    own.chain(set).chain([member(spec.get("all_addresses"))]).collect()
}

fn scan_row(mut row: Row) -> Result<(ScanRow, i64), StoreError> {
    let scan = ScanRow {
        id: row.uuid()?,
        started_at_us: row.int()?,
        finished_at_us: row.maybe_int()?,
        state: row.named("scans.state")?,
        spec: row.text()?,
        summary: row.maybe_text()?,
        observations: row.number()?,
        answered: row.number()?,
        changes: row.number()?,
        new_certificates: row.number()?,
        pruned_at_us: row.maybe_int()?,
    };
    Ok((scan, row.int()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_scope_depends_on_targets_and_ports_but_not_on_timeouts() {
        let spec = |targets: &str, ports: &str, timeout: u64| {
            format!(
                r#"{{"targets":[{targets:?}],"again":false,"server_names":[],"starttls":null,
                    "settings":{{"ports":{ports:?},"timeout_ms":{timeout}}}}}"#
            )
        };
        let one = scope(&spec("a.example", "443", 1));
        assert_eq!(one, scope(&spec("a.example", "443", 2)), "how long is waited does not matter");
        assert_ne!(one, scope(&spec("b.example", "443", 1)));
        assert_ne!(one, scope(&spec("a.example", "8443", 1)));
        let sources =
            |names: Json| scope(&json!({ "targets": [], "sources": names, "settings": {} }).to_string());
        assert_ne!(sources(json!(["aws"])), sources(json!(["azure"])));
        assert_eq!(sources(json!([])), scope(r#"{"targets":[],"settings":{}}"#), "by an earlier version");
    }
}
