//! Approval by several people. Each vote is for one plan, and two votes of one person count once.

use store::{StoreError, Tx};

use crate::principal::Principal;
use crate::tables::{self, VoteRow};

/// Maximum number of approvals that a profile can require.
pub const APPROVALS_MAX: u32 = 16;

/// Number of people who have approved a plan, and number required.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Number of people who have approved this plan.
    pub given: u32,
    /// Number of required approvals.
    pub needed: u32,
}

impl Progress {
    /// Returns whether enough people approved the plan.
    #[must_use]
    pub fn is_enough(self) -> bool {
        self.given >= self.needed
    }
}

/// Returns whether the person is the same as one of these actors, even if they used different login methods.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn is_one_of(tx: &mut Tx, actors: Vec<String>, person: &Principal) -> Result<bool, StoreError> {
    let theirs = tables::marks_of(tx, actors).await?;
    let own = tables::marks_of(tx, person.marks().map(str::to_owned).collect()).await?;
    Ok(!theirs.is_disjoint(&own))
}

/// Stores a vote. Returns `None` if the person has already approved this plan, even under another name. Votes for another plan of
/// the same subject do not count.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn vote(
    tx: &mut Tx,
    vote: VoteRow,
    by: &Principal,
    needed: u32,
) -> Result<Option<Progress>, StoreError> {
    let before = tables::approvers_of(tx, vote.subject, vote.plan_sha256).await?;
    let given = u32::try_from(before.len()).unwrap_or(u32::MAX);
    if is_one_of(tx, before, by).await? {
        return Ok(None);
    }
    tables::store_principal_marks(tx, by).await?;
    tables::put_vote(tx, &vote).await?;
    Ok(Some(Progress { given: given.saturating_add(1), needed: needed.max(1) }))
}
