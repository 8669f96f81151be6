//! The audit log: append-only and hash-chained per shard. An event is written in the transaction of the change that it reports.
//!
//! A writer takes any free chain, so writers do not queue for one row. The hash of an event covers the previous hash. So a changed,
//! removed or inserted event breaks the chain. Heads reveal whether events at the end of a chain were removed.

pub(crate) mod head;
pub(crate) mod verify;

use aws_lc_rs::digest::{Context, SHA256};
use serde_json::Value as Json;

use crate::audit::head::AuditHead;
use crate::column::Column;
use crate::cursor::Cursor;
use crate::database::{Cost, Database};
use crate::dialect::bulk;
use crate::error::StoreError;
use crate::outbox::{self, NewEvent};
use crate::page::{Page, limit_of};
use crate::statement::{BulkStatement, ModuleStatements};
use crate::tx::Tx;
use crate::value::{Row, Value};

/// An event to append to the audit log.
#[derive(Clone, Debug)]
pub struct AuditEvent {
    /// Time of the event, µs.
    pub at_us: i64,
    /// Actor: `user:alice`, `token:ci`, `acme:ACCOUNT`, `agent:ID`, `system:renewal`.
    pub actor: String,
    /// Action as noun and verb: `certificate.issue`.
    pub action: &'static str,
    /// Resource that the event is about, such as `certificate/UUID`.
    pub resource: String,
    /// Further details. Never a secret.
    pub details: Json,
}

/// An event of the audit log as stored, with its position and hash in the chain.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRow {
    /// Number of the audit log chain (shard).
    pub shard: i64,
    /// Position in the chain, from 1.
    pub sequence: i64,
    /// Time of the event, µs.
    pub at_us: i64,
    /// Actor that caused the event.
    pub actor: String,
    /// Action, as in the audit log: `profile.put`.
    pub action: String,
    /// Resource that the event is about.
    pub resource: String,
    /// Details as JSON.
    pub details: String,
    /// SHA-256 over the previous hash and the fields of the event.
    pub hash: [u8; 32],
}

/// Filter for listing audit events by actor, action, resource and time. All given conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only events of this actor.
    pub actor: Option<String>,
    /// Only events with this action.
    pub action: Option<String>,
    /// Only events about this resource.
    pub resource: Option<String>,
    /// Start of the time range, inclusive, µs.
    pub from_us: Option<i64>,
    /// End of the time range, exclusive, µs.
    pub before_us: Option<i64>,
}

const HEAD_FREE: BulkStatement = bulk! {
    "-- audit_head_free
SELECT shard, sequence, hash FROM audit_chains ORDER BY shard LIMIT 1{| FOR UPDATE SKIP LOCKED}"
};

const HEAD_WAIT: &str = "-- audit_head_wait
SELECT shard, sequence, hash FROM audit_chains WHERE shard = ?1 FOR UPDATE";

const HEAD_MOVE: BulkStatement = bulk! { (shard bigint, sequence bigint, hash bytea)
    "-- audit_head_move
UPDATE audit_chains SET sequence = :sequence, hash = :hash WHERE shard = :shard"
};

const EVENTS_INSERT: BulkStatement = bulk! {
    (shard bigint, sequence bigint, at bigint, actor text, action text, resource text, details text, hash bytea)
    "-- audit_insert
INSERT INTO audit_events (shard, sequence, at, actor, action, resource, details, hash)
VALUES (:shard, :sequence, :at, :actor, :action, :resource, :details, :hash)"
};

pub(crate) const CHAINS: &str = "-- audit_chains
SELECT shard, sequence, hash FROM audit_chains ORDER BY shard";

pub(crate) const CHAIN_PAGE: &str = "-- audit_chain_page
SELECT shard, sequence, at, actor, action, resource, details, hash FROM audit_events
WHERE shard = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";

/// Deletes the events of a shard up to a sequence number, but at most ?3 of them, counted from the oldest.
const TRIM: &str = "-- audit_trim
DELETE FROM audit_events WHERE shard = ?1 AND sequence <= ?2
AND sequence < (SELECT MIN(sequence) FROM audit_events WHERE shard = ?1) + ?3";

