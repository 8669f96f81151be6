//! Join tokens of nodes.

use uuid::Uuid;

use super::handle::SiteTables;
use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};

/// A join token. It enrols one node at a site, once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeTokenRow {
    /// Id of the token. Not the secret.
    pub id: Uuid,
    /// Id of the site.
    pub site: Uuid,
    /// Name of the site. Empty once the site is deleted.
    pub site_name: String,
    /// The node's own attributes, as a JSON object.
    pub attributes: String,
    /// Actor that created the token.
    pub created_by: String,
    /// Creation time, in µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Expiry, in µs since 1970-01-01 UTC. Later uses are rejected.
    pub expires_at_us: i64,
    /// Time at which the token was used, in µs since 1970-01-01 UTC. `None` before its use.
    pub used_at_us: Option<i64>,
    /// Id of the node that enrolled with the token.
    pub node: Option<Uuid>,
}

pub(super) const INSERT: &str = "-- key_node_token_insert
INSERT INTO key_node_tokens (uuid, hash, site, attributes, created_by, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

pub(super) const TOKEN: &str = "-- key_node_token
SELECT uuid, site, '', attributes, created_by, created_at, expires_at, used_at, node FROM key_node_tokens
WHERE hash = ?1 AND used_at IS NULL AND expires_at > ?2";

pub(super) const USE: &str = "-- key_node_token_use
UPDATE key_node_tokens SET used_at = ?2, node = ?3 WHERE hash = ?1 AND used_at IS NULL AND expires_at > ?2
RETURNING uuid, site, '', attributes, created_by, created_at, expires_at, used_at, node";

/// Finds the node that enrolled with an unexpired token, for a host that lost the response and repeats its request.
pub(super) const USED_FOR: &str = "-- key_node_token_used_for
SELECT node FROM key_node_tokens WHERE hash = ?1 AND used_at IS NOT NULL AND expires_at > ?2";

pub(super) const DELETE: &str = "-- key_node_token_delete
DELETE FROM key_node_tokens WHERE uuid = ?1";

pub(super) const DELETE_OF: &str = "-- key_node_tokens_delete_of_site
DELETE FROM key_node_tokens WHERE site = ?1";

/// Lists tokens, newest first.
pub(super) const TOKENS: &str = "-- key_node_tokens
SELECT t.uuid, t.site, COALESCE(s.name, ''), t.attributes, t.created_by, t.created_at, t.expires_at, t.used_at, t.node,
       t.id
FROM key_node_tokens t LEFT JOIN key_sites s ON s.uuid = t.site WHERE t.id < ?1 ORDER BY t.id DESC LIMIT ?2";

pub(super) const PURGE: &str = "-- key_node_tokens_purge
DELETE FROM key_node_tokens WHERE expires_at < ?1";

/// Inserts a token by its SHA-256.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_node_token(tx: &mut Tx, token: &NodeTokenRow, hash: &[u8; 32]) -> Result<(), StoreError> {
    let parameters = vec![
        token.id.into(),
        hash.as_slice().into(),
        token.site.into(),
        token.attributes.as_str().into(),
        token.created_by.as_str().into(),
        token.created_at_us.into(),
        token.expires_at_us.into(),
    ];
    tx.execute(INSERT, parameters).await.map(drop)
}

/// Returns a usable token, with an empty `site_name`. `None` when no token has this hash, or the token is used or expired. Lock the
/// site before using the token: a deletion of the site locks in the same order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn node_token(
    tx: &mut Tx,
    hash: &[u8; 32],
    now_us: i64,
) -> Result<Option<NodeTokenRow>, StoreError> {
    let row = tx.row(TOKEN, vec![hash.as_slice().into(), now_us.into()]).await?;
    row.map(|mut row| token_of(&mut row)).transpose()
}

/// Uses a token for `node`. Returns the token, with an empty `site_name`. `None` when no token has this hash, or the token is used
/// or expired.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn use_node_token(
    tx: &mut Tx,
    hash: &[u8; 32],
    now_us: i64,
    node: Uuid,
) -> Result<Option<NodeTokenRow>, StoreError> {
    let row = tx.row(USE, vec![hash.as_slice().into(), now_us.into(), node.into()]).await?;
    row.map(|mut row| token_of(&mut row)).transpose()
}

/// Deletes a token. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_node_token(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

/// Deletes every token of a site.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_node_tokens_of(tx: &mut Tx, site: Uuid) -> Result<(), StoreError> {
    tx.execute(DELETE_OF, vec![site.into()]).await.map(drop)
}

impl SiteTables<'_> {
    /// Returns the node that enrolled with a token, while the token is unexpired.
    ///
    /// # Errors
    /// Database errors.
    pub async fn node_of_token(self, hash: &[u8; 32], now_us: i64) -> Result<Option<Uuid>, StoreError> {
        let row = self.0.row(USED_FOR, vec![hash.as_slice().into(), now_us.into()]).await?;
        row.map_or(Ok(None), |mut row| row.maybe_uuid())
    }

    /// Lists tokens, newest first.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn node_tokens(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<NodeTokenRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let mut parameters = key_or(after, "key_node_tokens", &[Value::Int(i64::MAX)])?;
        parameters.push(rows.into());
        let found = self.0.rows(Cost::Walk, TOKENS, parameters).await?;
        page(found, limit, "key_node_tokens", |mut row| {
            let token = token_of(&mut row)?;
            Ok((token, vec![row.int()?.into()]))
        })
    }

    /// Deletes used and unused tokens that expired before a time. Returns the number of deleted tokens.
    ///
    /// # Errors
    /// Database errors.
    pub async fn purge_node_tokens(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(PURGE, vec![before_us.into()]).await
    }
}

fn token_of(row: &mut Row) -> Result<NodeTokenRow, StoreError> {
    Ok(NodeTokenRow {
        id: row.uuid()?,
        site: row.uuid()?,
        site_name: row.text()?,
        attributes: row.text()?,
        created_by: row.text()?,
        created_at_us: row.int()?,
        expires_at_us: row.int()?,
        used_at_us: row.maybe_int()?,
        node: row.maybe_uuid()?,
    })
}
