//! Stored responses, so that a request that is repeated with the same idempotency key gets the same response.

use futures_util::FutureExt;

use super::handle::Access;
use db::{ModuleStatements, Row, StoreError, Value};

/// The stored response to a request with an idempotency key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredResponse {
    /// HTTP status.
    pub status: u16,
    /// Response headers to send again to a repeated request, as JSON.
    pub headers: String,
    /// Response body. `None` when it contained a secret and was not stored.
    pub body: Option<Vec<u8>>,
}

/// State of a request with an idempotency key: new, repeated, in progress, or different.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum IdempotencyState {
    /// The request is the first one with its key: execute it, then finish or abandon it.
    First,
    /// The request repeats a finished one.
    Repeat(StoredResponse),
    /// The request repeats one that is in progress.
    UnderWay,
    /// The key was used for a different request.
    Different,
}

/// Records the start of the first request with a key. Takes over a request that has expired or whose server crashed.
const BEGIN: &str = "-- access_idempotency_begin
INSERT INTO access_idempotency (key_hash, body_hash, begun_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (key_hash) DO UPDATE SET body_hash = excluded.body_hash, begun_at = excluded.begun_at,
expires_at = excluded.expires_at, status = NULL, headers = NULL, body = NULL
WHERE access_idempotency.expires_at <= excluded.begun_at
OR (access_idempotency.status IS NULL AND access_idempotency.begun_at <= ?5
    AND access_idempotency.body_hash = excluded.body_hash)";

const READ: &str = "-- access_idempotency_read
SELECT body_hash, status, headers, body FROM access_idempotency WHERE key_hash = ?1";

const FINISH: &str = "-- access_idempotency_finish
UPDATE access_idempotency SET status = ?3, headers = ?4, body = ?5 WHERE key_hash = ?1 AND begun_at = ?2";

const ABANDON: &str = "-- access_idempotency_abandon
DELETE FROM access_idempotency WHERE key_hash = ?1 AND begun_at = ?2 AND status IS NULL";

const EXPIRE: &str = "-- access_idempotency_expire
DELETE FROM access_idempotency WHERE expires_at <= ?1";

pub(crate) const SENDS: ModuleStatements = ModuleStatements::of(&[BEGIN, READ, FINISH, ABANDON, EXPIRE], &[]);

impl Access<'_> {
    /// Records the start of a request with an idempotency key, and keeps the record until `expires_at_us`. Takes over a request
    /// that started before `given_up_us` and did not finish.
    ///
    /// # Errors
    /// Database errors.
    pub async fn begin_idempotent(
        self,
        key_hash: [u8; 32],
        body_hash: [u8; 32],
        now_us: i64,
        expires_at_us: i64,
        given_up_us: i64,
    ) -> Result<IdempotencyState, StoreError> {
        self.0
            .write("begin_idempotent", move |tx| {
                async move {
                    let parameters = vec![
                        key_hash.into(),
                        body_hash.into(),
                        now_us.into(),
                        expires_at_us.into(),
                        given_up_us.into(),
                    ];
                    if tx.execute(BEGIN, parameters).await? == 1 {
                        return Ok(IdempotencyState::First);
                    }
                    let found = tx.row(READ, vec![key_hash.into()]).await?;
                    found.map_or(Ok(IdempotencyState::UnderWay), |row| idempotency_state(row, body_hash))
                }
                .boxed()
            })
            .await
    }

    /// Stores the response of a request that started at `begun_at_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn finish_idempotent(
        self,
        key_hash: [u8; 32],
        begun_at_us: i64,
        answer: StoredResponse,
    ) -> Result<(), StoreError> {
        let parameters: Vec<Value> = vec![
            key_hash.into(),
            begun_at_us.into(),
            i64::from(answer.status).into(),
            answer.headers.into(),
            answer.body.into(),
        ];
        self.0.execute(FINISH, parameters).await.map(drop)
    }

    /// Deletes a failed request that started at `begun_at_us`, so that it may be retried.
    ///
    /// # Errors
    /// Database errors.
    pub async fn abandon_idempotent(self, key_hash: [u8; 32], begun_at_us: i64) -> Result<(), StoreError> {
        self.0.execute(ABANDON, vec![key_hash.into(), begun_at_us.into()]).await.map(drop)
    }

    /// Deletes expired responses.
    ///
    /// # Errors
    /// Database errors.
    pub async fn expire_idempotent(self, now_us: i64) -> Result<u64, StoreError> {
        self.0.execute(EXPIRE, vec![now_us.into()]).await
    }
}

fn idempotency_state(mut row: Row, body_hash: [u8; 32]) -> Result<IdempotencyState, StoreError> {
    if row.hash()? != body_hash {
        return Ok(IdempotencyState::Different);
    }
    let Some(status) = row.maybe_number()? else { return Ok(IdempotencyState::UnderWay) };
    let (headers, body) = (row.maybe_text()?.unwrap_or_default(), row.maybe_blob()?);
    Ok(IdempotencyState::Repeat(StoredResponse { status, headers, body }))
}