const ALL: &[&str] = &[CHAINS, CHAIN_PAGE, TRIM];
const POSTGRES: &[&str] = &[HEAD_WAIT];
const BULKS: &[&BulkStatement] = &[&HEAD_FREE, &EVENTS_INSERT, &HEAD_MOVE];

/// Appends events to the log, in the caller's transaction. Three statements for any number of events.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn audit(tx: &mut Tx, events: Vec<AuditEvent>) -> Result<(), StoreError> {
    audit_and_emit(tx, events, &[]).await
}

/// Records an event if `done`; returns `done`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn audit_if(tx: &mut Tx, done: bool, event: AuditEvent) -> Result<bool, StoreError> {
    if done {
        audit(tx, vec![event]).await?;
    }
    Ok(done)
}

/// Combines [`audit`] and [`outbox::emit`] in one round trip.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn audit_and_emit(
    tx: &mut Tx,
    events: Vec<AuditEvent>,
    outbox_events: &[NewEvent],
) -> Result<(), StoreError> {
    if events.is_empty() {
        return tx.bulk(&outbox::INSERT, outbox::columns_of(outbox_events)).await.map(drop);
    }
    let mut head = match tx.audit_head {
        Some(head) => head,
        None => lock_free_chain(tx).await?,
    };
    let mut rows = Vec::with_capacity(events.len());
    for event in events {
        let details = event.details.to_string().replace("\\u0000", "\\ufffd");
        let row = AuditRow {
            shard: head.shard,
            sequence: head.sequence + 1,
            at_us: event.at_us,
            actor: event.actor.replace('\0', "\u{fffd}"),
            action: event.action.to_owned(),
            resource: event.resource.replace('\0', "\u{fffd}"),
            details,
            hash: [0; 32],
        };
        let hash = hash_of(&head.hash, &row);
        head = AuditHead { shard: head.shard, sequence: row.sequence, hash };
        rows.push(AuditRow { hash, ..row });
    }
    let moved = vec![
        Column::Int(vec![head.shard]),
        Column::Int(vec![head.sequence]),
        Column::Blob(vec![head.hash.to_vec()]),
    ];
    let outbox_events = (&outbox::INSERT, outbox::columns_of(outbox_events));
    tx.bulks(&[(&EVENTS_INSERT, columns_of(&rows)), (&HEAD_MOVE, moved), outbox_events]).await?;
    tx.audit_head = Some(head);
    Ok(())
}

fn columns_of(rows: &[AuditRow]) -> Vec<Column> {
    vec![
        Column::Int(rows.iter().map(|row| row.shard).collect()),
        Column::Int(rows.iter().map(|row| row.sequence).collect()),
        Column::Int(rows.iter().map(|row| row.at_us).collect()),
        Column::Text(rows.iter().map(|row| row.actor.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.action.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.resource.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.details.clone()).collect()),
        Column::Blob(rows.iter().map(|row| row.hash.to_vec()).collect()),
    ]
}

/// Returns a chain that no other writer has locked. When all are locked, waits for the first one.
async fn lock_free_chain(tx: &mut Tx) -> Result<AuditHead, StoreError> {
    let mut found = tx.row(tx.text_of(&HEAD_FREE), Vec::new()).await?;
    if found.is_none() {
        found = tx.row(HEAD_WAIT, vec![0.into()]).await?;
    }
    found
        .map(head_of)
        .transpose()?
        .ok_or_else(|| StoreError::Corrupt("the audit chain is missing".to_owned()))
}

pub(crate) fn head_of(mut row: Row) -> Result<AuditHead, StoreError> {
    Ok(AuditHead { shard: row.int()?, sequence: row.int()?, hash: row.hash()? })
}

/// Returns SHA-256 over the previous hash and every field, each preceded by its length, so that different events never have the
/// same input.
pub(crate) fn hash_of(before: &[u8; 32], row: &AuditRow) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(before);
    for number in [row.shard, row.sequence, row.at_us] {
        context.update(&number.to_be_bytes());
    }
    for text in [&row.actor, &row.action, &row.resource, &row.details] {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

pub(crate) fn row_of(mut row: Row) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        shard: row.int()?,
        sequence: row.int()?,
        at_us: row.int()?,
        actor: row.text()?,
        action: row.text()?,
        resource: row.text()?,
        details: row.text()?,
        hash: row.hash()?,
    })
}

