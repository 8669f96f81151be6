//! Change lists for nodes: everything that changed since a node's last request.

use futures_util::FutureExt;
use uuid::Uuid;

use super::changes::last_change;
use super::handle::SiteTables;
use db::{Cost, Row, StoreError, limit_of};

/// A change of a policy, as nodes read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicyChange {
    /// UUID that the control plane assigned to the policy.
    pub id: Uuid,
    /// Name of the policy, unique among policies that are not deleted.
    pub name: String,
    /// Formula that selects the nodes.
    pub formula: String,
    /// Number of the newest generation.
    pub generation: u32,
    /// Whether the policy was deleted.
    pub removed: bool,
    /// Change number, which orders the changes of all kinds.
    pub changed: i64,
}

/// A change of a wrapped policy key, as its node reads it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WrapChange {
    /// Id of the policy.
    pub policy: Uuid,
    /// Number of the policy's generation, from 1.
    pub generation: u32,
    /// The wrapped key. `None` once it is withdrawn.
    pub blob: Option<Vec<u8>>,
    /// Change number, which orders the changes of all kinds.
    pub changed: i64,
}

/// A change of a sealed key, as nodes read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyChange {
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
    /// Display name, which need not be unique.
    pub name: String,
    /// Name of the key type, for example `rsa2048`.
    pub kind: String,
    /// Id of the policy that the key is sealed to.
    pub policy: Uuid,
    /// Generation that the key is sealed to.
    pub generation: u32,
    /// The sealed bytes. `None` once the key is withdrawn.
    pub blob: Option<Vec<u8>>,
    /// Change number, which orders the changes of all kinds.
    pub changed: i64,
}

/// Changes after a number. Each list is in the order of its change numbers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyStateChanges {
    /// New, changed and deleted policies.
    pub policies: Vec<PolicyChange>,
    /// Changed policy keys wrapped to the node.
    pub wraps: Vec<WrapChange>,
    /// Changed sealed keys of all policies.
    pub keys: Vec<KeyChange>,
    /// All changes up to this number are in this page or in earlier ones.
    pub next: i64,
    /// Whether there are more changes after this page.
    pub more: bool,
    /// Whether the requested number was never assigned, as after a restored backup. This page then starts a full listing.
    pub anew: bool,
}

/// Maximum bytes of texts and sealed data in a page. As JSON with base64 these are at most 6 MB; nodes accept 8 MiB. A single
/// larger change is sent alone.
const PAGE_BYTES_MAX: usize = 3 * 1_024 * 1_024;

pub(super) const POLICIES: &str = "-- key_state_policies
SELECT uuid, name, formula, generation, COALESCE(removed_at, 0), changed FROM key_policies
WHERE changed > ?1 AND changed <= ?2 ORDER BY changed LIMIT ?3";

pub(super) const WRAPS: &str = "-- key_state_wraps
SELECT policy, generation, blob, changed FROM key_policy_wraps
WHERE node = ?1 AND changed > ?2 AND changed <= ?3 ORDER BY changed LIMIT ?4";

pub(super) const KEYS: &str = "-- key_state_keys
SELECT spki_sha256, spki, name, kind, policy, generation, blob, changed FROM sealed_keys
WHERE changed > ?1 AND changed <= ?2 ORDER BY changed LIMIT ?3";

pub(super) const STATE_LAST: &str = "-- key_state_last
SELECT COALESCE(MAX(changed), 0) FROM (
SELECT MAX(changed) AS changed FROM key_policies UNION ALL
SELECT MAX(changed) FROM sealed_keys) AS last";

impl KeyStateChanges {
    /// Returns the number of the last change that fits into a page together with all earlier changes of every kind.
    fn last_change_in_page(&self) -> i64 {
        let sealed = |blob: &Option<Vec<u8>>| blob.as_ref().map_or(0, Vec::len);
        let policies = self.policies.iter().map(|one| (one.changed, one.name.len() + one.formula.len()));
        let wraps = self.wraps.iter().map(|one| (one.changed, sealed(&one.blob)));
        let keys = self.keys.iter().map(|one| {
            let bytes = one.spki.len() + one.name.len() + sealed(&one.blob);
            (one.changed, bytes)
        });
        let mut changes: Vec<(i64, usize)> = policies.chain(wraps).chain(keys).collect();
        changes.sort_unstable();
        let (mut end, mut bytes) = (None, 0);
        for (changed, more) in changes {
            bytes += more;
            match end {
                Some(end) if bytes > PAGE_BYTES_MAX => return end,
                _ => end = Some(changed),
            }
        }
        i64::MAX
    }
}

