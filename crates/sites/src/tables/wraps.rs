//! Wrapped policy keys: the private key of a policy generation, sealed to one node.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::SiteTables;
use db::{BulkStatement, Column, Cost, StoreError, Tx, limit_of};

/// Primary key of a wrapped policy key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WrapKey {
    /// Id of the policy.
    pub policy: Uuid,
    /// Number of the policy's generation, from 1.
    pub generation: u32,
    /// Id of the node.
    pub node: Uuid,
}

/// A wrapped policy key to store, and the node data that it is based on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewWrap {
    /// Policy, generation and node for which the policy key is wrapped.
    pub key: WrapKey,
    /// Output of `PolicyKey::wrap_for`: the wrapped key.
    pub blob: Vec<u8>,
    /// The node at the time of wrapping.
    pub policy_node: PolicyNode,
}

/// A node that is not retired, with the data that policies need.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PolicyNode {
    /// UUID that the control plane assigned to the node.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Revision of the node; increases with every change.
    pub revision: i64,
    /// The node's own attributes, as a JSON object.
    pub attributes: String,
    /// Id of the node's site.
    pub site: Uuid,
    /// Name of the node's site.
    pub site_name: String,
    /// Revision of the site; increases with every change.
    pub site_revision: i64,
    /// The site's attributes, as a JSON object.
    pub site_attributes: String,
}

pub(super) const PLACED: &str = "-- key_nodes_placed
SELECT n.uuid, n.name, n.revision, n.attributes, s.uuid, s.name, s.revision, s.attributes
FROM key_nodes n JOIN key_sites s ON s.uuid = n.site
WHERE n.retired_at IS NULL AND n.uuid > ?1 ORDER BY n.uuid LIMIT ?2";

pub(super) const LIVE: &str = "-- key_policy_wraps_live
SELECT policy, generation, node FROM key_policy_wraps
WHERE (policy, generation, node) > (?1, ?2, ?3) AND removed_at IS NULL ORDER BY policy, generation, node LIMIT ?4";

pub(super) const OF_POLICY: &str = "-- key_policy_wraps_count
SELECT generation, count(*) FROM key_policy_wraps WHERE policy = ?1 AND removed_at IS NULL GROUP BY generation";

pub(super) const WRAPPED_NODES: &str = "-- key_policy_wraps_nodes
SELECT node FROM key_policy_wraps WHERE policy = ?1 AND generation = ?2 AND removed_at IS NULL ORDER BY node";

pub(super) const POLICIES_OF_NODE: &str = "-- key_policies_of_node
SELECT w.policy FROM key_policy_wraps w JOIN key_policies p ON p.uuid = w.policy AND p.generation = w.generation
WHERE w.node = ?1 AND p.removed_at IS NULL ORDER BY w.policy";

pub(super) const CHANGED: &str = "-- key_policy_wraps_changed
SELECT node, MAX(changed) FROM (
SELECT node, changed FROM key_policy_wraps WHERE changed > ?1 ORDER BY changed LIMIT ?2) AS later GROUP BY node";

/// Deletes withdrawn wrapped policy keys. The nodes of a generation stay recorded as long as the generation exists, in case a node
/// turns out to be untrustworthy.
pub(super) const PURGE: &str = "-- key_policy_wraps_purge
DELETE FROM key_policy_wraps WHERE removed_at < ?1
AND NOT EXISTS (SELECT 1 FROM key_policy_generations g WHERE g.policy = key_policy_wraps.policy
                AND g.generation = key_policy_wraps.generation)";

/// Reads the public keys of nodes: one SQL statement on PostgreSQL, one per node on SQLite.
pub(super) const KEMS: BulkStatement = db::bulk! { (uuid uuid)
    "-- key_node_kems
SELECT uuid, kem FROM key_nodes WHERE uuid = {any uuid}"
};

/// Locks sites against changes. Several transactions can hold this lock concurrently.
pub(super) const HOLD: BulkStatement = db::bulk! { (uuid uuid)
    "-- key_sites_hold
SELECT uuid, revision FROM key_sites WHERE uuid = {any uuid}{| FOR SHARE}"
};

pub(super) const PUT: BulkStatement = db::bulk! {
    (policy uuid, generation bigint, node uuid, blob bytea, changed bigint, revision bigint)
    "-- key_policy_wraps_put
INSERT INTO key_policy_wraps (policy, generation, node, blob, changed)
SELECT :policy, :generation, :node, :blob, :changed
WHERE EXISTS (SELECT 1 FROM key_nodes WHERE uuid = :node AND retired_at IS NULL AND revision = :revision)
AND EXISTS (SELECT 1 FROM key_policy_generations WHERE policy = :policy AND generation = :generation)
ON CONFLICT (policy, generation, node) DO UPDATE SET blob = excluded.blob, changed = excluded.changed, removed_at = NULL
WHERE key_policy_wraps.removed_at IS NOT NULL RETURNING node"
};

pub(super) const WITHDRAW: BulkStatement = db::bulk! {
    (policy uuid, generation bigint, node uuid, changed bigint, at bigint, seen bigint)
    "-- key_policy_wraps_withdraw
UPDATE key_policy_wraps SET blob = NULL, changed = :changed, removed_at = :at
WHERE policy = :policy AND generation = :generation AND node = :node AND removed_at IS NULL AND changed <= :seen
  RETURNING node"
};

