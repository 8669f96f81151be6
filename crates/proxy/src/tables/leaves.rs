//! Leaves of the proxies that look into TLS, and the keys they stand over: each minted once for all who share the database.
//!
//! A row is a leaf, or the lease of who mints it, or both while it is renewed. Looking and taking the lease is one statement
//! on PostgreSQL, and so is putting the leaf.

use uuid::Uuid;

use db::{Bulk, Cost, Row, Sends, StoreError, Value};
use store::{SealedColumn, sealed_column};

store::handle! {
    /// Leaf certificates that the proxies of a cluster share.
    ProxyLeaves
}

/// Rows deleted by one statement: some milliseconds of work.
pub const TIDIED_MAX: u64 = 1_000;

/// A key of one leaf ends so long after it, µs, one of a user so long after the last leaf over it; one that all share later by far more.
pub const OWN_KEY_ENDS_AFTER_US: i64 = 1_000_000;

/// The leaves, sealed.
pub const SEALED_LEAVES: SealedColumn = sealed_column!("proxy_leaves", "id" Text "text", "sealed");
/// Their keys, sealed.
pub const SEALED_LEAF_KEYS: SealedColumn = sealed_column!("proxy_leaf_keys", "id" Text "text", "sealed");

/// A request for a leaf and the lease for minting it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeafAsk<'a> {
    /// The digest of what the leaf depends on: 64 hexadecimal digits.
    pub id: &'a str,
    /// One that ends before this will not do, µs.
    pub ends_from_us: i64,
    /// The proxy that mints the leaf if there is none.
    pub holder: Uuid,
    /// Now, µs.
    pub now_us: i64,
    /// End of its lease, µs.
    pub until_us: i64,
}

/// What there is of a leaf.
#[derive(Clone, Eq, PartialEq)]
pub enum LeafLookup {
    /// The leaf.
    Stored(StoredLeaf),
    /// None that does: the holder has the lease and mints it.
    Leased,
    /// None that does, and another mints it.
    Awaited,
}

/// A leaf as it is kept.
#[derive(Clone, Eq, PartialEq)]
pub struct StoredLeaf {
    /// The leaf, sealed.
    pub sealed: Vec<u8>,
    /// Its key, sealed; none where the key is gone.
    pub key: Option<Vec<u8>>,
    /// The key's id: 64 hexadecimal digits.
    pub key_id: String,
    /// Its end, µs.
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

/// A leaf that was minted.
#[derive(Clone, Copy)]
pub struct NewLeaf<'a> {
    /// As of [`LeafAsk`].
    pub id: &'a str,
    /// The holder of the lease.
    pub holder: Uuid,
    /// The leaf, sealed.
    pub sealed: &'a [u8],
    /// The key's id: 64 hexadecimal digits.
    pub key_id: &'a str,
    /// Its end, µs.
    pub ends_at_us: i64,
    /// Now, µs.
    pub now_us: i64,
}

/// Rows that one batch deleted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tidied {
    /// Leaves or keys, of whichever more.
    pub deleted: u64,
    /// Leaves that had not ended: keys may have gone with them.
    pub evicted: u64,
}

const FIND: &str = "-- proxy_leaf_find
SELECT 0, l.sealed, k.sealed, l.leaf_key, l.ends_at FROM proxy_leaves l LEFT JOIN proxy_leaf_keys k ON k.id = l.leaf_key
WHERE l.id = ?1 AND l.sealed IS NOT NULL AND l.ends_at >= ?2";

/// Nothing where another's lease runs, or where somebody has put the leaf meanwhile.
const TAKE: &str = "-- proxy_leaf_take
INSERT INTO proxy_leaves (id, ends_at, made_at, holder, until_at) VALUES (?1, ?5, ?4, ?3, ?5)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at
WHERE (proxy_leaves.sealed IS NULL OR proxy_leaves.ends_at < ?2)
  AND (proxy_leaves.until_at <= ?4 OR proxy_leaves.holder = excluded.holder)";

/// Both of these. A leaf that is put between the snapshot and the insertion is seen by neither: no row, as for another's lease.
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

/// The lease alone: the leaf that is there stays.
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

/// Before the leaves themselves; shared keys stay, and those over which a leaf stands that stays. A leaf that is renewed between the two
/// statements has another key by then. Reads all leaves once: an index by key would cost more at each leaf.
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

pub(crate) const SENDS: Sends = Sends {
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
const BULKS: &[&Bulk] = &[&SEALED_LEAVES.replace, &SEALED_LEAF_KEYS.replace];

impl ProxyLeaves<'_> {
    /// The leaf, or the lease to mint it where there is none that does and nobody else mints it. One statement on
    /// PostgreSQL; on SQLite a read and, where there is none, a write.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn look(self, ask: &LeafAsk<'_>) -> Result<LeafLookup, StoreError> {
        let mut parameters: Vec<Value> = vec![ask.id.into(), ask.ends_from_us.into()];
        let holder = [ask.holder.into(), ask.now_us.into(), ask.until_us.into()];
        if self.0.is_postgres() {
            parameters.extend(holder);
            return look_of(self.0.write_rows(LOOK, &parameters).await?.into_iter().next());
        }
        if let Some(row) = self.0.row(FIND, parameters.clone()).await? {
            return look_of(Some(row));
        }
        parameters.extend(holder);
        let taken = self.0.execute(TAKE, parameters).await? == 1;
        Ok(if taken { LeafLookup::Leased } else { LeafLookup::Awaited })
    }

    /// Puts a leaf and ends its lease; false where the holder has the lease no longer, and nothing is put.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Gives the lease of a leaf back; nothing where the holder has it no longer.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn release(self, id: &str, holder: Uuid) -> Result<(), StoreError> {
        self.0.execute(RELEASE, vec![id.into(), holder.into()]).await.map(drop)
    }

    /// Keeps a key that leaves stand over until `ends_at_us`, or longer where that was said before.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn put_key(self, id: &str, sealed: &[u8], ends_at_us: i64) -> Result<(), StoreError> {
        self.0.execute(PUT_KEY, vec![id.into(), sealed.into(), ends_at_us.into()]).await.map(drop)
    }

    /// Deletes leaves and keys that have ended, and of the others the oldest beyond `leaves_max`, with keys that end with them; of each
    /// [`TIDIED_MAX`] at most: call again while `deleted` is as many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tidy(self, now_us: i64, leaves_max: u64) -> Result<Tidied, StoreError> {
        let most = TIDIED_MAX as i64;
        let ended = self.0.execute(TIDY, vec![now_us.into(), most.into()]).await?;
        let keys = self.0.execute(TIDY_KEYS, vec![now_us.into(), most.into()]).await?;
        let ended = ended.max(keys);
        let beyond = self.counts().await?.saturating_sub(leaves_max).min(TIDIED_MAX);
        if beyond == 0 {
            return Ok(Tidied { deleted: ended, evicted: 0 });
        }
        let parameters = vec![now_us.into(), (beyond as i64).into(), OWN_KEY_ENDS_AFTER_US.into()];
        self.0.execute(EVICT_KEYS, parameters).await?;
        let evicted = self.0.execute(EVICT, vec![now_us.into(), (beyond as i64).into()]).await?;
        Ok(Tidied { deleted: ended.max(evicted), evicted })
    }

    /// How many leaves there are, those that are being minted included. Walks an index.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn counts(self) -> Result<u64, StoreError> {
        let rows = self.0.rows(Cost::Walk, COUNT, Vec::new()).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.number())
    }
}

fn look_of(row: Option<Row>) -> Result<LeafLookup, StoreError> {
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
