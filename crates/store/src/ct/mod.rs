//! Certificate Transparency: which domains are watched, how far search services and logs have been read, what was found.

mod issuances;

use crate::cursor::{Cursor, Page};
use crate::error::StoreError;
use crate::record::storable;
use crate::scans::{key_or, page};
use crate::sql::Sends;
use crate::store::{Cost, Store, limit_of};
use crate::tx::{Bulk, Column, Tx};
use crate::value::{Row, Value};

pub use issuances::{
    CT_JUDGED_MAX, CtFilter, CtIssuanceRow, CtKnownRow, CtVerdict, NewCtIssuance, ct_known,
    judge_ct_issuances, record_ct_issuances,
};

/// A watched domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtDomainRow {
    /// A registered domain, mostly; lower case, A-labels.
    pub name: String,
    /// Who may issue for it, JSON.
    pub rule: String,
    /// Moves with every change.
    pub revision: i64,
    /// When it was first watched, µs.
    pub created_at_us: i64,
    /// When it was last changed, µs.
    pub updated_at_us: i64,
}

/// Where a search service was left for a domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtSearchRow {
    /// Which service.
    pub service: String,
    /// Which domain.
    pub domain: String,
    /// The service's own, JSON.
    pub cursor: String,
    /// When it is to be asked again, µs.
    pub due_at_us: i64,
    /// When it last answered, µs.
    pub answered_at_us: Option<i64>,
    /// Failures since.
    pub failures: i64,
    /// The last of them.
    pub last_error: Option<String>,
}

/// A question that is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtDue {
    /// Which domain.
    pub domain: String,
    /// Where the service was left; `None` when it was never asked.
    pub cursor: Option<String>,
    /// Failures in a row.
    pub failures: i64,
}

/// Where a log's follower is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtLogRow {
    /// SHA-256 of its key.
    pub log_id: [u8; 32],
    /// For people.
    pub name: String,
    /// The follower's own, JSON.
    pub place: String,
    /// Entries not read.
    pub behind: i64,
    /// When it last took a step, µs.
    pub stepped_at_us: i64,
    /// Why the last try was none.
    pub last_error: Option<String>,
    /// What is wrong with the log, JSON.
    pub alarm: Option<String>,
    /// Since when, µs.
    pub alarmed_at_us: Option<i64>,
}

