//! Leaf certificates of the proxies and their keys: each leaf is minted once for all proxies of the database.
//!
//! A row contains a leaf, the lease of the proxy that mints it, or both during a renewal. On PostgreSQL, the lookup including the
//! lease is a single statement, and so is storing the leaf.

use uuid::Uuid;

use db::{BulkStatement, Cost, ModuleStatements, Row, StoreError, Value};
use store::{SealedColumn, sealed_column};

store::handle! {
    /// Leaf certificates that the proxies of a cluster share.
    ProxyLeaves
}

/// Maximum rows that one statement deletes. The limit keeps the duration of the statement at a few milliseconds.
pub const TIDIED_MAX: u64 = 1_000;

/// Time in µs that a key of one leaf, or of one user, is kept after the end of its last leaf. Shared keys are kept much longer.
pub const OWN_KEY_ENDS_AFTER_US: i64 = 1_000_000;

/// The column with the sealed leaves, for the rotation of the master key.
pub const SEALED_LEAVES: SealedColumn = sealed_column!("proxy_leaves", "id" Text "text", "sealed");
/// The column with the sealed keys, for the rotation of the master key.
pub const SEALED_LEAF_KEYS: SealedColumn = sealed_column!("proxy_leaf_keys", "id" Text "text", "sealed");

/// A request for a leaf, or for the lease to mint it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeafLeaseRequest<'a> {
    /// Digest of the leaf's identity: 64 hexadecimal digits.
    pub id: &'a str,
    /// Minimum expiry of the leaf, in µs since 1970-01-01 UTC.
    pub ends_from_us: i64,
    /// ID of the proxy that requests the leaf, and gets the lease if there is no suitable leaf.
    pub holder: Uuid,
    /// Current time, in µs since 1970-01-01 UTC.
    pub now_us: i64,
    /// End of the lease, in µs since 1970-01-01 UTC.
    pub until_us: i64,
}

/// Result of a request for a leaf.
#[derive(Clone, Eq, PartialEq)]
pub enum LeafLookup {
    /// A suitable leaf is stored.
    Stored(StoredLeaf),
    /// There is no suitable leaf; the holder now has the lease and must mint it.
    Leased,
    /// There is no suitable leaf, and another proxy has the lease.
    Awaited,
}

/// A stored leaf with its key.
#[derive(Clone, Eq, PartialEq)]
pub struct StoredLeaf {
    /// The certificate chain, sealed under the master key.
    pub sealed: Vec<u8>,
    /// The sealed key; `None` if it was deleted.
    pub key: Option<Vec<u8>>,
    /// ID of the key: 64 hexadecimal digits.
    pub key_id: String,
    /// Expiry of the leaf, in µs since 1970-01-01 UTC.
    pub ends_at_us: i64,
}

impl std::fmt::Debug for LeafLookup {
    /// Omits sealed values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stored(_) => "Stored",
            Self::Leased => "Leased",
            Self::Awaited => "Awaited",
        })
    }
}

/// A minted leaf to be stored.
#[derive(Clone, Copy)]
pub struct NewLeaf<'a> {
    /// Digest of the leaf's identity, as in [`LeafLeaseRequest`].
    pub id: &'a str,
    /// ID of the proxy that has the lease to mint the leaf.
    pub holder: Uuid,
    /// The certificate chain, sealed under the master key.
    pub sealed: &'a [u8],
    /// ID of the key: 64 hexadecimal digits.
    pub key_id: &'a str,
    /// Expiry of the leaf, in µs since 1970-01-01 UTC.
    pub ends_at_us: i64,
    /// Current time, in µs since 1970-01-01 UTC.
    pub now_us: i64,
}

/// Numbers of rows that a batch deleted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanupCounts {
    /// Number of deleted leaves or of deleted keys, whichever is greater.
    pub deleted: u64,
    /// Number of deleted leaves that had not expired; their keys may have been deleted too.
    pub evicted: u64,
}

const FIND: &str = "-- proxy_leaf_find
SELECT 0, l.sealed, k.sealed, l.leaf_key, l.ends_at FROM proxy_leaves l LEFT JOIN proxy_leaf_keys k ON k.id = l.leaf_key
WHERE l.id = ?1 AND l.sealed IS NOT NULL AND l.ends_at >= ?2";

/// Takes the lease. Changes no row if another proxy has the lease, or if a suitable leaf has been stored since the lookup.
const TAKE: &str = "-- proxy_leaf_take
INSERT INTO proxy_leaves (id, ends_at, made_at, holder, until_at) VALUES (?1, ?5, ?4, ?3, ?5)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at
WHERE (proxy_leaves.sealed IS NULL OR proxy_leaves.ends_at < ?2)
  AND (proxy_leaves.until_at <= ?4 OR proxy_leaves.holder = excluded.holder)";