impl SiteTables<'_> {
    /// Returns the number of the last change of policies and sealed keys, which all nodes read; 0 before the first. Reads only the
    /// ends of two indexes. Wrapped policy keys have separate changes for each node: [`Self::wraps_changed`].
    ///
    /// # Errors
    /// Database errors.
    pub async fn last_state_change(self) -> Result<i64, StoreError> {
        self.0.row(STATE_LAST, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
    }

    /// Returns a node's changes after the number `after`, at most `limit` of each kind and 3 MiB. Repeat the call with `next` until
    /// there are no more.
    ///
    /// # Errors
    /// Database errors.
    pub async fn state(self, node: Uuid, after: i64, limit: usize) -> Result<KeyStateChanges, StoreError> {
        let (limit, _) = limit_of(limit);
        // Read before the rows: numbers are assigned in the order of commits, so all changes up to this number are visible.
        let known = self.last_change().await?;
        // While the database is unreachable, a standby may lag behind the node. That is not a restored backup.
        let anew = after > known && after > self.last_key_change_on_primary().await?;
        let after = if anew { 0 } else { after };
        let last = known.max(after);
        let rows = limit as i64;
        let bounds = || vec![after.into(), last.into(), rows.into()];
        let of_node = vec![node.into(), after.into(), last.into(), rows.into()];
        let policies = self.0.rows(Cost::Walk, POLICIES, bounds()).await?;
        let wraps = self.0.rows(Cost::Walk, WRAPS, of_node).await?;
        let keys = self.0.rows(Cost::Walk, KEYS, bounds()).await?;
        let mut state = KeyStateChanges {
            policies: policies.into_iter().map(policy_of).collect::<Result<_, _>>()?,
            wraps: wraps.into_iter().map(wrap_of).collect::<Result<_, _>>()?,
            keys: keys.into_iter().map(key_of).collect::<Result<_, _>>()?,
            next: last,
            more: false,
            anew,
        };
        // A list of maximum length may be incomplete. All changes after its last one, in every list, then go to the next page.
        // Otherwise a sealed key could be sent before the wrapped policy key that opens it.
        let ends = [
            (state.policies.len(), state.policies.last().map(|one| one.changed)),
            (state.wraps.len(), state.wraps.last().map(|one| one.changed)),
            (state.keys.len(), state.keys.last().map(|one| one.changed)),
        ];
        for (_, end) in ends.into_iter().filter(|(count, _)| *count == limit) {
            state.next = end.map_or(state.next, |end| state.next.min(end));
        }
        let next = state.next.min(state.last_change_in_page());
        state.next = next;
        state.more = next < last;
        state.policies.retain(|one| one.changed <= next);
        state.wraps.retain(|one| one.changed <= next);
        state.keys.retain(|one| one.changed <= next);
        Ok(state)
    }

    /// Same as [`Self::last_change`], but always from the database, never from its standby.
    async fn last_key_change_on_primary(self) -> Result<i64, StoreError> {
        self.0.write("key_changes_last", |tx| last_change(tx).boxed()).await
    }

    /// Deletes records of deletions that happened before a time. A node that made no request since then gets a full listing.
    ///
    /// # Errors
    /// Database errors.
    pub async fn purge_deletion_records(self, before_us: i64) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for statement in [super::policies::PURGE, super::wraps::PURGE, super::sealed_keys::PURGE] {
            deleted += self.0.execute(statement, vec![before_us.into()]).await?;
        }
        Ok(deleted)
    }
}

fn policy_of(mut row: Row) -> Result<PolicyChange, StoreError> {
    Ok(PolicyChange {
        id: row.uuid()?,
        name: row.text()?,
        formula: row.text()?,
        generation: row.number()?,
        removed: row.flag()?,
        changed: row.int()?,
    })
}

fn wrap_of(mut row: Row) -> Result<WrapChange, StoreError> {
    Ok(WrapChange {
        policy: row.uuid()?,
        generation: row.number()?,
        blob: row.maybe_blob()?,
        changed: row.int()?,
    })
}

fn key_of(mut row: Row) -> Result<KeyChange, StoreError> {
    Ok(KeyChange {
        spki_sha256: row.hash()?,
        spki: row.blob()?,
        name: row.text()?,
        kind: row.text()?,
        policy: row.uuid()?,
        generation: row.number()?,
        blob: row.maybe_blob()?,
        changed: row.int()?,
    })
}