impl Database {
    /// Returns a page of the log, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for a cursor of another listing; database errors.
    #[crate::boxed]
    pub async fn audit_page(
        &self,
        filter: &AuditFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AuditRow>, StoreError> {
        let key = after
            .map(|cursor| cursor.key("audit", &[Value::Int(0), Value::Int(0), Value::Int(0)]))
            .transpose()?;
        let (limit, fetch_limit) = limit_of(limit);
        let (statement, parameters) = page(filter, key, fetch_limit);
        let found = self.rows(Cost::Walk, &statement, parameters).await?;
        let more = found.len() > limit;
        let rows = found.into_iter().take(limit).map(row_of).collect::<Result<Vec<_>, _>>()?;
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| Cursor::new("audit", &[row.at_us.into(), row.shard.into(), row.sequence.into()]));
        Ok(Page { rows, next })
    }

    /// Returns the heads of all chains from one snapshot, in the order of the chains.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn audit_heads(&self) -> Result<Vec<AuditHead>, StoreError> {
        self.rows(Cost::Walk, CHAINS, Vec::new()).await?.into_iter().map(head_of).collect()
    }

    /// Returns the next events of a chain after the position `after`, at most `limit`, in order.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn audit_chain_page(
        &self,
        shard: i64,
        after: i64,
        limit: usize,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let parameters = vec![shard.into(), after.into(), (limit as i64).into()];
        self.rows(Cost::Walk, CHAIN_PAGE, parameters).await?.into_iter().map(row_of).collect()
    }

    /// Deletes the first events of a chain up to the position `through`, at most `limit`. Returns their number. Only for events
    /// that are stored elsewhere.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn audit_trim(&self, shard: i64, through: i64, limit: usize) -> Result<u64, StoreError> {
        self.execute(TRIM, vec![shard.into(), through.into(), (limit as i64).into()]).await
    }
}

/// Builds the statement of a page and its parameters. The statement contains only the conditions that are set.
fn page(filter: &AuditFilter, after: Option<Vec<Value>>, limit: i64) -> (String, Vec<Value>) {
    let mut parameters: Vec<Value> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    let mut add = |condition: &str, value: Value| {
        parameters.push(value);
        conditions.push(format!("{condition} ?{}", parameters.len()));
    };
    let texts = [("actor =", &filter.actor), ("action =", &filter.action), ("resource =", &filter.resource)];
    for (condition, text) in texts {
        if let Some(text) = text {
            add(condition, text.as_str().into());
        }
    }
    if let Some(from) = filter.from_us {
        add("at >=", from.into());
    }
    if let Some(before) = filter.before_us {
        add("at <", before.into());
    }
    if let Some(key) = after {
        let first = parameters.len() + 1;
        conditions.push(format!("(at, shard, sequence) < (?{first}, ?{}, ?{})", first + 1, first + 2));
        parameters.extend(key);
    }
    parameters.push(limit.into());
    let condition =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}\n", conditions.join(" AND ")) };
    let statement = format!(
        "-- audit_page\nSELECT shard, sequence, at, actor, action, resource, details, hash FROM audit_events\n\
         {condition}ORDER BY at DESC, shard DESC, sequence DESC LIMIT ?{}",
        parameters.len()
    );
    (statement, parameters)
}

pub(crate) const MODULE_STATEMENTS: ModuleStatements =
    ModuleStatements { both: ALL, sqlite: &[], postgres: POSTGRES, bulks: BULKS, composed };

/// Returns every form of the page statement, for the test that prepares all statements.
fn composed() -> Vec<String> {
    let some = || Some(String::new());
    let full =
        AuditFilter { actor: some(), action: some(), resource: some(), from_us: Some(0), before_us: Some(0) };
    vec![page(&AuditFilter::default(), None, 1).0, page(&full, Some(vec![0.into(), 0.into(), 0.into()]), 1).0]
}
