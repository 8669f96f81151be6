//! Storage of the votes of approvers.

use db::{BulkStatement, Column, Cost, StoreError, Tx};
use uuid::Uuid;

store::handle! {
    /// Table of the votes of approvers.
    Votes
}

/// One person's approval of a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VoteRow {
    /// Identifier of the approval, enrolment or pending change.
    pub subject: Uuid,
    /// Name of the approver in the audit log.
    pub actor: String,
    /// SHA-256 of the approved plan.
    pub plan_sha256: [u8; 32],
    /// Time of the vote in microseconds.
    pub voted_at_us: i64,
    /// The approver's note.
    pub note: Option<String>,
}

const OF_PLAN: &str = "-- votes_of_plan
SELECT actor FROM approval_votes WHERE subject = ?1 AND plan_sha256 = ?2 ORDER BY voted_at, actor";
const PUT: BulkStatement = db::bulk! { (subject uuid, actor text, plan_sha256 bytea, voted_at bigint, note text)
    "-- vote_put
INSERT INTO approval_votes (subject, actor, plan_sha256, voted_at, note)
VALUES (:subject, :actor, :plan_sha256, :voted_at, :note)
ON CONFLICT (subject, actor) DO UPDATE
SET plan_sha256 = excluded.plan_sha256, voted_at = excluded.voted_at, note = excluded.note"
};
const TRIM: &str = "-- votes_trim
DELETE FROM approval_votes WHERE voted_at < ?1";

pub(crate) const ALL: &[&str] = &[OF_PLAN, TRIM];
pub(crate) const BULKS: &[&BulkStatement] = &[&PUT];

/// Returns the approvers of a plan, earliest vote first, read within the transaction.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn approvers_of(
    tx: &mut Tx,
    subject: Uuid,
    plan_sha256: [u8; 32],
) -> Result<Vec<String>, StoreError> {
    let rows = tx.rows(OF_PLAN, vec![subject.into(), plan_sha256.into()]).await?;
    rows.into_iter().map(|mut row| row.text()).collect()
}

/// Stores a vote. It replaces the actor's vote for another plan of the same subject.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn put_vote(tx: &mut Tx, vote: &VoteRow) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(vec![vote.subject]),
        Column::Text(vec![vote.actor.clone()]),
        Column::Blob(vec![vote.plan_sha256.to_vec()]),
        Column::Int(vec![vote.voted_at_us]),
        Column::MaybeText(vec![vote.note.clone()]),
    ];
    tx.bulk(&PUT, columns).await.map(drop)
}

impl Votes<'_> {
    /// Returns the approvers of a plan, earliest vote first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn approvers(self, subject: Uuid, plan_sha256: [u8; 32]) -> Result<Vec<String>, StoreError> {
        let rows = self.0.rows(Cost::Walk, OF_PLAN, vec![subject.into(), plan_sha256.into()]).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// Deletes votes from before `before_us`. Returns their number.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn trim(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(TRIM, vec![before_us.into()]).await
    }
}
