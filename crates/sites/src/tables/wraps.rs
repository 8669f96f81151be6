//! Seeds of generations, sealed to nodes.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::Places;
use db::{Bulk, Column, Cost, StoreError, Tx, limit_of};

/// The node and key of a wrap.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WrapKey {
    /// The policy.
    pub policy: Uuid,
    /// Which of its pairs.
    pub generation: u32,
    /// The node.
    pub node: Uuid,
}

/// A wrap to store, and by what it was made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewWrap {
    /// The node and key.
    pub key: WrapKey,
    /// The wrap.
    pub blob: Vec<u8>,
    /// The node as it was then.
    pub place: PolicyNode,
}

/// A node that is not retired, as policies look at it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PolicyNode {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its revision.
    pub revision: i64,
    /// JSON object: its own attributes.
    pub attributes: String,
    /// Its site.
    pub site: Uuid,
    /// The site's name.
    pub site_name: String,
    /// The site's revision.
    pub site_revision: i64,
    /// JSON object: the site's attributes.
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

/// Keeps the record of a generation's holders as long as the generation exists, in case a holder turns out to be untrustworthy.
pub(super) const PURGE: &str = "-- key_policy_wraps_purge
DELETE FROM key_policy_wraps WHERE removed_at < ?1
AND NOT EXISTS (SELECT 1 FROM key_policy_generations g WHERE g.policy = key_policy_wraps.policy
                AND g.generation = key_policy_wraps.generation)";

/// The public keys of nodes. `KEMS` of one database is one statement, of the other a call each.
pub(super) const KEMS: Bulk = db::bulk! { (uuid uuid)
    "-- key_node_kems
SELECT uuid, kem FROM key_nodes WHERE uuid = {any uuid}"
};

/// Holds sites as they are: who changes one waits, who holds it does not.
pub(super) const HOLD: Bulk = db::bulk! { (uuid uuid)
    "-- key_sites_hold
SELECT uuid, revision FROM key_sites WHERE uuid = {any uuid}{| FOR SHARE}"
};

pub(super) const PUT: Bulk = db::bulk! {
    (policy uuid, generation bigint, node uuid, blob bytea, changed bigint, revision bigint)
    "-- key_policy_wraps_put
INSERT INTO key_policy_wraps (policy, generation, node, blob, changed)
SELECT :policy, :generation, :node, :blob, :changed
WHERE EXISTS (SELECT 1 FROM key_nodes WHERE uuid = :node AND retired_at IS NULL AND revision = :revision)
AND EXISTS (SELECT 1 FROM key_policy_generations WHERE policy = :policy AND generation = :generation)
ON CONFLICT (policy, generation, node) DO UPDATE SET blob = excluded.blob, changed = excluded.changed, removed_at = NULL
WHERE key_policy_wraps.removed_at IS NOT NULL RETURNING node"
};

pub(super) const WITHDRAW: Bulk = db::bulk! {
    (policy uuid, generation bigint, node uuid, changed bigint, at bigint, seen bigint)
    "-- key_policy_wraps_withdraw
UPDATE key_policy_wraps SET blob = NULL, changed = :changed, removed_at = :at
WHERE policy = :policy AND generation = :generation AND node = :node AND removed_at IS NULL AND changed <= :seen
  RETURNING node"
};

/// Stores wraps, as many as their nodes, sites and generations are still what they were made by; says how many. `None`
/// when a site has changed since: look again.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn put_wraps(tx: &mut Tx, new: &[NewWrap]) -> Result<Option<usize>, StoreError> {
    let revisions: BTreeMap<Uuid, i64> =
        new.iter().map(|wrap| (wrap.place.site, wrap.place.site_revision)).collect();
    // Before the numbers: anyone who changes a site holds it, and then asks for numbers.
    let held = tx.bulk(&HOLD, vec![Column::Uuid(revisions.keys().copied().collect())]).await?;
    let mut now = BTreeMap::new();
    for mut row in held {
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
        Column::Int(new.iter().map(|wrap| wrap.place.revision).collect()),
    ];
    Ok(Some(tx.bulk(&PUT, columns).await?.len()))
}

/// Withdraws wraps; nodes are told. What was made after the change `seen` stays: who withdraws decided by what there was
/// then. Says how many there were.
///
/// # Errors
/// Those of the database.
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

/// The KEM public keys of these nodes.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn node_kems(tx: &mut Tx, nodes: Vec<Uuid>) -> Result<HashMap<Uuid, Vec<u8>>, StoreError> {
    let rows = tx.bulk(&KEMS, vec![Column::Uuid(nodes)]).await?;
    rows.into_iter().map(|mut row| Ok((row.uuid()?, row.blob()?))).collect()
}

impl Places<'_> {
    /// Nodes that are not retired, by their identities, after `after`.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Wraps that are not withdrawn, in the order of their keys, after `after`.
    ///
    /// # Errors
    /// Those of the database.
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

    /// The nodes of which wraps changed after the change `after`, each with the number of its last; of the first `limit`
    /// wraps. Ask again after the highest number.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn wraps_changed(self, after: i64, limit: usize) -> Result<Vec<(Uuid, i64)>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.0.rows(Cost::Point, CHANGED, vec![after.into(), limit.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.uuid()?, row.int()?))).collect()
    }

    /// How many nodes have each generation of a policy.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn wraps_of_policy(self, policy: Uuid) -> Result<BTreeMap<u32, u64>, StoreError> {
        let rows = self.0.rows(Cost::Walk, OF_POLICY, vec![policy.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row.number()?))).collect()
    }

    /// The nodes that have a generation of a policy.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn wrapped_nodes(self, policy: Uuid, generation: u32) -> Result<Vec<Uuid>, StoreError> {
        let parameters = vec![policy.into(), i64::from(generation).into()];
        let rows = self.0.rows(Cost::Walk, WRAPPED_NODES, parameters).await?;
        rows.into_iter().map(|mut row| row.uuid()).collect()
    }

    /// The policies of which a node has, or had, the newest generation.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn policies_of_node(self, node: Uuid) -> Result<Vec<Uuid>, StoreError> {
        let rows = self.0.rows(Cost::Walk, POLICIES_OF_NODE, vec![node.into()]).await?;
        rows.into_iter().map(|mut row| row.uuid()).collect()
    }
}
