//! Signed heads, the key that signs them, and the witnesses that have them.

use uuid::Uuid;

use db::{Cost, Row, Sends, StoreError, Tx, Value};

store::handle! {
    /// Signed heads of the audit log, and how far witnesses have them.
    Heads
}

/// The key that signs heads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditKeyRow {
    /// The key, in the table `keys`.
    pub key: Uuid,
    /// Names the log in its heads.
    pub server: Uuid,
    /// Creation time, µs.
    pub created_at_us: i64,
}

/// How far a witness is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WitnessRow {
    /// Its name: `file`, `syslog`, `webhook`.
    pub name: String,
    /// The number of the last head that it has.
    pub sequence: i64,
    /// Since when it fails, µs.
    pub failing_since_us: Option<i64>,
    /// Why.
    pub error: Option<String>,
}

const KEY: &str = "-- audit_key
SELECT key_id, server, created_at FROM audit_keys WHERE number = 1";

const KEY_INSERT: &str = "-- audit_key_insert
INSERT INTO audit_keys (number, key_id, server, created_at) VALUES (1, ?1, ?2, ?3) ON CONFLICT DO NOTHING";

const NEWEST: &str = "-- audit_head_newest
SELECT sequence, document FROM audit_heads ORDER BY sequence DESC LIMIT 1";

const AFTER: &str = "-- audit_heads_after
SELECT sequence, document FROM audit_heads WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";

const INSERT: &str = "-- audit_head_insert
INSERT INTO audit_heads (sequence, at, document) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";

const WITNESS: &str = "-- audit_witness
SELECT name, sequence, failing_since, error FROM audit_witnesses WHERE name = ?1";

const WITNESS_PUT: &str = "-- audit_witness_put
INSERT INTO audit_witnesses (name, sequence, failing_since, error) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET sequence = excluded.sequence, failing_since = excluded.failing_since, error = excluded.error";

pub(super) const SENDS: Sends =
    Sends::of(&[KEY, KEY_INSERT, NEWEST, AFTER, INSERT, WITNESS, WITNESS_PUT], &[]);

/// Notes the audit key; false where there is one already.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_key(tx: &mut Tx, row: AuditKeyRow) -> Result<bool, StoreError> {
    let parameters = vec![row.key.into(), row.server.into(), row.created_at_us.into()];
    Ok(tx.execute(KEY_INSERT, parameters).await? == 1)
}

/// Stores a signed head; false where there is one with its number.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_head(
    tx: &mut Tx,
    sequence: i64,
    at_us: i64,
    document: String,
) -> Result<bool, StoreError> {
    Ok(tx.execute(INSERT, vec![sequence.into(), at_us.into(), document.into()]).await? == 1)
}

/// Stores how far a witness is.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn put_witness(tx: &mut Tx, row: WitnessRow) -> Result<(), StoreError> {
    let parameters = vec![
        row.name.into(),
        row.sequence.into(),
        row.failing_since_us.map_or(Value::Null, Value::Int),
        row.error.map_or(Value::Null, Value::Text),
    ];
    tx.execute(WITNESS_PUT, parameters).await.map(drop)
}

impl Heads<'_> {
    /// The audit key, if there is one yet.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn key(self) -> Result<Option<AuditKeyRow>, StoreError> {
        let read = |mut row: Row| {
            Ok(AuditKeyRow { key: row.uuid()?, server: row.uuid()?, created_at_us: row.int()? })
        };
        self.0.row(KEY, Vec::new()).await?.map(read).transpose()
    }

    /// The newest head: its number and its document.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn newest(self) -> Result<Option<(i64, String)>, StoreError> {
        self.0.row(NEWEST, Vec::new()).await?.map(head_of).transpose()
    }

    /// Heads after a number, in order.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn after(self, sequence: i64, limit: usize) -> Result<Vec<(i64, String)>, StoreError> {
        let parameters = vec![sequence.into(), (limit as i64).into()];
        self.0.rows(Cost::Walk, AFTER, parameters).await?.into_iter().map(head_of).collect()
    }

    /// How far a witness is.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn witness(self, name: &str) -> Result<Option<WitnessRow>, StoreError> {
        let read = |mut row: Row| {
            Ok(WitnessRow {
                name: row.text()?,
                sequence: row.int()?,
                failing_since_us: row.maybe_int()?,
                error: row.maybe_text()?,
            })
        };
        self.0.row(WITNESS, vec![name.into()]).await?.map(read).transpose()
    }
}

fn head_of(mut row: Row) -> Result<(i64, String), StoreError> {
    Ok((row.int()?, row.text()?))
}
