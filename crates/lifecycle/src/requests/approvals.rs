//! Operations on approvals: read, list, approve, reject, expire and void.

use std::collections::HashMap;

use authority::principal::Principal;
use authority::quorum;
use authority::tables::{VoteRow, Votes, approvers_of, marks_of};
use events::{ApprovalGiven, Event};
use futures_util::FutureExt;
use serde_json::json;
use store::time_limits;
use store::{AuditEvent, Cursor, Page, StoreError, Tx};
use uuid::Uuid;

use crate::approval::{Approval, ApprovalState};
use crate::error::{DataError, from_data};
use crate::handle::Lifecycle;
use crate::job::{Consent, JobKind, JobState, id_of};
use crate::ledger::{Entry, Ledger, attempt, conflict_error, transaction};
use crate::plan::{PlanFacts, void};
use crate::runs::{Planner, replan};
use crate::state::State;
use crate::tables;
use crate::tables::approvals::{
    ApprovalRow, ApprovalView, Decision, approvals_by_uuids, decide_approvals, expired_approvals,
    open_approvals, profiles_of_issuer, profiles_of_target,
};
use crate::tables::jobs::{
    JobRow, cancel_deployments_of, jobs_by_ids, overdue_deployment_jobs, overdue_waiting_jobs,
};
use crate::tables::managed::{ManagedRow, managed_by_ids};
use crate::transition::{ApprovalDetails, Failure, Transition, run_from_job};

/// Maximum length of the note of a decision, in bytes.
pub const NOTE_BYTES_MAX: usize = 2_000;

/// Maximum open approvals whose plans are checked in one tick. The next tick continues after the last checked approval.
const PLAN_CHECKS_MAX: i64 = 500;

/// Maximum expired approvals that one tick ends.
const EXPIRED_MAX: i64 = 1_000;

/// Reason why the decision on a run was not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApprovalError {
    /// The note is too long or has a null character.
    #[error("the note must have at most {NOTE_BYTES_MAX} bytes and no null character")]
    Note,
    /// The approver requested the run, or changed its plan.
    #[error("{0} requested this run or changed its plan, so another person must approve it")]
    SamePerson(String),
    /// The plan changed after the approval was requested.
    #[error(
        "the plan changed after this approval was requested, so the approval is void: decide the newer approval, which shows the current plan"
    )]
    PlanChanged,
    /// The approver already approved the plan.
    #[error("you already approved this plan: {needed} different people must approve it, {given} did")]
    Repeated {
        /// Number of approvals given.
        given: u32,
        /// Number of approvals required.
        needed: u32,
    },
    /// The approver saw another plan than the current one.
    #[error(
        "the SHA-256 does not match the plan of this approval: read the plan again, then approve its SHA-256"
    )]
    OtherPlan,
    /// The approval was already decided, or has expired.
    #[error("the approval is already {0}")]
    Decided(&'static str),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(ApprovalError);

/// Decision of the approver.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// Approves the plan. If `shown` has the SHA-256 of the plan that the approver saw, approves only that plan.
    Approve { shown: Option<[u8; 32]> },
    /// Rejects the plan.
    Reject,
}

impl Verdict {
    /// Returns whether the SHA-256 that the approver saw, if given, matches the plan of each approval.
    fn is_for(self, approvals: &[ApprovalRow]) -> bool {
        match self {
            Self::Approve { shown: Some(shown) } => {
                approvals.iter().all(|one| one.plan_sha256 == Some(shown))
            }
            Self::Approve { shown: None } | Self::Reject => true,
        }
    }
}

