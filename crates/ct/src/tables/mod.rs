//! Tables of Certificate Transparency: watched domains, positions of searches and logs, issuances.

mod handle;
mod issuances;

use futures_util::FutureExt;
use uuid::Uuid;

use db::{
    BulkStatement, Column, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or,
    limit_of, page, storable,
};
pub use handle::Ct;

/// Maximum watched domains. Matching supports a million, but each domain has one row per service and an entry in the index of due
/// searches.
pub const CT_DOMAINS_MAX: i64 = 100_000;

pub use issuances::{
    CT_JUDGED_MAX, CtFilter, CtIssuanceRow, CtKnownRow, CtVerdict, NewCtIssuance, ct_expected, ct_issuance,
    ct_known, judge_ct_issuances, record_ct_issuances,
};

/// A watched domain, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtDomainRow {
    /// The watched domain, usually a registered domain; lower case, A-labels.
    pub name: String,
    /// Issuer rule of the domain, JSON.
    pub rule: String,
    /// Whether the domain is watched; false: paused.
    pub enabled: bool,
    /// Names of the services that watch the domain; empty: all.
    pub services: Vec<String>,
    /// Revision, incremented with every update.
    pub revision: i64,
    /// Time of creation, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub updated_at_us: i64,
}

/// Issuer rule, state and services of a watched domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtDomainSettings {
    /// Issuer rule of the domain, JSON.
    pub rule: String,
    /// Whether the domain is watched; false: paused.
    pub enabled: bool,
    /// Names of the services that watch the domain; empty: all. A name has lower-case letters, digits, `.` and `-`.
    pub services: Vec<String>,
}

/// State of one service's search for a domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtSearchRow {
    /// Name of the search service.
    pub service: String,
    /// The domain that is searched for.
    pub domain: String,
    /// The service's cursor, JSON.
    pub cursor: String,
    /// Time at which the next query is due, µs since 1970-01-01 UTC.
    pub due_at_us: i64,
    /// Time of the last response, µs since 1970-01-01 UTC.
    pub answered_at_us: Option<i64>,
    /// Number of consecutive failures.
    pub failures: i64,
    /// Message of the last error.
    pub last_error: Option<String>,
    /// Time of the first of the consecutive failures, µs since 1970-01-01 UTC.
    pub failing_since_us: Option<i64>,
    /// End of the first complete search, µs since 1970-01-01 UTC.
    pub baseline_at_us: Option<i64>,
    /// The node that has claimed the search.
    pub holder: Option<Uuid>,
    /// End of the node's lease, µs since 1970-01-01 UTC.
    pub until_us: Option<i64>,
}

/// State of a service's searches for all enabled domains together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtServiceRow {
    /// Name of the search service.
    pub service: String,
    /// Number of domains that the service watches.
    pub domains: i64,
    /// Number of the service's domains whose last query failed.
    pub failing: i64,
    /// Start of the longest series of failures, µs since 1970-01-01 UTC.
    pub failing_since_us: Option<i64>,
    /// Time at which the earliest query is due, µs since 1970-01-01 UTC.
    pub due_at_us: i64,
    /// Time of the last response, µs since 1970-01-01 UTC.
    pub answered_at_us: Option<i64>,
}

/// State of a log's follower.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtLogRow {
    /// Log ID: SHA-256 of the log's key.
    pub log_id: [u8; 32],
    /// Name of the log, for display.
    pub name: String,
    /// The follower's position, JSON.
    pub position: String,
    /// Number of unread entries.
    pub behind: i64,
    /// Time of the last step, µs since 1970-01-01 UTC; 0 before the first.
    pub stepped_at_us: i64,
    /// Start of the time in which the log cannot be read or does not grow, µs since 1970-01-01 UTC. `None` if the log works.
    pub failing_since_us: Option<i64>,
    /// Start of the time in which the log has more unread entries than one step reads, µs since 1970-01-01 UTC. `None` if the log
    /// has fewer.
    pub behind_since_us: Option<i64>,
    /// Reason why the last step failed.
    pub last_error: Option<String>,
    /// The current alarm, JSON; `None`: the log is consistent.
    pub alarm: Option<String>,
    /// Time of the alarm, µs since 1970-01-01 UTC.
    pub alarmed_at_us: Option<i64>,
}

