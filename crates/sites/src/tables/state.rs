//! The state for nodes: everything that changed since the node's last request.

use futures_util::FutureExt;
use uuid::Uuid;

use super::changes::last_change;
use super::handle::Places;
use db::{Cost, Row, StoreError, limit_of};

/// A policy, as nodes read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicyChange {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The formula: which nodes satisfy the policy.
    pub formula: String,
    /// Its newest pair.
    pub generation: u32,
    /// Whether it was deleted.
    pub removed: bool,
    /// The number of the change.
    pub changed: i64,
}

/// A wrap, as its node reads it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WrapChange {
    /// Of this policy.
    pub policy: Uuid,
    /// Of this pair of it.
    pub generation: u32,
    /// The wrap; `None` once it is withdrawn.
    pub blob: Option<Vec<u8>>,
    /// The number of the change.
    pub changed: i64,
}

/// A sealed key, as nodes read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyChange {
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// Its SubjectPublicKeyInfo, DER.
    pub spki: Vec<u8>,
    /// The display name.
    pub name: String,
    /// Its kind, a word.
    pub kind: String,
    /// Sealed to this policy.
    pub policy: Uuid,
    /// To this pair of it.
    pub generation: u32,
    /// The sealed bytes; `None` once withdrawn.
    pub blob: Option<Vec<u8>>,
    /// The number of the change.
    pub changed: i64,
}

/// Changes after a number, each list in the order of its numbers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyState {
    /// Policies.
    pub policies: Vec<PolicyChange>,
    /// The node's wraps.
    pub wraps: Vec<WrapChange>,
    /// Sealed keys of all policies.
    pub keys: Vec<KeyChange>,
    /// All changes up to this number are in this page or in those before it.
    pub next: i64,
    /// Whether there is more after it.
    pub more: bool,
    /// The number asked with was never given, as after a restored backup: this begins again.
    pub anew: bool,
}

/// Bytes of a page, of what is text or sealed: as JSON, with what is sealed in base64, 6 MB at most. Nodes read 8 MiB.
/// One change alone may have more.
const PAGE_OCTETS_MAX: usize = 3 * 1_024 * 1_024;

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

impl KeyState {
    /// The number of the last change that is in the page's bytes with all before it, of all kinds.
    fn end_by_octets(&self) -> i64 {
        let sealed = |blob: &Option<Vec<u8>>| blob.as_ref().map_or(0, Vec::len);
        let policies = self.policies.iter().map(|one| (one.changed, one.name.len() + one.formula.len()));
        let wraps = self.wraps.iter().map(|one| (one.changed, sealed(&one.blob)));
        let keys = self.keys.iter().map(|one| {
            let octets = one.spki.len() + one.name.len() + sealed(&one.blob);
            (one.changed, octets)
        });
        let mut changes: Vec<(i64, usize)> = policies.chain(wraps).chain(keys).collect();
        changes.sort_unstable();
        let (mut end, mut octets) = (None, 0);
        for (changed, more) in changes {
            octets += more;
            match end {
                Some(end) if octets > PAGE_OCTETS_MAX => return end,
                _ => end = Some(changed),
            }
        }
        i64::MAX
    }
}

impl Places<'_> {
    /// The number of the last change of policies and sealed keys, which all nodes read, 0 before the first: a look at the
    /// end of two indexes. Wraps are one node's each: [`Self::wraps_changed`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn last_state(self) -> Result<i64, StoreError> {
        self.0.row(STATE_LAST, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
    }

    /// What changed for a node after the number `after`, at most `limit` of each kind and 3 MiB. Ask again with `next` until
    /// there is no more.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn state(self, node: Uuid, after: i64, limit: usize) -> Result<KeyState, StoreError> {
        let (limit, _) = limit_of(limit);
        // Before the rows: numbers are given in the order of commits, so all up to this one can be seen.
        let known = self.last_change().await?;
        // A standby, read while the database is away, may lag behind what the node was told: that is no other past.
        let anew = after > known && after > self.written_key_change().await?;
        let after = if anew { 0 } else { after };
        let last = known.max(after);
        let rows = limit as i64;
        let bounds = || vec![after.into(), last.into(), rows.into()];
        let of_node = vec![node.into(), after.into(), last.into(), rows.into()];
        let policies = self.0.rows(Cost::Walk, POLICIES, bounds()).await?;
        let wraps = self.0.rows(Cost::Walk, WRAPS, of_node).await?;
        let keys = self.0.rows(Cost::Walk, KEYS, bounds()).await?;
        let mut state = KeyState {
            policies: policies.into_iter().map(policy_of).collect::<Result<_, _>>()?,
            wraps: wraps.into_iter().map(wrap_of).collect::<Result<_, _>>()?,
            keys: keys.into_iter().map(key_of).collect::<Result<_, _>>()?,
            next: last,
            more: false,
            anew,
        };
        // A full list may go on: what is past its end is for the next page, of the other lists as well, so that a key
        // never comes before the wrap that opens it.
        let ends = [
            (state.policies.len(), state.policies.last().map(|one| one.changed)),
            (state.wraps.len(), state.wraps.last().map(|one| one.changed)),
            (state.keys.len(), state.keys.last().map(|one| one.changed)),
        ];
        for (_, end) in ends.into_iter().filter(|(count, _)| *count == limit) {
            state.next = end.map_or(state.next, |end| state.next.min(end));
        }
        let next = state.next.min(state.end_by_octets());
        state.next = next;
        state.more = next < last;
        state.policies.retain(|one| one.changed <= next);
        state.wraps.retain(|one| one.changed <= next);
        state.keys.retain(|one| one.changed <= next);
        Ok(state)
    }

    /// [`Self::last_change`] of the database itself, never of its standby.
    async fn written_key_change(self) -> Result<i64, StoreError> {
        self.0.write("key_changes_last", |tx| last_change(tx).boxed()).await
    }

    /// Forgets what was removed before a time: who has not asked since reads everything again.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn purge_state(self, before_us: i64) -> Result<u64, StoreError> {
        let mut gone = 0;
        for statement in [super::policies::PURGE, super::wraps::PURGE, super::sealed_keys::PURGE] {
            gone += self.0.execute(statement, vec![before_us.into()]).await?;
        }
        Ok(gone)
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
