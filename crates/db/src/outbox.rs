//! The outbox: events that commit with what they tell of. Delivery is at least once; each consumer keeps its place.

use crate::column::Column;
use crate::database::{Cost, Database};
use crate::dialect::bulk;
use crate::error::StoreError;
use crate::statement::{Bulk, Sends};
use crate::tx::Tx;
use crate::value::Row;

/// An event that is to go into the outbox.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// When, µs.
    pub at_us: i64,
    /// What, as noun and past tense: `certificate.issued`.
    pub kind: &'static str,
    /// The subject: `certificate/UUID`.
    pub subject: String,
    /// The rest as JSON; never a secret.
    pub body: String,
}

/// An event on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    /// Its place: give it to [`Database::outbox_advance`] once it is handled.
    pub place: OutboxPlace,
    /// When, µs.
    pub at_us: i64,
    /// The kind.
    pub kind: String,
    /// The subject.
    pub subject: String,
    /// JSON.
    pub body: String,
}

/// A place in the outbox. Places grow in the order in which a reader may see events.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct OutboxPlace {
    /// The transaction, on PostgreSQL; 0 on SQLite, which has one writer.
    pub transaction: i64,
    /// The row.
    pub id: i64,
}

pub(crate) const INSERT: Bulk = bulk! { (at bigint, kind text, subject text, body text)
    "-- outbox_insert
INSERT INTO outbox (at, kind, subject, body) VALUES (:at, :kind, :subject, :body)"
};

/// On PostgreSQL only what no transaction still open can come before.
const READ: Bulk = bulk! {
    "-- outbox_read
SELECT tx, id, at, kind, subject, body FROM outbox
WHERE (tx, id) > (?1, ?2){| AND tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint} ORDER BY tx, id LIMIT ?3"
};

const PLACE: &str = "-- outbox_place
SELECT tx, id FROM outbox_consumers WHERE name = ?1";

const ADVANCE: &str = "-- outbox_advance
INSERT INTO outbox_consumers (name, tx, id) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET tx = excluded.tx, id = excluded.id
WHERE (outbox_consumers.tx, outbox_consumers.id) < (excluded.tx, excluded.id)";

const LAST: &str = "-- outbox_last
SELECT tx, id FROM outbox ORDER BY tx DESC, id DESC LIMIT 1";

/// The last row that a reader sees; whatever commits later stands behind it.
const SEEN: Bulk = bulk! {
    "-- outbox_seen
SELECT tx, id FROM outbox{| WHERE tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint}
ORDER BY tx DESC, id DESC LIMIT 1"
};

const HAS: &str = "-- outbox_has
SELECT tx, id FROM outbox WHERE tx = ?1 AND id = ?2";

/// Rows older than a time that every consumer has passed.
const TRIM: &str = "-- outbox_trim
DELETE FROM outbox WHERE at < ?1
AND NOT EXISTS (SELECT 1 FROM outbox_consumers c WHERE (c.tx, c.id) < (outbox.tx, outbox.id))";

const ALL: &[&str] = &[PLACE, ADVANCE, LAST, HAS, TRIM];
const BULKS: &[&Bulk] = &[&INSERT, &READ, &SEEN];

pub(crate) const SENDS: Sends = Sends::of(ALL, BULKS);

/// Puts events into the outbox, in the caller's transaction: one statement, however many events.
///
/// # Errors
/// Those of the database.
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

/// Moves a consumer forward in the transaction that handles its events; never backward.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn outbox_advance(tx: &mut Tx, consumer: &str, to: OutboxPlace) -> Result<(), StoreError> {
    tx.execute(ADVANCE, vec![consumer.into(), to.transaction.into(), to.id.into()]).await.map(drop)
}

impl Database {
    /// The next events after `after`, in order, at most `limit`.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn outbox_after(&self, after: OutboxPlace, limit: i64) -> Result<Vec<OutboxRow>, StoreError> {
        let parameters = vec![after.transaction.into(), after.id.into(), limit.into()];
        self.rows(Cost::Point, READ.of(self), parameters).await?.into_iter().map(row_of).collect()
    }

    /// Where a consumer stands; the beginning for a new one.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn outbox_place(&self, consumer: &str) -> Result<OutboxPlace, StoreError> {
        self.row(PLACE, vec![consumer.into()]).await?.map_or_else(|| Ok(OutboxPlace::default()), place_of)
    }

    /// The end of the outbox as it is now: where a consumer begins that wants nothing from the past.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn outbox_end(&self) -> Result<OutboxPlace, StoreError> {
        self.row(LAST, Vec::new()).await?.map_or_else(|| Ok(OutboxPlace::default()), place_of)
    }

    /// As [`Self::outbox_end`], before everything that is yet to commit: an event of a transaction that is open now comes
    /// after it, also where a later transaction has committed before.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn outbox_seen(&self) -> Result<OutboxPlace, StoreError> {
        self.row(SEEN.of(self), Vec::new()).await?.map_or_else(|| Ok(OutboxPlace::default()), place_of)
    }

    /// Whether the event at this place is still kept: then so are those after it.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn outbox_has(&self, place: OutboxPlace) -> Result<bool, StoreError> {
        Ok(self.row(HAS, vec![place.transaction.into(), place.id.into()]).await?.is_some())
    }

    /// Moves a consumer forward, past events it has handled; never backward.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn outbox_advance(&self, consumer: &str, to: OutboxPlace) -> Result<(), StoreError> {
        self.execute(ADVANCE, vec![consumer.into(), to.transaction.into(), to.id.into()]).await.map(drop)
    }

    /// Drops events older than `before_us` that every consumer has handled; says how many.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn outbox_trim(&self, before_us: i64) -> Result<u64, StoreError> {
        self.execute(TRIM, vec![before_us.into()]).await
    }
}

fn place_of(mut row: Row) -> Result<OutboxPlace, StoreError> {
    Ok(OutboxPlace { transaction: row.int()?, id: row.int()? })
}

fn row_of(mut row: Row) -> Result<OutboxRow, StoreError> {
    Ok(OutboxRow {
        place: OutboxPlace { transaction: row.int()?, id: row.int()? },
        at_us: row.int()?,
        kind: row.text()?,
        subject: row.text()?,
        body: row.text()?,
    })
}