/// Result of one step of a log's follower, to be stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CtLogStep {
    /// Log ID: SHA-256 of the log's key.
    pub log_id: [u8; 32],
    /// Name of the log, for display.
    pub name: String,
    /// The position before the step, JSON; empty in a new log.
    pub from: String,
    /// The position after the step, JSON.
    pub position: String,
    /// Number of unread entries.
    pub behind: i64,
    /// Start of the time in which the log has more unread entries than one step reads, µs since 1970-01-01 UTC. `None` if the log
    /// has fewer.
    pub behind_since_us: Option<i64>,
    /// Warning that the log responds but its tree does not grow; `None` if the tree grows.
    pub warning: Option<String>,
    /// Time of the first warning, µs since 1970-01-01 UTC. `None` without a warning.
    pub failing_since_us: Option<i64>,
    /// Time of the step, µs since 1970-01-01 UTC.
    pub at_us: i64,
}

macro_rules! domain_columns {
    () => {
        "name, rule, enabled, services, revision, created_at, updated_at"
    };
}
macro_rules! search_columns {
    () => {
        "service, domain, cursor, due_at, answered_at, failures, last_error, failing_since, baseline_at, lease_holder, \
         lease_until"
    };
}
macro_rules! log_columns {
    () => {
        "log_id, name, place, behind, stepped_at, failing_since, behind_since, last_error, alarm, alarmed_at"
    };
}

const DOMAIN: &str = concat!("-- ct_domain\nSELECT ", domain_columns!(), " FROM ct_domains WHERE name = ?1");
const DOMAINS: &str = concat!(
    "-- ct_domains\nSELECT ",
    domain_columns!(),
    " FROM ct_domains WHERE name > ?1 ORDER BY name LIMIT ?2"
);
/// Returns values that change whenever a domain is added, changed or removed.
const DOMAINS_STAMP: &str = "-- ct_domains_stamp
SELECT count(*), COALESCE(CAST(sum(revision) AS BIGINT), 0), COALESCE(max(updated_at), 0) FROM ct_domains";
const DOMAIN_UPDATE: &str = "-- ct_domain_update
UPDATE ct_domains SET rule = ?2, enabled = ?3, services = ?4, revision = revision + 1, updated_at = ?5
WHERE name = ?1 AND revision = ?6";
const DOMAIN_DELETE: &str = "-- ct_domain_delete
DELETE FROM ct_domains WHERE name = ?1";
const SEARCHES_DELETE: &str = "-- ct_searches_delete
DELETE FROM ct_searches WHERE domain = ?1";
/// Deletes the searches of services that no longer watch the domain.
const SEARCHES_DROP: &str = "-- ct_searches_drop
DELETE FROM ct_searches WHERE domain = ?1 AND CAST(?2 AS TEXT) <> '' AND CAST(?2 AS TEXT) NOT LIKE '%|' || service || '|%'";
macro_rules! seed {
    ($name:literal, $which:literal) => {
        concat!(
            "-- ",
            $name,
            "
INSERT INTO ct_searches (service, domain, cursor, due_at, failures)
SELECT CAST(?1 AS TEXT), d.name, '{}', CAST(?2 AS BIGINT), 0 FROM ct_domains d
WHERE (d.services = '' OR d.services LIKE ?3) ",
            $which,
            "AND NOT EXISTS (SELECT 1 FROM ct_searches s WHERE s.service = CAST(?1 AS TEXT) AND s.domain = d.name)
ORDER BY d.name ON CONFLICT DO NOTHING"
        )
    };
}
/// Adds a search for every domain that the service watches and has not searched.
const SEED: &str = seed!("ct_searches_seed", "");
const SEED_ONE: &str = seed!("ct_searches_seed_one", "AND d.name = ?4 ");
const CLAIM: BulkStatement = db::bulk! {
    concat!(
        "-- ct_searches_claim
UPDATE ct_searches SET lease_holder = ?3, lease_until = ?4
WHERE (service, domain) IN (SELECT s.service, s.domain FROM ct_searches s JOIN ct_domains d ON d.name = s.domain
  WHERE s.service = ?1 AND s.due_at <= ?2 AND (s.lease_until IS NULL OR s.lease_until <= ?2) AND d.enabled = 1
  ORDER BY s.due_at, s.domain LIMIT ?5{| FOR UPDATE OF s SKIP LOCKED}) RETURNING ",
        search_columns!()
    )
};
const RENEW: BulkStatement = db::bulk! { (service text, domain text, holder uuid, until bigint)
    "-- ct_searches_renew
UPDATE ct_searches SET lease_until = :until WHERE service = :service AND domain = :domain AND lease_holder = :holder
  RETURNING service, domain"
};
const RELEASE: &str = "-- ct_searches_release
UPDATE ct_searches SET lease_holder = NULL, lease_until = NULL WHERE lease_holder = ?1";
const SEARCH_UPDATE: &str = "-- ct_search_leave
UPDATE ct_searches SET cursor = ?4, due_at = ?5, answered_at = ?6, failures = ?7, last_error = ?8, failing_since = ?9,
  baseline_at = ?10, lease_holder = ?11, lease_until = ?12
