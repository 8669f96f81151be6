//! The outbox: events that are committed together with the change that they report. Delivery is at least once. Each consumer has
//! its own position.

use crate::column::Column;
use crate::database::{Cost, Database};
use crate::dialect::bulk;
use crate::error::StoreError;
use crate::statement::{BulkStatement, ModuleStatements};
use crate::tx::Tx;
use crate::value::Row;

/// An event to add to the outbox.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Time of the event, µs.
    pub at_us: i64,
    /// Kind as noun and past tense: `certificate.issued`.
    pub kind: &'static str,
    /// Subject of the event: `certificate/UUID`.
    pub subject: String,
    /// Further data as JSON. Never a secret.
    pub body: String,
}

/// An event read from the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    /// Position of the event. Pass it to [`Database::outbox_advance`] once the event is handled.
    pub position: OutboxPosition,
    /// Time of the event, µs.
    pub at_us: i64,
    /// Kind as noun and past tense: `certificate.issued`.
    pub kind: String,
    /// Subject of the event: `certificate/UUID`.
    pub subject: String,
    /// Further data as JSON.
    pub body: String,
}

/// A position in the outbox. Positions increase in the order in which a reader may see events.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct OutboxPosition {
    /// Transaction id on PostgreSQL. 0 on SQLite, which has only one writer.
    pub transaction: i64,
    /// Row id of the event in the outbox.
    pub id: i64,
}

pub(crate) const INSERT: BulkStatement = bulk! { (at bigint, kind text, subject text, body text)
    "-- outbox_insert
INSERT INTO outbox (at, kind, subject, body) VALUES (:at, :kind, :subject, :body)"
};

/// On PostgreSQL, selects only events that come before all open transactions.
const READ: BulkStatement = bulk! {
    "-- outbox_read
SELECT tx, id, at, kind, subject, body FROM outbox
WHERE (tx, id) > (?1, ?2){| AND tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint} ORDER BY tx, id LIMIT ?3"
};

const POSITION: &str = "-- outbox_place
SELECT tx, id FROM outbox_consumers WHERE name = ?1";

const ADVANCE: &str = "-- outbox_advance
INSERT INTO outbox_consumers (name, tx, id) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET tx = excluded.tx, id = excluded.id
WHERE (outbox_consumers.tx, outbox_consumers.id) < (excluded.tx, excluded.id)";

const LAST: &str = "-- outbox_last
SELECT tx, id FROM outbox ORDER BY tx DESC, id DESC LIMIT 1";

/// The last row that readers can see. Later commits get later positions.
const SEEN: BulkStatement = bulk! {
    "-- outbox_seen
SELECT tx, id FROM outbox{| WHERE tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint}
ORDER BY tx DESC, id DESC LIMIT 1"
};

const HAS: &str = "-- outbox_has
SELECT tx, id FROM outbox WHERE tx = ?1 AND id = ?2";

/// Deletes rows that are older than a time and that every consumer has passed.
const TRIM: &str = "-- outbox_trim
DELETE FROM outbox WHERE at < ?1
AND NOT EXISTS (SELECT 1 FROM outbox_consumers c WHERE (c.tx, c.id) < (outbox.tx, outbox.id))";

const ALL: &[&str] = &[POSITION, ADVANCE, LAST, HAS, TRIM];
const BULKS: &[&BulkStatement] = &[&INSERT, &READ, &SEEN];

pub(crate) const MODULE_STATEMENTS: ModuleStatements = ModuleStatements::of(ALL, BULKS);

/// Adds events to the outbox, in the caller's transaction. One statement for any number of events.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn emit(tx: &mut Tx, events: Vec<NewEvent>) -> Result<(), StoreError> {
    tx.bulk(&INSERT, columns_of(&events)).await.map(drop)
}

pub(crate) fn columns_of(events: &[NewEvent]) -> Vec<Column> {
    vec![
        Column::Int(events.iter().map(|event| event.at_us).collect()),
        Column::Text(events.iter().map(|event| event.kind.to_owned()).collect()),
        Column::Text(events.iter().map(|event| event.subject.replace('\0', "\u{fffd}")).collect()),
        Column::Text(events.iter().map(|event| event.body.replace("\\u0000", "\\ufffd")).collect()),
    ]
}

/// Advances a consumer in the transaction that handles its events. Never moves it back.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn outbox_advance(tx: &mut Tx, consumer: &str, to: OutboxPosition) -> Result<(), StoreError> {
    tx.execute(ADVANCE, vec![consumer.into(), to.transaction.into(), to.id.into()]).await.map(drop)
}

impl Database {
    /// Returns the next events after `after`, in order, at most `limit`.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn outbox_after(
        &self,
        after: OutboxPosition,
        limit: i64,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let parameters = vec![after.transaction.into(), after.id.into(), limit.into()];
        self.rows(Cost::Point, READ.of(self), parameters).await?.into_iter().map(row_of).collect()
    }

    /// Returns the position of a consumer. A new consumer is at the start.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn outbox_position(&self, consumer: &str) -> Result<OutboxPosition, StoreError> {
        self.row(POSITION, vec![consumer.into()])
            .await?
            .map_or_else(|| Ok(OutboxPosition::default()), position_of)
    }

    /// Returns the current end of the outbox: the start position of a consumer that needs no past events.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn outbox_end(&self) -> Result<OutboxPosition, StoreError> {
        self.row(LAST, Vec::new()).await?.map_or_else(|| Ok(OutboxPosition::default()), position_of)
    }

    /// Returns the last position that is before every open transaction. Events of transactions that are open now get later
    /// positions, even if a later transaction is already committed. [`Self::outbox_end`] does not guarantee this.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn outbox_stable_end(&self) -> Result<OutboxPosition, StoreError> {
        self.row(SEEN.of(self), Vec::new()).await?.map_or_else(|| Ok(OutboxPosition::default()), position_of)
    }

    /// Returns whether the event at this position still exists. If so, all later events exist, too.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn outbox_contains(&self, position: OutboxPosition) -> Result<bool, StoreError> {
        Ok(self.row(HAS, vec![position.transaction.into(), position.id.into()]).await?.is_some())
    }

    /// Advances a consumer past handled events. Never moves it back.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn outbox_advance(&self, consumer: &str, to: OutboxPosition) -> Result<(), StoreError> {
        self.execute(ADVANCE, vec![consumer.into(), to.transaction.into(), to.id.into()]).await.map(drop)
    }

    /// Deletes events older than `before_us` that every consumer has handled. Returns their number.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn outbox_trim(&self, before_us: i64) -> Result<u64, StoreError> {
        self.execute(TRIM, vec![before_us.into()]).await
    }
}

fn position_of(mut row: Row) -> Result<OutboxPosition, StoreError> {
    Ok(OutboxPosition { transaction: row.int()?, id: row.int()? })
}

fn row_of(mut row: Row) -> Result<OutboxRow, StoreError> {
    Ok(OutboxRow {
        position: OutboxPosition { transaction: row.int()?, id: row.int()? },
        at_us: row.int()?,
        kind: row.text()?,
        subject: row.text()?,
        body: row.text()?,
    })
}
