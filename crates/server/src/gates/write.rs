//! Writes of gates (objects that decide whether issuance requires approval), and the approval of pending writes.

use authority::Authority;
use authority::change::{Approved, ChangeError, PendingChange, ProposedChange};
use authority::principal::Principal;
use authority::tables::ChangeState;
use store::Identity;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::answer::{WriteResult, change_view};
use super::change::GateChange;
use super::document::{Document, same};
use super::guard::Guard;
use super::parts::Gates;
use crate::access::Caller;
use crate::access::admin::{self, Change, CheckedChange};
use crate::problem::Problem;

/// Reason for discarding a pending change.
const OBJECT_CHANGED: &str = "the object changed after approval was requested";

impl Gates {
    /// Writes a gate: applies the change immediately, or stores it until it is approved.
    pub(crate) async fn write(
        &self,
        caller: &Caller,
        change: GateChange,
    ) -> Result<WriteResult<()>, Problem> {
        let Some((authority, guard)) = self.guard(caller, &change).await? else {
            self.apply(&change, caller.actor()).await?;
            return Ok(WriteResult::Done(()));
        };
        let pending = self.propose(&authority, guard, caller.principal(), &change).await?;
        Ok(WriteResult::Waits(Box::new(change_view(pending, self.access.clock().now_us()))))
    }

    /// Writes an identity. Returns the identity after the write, or the change that waits for approval.
    pub(crate) async fn identity(
        &self,
        caller: &Caller,
        prepared: CheckedChange,
    ) -> Result<WriteResult<Identity>, Problem> {
        let of = match &prepared.change {
            Change::Insert(new) => Some((new.kind, new.id)),
            Change::Update { id, kind, .. } => Some((*kind, *id)),
            Change::Rekey { id, .. } => Some((store::IdentityKind::Token, *id)),
            Change::Delete { .. }
            | Change::EndSessions { .. }
            | Change::SetPassword(_)
            | Change::RemoveSecurityKey { .. }
            | Change::PutRole(_)
            | Change::DeleteRole { .. } => None,
        };
        let (kind, id) = of.ok_or_else(|| Problem::internal("this change has no identity"))?;
        match self.write(caller, prepared.into()).await? {
            WriteResult::Done(()) => Ok(WriteResult::Done(admin::find(&self.access, kind, id).await?)),
            WriteResult::Waits(waits) => Ok(WriteResult::Waits(waits)),
        }
    }

    async fn propose(
        &self,
        authority: &Authority,
        guard: Guard,
        by: &Principal,
        change: &GateChange,
    ) -> Result<PendingChange, Problem> {
        let object = change.object();
        let before = self.document(&object).await?;
        let after = self.document_after(change, before.as_ref()).await?;
        let content = serde_json::to_string(change).map_err(Problem::internal)?;
        let proposed = ProposedChange {
            action: change.action().to_owned(),
            object,
            profiles: guard.profiles,
            needed: guard.needed,
            revision: before.as_ref().map(|before| before.revision),
            before: before.map(|before| before.value),
            after,
            content: Zeroizing::new(content),
        };
        Ok(authority.propose_change(proposed, by).await?)
    }

    /// Approves a pending change, and applies it once it has enough approvals.
    pub(crate) async fn approve(
        &self,
        authority: &Authority,
        id: Uuid,
        plan_sha256: Option<[u8; 32]>,
        note: Option<&str>,
        by: &Principal,
    ) -> Result<(), Problem> {
        let pending = authority.pending_change(id).await?;
        if pending.state == ChangeState::Open && !self.is_current(&pending).await? {
            authority.void_change(id, OBJECT_CHANGED, by).await?;
            return Err(ChangeError::Void.into());
        }
        match authority.approve_change(id, plan_sha256, note, by).await? {
            Approved::Waits(_) => Ok(()),
            Approved::Apply(content) => self.apply_approved(authority, &pending, &content, by).await,
        }
    }

    async fn apply_approved(
        &self,
        authority: &Authority,
        pending: &PendingChange,
        content: &str,
        by: &Principal,
    ) -> Result<(), Problem> {
        let change: GateChange = serde_json::from_str(content).map_err(Problem::internal)?;
        let done = if self.is_current(pending).await? {
            self.apply(&change, &pending.requested_by).await
        } else if self.is_applied(pending).await? {
            // Another process applied the change, but stopped before it recorded that.
            Ok(())
        } else {
            Err(ChangeError::Void.into())
        };
        match done {
            Ok(()) => Ok(authority.finish_change(pending.id, None, by).await?),
            Err(problem) if problem.status().is_server_error() => Err(problem),
            Err(problem) => {
                let why = problem.text();
                authority.finish_change(pending.id, Some(&why), by).await?;
                Err(problem)
            }
        }
    }

    /// Returns whether the object is unchanged since the change was requested.
    async fn is_current(&self, pending: &PendingChange) -> Result<bool, Problem> {
        let now = self.document(&pending.plan.object).await?;
        let revision = now.as_ref().map(|now| now.revision);
        let value = now.map(|now| now.value);
        Ok(revision == pending.plan.revision && value == pending.plan.before)
    }

    /// Returns whether the object already has the state that the change produces.
    async fn is_applied(&self, pending: &PendingChange) -> Result<bool, Problem> {
        let now = self.document(&pending.plan.object).await?;
        Ok(match (now, &pending.plan.after) {
            (None, None) => true,
            (Some(Document { revision, value }), Some(after)) => {
                revision == pending.plan.revision.unwrap_or(0) + 1 && same(&value, after)
            }
            _ => false,
        })
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Unknown(id) => Self::not_found(format_args!("pending change {id}")),
            ChangeError::OwnRequest(_) => Self::forbidden(error),
            ChangeError::Over(_)
            | ChangeError::OtherPlan
            | ChangeError::Void
            | ChangeError::Repeated { .. }
            | ChangeError::TooMany => Self::conflict(error),
            ChangeError::Note | ChangeError::TooLong => Self::unprocessable(error),
            ChangeError::Mismatch(_) => Self::internal(error),
            ChangeError::Store(error) => error.into(),
        }
    }
}