WHERE service = ?1 AND domain = ?2 AND lease_holder = ?3";
/// Makes searches due, except those that a node has claimed.
const SEARCHES_DUE: &str = "-- ct_searches_want
UPDATE ct_searches SET due_at = ?2 WHERE domain = ?1 AND (lease_until IS NULL OR lease_until <= ?2)";
const SEARCHES_OF: &str = concat!(
    "-- ct_searches_of\nSELECT ",
    search_columns!(),
    " FROM ct_searches WHERE domain = ?1 ORDER BY service LIMIT ?2"
);
const SEARCHES: &str = concat!(
    "-- ct_searches\nSELECT ",
    search_columns!(),
    " FROM ct_searches WHERE (domain, service) > (?1, ?2) ORDER BY domain, service LIMIT ?3"
);
const SERVICES: &str = "-- ct_services
SELECT s.service, count(*), CAST(sum(CASE WHEN s.failures > 0 THEN 1 ELSE 0 END) AS BIGINT), min(s.failing_since),
  min(s.due_at), max(s.answered_at)
FROM ct_searches s JOIN ct_domains d ON d.name = s.domain WHERE d.enabled = 1 GROUP BY s.service ORDER BY s.service";
const LOGS: &str =
    concat!("-- ct_logs\nSELECT ", log_columns!(), " FROM ct_logs ORDER BY name, log_id LIMIT ?1");
const LOG: &str = concat!("-- ct_log\nSELECT ", log_columns!(), " FROM ct_logs WHERE log_id = ?1");
/// Stores the new position of a log follower, and clears the alarm of the log. Has no effect if the stored position has changed
/// since the step began: two concurrent steps would report the same matches twice.
const LOG_STEPPED: &str = "-- ct_log_stepped
INSERT INTO ct_logs (log_id, name, place, behind, behind_since, last_error, failing_since, stepped_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (log_id) DO UPDATE
SET name = excluded.name, place = excluded.place, behind = excluded.behind, behind_since = excluded.behind_since,
    last_error = excluded.last_error, failing_since = excluded.failing_since, stepped_at = excluded.stepped_at,
    alarm = NULL, alarmed_at = NULL
WHERE ct_logs.place = ?9";
/// Records a failure. Keeps the start time of a series of failures.
const LOG_FAILED: &str = "-- ct_log_failed
INSERT INTO ct_logs (log_id, name, place, behind, stepped_at, last_error, failing_since) VALUES (?1, ?2, '', 0, 0, ?3, ?4)
ON CONFLICT (log_id) DO UPDATE
SET last_error = excluded.last_error, failing_since = COALESCE(ct_logs.failing_since, excluded.failing_since)";
/// Records an alarm. Keeps the time of the first alarm.
const LOG_ALARMED: &str = "-- ct_log_alarmed
INSERT INTO ct_logs (log_id, name, place, behind, stepped_at, alarm, alarmed_at) VALUES (?1, ?2, '', 0, 0, ?3, ?4)
ON CONFLICT (log_id) DO UPDATE
SET alarm = excluded.alarm, alarmed_at = COALESCE(ct_logs.alarmed_at, excluded.alarmed_at)";
const LOG_DELETE: &str = "-- ct_log_delete
DELETE FROM ct_logs WHERE log_id = ?1";

const DOMAIN_INSERT: &str = "-- ct_domain_insert
INSERT INTO ct_domains (name, rule, enabled, services, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5) ON CONFLICT DO NOTHING";

const ALL: &[&str] = &[
    DOMAIN,
    DOMAINS,
    DOMAINS_STAMP,
    DOMAIN_INSERT,
    DOMAIN_UPDATE,
    DOMAIN_DELETE,
    SEARCHES_DELETE,
    SEARCHES_DROP,
    SEED,
    SEED_ONE,
    RELEASE,
    SEARCH_UPDATE,
    SEARCHES_DUE,
    SEARCHES_OF,
    SEARCHES,
    SERVICES,
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
    issuances::TRIM_NAMES,
    issuances::TRIM,
];

pub(crate) const SENDS: ModuleStatements = ModuleStatements {
    both: ALL,
    sqlite: &[],
    postgres: &[issuances::LOCK],
    bulks: &[
        &RENEW,
        &CLAIM,
        &issuances::LEARN_TBS,
        &issuances::INSERT,
        &issuances::FIND,
        &issuances::LINK,
        &issuances::NAMES,
        &issuances::DERS,
        &issuances::JUDGE,
        &issuances::KNOWN,
        &issuances::MANAGED,
        &issuances::EXPECTED,
    ],
    composed: issuances::composed,
};

/// Result of adding a domain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CtDomainInsertion {
    /// The domain was added.
    Made,
    /// The domain is already watched.
    Exists,
    /// There are already [`CT_DOMAINS_MAX`] domains.
    Full,
}