impl Lifecycle {
    /// Returns an approval by its id.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn approval(&self, id: Uuid) -> Result<Approval, DataError> {
        let table = tables::Approvals::of(&self.inner.store);
        let found = table.get(id).await?;
        let mut approval = found
            .map(|view| Approval::from_view(&view))
            .ok_or_else(|| DataError::not_found("approval", id))?;
        if let (Some(plan), Some(previous)) = (&approval.plan, approval.previous) {
            let before = table.get(previous).await?.and_then(|view| Approval::from_view(&view).plan);
            approval.changes = before.map(|before| plan.differences(&before)).unwrap_or_default();
        }
        if let Some(plan) = approval.plan_sha256 {
            approval.approvers = Votes::of(&self.inner.store).approvers(id, plan).await?;
        }
        Ok(approval)
    }

    /// Returns a page of approvals in a state, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn approvals(
        &self,
        state: ApprovalState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<Approval>, DataError> {
        let page = tables::Approvals::of(&self.inner.store).page(state, after, limit).await?;
        Ok(Page { rows: page.rows.iter().map(Approval::from_view).collect(), next: page.next })
    }

    /// Approves the plan. The run starts when it has as many approvals as the profile requires. `shown` is the SHA-256 of the plan
    /// that the approver saw, if known.
    ///
    /// # Errors
    /// [`ApprovalError::SamePerson`] if the approver requested the run, [`ApprovalError::OtherPlan`] if `shown` does not match the
    /// plan, [`ApprovalError::Decided`] if it was already decided or has expired; [`DataError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn approve(
        &self,
        id: Uuid,
        shown: Option<[u8; 32]>,
        note: Option<&str>,
        by: &Principal,
    ) -> Result<(), ApprovalError> {
        self.decide(id, Verdict::Approve { shown }, note, by).await?;
        self.inner.wake.notify_one();
        Ok(())
    }

    /// Rejects an approval, which ends the run.
    ///
    /// # Errors
    /// As [`Lifecycle::approve`], but the actor that requested the run may also reject.
    #[crate::boxed]
    pub async fn reject(&self, id: Uuid, note: Option<&str>, by: &Principal) -> Result<(), ApprovalError> {
        self.decide(id, Verdict::Reject, note, by).await
    }

    /// Returns the given profiles that have certificates from this issuer.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn profiles_of_issuer(
        &self,
        profiles: Vec<String>,
        issuer: &str,
    ) -> Result<Vec<String>, StoreError> {
        let issuer = issuer.to_owned();
        let find =
            transaction(move |tx| async move { profiles_of_issuer(tx, profiles, &issuer).await }.boxed());
        self.inner.store.write("profiles_of_issuer", find).await
    }

    /// Returns the given profiles that have certificates for this target.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn profiles_of_target(
        &self,
        profiles: Vec<String>,
        target: Uuid,
    ) -> Result<Vec<String>, StoreError> {
        let find =
            transaction(move |tx| async move { profiles_of_target(tx, profiles, target).await }.boxed());
        self.inner.store.write("profiles_of_target", find).await
    }

    async fn decide(
        &self,
        id: Uuid,
        verdict: Verdict,
        note: Option<&str>,
        by: &Principal,
    ) -> Result<(), ApprovalError> {
        let approve = verdict != Verdict::Reject;
        if note.is_some_and(|note| note.len() > NOTE_BYTES_MAX || note.contains('\0')) {
            return Err(ApprovalError::Note);
        }
        let view = tables::Approvals::of(&self.inner.store).get(id).await?;
        let view = view.ok_or_else(|| DataError::not_found("approval", id))?;
        if view.approval.state != ApprovalState::Open {
            return Err(ApprovalError::Decided(decision_name(&view)));
        }
        let now_us = self.now_us();
        if view.approval.expires_at_us <= now_us {
            return Err(ApprovalError::Decided(ApprovalState::Expired.name()));
        }
        let decision = Decision {
            id: view.approval.id,
            state: if approve { ApprovalState::Approved } else { ApprovalState::Rejected },
            by: by.actor().to_owned(),
            at_us: now_us,
            note: note.map(str::to_owned),
        };
        let (plan, by, certificate) = (self.planner().await?, by.clone(), view.certificate);
        attempt(&self.inner.store, "approval_decide", move || {
            let (decision, plan, by) = (decision.clone(), plan.clone(), by.clone());
            transaction(move |tx| {
                async move {
                    let open = approvals_by_uuids(tx, vec![id]).await?;
                    let open: Vec<ApprovalRow> =
                        open.into_iter().filter(|one| one.state == ApprovalState::Open).collect();
                    if open.is_empty() {
                        return Ok(Err(ApprovalError::Decided("decided")));
                    }
                    if approve && is_barred(tx, &open, &by).await? {
                        return Ok(Err(ApprovalError::SamePerson(by.actor().to_owned())));
                    }
                    if approve && void_if_plan_changed(tx, &open, &decision.by, decision.at_us).await? > 0 {
                        return Ok(Err(ApprovalError::PlanChanged));
                    }
                    if !verdict.is_for(&open) {
                        return Ok(Err(ApprovalError::OtherPlan));
                    }
                    if approve && let Some(answer) = vote(tx, &open, &decision, certificate, &by).await? {
                        return Ok(answer);
                    }
                    settle(tx, &open, &decision, approve, &plan).await?;
                    Ok(Ok(()))
                }
                .boxed()
            })
        })
        .await?
    }

    /// Ends the runs whose approval expired. Part of the tick.
    pub(crate) async fn expire_approvals(&self) -> Result<u64, DataError> {
        let now_us = self.now_us();
        let plan = self.planner().await?;
        let expired = attempt(&self.inner.store, "approvals_expire", move || {
            let plan = plan.clone();
            transaction(move |tx| {
                async move {
                    let open = expired_approvals(tx, now_us, EXPIRED_MAX).await?;
                    let decision = Decision {
                        id: 0,
                        state: ApprovalState::Expired,
                        by: "system:approvals".to_owned(),
                        at_us: now_us,
                        note: None,
                    };
                    settle(tx, &open, &decision, false, &plan).await?;
                    Ok(open.len() as u64)
                }
                .boxed()
            })
        })
        .await?;
        Ok(expired)
    }

    /// Voids open approvals whose plan changed, and approvals that were created before Bulla stored plans. Part of the tick.
    pub(crate) async fn void_changed_approvals(&self) -> Result<u64, DataError> {
        let (now_us, after) = (self.now_us(), *self.inner.approvals_cursor.lock());
        let (voided, next) = attempt(&self.inner.store, "approvals_void", move || {
            transaction(move |tx| {
                async move {
                    let open = open_approvals(tx, after, PLAN_CHECKS_MAX).await?;
                    let is_page = open.len() as i64 == PLAN_CHECKS_MAX;
                    let next = open.last().filter(|_| is_page).map_or(0, |last| last.id);
                    Ok((void_if_plan_changed(tx, &open, "system:approvals", now_us).await?, next))
                }
                .boxed()
            })
        })
        .await?;
        *self.inner.approvals_cursor.lock() = next;
        Ok(voided)
    }

    /// Ends runs that waited too long for the CSR or the report of an agent. Part of the tick.
    pub(crate) async fn end_overdue(&self) -> Result<u64, DataError> {
        let now_us = self.now_us();
        let plan = self.planner().await?;
        let ended = attempt(&self.inner.store, "jobs_overdue", move || {
            let plan = plan.clone();
            transaction(move |tx| async move { end_overdue(tx, &plan, now_us).await }.boxed())
        })
        .await?;
        Ok(ended)
    }
}

