//! Presence of nodes: leases, and the notifications about them.

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::Places;
use db::{Bulk, Column, Cost, StoreError, Tx};

/// Nodes that come or go by one transaction: some 50 ms of updates. The rest follows with the next.
const FLIPS_MAX: i64 = 1_000;

/// A node's lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeLease {
    /// Whose.
    pub node: Uuid,
    /// Its end, µs.
    pub until_us: i64,
}

pub(super) const ENTER: &str = "-- key_node_lease_enter
INSERT INTO key_node_leases (node, until_at, present) VALUES (?1, 0, 0) ON CONFLICT DO NOTHING";

pub(super) const LEAVE: &str = "-- key_node_lease_leave
DELETE FROM key_node_leases WHERE node = ?1";

/// Whose lease says another thing than the others were told. A walk of all leases, 40 bytes each.
pub(super) const FLIPS: &str = "-- key_node_flips
SELECT node, present FROM key_node_leases
WHERE present = 1 AND until_at <= ?1 OR present = 0 AND until_at > ?1 ORDER BY node LIMIT ?2";

pub(super) const LEASES: Bulk = db::bulk! { (node uuid, until_at bigint)
    "-- key_node_leases
UPDATE key_node_leases SET until_at = {max|greatest}(until_at, :until_at) WHERE node = :node"
};

/// The condition again: a beat may have come since the look.
pub(super) const FLIP: Bulk = db::bulk! { (node uuid, present bigint, now bigint)
    "-- key_node_flip
UPDATE key_node_leases SET present = :present WHERE node = :node AND present <> :present AND (until_at > :now) =
  (:present = 1)
RETURNING node"
};

pub(super) const CHANGE: Bulk = db::bulk! { (node uuid, changed bigint)
    "-- key_node_change
UPDATE key_nodes SET changed = :changed WHERE uuid = :node"
};

pub(super) async fn enter(tx: &mut Tx, node: Uuid) -> Result<(), StoreError> {
    tx.execute(ENTER, vec![node.into()]).await.map(drop)
}

pub(super) async fn leave(tx: &mut Tx, node: Uuid) -> Result<(), StoreError> {
    tx.execute(LEAVE, vec![node.into()]).await.map(drop)
}

/// Prolongs leases: one statement, however many. Retired and unknown nodes have none.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn put_leases(tx: &mut Tx, leases: &[NodeLease]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(leases.iter().map(|lease| lease.node).collect()),
        Column::Int(leases.iter().map(|lease| lease.until_us).collect()),
    ];
    tx.bulk(&LEASES, columns).await.map(drop)
}

/// Tells the others of those who came and who are gone since: each is a change of its own. `flips` is what
/// `node_flips` found; what is otherwise by now stays as it is. Answers how many.
///
/// # Errors
/// Those of the database.
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

impl Places<'_> {
    /// Nodes of whom the others are to be told that they are there now (true), or gone (false); a thousand at most.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn node_flips(self, now_us: i64) -> Result<Vec<(Uuid, bool)>, StoreError> {
        let rows = self.0.rows(Cost::Point, FLIPS, vec![now_us.into(), FLIPS_MAX.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.uuid()?, !row.flag()?))).collect()
    }
}