/// Adds a domain.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_ct_domain(
    tx: &mut Tx,
    name: &str,
    settings: &CtDomainSettings,
    at_us: i64,
) -> Result<CtDomainInsertion, StoreError> {
    let stamp = tx.row(DOMAINS_STAMP, Vec::new()).await?.map(|mut row| row.int()).transpose()?;
    if stamp.unwrap_or(0) >= CT_DOMAINS_MAX {
        return Ok(CtDomainInsertion::Full);
    }
    let parameters = vec![
        name.into(),
        settings.rule.as_str().into(),
        settings.enabled.into(),
        join_with_bars(&settings.services).into(),
        at_us.into(),
    ];
    let made = tx.execute(DOMAIN_INSERT, parameters).await?;
    Ok(if made == 1 { CtDomainInsertion::Made } else { CtDomainInsertion::Exists })
}

/// Changes a domain if it still has this revision. Returns false if the revision differs or the domain is not watched. Deletes the
/// search state of services that no longer watch the domain.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_ct_domain(
    tx: &mut Tx,
    name: &str,
    settings: &CtDomainSettings,
    at_us: i64,
    revision: i64,
) -> Result<bool, StoreError> {
    let services = join_with_bars(&settings.services);
    let parameters = vec![
        name.into(),
        settings.rule.as_str().into(),
        settings.enabled.into(),
        services.as_str().into(),
        at_us.into(),
        revision.into(),
    ];
    if tx.execute(DOMAIN_UPDATE, parameters).await? == 0 {
        return Ok(false);
    }
    tx.execute(SEARCHES_DROP, vec![name.into(), services.into()]).await?;
    Ok(true)
}

/// Joins names with `|` before, between and after them, so that SQL can search for one name; empty without names.
fn join_with_bars(services: &[String]) -> String {
    if services.is_empty() { String::new() } else { format!("|{}|", services.join("|")) }
}

/// Adds searches that are due at `at_us` for `domain`, or for all domains, if `service` watches them and has no search yet. Returns
/// their number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn seed_ct_searches(
    tx: &mut Tx,
    service: &str,
    domain: Option<&str>,
    at_us: i64,
) -> Result<u64, StoreError> {
    let mut parameters = vec![service.into(), at_us.into(), format!("%|{service}|%").into()];
    match domain {
        Some(domain) => {
            parameters.push(domain.into());
            tx.execute(SEED_ONE, parameters).await
        }
        None => tx.execute(SEED, parameters).await,
    }
}

/// Makes a domain's searches due at `at_us`, except those in progress; returns their number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn make_ct_searches_due(tx: &mut Tx, domain: &str, at_us: i64) -> Result<u64, StoreError> {
    tx.execute(SEARCHES_DUE, vec![domain.into(), at_us.into()]).await
}

/// Stores the state of a claimed search in the transaction of its results. Returns false when `holder` has lost the claim; the
/// caller must then store nothing. The claim ends unless `left` has a holder.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn store_ct_search(tx: &mut Tx, holder: Uuid, left: &CtSearchRow) -> Result<bool, StoreError> {
    let error = left.last_error.as_deref().map(|error| storable(error).into_owned());
    let parameters = vec![
        left.service.as_str().into(),
        left.domain.as_str().into(),
        holder.into(),
        left.cursor.as_str().into(),
        left.due_at_us.into(),
        left.answered_at_us.into(),
        left.failures.into(),
        error.into(),
        left.failing_since_us.into(),
        left.baseline_at_us.into(),
        left.holder.map_or(Value::Null, Value::from),
        left.until_us.into(),
    ];
    Ok(tx.execute(SEARCH_UPDATE, parameters).await? == 1)
}