async fn end_overdue(tx: &mut Tx, plan: &Planner, now_us: i64) -> Result<u64, StoreError> {
    let mut jobs = overdue_waiting_jobs(tx, now_us, EXPIRED_MAX).await?;
    jobs.retain(|job| job.state == JobState::AwaitingCsr);
    jobs.extend(overdue_deployment_jobs(tx, now_us, EXPIRED_MAX).await?);
    let count = jobs.len() as u64;
    let mut entries: HashMap<i64, Entry> = rows_of(tx, jobs.iter().map(|job| job.certificate).collect())
        .await?
        .into_iter()
        .map(|row| (row.id, Entry::new(row)))
        .collect();
    let mut ledger = Ledger::new(now_us, "system:reaper");
    let mut undeployed = Vec::new();
    for job in jobs {
        let Some(entry) = entries.get_mut(&job.certificate) else { continue };
        let is_deployment = job.kind == JobKind::Deployment;
        let error = if is_deployment {
            undeployed.push(job.id);
            "the agent did not report the deployment in time: check that the agent runs"
        } else {
            "the agent sent no CSR in time: check that the agent runs"
        };
        let waited = if is_deployment { State::Deploying } else { State::AwaitingCsr };
        // If several targets time out, the first one has already moved the certificate to the next state.
        if entry.state() == waited {
            entry.row.last_error = Some(error.to_owned());
            entry.row.failures += 1;
            let failure = Failure { run: run_from_job(&job), error: None, deployment: None };
            let transitioned = ledger.step(entry, Transition::RunFailed(failure)).is_ok();
            if transitioned && !is_deployment {
                replan(&mut ledger, plan, &entry.row);
            }
        }
        ledger.end(job, JobState::Failed, Some(error.to_owned()));
    }
    for entry in entries.into_values() {
        ledger.put(entry);
    }
    ledger.write(tx).await?;
    cancel_deployments_of(tx, undeployed, now_us).await?;
    Ok(count)
}

