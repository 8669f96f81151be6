//! Approval by several people: each vote is for one plan, and two votes of one person are one.

use store::{StoreError, Tx};

use crate::principal::Principal;
use crate::tables::{self, VoteRow};

/// Most people that a profile can ask for.
pub const APPROVALS_MAX: u32 = 16;

/// How many people approved a plan, and how many must.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// People who approved this plan.
    pub given: u32,
    /// Number of approvals that are needed.
    pub needed: u32,
}

impl Progress {
    /// Whether enough people approved the plan.
    #[must_use]
    pub fn is_enough(self) -> bool {
        self.given >= self.needed
    }
}

/// Whether the person is one of the actors, whichever way they logged in then.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn is_one_of(tx: &mut Tx, actors: Vec<String>, person: &Principal) -> Result<bool, StoreError> {
    let theirs = tables::marks_of(tx, actors).await?;
    let own = tables::marks_of(tx, person.marks().map(str::to_owned).collect()).await?;
    Ok(!theirs.is_disjoint(&own))
}

/// Stores a vote. `None` when the person approved this plan before, under whichever name. Votes for another plan of the same subject
/// do not count.
///
/// # Errors
/// Those of the database.
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
    tables::note_principal(tx, by).await?;
    tables::put_vote(tx, &vote).await?;
    Ok(Some(Progress { given: given.saturating_add(1), needed: needed.max(1) }))
}
