//! Signed heads, their signing key, and the positions of witnesses.

use uuid::Uuid;

use db::{Cost, ModuleStatements, Row, StoreError, Tx, Value};

store::handle! {
    /// Signed heads of the audit log, and the positions of witnesses.
    Heads
}

/// The key that signs heads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditKeyRow {
    /// Id of the key in the table `keys`.
    pub key: Uuid,
    /// UUID of the log, written in its heads.
    pub server: Uuid,
    /// Creation time, in µs since 1970-01-01 UTC.
    pub created_at_us: i64,
}

/// Position of a witness: the last head that it accepted, and its current failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WitnessRow {
    /// Name of the witness: `file`, `syslog`, `webhook`.
    pub name: String,
    /// Number of the last head that the witness accepted.
    pub sequence: i64,
    /// Start of the current failure, in µs since 1970-01-01 UTC. `None` while deliveries succeed.
    pub failing_since_us: Option<i64>,
    /// Error of the current failure. `None` while deliveries succeed.
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

pub(super) const SENDS: ModuleStatements =
    ModuleStatements::of(&[KEY, KEY_INSERT, NEWEST, AFTER, INSERT, WITNESS, WITNESS_PUT], &[]);

/// Registers the audit key. Returns false when there is one already.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_key(tx: &mut Tx, row: AuditKeyRow) -> Result<bool, StoreError> {
    let parameters = vec![row.key.into(), row.server.into(), row.created_at_us.into()];
    Ok(tx.execute(KEY_INSERT, parameters).await? == 1)
}

/// Stores a signed head. Returns false when its number exists already.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_head(
    tx: &mut Tx,
    sequence: i64,
    at_us: i64,
    document: String,
) -> Result<bool, StoreError> {
    Ok(tx.execute(INSERT, vec![sequence.into(), at_us.into(), document.into()]).await? == 1)
}

/// Stores the position of a witness.
///
/// # Errors
/// Database errors.
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
    /// Returns the audit key, if it exists yet.
    ///
    /// # Errors
    /// Database errors.
    pub async fn key(self) -> Result<Option<AuditKeyRow>, StoreError> {
        let read = |mut row: Row| {
            Ok(AuditKeyRow { key: row.uuid()?, server: row.uuid()?, created_at_us: row.int()? })
        };
        self.0.row(KEY, Vec::new()).await?.map(read).transpose()
    }

    /// Returns the number and the document of the newest head.
    ///
    /// # Errors
    /// Database errors.
    pub async fn newest(self) -> Result<Option<(i64, String)>, StoreError> {
        self.0.row(NEWEST, Vec::new()).await?.map(head_of).transpose()
    }

    /// Returns heads after a number, in order.
    ///
    /// # Errors
    /// Database errors.
    pub async fn after(self, sequence: i64, limit: usize) -> Result<Vec<(i64, String)>, StoreError> {
        let parameters = vec![sequence.into(), (limit as i64).into()];
        self.0.rows(Cost::Walk, AFTER, parameters).await?.into_iter().map(head_of).collect()
    }

    /// Returns the position of a witness.
    ///
    /// # Errors
    /// Database errors.
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