/// Records the person's vote on each approval. Returns `None` if all approvals are now complete, otherwise the result to report
/// to the person.
async fn vote(
    tx: &mut Tx,
    open: &[ApprovalRow],
    decision: &Decision,
    certificate: Uuid,
    by: &Principal,
) -> Result<Option<Result<(), ApprovalError>>, StoreError> {
    for one in open {
        let Some(plan_sha256) = one.plan_sha256 else { continue };
        let needed = one.needed;
        let vote = VoteRow {
            subject: one.uuid,
            actor: by.actor().to_owned(),
            plan_sha256,
            voted_at_us: decision.at_us,
            note: decision.note.clone(),
        };
        let before = approvers_of(tx, one.uuid, plan_sha256).await?.len();
        let Some(progress) = quorum::vote(tx, vote, by, needed).await? else {
            let given = u32::try_from(before).unwrap_or(u32::MAX);
            return Ok(Some(Err(ApprovalError::Repeated { given, needed })));
        };
        if progress.is_enough() {
            continue;
        }
        let (given, approver) = (progress.given, by.actor().to_owned());
        let event = AuditEvent {
            at_us: decision.at_us,
            actor: approver.clone(),
            action: "certificate.approval_given",
            resource: format!("certificate/{certificate}"),
            details: json!({
                "approval": one.uuid,
                "plan_sha256": x509::Fingerprint::from_bytes(plan_sha256),
                "note": decision.note,
                "given": given,
                "needed": needed,
            }),
        };
        let approval_event = Event::ApprovalGiven(ApprovalGiven { approver, given, needed });
        store::emit(tx, vec![store::new_event(decision.at_us, event.resource.clone(), &approval_event)])
            .await?;
        store::audit(tx, vec![event]).await?;
        return Ok(Some(Ok(())));
    }
    Ok(None)
}

/// Returns whether the person requested one of the runs or changed its plan. Compares all logins of the person.
async fn is_barred(tx: &mut Tx, approvals: &[ApprovalRow], by: &Principal) -> Result<bool, StoreError> {
    let barred = approvals.iter().flat_map(|one| one.barred.iter().chain([&one.requested_by])).cloned();
    let barred = marks_of(tx, barred.collect()).await?;
    let decides = marks_of(tx, by.marks().map(str::to_owned).collect()).await?;
    Ok(!barred.is_disjoint(&decides))
}