/// Takes the lease or returns the leaf. Returns no row if another proxy has the lease, and also if the leaf is stored between the
/// statement's snapshot and its insert.
const LOOK: &str = "-- proxy_leaf_look
WITH taken AS (
  INSERT INTO proxy_leaves (id, ends_at, made_at, holder, until_at)
  SELECT ?1::text, ?5::bigint, ?4::bigint, ?3::uuid, ?5::bigint
  WHERE NOT EXISTS (SELECT 1 FROM proxy_leaves WHERE id = ?1::text AND sealed IS NOT NULL AND ends_at >= ?2::bigint)
  ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at
  WHERE (proxy_leaves.sealed IS NULL OR proxy_leaves.ends_at < ?2::bigint)
    AND (proxy_leaves.until_at <= ?4::bigint OR proxy_leaves.holder = excluded.holder)
  RETURNING id)
SELECT 1::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::bigint FROM taken
UNION ALL
SELECT 0::bigint, l.sealed, k.sealed, l.leaf_key, l.ends_at
FROM proxy_leaves l LEFT JOIN proxy_leaf_keys k ON k.id = l.leaf_key
WHERE l.id = ?1::text AND l.sealed IS NOT NULL AND l.ends_at >= ?2::bigint";

const PUT: &str = "-- proxy_leaf_put
UPDATE proxy_leaves SET sealed = ?3, leaf_key = ?4, ends_at = ?5, made_at = ?6, holder = NULL, until_at = 0
WHERE id = ?1 AND holder = ?2";

/// Ends the lease. An existing leaf stays.
const RELEASE: &str = "-- proxy_leaf_release
UPDATE proxy_leaves SET holder = NULL, until_at = 0 WHERE id = ?1 AND holder = ?2";

const PUT_KEY: &str = "-- proxy_leaf_key_put
INSERT INTO proxy_leaf_keys (id, sealed, ends_at) VALUES (?1, ?2, ?3)
ON CONFLICT (id) DO UPDATE SET ends_at = excluded.ends_at WHERE proxy_leaf_keys.ends_at < excluded.ends_at";

const TIDY: &str = "-- proxy_leaves_tidy
DELETE FROM proxy_leaves WHERE id IN (
  SELECT id FROM proxy_leaves WHERE ends_at <= ?1 AND until_at <= ?1 ORDER BY ends_at LIMIT ?2)";

const TIDY_KEYS: &str = "-- proxy_leaf_keys_tidy
DELETE FROM proxy_leaf_keys WHERE id IN (
  SELECT id FROM proxy_leaf_keys WHERE ends_at <= ?1 ORDER BY ends_at LIMIT ?2)";

const COUNT: &str = "-- proxy_leaves_count
SELECT count(*) FROM proxy_leaves";

/// Deletes the keys of leaves that are about to be deleted. Keeps shared keys and keys of remaining leaves. A leaf that is
/// renewed between the two statements has another key by then. Reads all leaves once, because an index by key would cost more
/// with each new leaf.
const EVICT_KEYS: &str = "-- proxy_leaf_keys_evict
WITH evicted AS (
  SELECT id, leaf_key, ends_at FROM proxy_leaves WHERE until_at <= ?1 ORDER BY made_at LIMIT ?2),
ending AS (
  SELECT k.id FROM evicted l JOIN proxy_leaf_keys k ON k.id = l.leaf_key WHERE k.ends_at <= l.ends_at + ?3)
DELETE FROM proxy_leaf_keys WHERE id IN (SELECT id FROM ending) AND id NOT IN (
  SELECT leaf_key FROM proxy_leaves
  WHERE leaf_key IN (SELECT id FROM ending) AND id NOT IN (SELECT id FROM evicted))";

const EVICT: &str = "-- proxy_leaves_evict
DELETE FROM proxy_leaves WHERE id IN (
  SELECT id FROM proxy_leaves WHERE until_at <= ?1 ORDER BY made_at LIMIT ?2)";

