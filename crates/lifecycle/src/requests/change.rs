//! Changes of one certificate, and of one run.

use std::collections::HashMap;

use agent::tables::{NewDeployment, insert_deployments};
use events::Event;
use futures_util::FutureExt;
use serde_json::json;
use store::{StoreError, Tx};
use uuid::Uuid;

use super::release::{NotApproved, ReleaseError};
use crate::creation::AdmissionError;
use crate::error::{DataError, NameTaken, NotWaiting, Stale, UnderWay, from_data};
use crate::handle::Lifecycle;
use crate::job::{Consent, JobId, JobKind, JobState, target_of};
use crate::judgement::{Judgement, LiftsApproval, violation_row};
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::managed::{BadRequest, CertificateChange, ManagedCertificate, TargetRef, row_of, targets_of};
use crate::plan::{PlanFacts, active_approvals_by_job, void};
use crate::policy::Violation;
use crate::renewal::SuggestedRenewalWindow;
use crate::runs::{Planner, deployment, open_run, plan, replan, run_now, start_immediately};
use crate::state::{IllegalTransition, State};
use crate::tables;
use crate::tables::jobs::{JobRow, cancel_deployments_of, jobs_by_ids, open_jobs_of};
use crate::tables::managed::{
    ManagedRow, managed_by_ids, managed_by_uuids, replace_managed_names, replace_managed_tags, suggestions_of,
};
use crate::tables::policies::replace_violations;
use crate::transition::{Transition, event_certificate, run_from_job};