/// Voids open approvals whose plan changed, and returns their number.
async fn void_if_plan_changed(
    tx: &mut Tx,
    open: &[ApprovalRow],
    actor: &str,
    now_us: i64,
) -> Result<u64, StoreError> {
    if open.is_empty() {
        return Ok(0);
    }
    let rows = rows_of(tx, open.iter().map(|one| one.certificate).collect()).await?;
    let jobs = jobs_by_ids(tx, open.iter().map(|one| one.job).collect()).await?;
    let facts = PlanFacts::of(tx, rows.iter(), now_us).await?;
    let mut ledger = Ledger::new(now_us, actor);
    let mut voided = 0;
    for approval in open {
        let Some(row) = rows.iter().find(|row| row.id == approval.certificate) else { continue };
        let awaits_approval =
            |job: &&JobRow| job.id == approval.job && job.state == JobState::AwaitingApproval;
        let Some(job) = jobs.iter().find(awaits_approval) else { continue };
        if (&job.issuer, job.agent) == (&row.issuer, row.agent) && facts.is_covered_by(row, approval)? {
            continue;
        }
        let mut entry = Entry::new(row.clone());
        void(&mut ledger, &mut entry, job, Some(approval), &facts.plan(row)?);
        ledger.put(entry);
        voided += 1;
    }
    ledger.write(tx).await?;
    Ok(voided)
}

fn decision_name(view: &ApprovalView) -> &'static str {
    view.approval.state.name()
}

async fn rows_of(tx: &mut Tx, mut ids: Vec<i64>) -> Result<Vec<ManagedRow>, StoreError> {
    ids.sort_unstable();
    ids.dedup();
    managed_by_ids(tx, ids).await
}

/// Carries out a decision for all of these approvals.
async fn settle(
    tx: &mut Tx,
    open: &[ApprovalRow],
    decision: &Decision,
    approve: bool,
    plan: &Planner,
) -> Result<(), StoreError> {
    let decisions: Vec<Decision> =
        open.iter().map(|one| Decision { id: one.id, ..decision.clone() }).collect();
    if decide_approvals(tx, &decisions).await?.len() != open.len() {
        return Err(conflict_error("an approval"));
    }
    let jobs = jobs_by_ids(tx, open.iter().map(|one| one.job).collect()).await?;
    let rows = rows_of(tx, open.iter().map(|one| one.certificate).collect()).await?;
    let mut ledger = Ledger::new(decision.at_us, &decision.by);
    for approval in open {
        let awaits_approval =
            |job: &&JobRow| job.id == approval.job && job.state == JobState::AwaitingApproval;
        let Some(job) = jobs.iter().find(awaits_approval).cloned() else { continue };
        let Some(row) = rows.iter().find(|row| row.id == approval.certificate) else { continue };
        let mut entry = Entry::new(row.clone());
        let current = entry.current();
        let consent = ApprovalDetails {
            approval: approval.uuid,
            job: id_of(&job).0,
            requested_by: approval.requested_by.clone(),
            note: decision.note.clone(),
        };
        let transition = if approve {
            Transition::Approved(current, consent)
        } else {
            Transition::Rejected(current, consent)
        };
        // A certificate that moved on (for example was archived) has already ended its run.
        let Ok(_) = ledger.step(&mut entry, transition) else { continue };
        if approve {
            let mut to = job.clone();
            to.state = JobState::Queued;
            to.approval = Consent::Given;
            to.next_attempt_at_us = decision.at_us;
            to.deadline_at_us = decision.at_us + time_limits::run_timeout_us(row.life_us());
            ledger.change(job, to);
        } else {
            let mut to = job.clone();
            to.state = JobState::Cancelled;
            to.finished_at_us = Some(decision.at_us);
            to.last_error = Some("no consent".to_owned());
            ledger.change(job, to);
            replan(&mut ledger, plan, &entry.row);
        }
        ledger.put(entry);
    }
    ledger.write(tx).await.map(drop)
}