pub(crate) const SENDS: ModuleStatements = ModuleStatements {
    both: &[
        FIND,
        TAKE,
        PUT,
        RELEASE,
        PUT_KEY,
        TIDY,
        TIDY_KEYS,
        COUNT,
        EVICT_KEYS,
        EVICT,
        SEALED_LEAVES.page,
        SEALED_LEAVES.count,
        SEALED_LEAVES.heads,
        SEALED_LEAF_KEYS.page,
        SEALED_LEAF_KEYS.count,
        SEALED_LEAF_KEYS.heads,
    ],
    sqlite: &[],
    postgres: &[LOOK],
    bulks: BULKS,
    composed: Vec::new,
};
const BULKS: &[&BulkStatement] = &[&SEALED_LEAVES.replace, &SEALED_LEAF_KEYS.replace];

impl ProxyLeaves<'_> {
    /// Returns the leaf, or takes the lease to mint it if there is no suitable leaf and no other lease. One statement on
    /// PostgreSQL; on SQLite a read, and a write if there is no leaf.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn lookup(self, lease_request: &LeafLeaseRequest<'_>) -> Result<LeafLookup, StoreError> {
        let mut parameters: Vec<Value> = vec![lease_request.id.into(), lease_request.ends_from_us.into()];
        let holder =
            [lease_request.holder.into(), lease_request.now_us.into(), lease_request.until_us.into()];
        if self.0.is_postgres() {
            parameters.extend(holder);
            return lookup_from_row(self.0.write_rows(LOOK, &parameters).await?.into_iter().next());
        }
        if let Some(row) = self.0.row(FIND, parameters.clone()).await? {
            return lookup_from_row(Some(row));
        }
        parameters.extend(holder);
        let taken = self.0.execute(TAKE, parameters).await? == 1;
        Ok(if taken { LeafLookup::Leased } else { LeafLookup::Awaited })
    }

    /// Stores a leaf and ends its lease. Returns false, without storing, if the holder has lost the lease.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn put(self, leaf: &NewLeaf<'_>) -> Result<bool, StoreError> {
        let parameters = vec![
            leaf.id.into(),
            leaf.holder.into(),
            leaf.sealed.into(),
            leaf.key_id.into(),
            leaf.ends_at_us.into(),
            leaf.now_us.into(),
        ];
        Ok(self.0.execute(PUT, parameters).await? == 1)
    }

    /// Releases the lease of a leaf. No effect if the holder has lost it.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn release(self, id: &str, holder: Uuid) -> Result<(), StoreError> {
        self.0.execute(RELEASE, vec![id.into(), holder.into()]).await.map(drop)
    }

    /// Stores a key of leaves until `ends_at_us`. A key that is stored with a later expiry keeps that expiry.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn put_key(self, id: &str, sealed: &[u8], ends_at_us: i64) -> Result<(), StoreError> {
        self.0.execute(PUT_KEY, vec![id.into(), sealed.into(), ends_at_us.into()]).await.map(drop)
    }

    /// Deletes expired leaves and keys, and the oldest leaves beyond `leaves_max` with their own keys; at most [`TIDIED_MAX`] of
    /// each. Call it again while `deleted` equals this maximum.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn tidy(self, now_us: i64, leaves_max: u64) -> Result<CleanupCounts, StoreError> {
        let most = TIDIED_MAX as i64;
        let ended = self.0.execute(TIDY, vec![now_us.into(), most.into()]).await?;
        let keys = self.0.execute(TIDY_KEYS, vec![now_us.into(), most.into()]).await?;
        let ended = ended.max(keys);
        let beyond = self.counts().await?.saturating_sub(leaves_max).min(TIDIED_MAX);
        if beyond == 0 {
            return Ok(CleanupCounts { deleted: ended, evicted: 0 });
        }
        let parameters = vec![now_us.into(), (beyond as i64).into(), OWN_KEY_ENDS_AFTER_US.into()];
        self.0.execute(EVICT_KEYS, parameters).await?;
        let evicted = self.0.execute(EVICT, vec![now_us.into(), (beyond as i64).into()]).await?;
        Ok(CleanupCounts { deleted: ended.max(evicted), evicted })
    }

    /// Returns the number of leaves, including leaves that are being minted. Scans an index.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn counts(self) -> Result<u64, StoreError> {
        let rows = self.0.rows(Cost::Walk, COUNT, Vec::new()).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.number())
    }
}

fn lookup_from_row(row: Option<Row>) -> Result<LeafLookup, StoreError> {
    let Some(mut row) = row else { return Ok(LeafLookup::Awaited) };
    if row.flag()? {
        return Ok(LeafLookup::Leased);
    }
    Ok(LeafLookup::Stored(StoredLeaf {
        sealed: row.blob()?,
        key: row.maybe_blob()?,
        key_id: row.maybe_text()?.unwrap_or_default(),
        ends_at_us: row.int()?,
    }))
}