/// Stores wrapped policy keys whose nodes, sites and generations are unchanged. Returns the number of stored ones. `None` when a
/// site has changed: repeat the pass.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_wraps(tx: &mut Tx, new: &[NewWrap]) -> Result<Option<usize>, StoreError> {
    let revisions: BTreeMap<Uuid, i64> =
        new.iter().map(|wrap| (wrap.policy_node.site, wrap.policy_node.site_revision)).collect();
    // Lock the sites before the change numbers, like a change of a site does.
    let locked = tx.bulk(&HOLD, vec![Column::Uuid(revisions.keys().copied().collect())]).await?;
    let mut now = BTreeMap::new();
    for mut row in locked {
        now.insert(row.uuid()?, row.int()?);
    }
    if now != revisions {
        return Ok(None);
    }
    let first = take_changes(tx, new.len()).await?;
    let columns = vec![
        Column::Uuid(new.iter().map(|wrap| wrap.key.policy).collect()),
        Column::Int(new.iter().map(|wrap| i64::from(wrap.key.generation)).collect()),
        Column::Uuid(new.iter().map(|wrap| wrap.key.node).collect()),
        Column::Blob(new.iter().map(|wrap| wrap.blob.clone()).collect()),
        Column::Int((first..).take(new.len()).collect()),
        Column::Int(new.iter().map(|wrap| wrap.policy_node.revision).collect()),
    ];
    Ok(Some(tx.bulk(&PUT, columns).await?.len()))
}

/// Withdraws wrapped policy keys and notifies their nodes. Wrapped policy keys that were created after the change `seen` stay,
/// because the caller does not know them. Returns the number of withdrawn wrapped policy keys.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn withdraw_wraps(
    tx: &mut Tx,
    keys: &[WrapKey],
    seen: i64,
    at_us: i64,
) -> Result<usize, StoreError> {
    let first = take_changes(tx, keys.len()).await?;
    let columns = vec![
        Column::Uuid(keys.iter().map(|key| key.policy).collect()),
        Column::Int(keys.iter().map(|key| i64::from(key.generation)).collect()),
        Column::Uuid(keys.iter().map(|key| key.node).collect()),
        Column::Int((first..).take(keys.len()).collect()),
        Column::Int(vec![at_us; keys.len()]),
        Column::Int(vec![seen; keys.len()]),
    ];
    Ok(tx.bulk(&WITHDRAW, columns).await?.len())
}

/// Returns the KEM public keys of these nodes.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn node_kems(tx: &mut Tx, nodes: Vec<Uuid>) -> Result<HashMap<Uuid, Vec<u8>>, StoreError> {
    let rows = tx.bulk(&KEMS, vec![Column::Uuid(nodes)]).await?;
    rows.into_iter().map(|mut row| Ok((row.uuid()?, row.blob()?))).collect()
}

impl SiteTables<'_> {
    /// Returns nodes that are not retired and whose id is greater than `after`, ordered by id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn placed_nodes(self, after: Uuid, limit: usize) -> Result<Vec<PolicyNode>, StoreError> {
        let (limit, _) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, PLACED, vec![after.into(), (limit as i64).into()]).await?;
        let read = |mut row: db::Row| {
            Ok(PolicyNode {
                id: row.uuid()?,
                name: row.text()?,
                revision: row.int()?,
                attributes: row.text()?,
                site: row.uuid()?,
                site_name: row.text()?,
                site_revision: row.int()?,
                site_attributes: row.text()?,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Returns the primary keys of wrapped policy keys that are not withdrawn, in ascending order, starting after `after`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn live_wraps(self, after: Option<WrapKey>, limit: usize) -> Result<Vec<WrapKey>, StoreError> {
        let (limit, _) = limit_of(limit);
        let first = WrapKey { policy: Uuid::nil(), generation: 0, node: Uuid::nil() };
        let WrapKey { policy, generation, node } = after.unwrap_or(first);
        let parameters =
            vec![policy.into(), i64::from(generation).into(), node.into(), (limit as i64).into()];
        let rows = self.0.rows(Cost::Walk, LIVE, parameters).await?;
        let read = |mut row: db::Row| {
            Ok(WrapKey { policy: row.uuid()?, generation: row.number()?, node: row.uuid()? })
        };
        rows.into_iter().map(read).collect()
    }

    /// Returns the nodes whose wrapped policy keys changed after the change `after`, each with the number of its last change. Reads
    /// at most `limit` changes; repeat the call with the highest number.
    ///
    /// # Errors
    /// Database errors.
    pub async fn wraps_changed(self, after: i64, limit: usize) -> Result<Vec<(Uuid, i64)>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.0.rows(Cost::Point, CHANGED, vec![after.into(), limit.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.uuid()?, row.int()?))).collect()
    }

    /// Returns the number of nodes that have a generation's private key, for each generation of a policy.
    ///
    /// # Errors
    /// Database errors.
    pub async fn wraps_of_policy(self, policy: Uuid) -> Result<BTreeMap<u32, u64>, StoreError> {
        let rows = self.0.rows(Cost::Walk, OF_POLICY, vec![policy.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row.number()?))).collect()
    }

    /// Returns the nodes that have a generation of a policy.
    ///
    /// # Errors
    /// Database errors.
    pub async fn wrapped_nodes(self, policy: Uuid, generation: u32) -> Result<Vec<Uuid>, StoreError> {
        let parameters = vec![policy.into(), i64::from(generation).into()];
        let rows = self.0.rows(Cost::Walk, WRAPPED_NODES, parameters).await?;
        rows.into_iter().map(|mut row| row.uuid()).collect()
    }

    /// Returns the policies whose newest generation is or was wrapped to a node.
    ///
    /// # Errors
    /// Database errors.
    pub async fn policies_of_node(self, node: Uuid) -> Result<Vec<Uuid>, StoreError> {
        let rows = self.0.rows(Cost::Walk, POLICIES_OF_NODE, vec![node.into()]).await?;
        rows.into_iter().map(|mut row| row.uuid()).collect()
    }
}