const DOMAIN: &str = "-- ct_domain
SELECT name, rule, revision, created_at, updated_at FROM ct_domains WHERE name = ?1";
const DOMAINS: &str = "-- ct_domains
SELECT name, rule, revision, created_at, updated_at FROM ct_domains WHERE name > ?1 ORDER BY name LIMIT ?2";
const DOMAIN_UPDATE: &str = "-- ct_domain_update
UPDATE ct_domains SET rule = ?2, revision = revision + 1, updated_at = ?3 WHERE name = ?1 AND revision = ?4";
const DOMAIN_DELETE: &str = "-- ct_domain_delete
DELETE FROM ct_domains WHERE name = ?1";
const SEARCHES_DELETE: &str = "-- ct_searches_delete
DELETE FROM ct_searches WHERE domain = ?1";
/// Those never asked come first.
const DUE: &str = "-- ct_searches_due
SELECT d.name, s.cursor, COALESCE(s.failures, 0) FROM ct_domains d
LEFT JOIN ct_searches s ON s.service = ?1 AND s.domain = d.name
WHERE s.due_at IS NULL OR s.due_at <= ?2 ORDER BY COALESCE(s.due_at, 0), d.name LIMIT ?3";
const SEARCHES: &str = "-- ct_searches
SELECT service, domain, cursor, due_at, answered_at, failures, last_error FROM ct_searches
WHERE domain = ?1 ORDER BY service";
const LOGS: &str = "-- ct_logs
SELECT log_id, name, place, behind, stepped_at, last_error, alarm, alarmed_at FROM ct_logs ORDER BY name, log_id LIMIT ?1";
const LOG: &str = "-- ct_log
SELECT log_id, name, place, behind, stepped_at, last_error, alarm, alarmed_at FROM ct_logs WHERE log_id = ?1";
/// A step ends an alarm.
const LOG_STEPPED: &str = "-- ct_log_stepped
INSERT INTO ct_logs (log_id, name, place, behind, stepped_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (log_id) DO UPDATE
SET name = excluded.name, place = excluded.place, behind = excluded.behind, stepped_at = excluded.stepped_at,
    last_error = NULL, alarm = NULL, alarmed_at = NULL";
const LOG_FAILED: &str = "-- ct_log_failed
UPDATE ct_logs SET last_error = ?2 WHERE log_id = ?1";
/// Since when it is wrong stays what it was.
const LOG_ALARMED: &str = "-- ct_log_alarmed
INSERT INTO ct_logs (log_id, name, place, behind, stepped_at, alarm, alarmed_at) VALUES (?1, ?2, '', 0, 0, ?3, ?4)
ON CONFLICT (log_id) DO UPDATE
SET alarm = excluded.alarm, alarmed_at = COALESCE(ct_logs.alarmed_at, excluded.alarmed_at)";
const LOG_DELETE: &str = "-- ct_log_delete
DELETE FROM ct_logs WHERE log_id = ?1";

const DOMAINS_INSERT: Bulk = Bulk {
    sqlite: "-- ct_domains_insert
INSERT INTO ct_domains (name, rule, revision, created_at, updated_at) VALUES (?1, ?2, 1, ?3, ?3)
ON CONFLICT DO NOTHING RETURNING name",
    postgres: "-- ct_domains_insert
INSERT INTO ct_domains (name, rule, revision, created_at, updated_at)
SELECT n.name, n.rule, 1, n.at, n.at FROM UNNEST(?1::text[], ?2::text[], ?3::bigint[]) AS n (name, rule, at)
ORDER BY n.name COLLATE \"C\" ON CONFLICT DO NOTHING RETURNING name",
};
const SEARCHES_PUT: Bulk = Bulk {
    sqlite: "-- ct_searches_put
INSERT INTO ct_searches (service, domain, cursor, due_at, answered_at, failures, last_error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (service, domain) DO UPDATE
SET cursor = excluded.cursor, due_at = excluded.due_at,
    answered_at = COALESCE(excluded.answered_at, ct_searches.answered_at), failures = excluded.failures,
    last_error = excluded.last_error",
    postgres: "-- ct_searches_put
INSERT INTO ct_searches (service, domain, cursor, due_at, answered_at, failures, last_error)
SELECT n.* FROM UNNEST(?1::text[], ?2::text[], ?3::text[], ?4::bigint[], ?5::bigint[], ?6::bigint[], ?7::text[])
     AS n (service, domain, cursor, due, answered, failures, error)
ORDER BY n.service COLLATE \"C\", n.domain COLLATE \"C\"
ON CONFLICT (service, domain) DO UPDATE
SET cursor = excluded.cursor, due_at = excluded.due_at,
    answered_at = COALESCE(excluded.answered_at, ct_searches.answered_at), failures = excluded.failures,
    last_error = excluded.last_error",
};

const ALL: &[&str] = &[
    DOMAIN,
    DOMAINS,
    DOMAIN_UPDATE,
    DOMAIN_DELETE,
    SEARCHES_DELETE,
    DUE,
    SEARCHES,
    LOGS,
    LOG,
    LOG_STEPPED,
    LOG_FAILED,
    LOG_ALARMED,
    LOG_DELETE,
    issuances::ISSUANCE,
    issuances::ISSUANCE_DER,
    issuances::DOMAINS_OF,
    issuances::JUDGEABLE,
    issuances::TRIM_DERS,
    issuances::TRIM_DOMAINS,
    issuances::TRIM,
];

pub(crate) const SENDS: Sends = Sends {
    both: ALL,
    sqlite: &[],
    postgres: &[issuances::LOCK],
    bulks: &[
        &DOMAINS_INSERT,
        &SEARCHES_PUT,
        &issuances::LEARN_TBS,
        &issuances::INSERT,
        &issuances::FIND,
        &issuances::LINK,
        &issuances::DERS,
        &issuances::JUDGE,
        &issuances::KNOWN,
        &issuances::MANAGED,
    ],
    composed: issuances::composed,
};

/// Watches domains, each with the same rule; answers those that were not watched.
///
/// # Errors
/// Those of the database.
pub async fn insert_ct_domains(
    tx: &mut Tx,
    names: &[String],
    rule: &str,
    at_us: i64,
) -> Result<Vec<String>, StoreError> {
    let columns = vec![
        Column::Text(names.to_vec()),
        Column::Text(vec![rule.to_owned(); names.len()]),
        Column::Int(vec![at_us; names.len()]),
    ];
    tx.bulk(&DOMAINS_INSERT, columns).await?.into_iter().map(|mut row| row.text()).collect()
}

/// Changes the rule of a domain of this revision; false when it has another, or is not watched.
///
/// # Errors
/// Those of the database.
pub async fn update_ct_domain(
    tx: &mut Tx,
    name: &str,
    rule: &str,
    at_us: i64,
    revision: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![name.into(), rule.into(), at_us.into(), revision.into()];
    Ok(tx.execute(DOMAIN_UPDATE, parameters).await? == 1)
}

/// Watches a domain no more; what was found stays. False when it was not watched.
///
/// # Errors
/// Those of the database.
pub async fn delete_ct_domain(tx: &mut Tx, name: &str) -> Result<bool, StoreError> {
    tx.execute(SEARCHES_DELETE, vec![name.into()]).await?;
    Ok(tx.execute(DOMAIN_DELETE, vec![name.into()]).await? == 1)
}

/// Stores where search services were left, in the transaction with what they told.
///
/// # Errors
/// Those of the database.
pub async fn put_ct_searches(tx: &mut Tx, rows: Vec<CtSearchRow>) -> Result<(), StoreError> {
    // The last word on a domain counts.
    let last: std::collections::BTreeMap<_, _> =
        rows.into_iter().map(|row| ((row.service.clone(), row.domain.clone()), row)).collect();
    let rows: Vec<CtSearchRow> = last.into_values().collect();
    let text =
        |of: fn(&CtSearchRow) -> &String| Column::Text(rows.iter().map(|row| of(row).clone()).collect());
    let error = |row: &CtSearchRow| row.last_error.as_deref().map(|error| storable(error).into_owned());
    let columns = vec![
        text(|row| &row.service),
        text(|row| &row.domain),
        text(|row| &row.cursor),
        Column::Int(rows.iter().map(|row| row.due_at_us).collect()),
        Column::MaybeInt(rows.iter().map(|row| row.answered_at_us).collect()),
        Column::Int(rows.iter().map(|row| row.failures).collect()),
        Column::MaybeText(rows.iter().map(error).collect()),
    ];
    tx.bulk(&SEARCHES_PUT, columns).await.map(drop)
}

/// Stores where a log's follower is, in the transaction with what it found. Ends the log's alarm.
///
/// # Errors
/// Those of the database.
pub async fn step_ct_log(
    tx: &mut Tx,
    log_id: [u8; 32],
    name: &str,
    place: &str,
    behind: i64,
    at_us: i64,
) -> Result<(), StoreError> {
    let parameters = vec![log_id.into(), name.into(), place.into(), behind.into(), at_us.into()];
    tx.execute(LOG_STEPPED, parameters).await.map(drop)
}

/// Notes why a log could not be read; nothing for a log never stepped in.
///
/// # Errors
/// Those of the database.
pub async fn fail_ct_log(tx: &mut Tx, log_id: [u8; 32], error: &str) -> Result<(), StoreError> {
    tx.execute(LOG_FAILED, vec![log_id.into(), storable(error).into_owned().into()]).await.map(drop)
}

/// Notes what is wrong with a log. The place stays.
///
/// # Errors
/// Those of the database.
pub async fn alarm_ct_log(
    tx: &mut Tx,
    log_id: [u8; 32],
    name: &str,
    alarm: &str,
    at_us: i64,
) -> Result<(), StoreError> {
    let parameters = vec![log_id.into(), name.into(), storable(alarm).into_owned().into(), at_us.into()];
    tx.execute(LOG_ALARMED, parameters).await.map(drop)
}

/// Forgets a log's place: it is followed from its start anew, whatever it was before. False when there was none.
///
/// # Errors
/// Those of the database.
pub async fn delete_ct_log(tx: &mut Tx, log_id: [u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.execute(LOG_DELETE, vec![log_id.into()]).await? == 1)
}

impl Store {
    /// A watched domain.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ct_domain(&self, name: &str) -> Result<Option<CtDomainRow>, StoreError> {
        self.row(DOMAIN, vec![name.into()]).await?.map(|mut row| domain_of(&mut row)).transpose()
    }

    /// A page of the watched domains, by name.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn ct_domains(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtDomainRow>, StoreError> {
        let mut parameters = key_or(after, "ct-domains", &[Value::Text(String::new())])?;
        let (limit, asked) = limit_of(limit);
        parameters.push(asked.into());
        let rows = self.rows(Cost::Walk, DOMAINS, parameters).await?;
        page(rows, limit, "ct-domains", |mut row| {
            let domain = domain_of(&mut row)?;
            let key = vec![domain.name.as_str().into()];
            Ok((domain, key))
        })
    }

    /// What is to be asked of a service at `now_us`: watched domains, the longest due first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ct_searches_due(
        &self,
        service: &str,
        now_us: i64,
        limit: usize,
    ) -> Result<Vec<CtDue>, StoreError> {
        let parameters = vec![service.into(), now_us.into(), (limit_of(limit).0 as i64).into()];
        let due =
            |mut row: Row| Ok(CtDue { domain: row.text()?, cursor: row.maybe_text()?, failures: row.int()? });
        self.rows(Cost::Walk, DUE, parameters).await?.into_iter().map(due).collect()
    }

    /// Where each service was left for a domain.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ct_searches(&self, domain: &str) -> Result<Vec<CtSearchRow>, StoreError> {
        let search = |mut row: Row| {
            Ok(CtSearchRow {
                service: row.text()?,
                domain: row.text()?,
                cursor: row.text()?,
                due_at_us: row.int()?,
                answered_at_us: row.maybe_int()?,
                failures: row.int()?,
                last_error: row.maybe_text()?,
            })
        };
        self.rows(Cost::Walk, SEARCHES, vec![domain.into()]).await?.into_iter().map(search).collect()
    }

    /// Every followed log, by name; some dozens.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ct_logs(&self) -> Result<Vec<CtLogRow>, StoreError> {
        let most = limit_of(crate::PAGE_ROWS_MAX).0 as i64;
        self.rows(Cost::Walk, LOGS, vec![most.into()]).await?.into_iter().map(log_of).collect()
    }

    /// A followed log.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ct_log(&self, log_id: [u8; 32]) -> Result<Option<CtLogRow>, StoreError> {
        self.row(LOG, vec![log_id.into()]).await?.map(log_of).transpose()
    }
}

fn domain_of(row: &mut Row) -> Result<CtDomainRow, StoreError> {
    Ok(CtDomainRow {
        name: row.text()?,
        rule: row.text()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

fn log_of(mut row: Row) -> Result<CtLogRow, StoreError> {
    Ok(CtLogRow {
        log_id: row.hash()?,
        name: row.text()?,
        place: row.text()?,
        behind: row.int()?,
        stepped_at_us: row.int()?,
        last_error: row.maybe_text()?,
        alarm: row.maybe_text()?,
        alarmed_at_us: row.maybe_int()?,
    })
}
