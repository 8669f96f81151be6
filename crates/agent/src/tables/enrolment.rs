//! Table of the enrolment tokens of agents.

use uuid::Uuid;

use super::handle::Agents;
use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};

/// An enrolment token. It enrols one agent, once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentTokenRow {
    /// Id of the token. Not the secret.
    pub id: Uuid,
    /// Labels that the token's agent gets, as a JSON object.
    pub labels: String,
    /// Actor that created the token, such as `user:alice`.
    pub created_by: String,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Expiry in µs. Later uses are rejected.
    pub expires_at_us: i64,
    /// Time at which the token was used, µs.
    pub used_at_us: Option<i64>,
    /// Id of the agent that enrolled with the token.
    pub agent: Option<Uuid>,
}

pub(super) const INSERT: &str = "-- agent_token_insert
INSERT INTO agent_tokens (uuid, hash, labels, created_by, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

pub(super) const USE: &str = "-- agent_token_use
UPDATE agent_tokens SET used_at = ?2, agent = ?3 WHERE hash = ?1 AND used_at IS NULL AND expires_at > ?2
RETURNING uuid, labels, created_by, created_at, expires_at, used_at, agent";

/// Finds the agent that enrolled with an unexpired token, for a host that lost the response and repeats its request.
pub(super) const USED_FOR: &str = "-- agent_token_used_for
SELECT agent FROM agent_tokens WHERE hash = ?1 AND used_at IS NOT NULL AND expires_at > ?2";

pub(super) const DELETE: &str = "-- agent_token_delete
DELETE FROM agent_tokens WHERE uuid = ?1";

/// Lists tokens, newest first.
pub(super) const TOKENS: &str = "-- agent_tokens
SELECT uuid, labels, created_by, created_at, expires_at, used_at, agent, id FROM agent_tokens WHERE id < ?1
ORDER BY id DESC LIMIT ?2";

pub(super) const PURGE: &str = "-- agent_tokens_purge
DELETE FROM agent_tokens WHERE expires_at < ?1";

/// Inserts a token, identified by the SHA-256 of its secret.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_agent_token(
    tx: &mut Tx,
    token: &AgentTokenRow,
    hash: &[u8; 32],
) -> Result<(), StoreError> {
    let parameters = vec![
        token.id.into(),
        hash.as_slice().into(),
        token.labels.as_str().into(),
        token.created_by.as_str().into(),
        token.created_at_us.into(),
        token.expires_at_us.into(),
    ];
    tx.execute(INSERT, parameters).await.map(drop)
}

/// Marks the token with this hash as used by `agent`. Returns `None` when the token does not exist, or is used or expired.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn use_agent_token(
    tx: &mut Tx,
    hash: &[u8; 32],
    now_us: i64,
    agent: Uuid,
) -> Result<Option<AgentTokenRow>, StoreError> {
    tx.row(USE, vec![hash.as_slice().into(), now_us.into(), agent.into()])
        .await?
        .map(|mut row| token_of(&mut row))
        .transpose()
}

/// Deletes a token. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_agent_token(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

impl Agents<'_> {
    /// Returns the agent that enrolled with a token, while the token is unexpired.
    ///
    /// # Errors
    /// Database errors.
    pub async fn of_token(self, hash: &[u8; 32], now_us: i64) -> Result<Option<Uuid>, StoreError> {
        let row = self.0.row(USED_FOR, vec![hash.as_slice().into(), now_us.into()]).await?;
        row.map_or(Ok(None), |mut row| row.maybe_uuid())
    }

    /// Lists tokens, newest first.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn tokens(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AgentTokenRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let mut parameters = key_or(after, "agent_tokens", &[Value::Int(i64::MAX)])?;
        parameters.push(rows.into());
        let found = self.0.rows(Cost::Walk, TOKENS, parameters).await?;
        page(found, limit, "agent_tokens", |mut row| {
            let token = token_of(&mut row)?;
            Ok((token, vec![row.int()?.into()]))
        })
    }

    /// Deletes used and unused tokens that expired before a time. Returns the number of deleted tokens.
    ///
    /// # Errors
    /// Database errors.
    pub async fn purge_tokens(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(PURGE, vec![before_us.into()]).await
    }
}

fn token_of(row: &mut Row) -> Result<AgentTokenRow, StoreError> {
    Ok(AgentTokenRow {
        id: row.uuid()?,
        labels: row.text()?,
        created_by: row.text()?,
        created_at_us: row.int()?,
        expires_at_us: row.int()?,
        used_at_us: row.maybe_int()?,
        agent: row.maybe_uuid()?,
    })
}
