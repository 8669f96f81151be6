//! Sealed segments.

use uuid::Uuid;

use db::{
    Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or, limit_of, page, with_limit,
};
use store::{SealedColumn, sealed_column};

store::handle! {
    /// Sealed segments of the audit log.
    Segments
}

/// Column of the sealed data keys of segments, which a rotation of the master key re-wraps. The bodies are encrypted under these
/// data keys and stay unchanged.
pub const SEALED_SEGMENTS: SealedColumn = sealed_column!("audit_segments", "id" Uuid "uuid", "data_key");

/// A segment to store.
#[derive(Clone)]
pub struct NewSegment {
    /// Number of the segment, from 1.
    pub number: i64,
    /// Id to which the sealed key is bound.
    pub id: Uuid,
    /// Number of the chain.
    pub shard: i64,
    /// Position of the last event in the chain.
    pub last: i64,
    /// Hash of the last event.
    pub hash: [u8; 32],
    /// Latest time of an event in the segment, in µs since 1970-01-01 UTC.
    pub ends_at_us: i64,
    /// Head of the segment as JSON.
    pub head: String,
    /// Sealed key of the body.
    pub data_key: Vec<u8>,
    /// The lines, compressed and encrypted.
    pub body: Vec<u8>,
}

/// A segment without its body.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SegmentRow {
    /// Number of the segment, from 1.
    pub number: i64,
    /// Head of the segment as JSON.
    pub head: String,
    /// Size of the body in bytes. 0 once the body is pruned.
    pub bytes: u64,
    /// Time at which the body was pruned, in µs since 1970-01-01 UTC. `None` until then.
    pub pruned_at_us: Option<i64>,
}

/// A segment with its encrypted lines.
pub struct SegmentBody {
    /// Id to which the sealed key is bound.
    pub id: Uuid,
    /// Head of the segment as JSON.
    pub head: String,
    /// Sealed key of the body. `None` once the body is pruned.
    pub data_key: Option<Vec<u8>>,
    /// Compressed and encrypted lines. `None` once they are pruned.
    pub body: Option<Vec<u8>>,
}

const INSERT: &str = "-- audit_segment_insert
INSERT INTO audit_segments (number, id, shard, last, hash, ends_at, head, data_key, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";

const NEWEST: &str = "-- audit_segment_newest
SELECT number, head, CAST(COALESCE(LENGTH(body), 0) AS BIGINT), pruned_at FROM audit_segments ORDER BY number DESC LIMIT 1";

const AFTER: &str = "-- audit_segments_after
SELECT number, head, CAST(COALESCE(LENGTH(body), 0) AS BIGINT), pruned_at FROM audit_segments WHERE number > ?1 ORDER BY number LIMIT ?2";

const END: &str = "-- audit_segments_end
SELECT last, hash FROM audit_segments WHERE shard = ?1 ORDER BY last DESC LIMIT 1";

const BODY: &str = "-- audit_segment_body
SELECT id, head, data_key, body FROM audit_segments WHERE number = ?1";

const PRUNABLE: &str = "-- audit_segment_prunable
SELECT number FROM audit_segments WHERE pruned_at IS NULL AND ends_at < ?1 ORDER BY ends_at LIMIT 1";

const PRUNE: &str = "-- audit_segment_prune
UPDATE audit_segments SET data_key = NULL, body = NULL, pruned_at = ?2 WHERE number = ?1 AND pruned_at IS NULL";

pub(super) const SENDS: ModuleStatements = ModuleStatements::of(
    &[
        INSERT,
        NEWEST,
        AFTER,
        END,
        BODY,
        PRUNABLE,
        PRUNE,
        SEALED_SEGMENTS.page,
        SEALED_SEGMENTS.count,
        SEALED_SEGMENTS.heads,
    ],
    &[&SEALED_SEGMENTS.replace],
);

/// Stores a segment. Returns false when its number exists already.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_segment(tx: &mut Tx, segment: NewSegment) -> Result<bool, StoreError> {
    let parameters = vec![
        segment.number.into(),
        segment.id.into(),
        segment.shard.into(),
        segment.last.into(),
        segment.hash.into(),
        segment.ends_at_us.into(),
        segment.head.into(),
        Value::Blob(segment.data_key),
        Value::Blob(segment.body),
    ];
    Ok(tx.execute(INSERT, parameters).await? == 1)
}

/// Deletes the lines of a segment and their key. Returns false when they are already deleted.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn prune_segment(tx: &mut Tx, number: i64, at_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(PRUNE, vec![number.into(), at_us.into()]).await? == 1)
}

impl Segments<'_> {
    /// Returns the newest segment; `None` if there is no segment yet.
    ///
    /// # Errors
    /// Database errors.
    pub async fn newest(self) -> Result<Option<SegmentRow>, StoreError> {
        self.0.row(NEWEST, Vec::new()).await?.map(row_of).transpose()
    }

    /// Returns segments after a number, in order.
    ///
    /// # Errors
    /// Database errors.
    pub async fn after(self, number: i64, limit: usize) -> Result<Vec<SegmentRow>, StoreError> {
        let parameters = vec![number.into(), (limit as i64).into()];
        self.0.rows(Cost::Walk, AFTER, parameters).await?.into_iter().map(row_of).collect()
    }

    /// Returns a page of all segments, oldest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn page(self, after: Option<&Cursor>, limit: usize) -> Result<Page<SegmentRow>, StoreError> {
        let start = key_or(after, "audit_segments", &[Value::Int(0)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, AFTER, with_limit(start, fetch_limit)).await?;
        page(rows, limit, "audit_segments", |row| {
            let row = row_of(row)?;
            let key = vec![Value::Int(row.number)];
            Ok((row, key))
        })
    }

    /// Returns position and hash of the last sealed event of a chain. Position 0 means that no event is sealed.
    ///
    /// # Errors
    /// Database errors.
    pub async fn end(self, shard: i64) -> Result<(i64, [u8; 32]), StoreError> {
        let found = self.0.row(END, vec![shard.into()]).await?;
        found.map_or(Ok((0, [0; 32])), |mut row| Ok((row.int()?, row.hash()?)))
    }

    /// Returns a segment's head and encrypted lines. `None` if the segment does not exist.
    ///
    /// # Errors
    /// Database errors.
    pub async fn body(self, number: i64) -> Result<Option<SegmentBody>, StoreError> {
        let read = |mut row: Row| {
            Ok(SegmentBody {
                id: row.uuid()?,
                head: row.text()?,
                data_key: row.maybe_blob()?,
                body: row.maybe_blob()?,
            })
        };
        self.0.row(BODY, vec![number.into()]).await?.map(read).transpose()
    }

    /// Returns an unpruned segment whose events are all older than `before_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn next_prunable_segment(self, before_us: i64) -> Result<Option<i64>, StoreError> {
        self.0.row(PRUNABLE, vec![before_us.into()]).await?.map(|mut row| row.int()).transpose()
    }
}

fn row_of(mut row: Row) -> Result<SegmentRow, StoreError> {
    Ok(SegmentRow {
        number: row.int()?,
        head: row.text()?,
        bytes: row.number()?,
        pruned_at_us: row.maybe_int()?,
    })
}
