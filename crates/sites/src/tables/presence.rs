//! Presence of nodes: leases, and the notifications about them.

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::SiteTables;
use db::{BulkStatement, Column, Cost, StoreError, Tx};

/// Maximum number of nodes whose presence changes in one transaction: about 50 ms of updates. Further changes follow in the next
/// transaction.
const FLIPS_MAX: i64 = 1_000;

/// A node's lease: the node counts as present until its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeLease {
    /// Id of the node.
    pub node: Uuid,
    /// End of the lease, in µs since 1970-01-01 UTC.
    pub until_us: i64,
}

pub(super) const ENTER: &str = "-- key_node_lease_enter
INSERT INTO key_node_leases (node, until_at, present) VALUES (?1, 0, 0) ON CONFLICT DO NOTHING";

pub(super) const LEAVE: &str = "-- key_node_lease_leave
DELETE FROM key_node_leases WHERE node = ?1";

/// Nodes whose lease contradicts the state that was announced to other nodes. Scans all leases, 40 bytes each.
pub(super) const FLIPS: &str = "-- key_node_flips
SELECT node, present FROM key_node_leases
WHERE present = 1 AND until_at <= ?1 OR present = 0 AND until_at > ?1 ORDER BY node LIMIT ?2";

pub(super) const LEASES: BulkStatement = db::bulk! { (node uuid, until_at bigint)
    "-- key_node_leases
UPDATE key_node_leases SET until_at = {max|greatest}(until_at, :until_at) WHERE node = :node"
};

/// Stores that a node is present or absent. The SQL statement checks the lease again, because a heartbeat may have arrived since
/// the query.
pub(super) const FLIP: BulkStatement = db::bulk! { (node uuid, present bigint, now bigint)
    "-- key_node_flip
UPDATE key_node_leases SET present = :present WHERE node = :node AND present <> :present AND (until_at > :now) =
  (:present = 1)
RETURNING node"
};

pub(super) const CHANGE: BulkStatement = db::bulk! { (node uuid, changed bigint)
    "-- key_node_change
UPDATE key_nodes SET changed = :changed WHERE uuid = :node"
};

pub(super) async fn enter(tx: &mut Tx, node: Uuid) -> Result<(), StoreError> {
    tx.execute(ENTER, vec![node.into()]).await.map(drop)
}

pub(super) async fn leave(tx: &mut Tx, node: Uuid) -> Result<(), StoreError> {
    tx.execute(LEAVE, vec![node.into()]).await.map(drop)
}

/// Extends leases: one SQL statement on PostgreSQL, one per lease on SQLite. Retired and unknown nodes are ignored.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_leases(tx: &mut Tx, leases: &[NodeLease]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(leases.iter().map(|lease| lease.node).collect()),
        Column::Int(leases.iter().map(|lease| lease.until_us).collect()),
    ];
    tx.bulk(&LEASES, columns).await.map(drop)
}

/// Records nodes that became present or absent, each with its own change number, so that other nodes are notified. `flips` is the
/// result of `presence_changes`; entries that no longer apply are skipped. Returns the number of changes.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn flip_nodes(tx: &mut Tx, flips: &[(Uuid, bool)], now_us: i64) -> Result<usize, StoreError> {
    let first = take_changes(tx, flips.len()).await?;
    let columns = vec![
        Column::Uuid(flips.iter().map(|(node, _)| *node).collect()),
        Column::Int(flips.iter().map(|(_, present)| i64::from(*present)).collect()),
        Column::Int(vec![now_us; flips.len()]),
    ];
    let flipped = tx.bulk(&FLIP, columns).await?;
    let flipped = flipped.into_iter().map(|mut row| row.uuid()).collect::<Result<Vec<_>, _>>()?;
    let count = flipped.len();
    let changes = Column::Int((first..).take(count).collect());
    tx.bulk(&CHANGE, vec![Column::Uuid(flipped), changes]).await?;
    Ok(count)
}

impl SiteTables<'_> {
    /// Returns nodes whose change must be announced: present now (true) or gone (false). At most a thousand.
    ///
    /// # Errors
    /// Database errors.
    pub async fn presence_changes(self, now_us: i64) -> Result<Vec<(Uuid, bool)>, StoreError> {
        let rows = self.0.rows(Cost::Point, FLIPS, vec![now_us.into(), FLIPS_MAX.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.uuid()?, !row.flag()?))).collect()
    }
}
