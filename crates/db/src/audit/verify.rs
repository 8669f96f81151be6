//! Verification of the chains of the audit log.

use std::collections::BTreeMap;

use crate::audit::hash_of;
use crate::audit::head::AuditHead;
use crate::database::Database;
use crate::digest::hex;
use crate::error::StoreError;

/// Result of verifying the audit log: verified events and chains, faults and heads.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct AuditVerification {
    /// Number of events whose hash was recomputed.
    pub events: u64,
    /// Number of verified chains.
    pub chains: u64,
    /// Description of the first fault of each broken chain.
    pub faults: Vec<String>,
    /// The heads, `shard:sequence:hash`. Store them elsewhere to detect that the end of a chain was removed and its head changed.
    pub heads: Vec<String>,
}

/// Known positions and hashes with which the chains are compared.
#[derive(Clone, Debug, Default)]
pub struct AuditBounds {
    /// Position and hash of the last event that is stored elsewhere, for each chain. The verification starts after this event.
    pub starts: BTreeMap<i64, (i64, [u8; 32])>,
    /// Hashes known from elsewhere, such as signed heads, for each pair of chain and position.
    pub points: BTreeMap<(i64, i64), [u8; 32]>,
}

impl AuditBounds {
    fn start(&self, shard: i64) -> (i64, [u8; 32]) {
        self.starts.get(&shard).copied().unwrap_or((0, [0; 32]))
    }

    /// Returns why a chain that ends at `head` contradicts the known positions.
    fn contradicts(&self, head: &AuditHead) -> Option<String> {
        let (shard, end) = (head.shard, head.sequence);
        let (start, hash) = self.start(shard);
        let last =
            self.points.range((shard, 0)..=(shard, i64::MAX)).next_back().map(|((_, position), _)| *position);
        match last.filter(|position| *position > end) {
            Some(position) => Some(format!(
                "chain {shard}: the chain ends at event {end}, but a signed head covers event {position}"
            )),
            None if end < start => Some(format!(
                "chain {shard}: the chain ends at event {end}, but events up to {start} are sealed"
            )),
            None if end == start && head.hash != hash => {
                Some(format!("chain {shard}: the head is not the last sealed event"))
            }
            None => None,
        }
    }

    fn differs(&self, shard: i64, sequence: i64, hash: &[u8; 32]) -> bool {
        self.points.get(&(shard, sequence)).is_some_and(|known| known != hash)
    }
}

/// Number of events verified at a time: a few MiB.
const VERIFY_PAGE: usize = 4_096;

impl Database {
    /// Verifies every chain from its first event to its head.
    ///
    /// # Errors
    /// Database errors. A broken chain is a result, not an error.
    #[crate::boxed]
    pub async fn audit_verify(&self) -> Result<AuditVerification, StoreError> {
        self.audit_verify_within(&AuditBounds::default()).await
    }

    /// Verifies every chain from its start in `bounds` to its head, and compares it with the known hashes.
    ///
    /// # Errors
    /// Database errors. A broken chain is a result, not an error.
    #[crate::boxed]
    pub async fn audit_verify_within(&self, bounds: &AuditBounds) -> Result<AuditVerification, StoreError> {
        let mut outcome = AuditVerification::default();
        for head in self.audit_heads().await? {
            outcome.chains += 1;
            outcome.heads.push(format!("{}:{}:{}", head.shard, head.sequence, hex(&head.hash)));
            let fault = match bounds.contradicts(&head) {
                Some(fault) => Some(fault),
                None => self.verify_chain(head, bounds, &mut outcome.events).await?,
            };
            outcome.faults.extend(fault);
        }
        Ok(outcome)
    }

    /// Returns the first fault of a chain up to `head`. Later events are not checked.
    async fn verify_chain(
        &self,
        head: AuditHead,
        bounds: &AuditBounds,
        events: &mut u64,
    ) -> Result<Option<String>, StoreError> {
        let shard = head.shard;
        let (mut sequence, mut hash) = bounds.start(shard);
        while sequence < head.sequence {
            let found = self.audit_chain_page(shard, sequence, VERIFY_PAGE).await?;
            if found.is_empty() {
                let end = head.sequence;
                return Ok(Some(format!(
                    "chain {shard}: the head counts {end} events, but {sequence} exist"
                )));
            }
            for row in found {
                if row.sequence != sequence + 1 {
                    return Ok(Some(format!("chain {shard}: event {} is missing", sequence + 1)));
                }
                if hash_of(&hash, &row) != row.hash {
                    return Ok(Some(format!("chain {shard}: event {} was altered", row.sequence)));
                }
                if bounds.differs(shard, row.sequence, &row.hash) {
                    return Ok(Some(format!(
                        "chain {shard}: event {} does not match a signed head",
                        row.sequence
                    )));
                }
                (sequence, hash) = (row.sequence, row.hash);
                *events += 1;
                if sequence == head.sequence {
                    let same = hash == head.hash;
                    return Ok((!same).then(|| format!("chain {shard}: its head was altered")));
                }
            }
        }
        Ok(None)
    }
}