/// Stops watching a domain; its issuances stay in the database. Returns false if the domain was not watched.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_ct_domain(tx: &mut Tx, name: &str) -> Result<bool, StoreError> {
    tx.execute(SEARCHES_DELETE, vec![name.into()]).await?;
    Ok(tx.execute(DOMAIN_DELETE, vec![name.into()]).await? == 1)
}

/// Stores a follower's step in the transaction of its matches. Returns false when the log's position differs from the one before
/// the step; the caller must then store nothing. Ends the log's alarm.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn step_ct_log(tx: &mut Tx, step: &CtLogStep) -> Result<bool, StoreError> {
    let warning = step.warning.as_deref().map(|warning| storable(warning).into_owned());
    let parameters = vec![
        step.log_id.into(),
        step.name.as_str().into(),
        step.position.as_str().into(),
        step.behind.into(),
        step.behind_since_us.into(),
        warning.into(),
        step.failing_since_us.into(),
        step.at_us.into(),
        step.from.as_str().into(),
    ];
    Ok(tx.execute(LOG_STEPPED, parameters).await? == 1)
}

/// Records why a log could not be read.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn fail_ct_log(
    tx: &mut Tx,
    log_id: [u8; 32],
    name: &str,
    error: &str,
    at_us: i64,
) -> Result<(), StoreError> {
    let parameters = vec![log_id.into(), name.into(), storable(error).into_owned().into(), at_us.into()];
    tx.execute(LOG_FAILED, parameters).await.map(drop)
}

/// Records that a log is inconsistent. Its position is unchanged.
///
/// # Errors
/// Database errors.
#[crate::boxed]
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

/// Deletes a log's state, so that the follower starts as in a new log. Returns false when the log has no stored state.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_ct_log(tx: &mut Tx, log_id: [u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.execute(LOG_DELETE, vec![log_id.into()]).await? == 1)
}

