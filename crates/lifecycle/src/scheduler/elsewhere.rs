//! What the authority revoked by itself (by serial, by filter, by a blocked key) is revoked here too, and replaced.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::lifecycle::{Lifecycle, LifecycleError, RevokeRequest, Selection};

/// Certificates taken over in one round.
const BATCH: i64 = 2_000;
/// How far back the first round of a process looks, µs: what happened while nothing ran.
const LOOK_BACK_US: i64 = 7 * 86_400_000_000;
/// Revocations commit a little out of the order of their times, µs.
const OVERLAP_US: i64 = 60_000_000;
/// In the audit.
const ACTOR: &str = "system:revocation";

/// Reasons after which a certificate is wanted no more (RFC 5280 section 5.3.1): cessationOfOperation,
/// privilegeWithdrawn.
const FOR_GOOD: [i64; 2] = [5, 9];
/// Reasons that a managed certificate can be revoked for; others become `unspecified` there.
const KNOWN: [i64; 6] = [0, 1, 3, 4, 5, 9];

impl Lifecycle {
    /// Moves certificates whose newest version the authority has revoked to `revoked`, and asks for new versions with new
    /// keys at once, except where the reason says that none is wanted. Answers how many.
    pub(crate) async fn hear_revocations(&self) -> Result<u64, LifecycleError> {
        let after = {
            let heard = self.inner.revocations_heard_us.lock();
            (*heard).unwrap_or_else(|| self.now_us().saturating_sub(LOOK_BACK_US))
        };
        let found = self.inner.store.managed_revoked_elsewhere(after, BATCH).await?;
        let mut by_reason: BTreeMap<i64, Vec<Uuid>> = BTreeMap::new();
        for one in &found {
            let reason = if KNOWN.contains(&one.reason) { one.reason } else { 0 };
            by_reason.entry(reason).or_default().push(one.certificate);
        }
        let mut done = 0;
        for (reason, ids) in by_reason {
            let request = RevokeRequest { reason, replace: !FOR_GOOD.contains(&reason) };
            done += self.revoke(&Selection::Ids(ids), request, ACTOR).await?.done;
        }
        // The next round begins a little before what this one saw: those already moved are not found again.
        let seen = found.last().map_or_else(|| self.now_us(), |last| last.recorded_at_us);
        *self.inner.revocations_heard_us.lock() = Some(seen.saturating_sub(OVERLAP_US).max(after));
        Ok(done)
    }
}
