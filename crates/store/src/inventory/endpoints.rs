//! Queries for the current state of endpoints, their history, their issuers, and counts over the inventory.

use std::net::IpAddr;

use x509::Severity;

use crate::inventory::handle::Inventory;
use crate::inventory::key::{endpoint_key, stored_key};
use crate::inventory::model::{
    ChainId, EndpointKey, InventoryFilter, InventoryOrder, InventoryRow, IssuerRow, KnownEndpoint,
    LastObservation, LeafFacts, ObservationRow, Summary,
};
use crate::inventory::recording::tally::NO_CERTIFICATE_US;
use crate::inventory::statements as sql;
use db::{Cost, Cursor, Page, Row, StoreError, Value, key_or, limit_of, page, with_limit};

/// Maximum number of expired and expiring endpoints that are counted, so that the summary takes the same time at any size
/// (measured: 1.5 ms on SQLite).
const EXPIRING_COUNTED_MAX: i64 = 50_000;

impl Inventory<'_> {
    /// Returns a page of endpoints in their current state, with their last known leaf and last observation.
    ///
    /// Scans one index in the requested order. Conditions other than expiry only filter the scanned rows, so a query with few
    /// matches in a large inventory is slow.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] when `after` is for another order; database errors.
    pub async fn page(
        self,
        filter: &InventoryFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<InventoryRow>, StoreError> {
        self.inventory_rows(filter, after, limit, |row, _, _| row).await
    }

    /// Like [`crate::Inventory::page`], with a cursor after each row, for callers that filter rows themselves and stop within a
    /// page.
    ///
    /// # Errors
    /// Same as [`crate::Inventory::page`].
    pub async fn walk(
        self,
        filter: &InventoryFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<(InventoryRow, Cursor)>, StoreError> {
        let with_cursor = |row, listing: &str, key: &[Value]| (row, Cursor::new(listing, key));
        self.inventory_rows(filter, after, limit, with_cursor).await
    }

    async fn inventory_rows<T>(
        self,
        filter: &InventoryFilter,
        after: Option<&Cursor>,
        limit: usize,
        made: impl Fn(InventoryRow, &str, &[Value]) -> T,
    ) -> Result<Page<T>, StoreError> {
        let text = Value::Text(String::new());
        let (listing, shape) = match filter.order {
            InventoryOrder::Expiry => ("expiry", vec![Value::Int(0), Value::Int(0)]),
            InventoryOrder::Host => {
                ("host", vec![text.clone(), Value::Int(0), text.clone(), text.clone(), text])
            }
        };
        let key = after.map(|cursor| cursor.key(listing, &shape)).transpose()?;
        let (limit, fetch_limit) = limit_of(limit);
        let (statement, parameters) = sql::inventory_page(filter, key, fetch_limit);
        let rows = self.0.rows(Cost::Walk, &statement, parameters).await?;
        page(rows, limit, listing, |row| {
            let found = inventory_row(row)?;
            let key = match filter.order {
                InventoryOrder::Expiry => vec![found.leaf_not_after.into(), found.id.into()],
                InventoryOrder::Host => {
                    let mut key = vec![found.row.endpoint.host.as_str().into()];
                    key.extend(key_values_after_host(&found.row.endpoint));
                    key
                }
            };
            Ok((made(found.row, listing, &key), key))
        })
    }

    /// Returns the current state of one endpoint.
    ///
    /// # Errors
    /// Database errors.
    pub async fn endpoint(self, key: &EndpointKey) -> Result<Option<InventoryRow>, StoreError> {
        let row = self.0.row(&sql::endpoint(), key_values(key)).await?;
        row.map(|row| Ok(inventory_row(row)?.row)).transpose()
    }

    /// Returns the endpoints of a host, sorted by port. With `port`, returns only the endpoints with this port. The host must match
    /// exactly.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn endpoints_of_host(
        self,
        host: &str,
        port: Option<u16>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<InventoryRow>, StoreError> {
        let text = || Value::Text(String::new());
        let first = [Value::Int(-1), text(), text(), text()];
        let wanted = stored_key(&EndpointKey {
            host: host.to_owned(),
            port: 0,
            protocol: String::new(),
            server_name: String::new(),
            address: String::new(),
        });
        let mut parameters =
            vec![wanted.host.into(), port.unwrap_or(0).into(), port.unwrap_or(u16::MAX).into()];
        parameters.extend(key_or(after, "host-endpoints", &first)?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows =
            self.0.rows(Cost::Walk, &sql::endpoints_of_host(), with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, "host-endpoints", |row| {
            let found = inventory_row(row)?.row;
            let key = key_values_after_host(&found.endpoint);
            Ok((found, key))
        })
    }

    /// Returns an endpoint's observations, newest first. Empty for an unknown endpoint.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn endpoint_history(
        self,
        key: &EndpointKey,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ObservationRow>, StoreError> {
        let mut parameters = Vec::with_capacity(4);
        match self.0.row(sql::ENDPOINT_ID, key_values(key)).await? {
            Some(mut row) => parameters.push(row.int()?.into()),
            None => return Ok(Page { rows: Vec::new(), next: None }),
        }
        parameters.extend(key_or(after, "history", &[Value::Int(i64::MAX), Value::Int(i64::MAX)])?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows =
            self.0.rows(Cost::Walk, sql::ENDPOINT_HISTORY, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, "history", |row| {
            let (observation, scan) = observation_row(row)?;
            let key = vec![observation.observed_at_us.into(), scan.into()];
            Ok((observation, key))
        })
    }

    /// Returns a page of all known endpoints, in the order in which they were first recorded, for a new scan.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn known_endpoints(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<KnownEndpoint>, StoreError> {
        let key = key_or(after, "known", &[Value::Int(0)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, sql::KNOWN_ENDPOINTS, with_limit(key, fetch_limit)).await?;
        page(rows, limit, "known", |mut row| {
            let known = KnownEndpoint {
                endpoint: endpoint_key(&mut row)?,
                outcome: row.named("endpoints.outcome")?,
                silent: !row.flag()?,
                last_observed_us: row.int()?,
            };
            Ok((known, vec![row.int()?.into()]))
        })
    }

    /// Lists issuers, those with the most endpoints first. The writer maintains the counts, so a page takes the same time at any
    /// size. An issuer whose count changes between two pages may be listed twice or not at all.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn issuers(self, after: Option<&Cursor>, limit: usize) -> Result<Page<IssuerRow>, StoreError> {
        let key = key_or(after, "issuers", &[Value::Int(i64::MAX), Value::Int(i64::MAX)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, sql::ISSUERS, with_limit(key, fetch_limit)).await?;
        page(rows, limit, "issuers", |mut row| {
            let issuer = IssuerRow {
                issuer: row.text()?,
                certificates: row.number()?,
                endpoints: row.number()?,
                soonest_not_after_us: row.maybe_int()?,
            };
            let key =
                vec![Value::Int(i64::try_from(issuer.endpoints).unwrap_or(i64::MAX)), row.int()?.into()];
            Ok((issuer, key))
        })
    }

    /// Returns counts over the whole inventory. Takes the same time at any size. A certificate counts as expiring if it expires
    /// within `expiring_within_us` after `now_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn summary(self, now_us: i64, expiring_within_us: i64) -> Result<Summary, StoreError> {
        let mut summary = Summary { expiring_counted_to: EXPIRING_COUNTED_MAX as u64, ..Summary::default() };
        for mut row in self.0.rows(Cost::Point, sql::TOTALS, Vec::new()).await? {
            let name = row.text()?;
            let value = row.number()?;
            match name.as_str() {
                "endpoints" => summary.endpoints = value,
                "answering" => summary.answering = value,
                "certificates" => summary.certificates = value,
                "observations" => summary.observations = value,
                other => {
                    if let Some(severity) = other.strip_prefix("severity.")
                        && value > 0
                    {
                        summary.severities.push((parse_severity_code(severity)?, value));
                    }
                }
            }
        }
        summary.severities.reverse();
        summary.expired = self.expiring_between(i64::MIN, now_us).await?;
        summary.expiring = self.expiring_between(now_us, now_us.saturating_add(expiring_within_us)).await?;
        Ok(summary)
    }

    async fn expiring_between(self, from_us: i64, before_us: i64) -> Result<u64, StoreError> {
        let parameters = vec![from_us.into(), before_us.into(), EXPIRING_COUNTED_MAX.into()];
        let rows = self.0.rows(Cost::Walk, sql::EXPIRING_COUNT, parameters).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.number())
    }
}

/// Returns the values of the key's columns.
pub(crate) fn key_values(key: &EndpointKey) -> Vec<Value> {
    let key = stored_key(key);
    vec![key.host.into(), key.port.into(), key.protocol.into(), key.server_name.into(), key.address.into()]
}

/// Returns the values of the key's columns except the host.
fn key_values_after_host(key: &EndpointKey) -> Vec<Value> {
    vec![
        key.port.into(),
        key.protocol.as_str().into(),
        key.server_name.as_str().into(),
        key.address.as_str().into(),
    ]
}

/// An inventory row with the columns that cursors need.
pub(crate) struct KeyedRow {
    pub(crate) row: InventoryRow,
    pub(crate) leaf_not_after: i64,
    pub(crate) id: i64,
}

pub(crate) fn inventory_row(mut row: Row) -> Result<KeyedRow, StoreError> {
    let endpoint = endpoint_key(&mut row)?;
    let mut found = InventoryRow {
        endpoint,
        first_seen_us: row.int()?,
        last_observed_us: row.int()?,
        last_answered_us: row.maybe_int()?,
        last_changed_us: row.int()?,
        outcome: row.named("endpoints.outcome")?,
        answering: row.flag()?,
        severity: row.maybe_coded("endpoints.severity")?,
        chain: row.maybe_int()?.map(ChainId),
        leaf: None,
        last: None,
    };
    let leaf_not_after = row.int()?;
    let id = row.int()?;
    found.leaf = leaf_facts(&mut row)?;
    found.last = last_observation(&mut row)?;
    debug_assert!(found.leaf.is_some() || leaf_not_after == NO_CERTIFICATE_US);
    Ok(KeyedRow { row: found, leaf_not_after, id })
}

/// Reads the eight columns of a leaf, which are either all set or all NULL.
pub(crate) fn leaf_facts(row: &mut Row) -> Result<Option<LeafFacts>, StoreError> {
    let Some(sha256) = row.maybe_hash()? else {
        for _ in 0..7 {
            row.skip()?;
        }
        return Ok(None);
    };
    Ok(Some(LeafFacts {
        sha256,
        subject: row.text()?,
        issuer: row.text()?,
        serial: row.text()?,
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        key_algorithm: row.text()?,
        key_bits: row.number()?,
    }))
}

fn last_observation(row: &mut Row) -> Result<Option<LastObservation>, StoreError> {
    let Some(scan) = row.maybe_uuid()? else { return Ok(None) };
    Ok(Some(LastObservation {
        scan,
        address: address(row.maybe_text()?)?,
        tls_version: row.maybe_number()?,
        cipher_suite: row.maybe_number()?,
        trust: row.text()?,
        findings: row.text()?,
        detail: row.text()?,
    }))
}

fn observation_row(mut row: Row) -> Result<(ObservationRow, i64), StoreError> {
    let observation = ObservationRow {
        scan: row.uuid()?,
        observed_at_us: row.int()?,
        outcome: row.named("observations.outcome")?,
        answered: row.flag()?,
        address: address(row.maybe_text()?)?,
        tls_version: row.maybe_number()?,
        cipher_suite: row.maybe_number()?,
        leaf_sha256: row.maybe_hash()?,
        chain: row.maybe_int()?.map(ChainId),
        trust: row.text()?,
        severity: row.maybe_coded("observations.severity")?,
        findings: row.text()?,
        detail: row.text()?,
        change: match row.int()? {
            0 => None,
            code => Some(db::coded(code, "observations.change_kind")?),
        },
    };
    Ok((observation, row.int()?))
}

/// Parses a stored IP address. `None` stays `None`.
///
/// # Errors
/// [`StoreError::Corrupt`] when the text is not an IP address.
pub fn address(text: Option<String>) -> Result<Option<IpAddr>, StoreError> {
    text.map(|text| text.parse().map_err(|_| StoreError::Corrupt(format!("{text:?} is not an address"))))
        .transpose()
}

/// Returns the severity whose code is at the end of a name in `totals`.
fn parse_severity_code(digits: &str) -> Result<Severity, StoreError> {
    let unknown = || StoreError::Corrupt(format!("totals.name: unknown severity {digits:?}"));
    digits.parse().ok().and_then(Severity::from_code).ok_or_else(unknown)
}