impl Ct<'_> {
    /// Returns a watched domain by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn domain(self, name: &str) -> Result<Option<CtDomainRow>, StoreError> {
        self.0.row(DOMAIN, vec![name.into()]).await?.map(|mut row| domain_row(&mut row)).transpose()
    }

    /// Returns a page of the watched domains, sorted by name.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn domains(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtDomainRow>, StoreError> {
        let mut parameters = key_or(after, "ct-domains", &[Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, DOMAINS, parameters).await?;
        page(rows, limit, "ct-domains", |mut row| {
            let domain = domain_row(&mut row)?;
            let key = vec![domain.name.as_str().into()];
            Ok((domain, key))
        })
    }

    /// Returns values that change whenever a domain is added, changed or removed.
    ///
    /// # Errors
    /// Database errors.
    pub async fn domains_stamp(self) -> Result<(i64, i64, i64), StoreError> {
        let row = self.0.row(DOMAINS_STAMP, Vec::new()).await?;
        let read = |mut row: Row| Ok((row.int()?, row.int()?, row.int()?));
        row.map(read).transpose().map(Option::unwrap_or_default)
    }

    /// Claims up to `limit` searches of `service` for `holder`, until `until_us`. Selects searches that are due at `now_us`,
    /// earliest first, and skips searches with a valid claim of another node. Sends one statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn claim_searches(
        self,
        service: &str,
        holder: Uuid,
        now_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<CtSearchRow>, StoreError> {
        let statement = CLAIM.of(self.0);
        let limit = limit_of(limit).0 as i64;
        let parameters = vec![service.into(), now_us.into(), holder.into(), until_us.into(), limit.into()];
        let claimed = self.0.write("ct_searches_claim", move |tx| tx.rows(statement, parameters).boxed());
        claimed.await?.into_iter().map(search_row).collect()
    }

    /// Extends the claims of `holder` on these searches (service and domain) to `until_us`. Returns the searches that `holder`
    /// still has claimed.
    ///
    /// # Errors
    /// Database errors.
    pub async fn renew_searches(
        self,
        holder: Uuid,
        claimed: &[(String, String)],
        until_us: i64,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let columns = vec![
            Column::Text(claimed.iter().map(|(service, _)| service.clone()).collect()),
            Column::Text(claimed.iter().map(|(_, domain)| domain.clone()).collect()),
            Column::Uuid(vec![holder; claimed.len()]),
            Column::Int(vec![until_us; claimed.len()]),
        ];
        let renewed = self.0.write("ct_searches_renew", move |tx| tx.bulk(&RENEW, columns).boxed());
        renewed.await?.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
    }

    /// Releases all searches that `holder` has claimed.
    ///
    /// # Errors
    /// Database errors.
    pub async fn release_searches(self, holder: Uuid) -> Result<(), StoreError> {
        self.0.execute(RELEASE, vec![holder.into()]).await.map(drop)
    }

    /// Returns the search state of each service for a domain; there are only a few.
    ///
    /// # Errors
    /// Database errors.
    pub async fn searches_of(self, domain: &str) -> Result<Vec<CtSearchRow>, StoreError> {
        let most = limit_of(db::PAGE_ROWS_MAX).0 as i64;
        let rows = self.0.rows(Cost::Walk, SEARCHES_OF, vec![domain.into(), most.into()]).await?;
        rows.into_iter().map(search_row).collect()
    }

    /// Returns a page of search states, sorted by domain and service.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn searches(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CtSearchRow>, StoreError> {
        let first = [Value::Text(String::new()), Value::Text(String::new())];
        let mut parameters = key_or(after, "ct-searches", &first)?;
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, SEARCHES, parameters).await?;
        page(rows, limit, "ct-searches", |row| {
            let search = search_row(row)?;
            let key = vec![search.domain.as_str().into(), search.service.as_str().into()];
            Ok((search, key))
        })
    }

    /// Returns the state of each service's searches, sorted by the service's name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn services(self) -> Result<Vec<CtServiceRow>, StoreError> {
        let service = |mut row: Row| {
            Ok(CtServiceRow {
                service: row.text()?,
                domains: row.int()?,
                failing: row.int()?,
                failing_since_us: row.maybe_int()?,
                due_at_us: row.int()?,
                answered_at_us: row.maybe_int()?,
            })
        };
        self.0.rows(Cost::Walk, SERVICES, Vec::new()).await?.into_iter().map(service).collect()
    }

    /// Returns every followed log, sorted by name; there are a few dozen.
    ///
    /// # Errors
    /// Database errors.
    pub async fn logs(self) -> Result<Vec<CtLogRow>, StoreError> {
        let most = limit_of(db::PAGE_ROWS_MAX).0 as i64;
        self.0.rows(Cost::Walk, LOGS, vec![most.into()]).await?.into_iter().map(log_row).collect()
    }

    /// Returns a followed log by its log ID.
    ///
    /// # Errors
    /// Database errors.
    pub async fn log(self, log_id: [u8; 32]) -> Result<Option<CtLogRow>, StoreError> {
        self.0.row(LOG, vec![log_id.into()]).await?.map(log_row).transpose()
    }
}

fn domain_row(row: &mut Row) -> Result<CtDomainRow, StoreError> {
    Ok(CtDomainRow {
        name: row.text()?,
        rule: row.text()?,
        enabled: row.flag()?,
        services: {
            let join_with_bars = row.text()?;
            join_with_bars.split('|').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        },
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

fn search_row(mut row: Row) -> Result<CtSearchRow, StoreError> {
    Ok(CtSearchRow {
        service: row.text()?,
        domain: row.text()?,
        cursor: row.text()?,
        due_at_us: row.int()?,
        answered_at_us: row.maybe_int()?,
        failures: row.int()?,
        last_error: row.maybe_text()?,
        failing_since_us: row.maybe_int()?,
        baseline_at_us: row.maybe_int()?,
        holder: row.maybe_uuid()?,
        until_us: row.maybe_int()?,
    })
}

fn log_row(mut row: Row) -> Result<CtLogRow, StoreError> {
    Ok(CtLogRow {
        log_id: row.hash()?,
        name: row.text()?,
        position: row.text()?,
        behind: row.int()?,
        stepped_at_us: row.int()?,
        failing_since_us: row.maybe_int()?,
        behind_since_us: row.maybe_int()?,
        last_error: row.maybe_text()?,
        alarm: row.maybe_text()?,
        alarmed_at_us: row.maybe_int()?,
    })
}

/// Every statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[SENDS];