/// Reason why the certificate was not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpdateError {
    /// The request is invalid.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The request names an object that does not exist, or a policy forbids it.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// The name is already in use.
    #[error(transparent)]
    Taken(#[from] NameTaken),
    /// The object was changed after the caller read it.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// A run in progress prevents the change.
    #[error(transparent)]
    UnderWay(#[from] UnderWay),
    /// Another person must approve the change: see [`Lifecycle::update_approved`].
    #[error(transparent)]
    LiftsApproval(#[from] LiftsApproval),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(UpdateError);

/// Whether another person approved a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ChangeConsent {
    NotGiven,
    Given,
}

/// Reason why the certificate was not archived, restored or redeployed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LifecycleActionError {
    /// The object was changed after the caller read it.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The current state does not permit the operation.
    #[error(transparent)]
    IllegalTransition(#[from] IllegalTransition),
    /// There is no version or no target to deploy.
    #[error("{0}")]
    NothingToDeploy(&'static str),
    /// Another person must approve, and did not.
    #[error(transparent)]
    NotApproved(#[from] NotApproved),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(LifecycleActionError);

impl From<ReleaseError> for LifecycleActionError {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::NotApproved(error) => error.into(),
            ReleaseError::Data(error) => error.into(),
        }
    }
}

/// Reason why the run was not cancelled or retried.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JobError {
    /// A run in progress prevents the operation.
    #[error(transparent)]
    UnderWay(#[from] UnderWay),
    /// The run is not waiting for this action.
    #[error(transparent)]
    NotWaiting(#[from] NotWaiting),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(JobError);

/// Result of a transaction on one certificate.
type Outcome<E> = Result<(), E>;

/// Preview of a change to a certificate.
#[derive(Clone, Debug)]
pub struct ChangePreview {
    /// The settings that the certificate would have after the change, without state.
    pub settings: serde_json::Value,
    /// Whether the certificate needs approval now, but would not need it after the change.
    pub lifts_approval: bool,
    /// The current profile of the certificate. `None` if this profile requires no approval.
    pub profile: Option<String>,
}

/// A validated change of a certificate, ready for the transaction.
struct Change {
    before: ManagedCertificate,
    after: ManagedCertificate,
    judged: Judgement,
    violations: Vec<Violation>,
    renew: bool,
    actor: String,
    now_us: i64,
}

impl Lifecycle {
    /// Changes the user settings of a certificate. `revision` is the revision that the caller read; `None` overwrites any revision.
    /// Changes of names, profile, issuer and key apply to the next version; `renew` requests it immediately.
    ///
    /// # Errors
    /// [`UpdateError::Stale`]; [`UpdateError::LiftsApproval`] if the certificate would no longer need approval after the change; as
    /// [`Lifecycle::create`].
    #[crate::boxed]
    pub async fn update(
        &self,
        id: Uuid,
        revision: Option<i64>,
        change: &CertificateChange,
        actor: &str,
    ) -> Result<ManagedCertificate, UpdateError> {
        self.update_with(id, revision, change, actor, ChangeConsent::NotGiven).await
    }

    /// Changes a certificate like [`Lifecycle::update`], even if the certificate no longer needs approval after the change. The
    /// caller must ensure that another person approved this change.
    ///
    /// # Errors
    /// As of [`Lifecycle::update`], without [`UpdateError::LiftsApproval`].
    #[crate::boxed]
    pub async fn update_approved(
        &self,
        id: Uuid,
        revision: i64,
        change: &CertificateChange,
        actor: &str,
    ) -> Result<ManagedCertificate, UpdateError> {
        self.update_with(id, Some(revision), change, actor, ChangeConsent::Given).await
    }

    /// Returns a preview of a change: the resulting settings, whether the change lifts the need for approval, and the current
    /// profile if it requires approval.
    ///
    /// # Errors
    /// [`UpdateError::Bad`]; [`UpdateError::Data`].
    #[crate::boxed]
    pub async fn preview_change(
        &self,
        id: Uuid,
        change: &CertificateChange,
    ) -> Result<ChangePreview, UpdateError> {
        let before = self.get(id).await?;
        let after = change.apply(&before, self.now_us())?;
        let lifts_approval =
            self.judge(&before).await?.check_approval_still_required(&self.judge(&after).await?).is_err();
        let facts = self.profile_facts(&before.profile).await?;
        let guarded = facts.is_some_and(|facts| facts.requires_approval);
        Ok(ChangePreview {
            settings: after.settings(),
            lifts_approval,
            profile: guarded.then_some(before.profile),
        })
    }

    async fn update_with(
        &self,
        id: Uuid,
        revision: Option<i64>,
        change: &CertificateChange,
        actor: &str,
        consent: ChangeConsent,
    ) -> Result<ManagedCertificate, UpdateError> {
        let before = self.get(id).await?;
        if let Some(revision) = revision.filter(|revision| *revision != before.revision) {
            return Err(if revision < before.revision {
                UpdateError::from(Stale { revision: before.revision })
            } else {
                DataError::not_found("revision", revision).into()
            });
        }
        let now_us = self.now_us();
        let after = change.apply(&before, now_us)?;
        if after.name != before.name
            && tables::Managed::of(&self.inner.store).named(&after.name).await?.is_some()
        {
            return Err(NameTaken { what: "a certificate", name: after.name }.into());
        }
        let (_, violations) = self.admit(&after).await?;
        let judged = self.judge(&after).await?;
        if consent == ChangeConsent::NotGiven {
            self.judge(&before).await?.check_approval_still_required(&judged)?;
        }
        let renew = change.renew;
        let change = std::sync::Arc::new(Change {
            before,
            after,
            judged,
            violations,
            renew,
            actor: actor.to_owned(),
            now_us,
        });
        let outcome = attempt(&self.inner.store, "certificate_update", move || {
            let change = std::sync::Arc::clone(&change);
            transaction(move |tx| async move { change_one(tx, id, &change).await }.boxed())
        })
        .await?;
        outcome?;
        if renew {
            self.inner.wake.notify_one();
        }
        Ok(self.get(id).await?)
    }

    /// Archives a certificate: it is no longer renewed. Deployed versions stay in place.
    ///
    /// # Errors
    /// [`LifecycleActionError::IllegalTransition`] while the issuer works on an order; [`LifecycleActionError::Stale`].
    #[crate::boxed]
    pub async fn archive(
        &self,
        id: Uuid,
        revision: Option<i64>,
        actor: &str,
    ) -> Result<(), LifecycleActionError> {
        self.apply_action(id, revision, actor, LifecycleAction::Archive).await
    }

    /// Restores an archived certificate.
    ///
    /// # Errors
    /// [`LifecycleActionError::IllegalTransition`] if the certificate is not archived; [`LifecycleActionError::Stale`].
    #[crate::boxed]
    pub async fn restore(
        &self,
        id: Uuid,
        revision: Option<i64>,
        actor: &str,
    ) -> Result<(), LifecycleActionError> {
        let of = self.get(id).await?;
        let judged = self.judge(&of).await?;
        self.apply_action(id, revision, actor, LifecycleAction::Restore(std::sync::Arc::new(judged))).await
    }

    /// Deploys the current version to its targets again.
    ///
    /// # Errors
    /// [`LifecycleActionError::IllegalTransition`] if a run is in progress; [`LifecycleActionError::NothingToDeploy`] without targets or version;
    /// [`LifecycleActionError::NotApproved`] if a target is not in the approved plan of the version.
    #[crate::boxed]
    pub async fn redeploy(&self, id: Uuid, actor: &str) -> Result<(), LifecycleActionError> {
        self.check_redeployment(id).await?;
        self.apply_action(id, None, actor, LifecycleAction::Redeploy).await
    }

    async fn apply_action(
        &self,
        id: Uuid,
        revision: Option<i64>,
        actor: &str,
        what: LifecycleAction,
    ) -> Result<(), LifecycleActionError> {
        let (now_us, actor) = (self.now_us(), actor.to_owned());
        attempt(&self.inner.store, "certificate_move", move || {
            let (actor, what) = (actor.clone(), what.clone());
            transaction(move |tx| {
                async move { apply_action(tx, id, revision, &actor, &what, now_us).await }.boxed()
            })
        })
        .await?
    }

    /// Cancels a run. A run cannot be cancelled while an issuer works on its order, because the issued certificate must not be
    /// lost.
    ///
    /// # Errors
    /// [`JobError::UnderWay`], [`JobError::NotWaiting`] if the run has ended; [`DataError::NotFound`].
    #[crate::boxed]
    pub async fn cancel_job(&self, id: JobId, actor: &str) -> Result<(), JobError> {
        self.job(id).await?;
        let (now_us, actor, planner) = (self.now_us(), actor.to_owned(), self.planner().await?);
        attempt(&self.inner.store, "job_cancel", move || {
            let (actor, planner) = (actor.clone(), planner.clone());
            transaction(move |tx| async move { cancel(tx, id, &actor, &planner, now_us).await }.boxed())
        })
        .await?
    }

    /// Immediately starts a run that waits for its start time or for a retry.
    ///
    /// # Errors
    /// [`JobError::NotWaiting`]; [`DataError::NotFound`].
    #[crate::boxed]
    pub async fn retry_job(&self, id: JobId, actor: &str) -> Result<(), JobError> {
        self.job(id).await?;
        let (now_us, actor) = (self.now_us(), actor.to_owned());
        let outcome: Outcome<JobError> = attempt(&self.inner.store, "job_retry", move || {
            let actor = actor.clone();
            transaction(move |tx| {
                async move {
                    let Some(job) = jobs_by_ids(tx, vec![id.row()]).await?.pop() else {
                        return Ok(Err(DataError::not_found("job", id).into()));
                    };
                    if job.state != JobState::Queued {
                        return Ok(Err(not_waiting(id, &job).into()));
                    }
                    let Some(row) = managed_by_ids(tx, vec![job.certificate]).await?.pop() else {
                        return Ok(Err(DataError::not_found("job", id).into()));
                    };
                    let mut ledger = Ledger::new(now_us, &actor);
                    start_immediately(&mut ledger, &row, &job, "requested", &actor);
                    ledger.audit_resource(format!("job/{id}"), "job.retry", json!({}));
                    ledger.write(tx).await?;
                    Ok(Ok(()))
                }
                .boxed()
            })
        })
        .await?;
        outcome?;
        self.inner.wake.notify_one();
        Ok(())
    }
}

#[derive(Clone)]
enum LifecycleAction {
    Archive,
    Restore(std::sync::Arc<Judgement>),
    Redeploy,
}

pub(super) fn not_waiting(id: JobId, job: &JobRow) -> NotWaiting {
    NotWaiting { job: id, state: job.state.name() }
}

async fn row_with_open_jobs<E>(
    tx: &mut Tx,
    id: Uuid,
    revision: Option<i64>,
) -> Result<Result<(ManagedRow, Vec<JobRow>), E>, StoreError>
where
    E: From<DataError> + From<Stale>,
{
    let Some(row) = managed_by_uuids(tx, vec![id]).await?.pop() else {
        return Ok(Err(DataError::not_found("certificate", id).into()));
    };
    if revision.is_some_and(|revision| revision != row.revision) {
        return Ok(Err(Stale { revision: row.revision }.into()));
    }
    let open = open_jobs_of(tx, vec![row.id]).await?;
    Ok(Ok((row, open)))
}

async fn change_one(tx: &mut Tx, id: Uuid, change: &Change) -> Result<Outcome<UpdateError>, StoreError> {
    let (row, open) = match row_with_open_jobs(tx, id, None).await? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let (before, after) = (&change.before, &change.after);
    // The decision is based on the row that was read. The comparison ignores fields that runs and verifications change.
    let mut expected = row_of(before);
    let mut stored = row.clone();
    for row in [&mut expected, &mut stored] {
        row.id = 0;
        row.state = State::Pending;
        row.revision = 0;
        row.version = None;
        row.fingerprint = None;
        row.not_before_us = 0;
        row.not_after_us = 0;
        row.served = None;
        row.undeployed_since_us = None;
        row.undeployed_late_at_us = None;
        row.revoked = false;
        row.failures = 0;
        row.last_error = None;
        row.updated_at_us = 0;
    }
    if expected != stored {
        return Ok(Err(Stale { revision: row.revision }.into()));
    }
    let was = row.clone();
    let mut entry = Entry::new(row);
    let wanted = row_of(after);
    entry.row.name = wanted.name;
    entry.row.profile = wanted.profile;
    entry.row.issuer = wanted.issuer;
    entry.row.owner = wanted.owner;
    entry.row.team = wanted.team;
    entry.row.environment = wanted.environment;
    entry.row.policy = wanted.policy;
    entry.row.key_location = wanted.key_location;
    entry.row.agent = wanted.agent;
    entry.row.key_type = wanted.key_type;
    entry.row.names = wanted.names;
    entry.row.tags = wanted.tags;
    entry.row.targets = wanted.targets;
    entry.row.options = wanted.options;
    let row = entry.row.clone();
    let mut ledger = Ledger::new(change.now_us, &change.actor);
    ledger.note(&row, "certificate.update", json!({ "renew": change.renew }));
    ledger.announce(&row, &Event::CertificateChanged(event_certificate(&row)));
    let open: HashMap<i64, Vec<JobRow>> = HashMap::from([(row.id, open)]);
    let run = open_run(&open, row.id);
    let is_void = record_plan_change(tx, &mut ledger, &mut entry, &was, run).await?;
    ledger.put(entry);
    if is_void {
        // The replacement run is already queued.
    } else if change.renew {
        match run {
            // The queued run has the old issuer and agent, so a new run replaces it.
            Some(run) if run.state == JobState::Queued => {
                ledger.end(run.clone(), JobState::Cancelled, Some("the certificate was changed".to_owned()));
                ledger.queue(run_now(&row, "changed", &change.actor, change.now_us));
            }
            Some(run) => {
                let job = JobId::of(run.id, run.created_at_us);
                return Ok(Err(UnderWay { job }.into()));
            }
            None => ledger.queue(run_now(&row, "changed", &change.actor, change.now_us)),
        }
    } else {
        let suggested = suggestions_of(tx, vec![row.id]).await?.pop().and_then(|one| one.window_us);
        let suggested = suggested.map(|(start_us, end_us)| SuggestedRenewalWindow { start_us, end_us });
        let now =
            ManagedCertificate::from_row(&row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        plan(&mut ledger, &now, &row, run, &change.judged, suggested);
    }
    ledger.write(tx).await?;
    if after.names != before.names {
        let names = after.names.iter().map(ToString::to_string).collect();
        replace_managed_names(tx, &[(row.id, names)]).await?;
    }
    if after.tags != before.tags {
        replace_managed_tags(tx, &[(row.id, after.tags.clone().into_iter().collect())]).await?;
    }
    let found: Vec<_> =
        change.violations.iter().map(|one| violation_row(row.id, one, change.now_us)).collect();
    replace_violations(tx, vec![row.id], &found).await?;
    Ok(Ok(()))
}

/// Records which actor changed the plan. Returns whether the change ends the run and voids its approval.
async fn record_plan_change(
    tx: &mut Tx,
    ledger: &mut Ledger,
    entry: &mut Entry,
    was: &ManagedRow,
    run: Option<&JobRow>,
) -> Result<bool, StoreError> {
    let facts = PlanFacts::of(tx, [was, &entry.row].into_iter(), ledger.at_us()).await?;
    let plan = facts.plan(&entry.row)?;
    if plan == facts.plan(was)? {
        return Ok(false);
    }
    let (certificate, actor) = (entry.row.id, ledger.actor().to_owned());
    ledger.plan_changed(certificate, &actor);
    // A run whose order is at the issuer is not voided here. The issued certificate is compared with the approval on delivery.
    let needs_new_approval = |run: &&JobRow| {
        run.state == JobState::AwaitingApproval
            || run.approval == Consent::Given && run.state != JobState::Running
    };
    let Some(run) = run.filter(needs_new_approval) else { return Ok(false) };
    let approvals = active_approvals_by_job(tx, vec![run.id]).await?;
    void(ledger, entry, run, approvals.get(&run.id), &plan);
    Ok(true)
}

async fn apply_action(
    tx: &mut Tx,
    id: Uuid,
    revision: Option<i64>,
    actor: &str,
    what: &LifecycleAction,
    now_us: i64,
) -> Result<Outcome<LifecycleActionError>, StoreError> {
    let (row, open) = match row_with_open_jobs(tx, id, revision).await? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let mut entry = Entry::new(row);
    let mut ledger = Ledger::new(now_us, actor);
    let mut target_agents = Vec::new();
    let mut ended = Vec::new();
    let transition = match what {
        LifecycleAction::Archive => Transition::Archived,
        LifecycleAction::Restore(_) => Transition::Restored(entry.current()),
        LifecycleAction::Redeploy => Transition::RedeployRequested,
    };
    if let Err(error) = ledger.step(&mut entry, transition) {
        return Ok(Err(error.into()));
    }
    match what {
        LifecycleAction::Archive => {
            entry.row.clear_undeployed();
            for job in open {
                if job.kind == JobKind::Deployment {
                    ended.push(job.id);
                }
                // A revocation in progress must continue.
                if job.kind != JobKind::Revocation {
                    ledger.end(job, JobState::Cancelled, Some("the certificate was archived".to_owned()));
                }
            }
        }
        LifecycleAction::Restore(judged) => {
            let certificate = ManagedCertificate::from_row(&entry.row)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            plan(&mut ledger, &certificate, &entry.row, None, judged, None);
        }
        LifecycleAction::Redeploy => {
            target_agents = deploy_targets(&entry.row)?;
            if target_agents.is_empty() || entry.row.version.is_none() {
                let why = "nothing to deploy: the certificate has no version, or no targets with agents";
                return Ok(Err(LifecycleActionError::NothingToDeploy(why)));
            }
            entry.row.set_undeployed(now_us);
            for (target, agent) in &target_agents {
                ledger.queue(deployment(&entry.row, entry.row.version, *agent, *target, None, now_us));
            }
        }
    }
    let row = entry.row.clone();
    ledger.put(entry);
    let queued = ledger.write(tx).await?;
    cancel_deployments_of(tx, ended, now_us).await?;
    let deployments: Vec<NewDeployment> = queued
        .iter()
        .filter(|job| job.kind == JobKind::Deployment)
        .filter_map(|job| {
            let target = job.detail.as_deref().and_then(target_of)?;
            let (_, agent) = target_agents.iter().find(|(known, _)| *known == target)?;
            Some(NewDeployment {
                job: job.id,
                target,
                agent: *agent,
                certificate: row.uuid,
                fingerprint: row.fingerprint?,
                created_at_us: now_us,
            })
        })
        .collect();
    insert_deployments(tx, &deployments).await?;
    Ok(Ok(()))
}

/// Returns the targets with agents: target id and agent id.
fn deploy_targets(row: &ManagedRow) -> Result<Vec<(Uuid, Uuid)>, StoreError> {
    let targets = targets_of(row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(targets
        .into_iter()
        .filter_map(|target| match target {
            TargetRef::Deploy { target, agent } => Some((target, agent)),
            TargetRef::Endpoint { .. } => None,
        })
        .collect())
}

async fn cancel(
    tx: &mut Tx,
    id: JobId,
    actor: &str,
    planner: &Planner,
    now_us: i64,
) -> Result<Outcome<JobError>, StoreError> {
    let Some(job) = jobs_by_ids(tx, vec![id.row()]).await?.pop() else {
        return Ok(Err(DataError::not_found("job", id).into()));
    };
    if !job.state.is_open() {
        return Ok(Err(not_waiting(id, &job).into()));
    }
    let is_deployment = job.kind == JobKind::Deployment;
    if job.state == JobState::Running && !is_deployment {
        return Ok(Err(UnderWay { job: id }.into()));
    }
    let Some(row) = managed_by_ids(tx, vec![job.certificate]).await?.pop() else {
        return Ok(Err(DataError::not_found("certificate", job.certificate).into()));
    };
    let others = open_jobs_of(tx, vec![row.id]).await?;
    let others = others.iter().any(|other| other.kind == JobKind::Deployment && other.id != job.id);
    let mut ledger = Ledger::new(now_us, actor);
    let mut entry = Entry::new(row);
    ledger.audit_resource(format!("job/{id}"), "job.cancel", json!(run_from_job(&job)));
    let current = entry.current();
    if job.kind <= JobKind::Renewal {
        // Ignores an error: a run that has not started has not changed the state.
        let _ = ledger.step(&mut entry, Transition::Cancelled(current, run_from_job(&job)));
        replan(&mut ledger, planner, &entry.row);
    } else if is_deployment && !others {
        let _ = ledger.step(&mut entry, Transition::Cancelled(current, run_from_job(&job)));
    }
    let row = job.id;
    ledger.end(job, JobState::Cancelled, Some(format!("cancelled by {actor}")));
    ledger.put(entry);
    ledger.write(tx).await?;
    if is_deployment {
        cancel_deployments_of(tx, vec![row], now_us).await?;
    }
    Ok(Ok(()))
}
