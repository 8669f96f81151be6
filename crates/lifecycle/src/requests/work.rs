//! Jobs of agents: CSRs to create on their hosts, and certificates to deploy there.

use std::collections::HashMap;
use std::sync::Arc;

use agent::deploy::{Outcome as Deployed, Target};
use agent::tables::{DeploymentResult, SEALED_TARGETS, TargetRow, finish_deployments, open_deployments};
use agent::work::{AgentJob, AssignedTarget, JobResult, Work, WorkError, WorkSource};
use events::{Deployment, DeploymentOutcome};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keys::{Context, Secret};
use serde_json::json;
use store::states::DeploymentState;
use store::{AuditEvent, StoreError, Tx};
use uuid::Uuid;

use super::export::ExportError;
use super::release::KeyUse;
use crate::csr::check_csr;
use crate::error::{DataError, NotWaiting, from_data};
use crate::handle::Lifecycle;
use crate::job::{JobId, JobKind, JobState, id_of, target_of};
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::managed::{KeyLocation, ManagedCertificate, split};
use crate::runs::{LEASE_US, backoff, replan};
use crate::served::Verified;
use crate::spans;
use crate::state::{IllegalTransition, State};
use crate::tables;
use crate::tables::jobs::{JobRow, cancel_deployments_of, claim_agent_jobs, jobs_by_ids, open_jobs_of};
use crate::tables::managed::{ManagedRow, ManagedVersion, managed_by_ids, versions_of};
use crate::transition::{DeploymentCompletion, Failure, Transition, run_from_job};

/// Reason why the CSR of an agent was not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CsrError {
    /// The CSR does not match the requested certificate.
    #[error("the CSR is rejected: {0}")]
    BadCsr(String),
    /// The run is not waiting for a CSR.
    #[error(transparent)]
    NotWaiting(#[from] NotWaiting),
    /// The current state of the certificate does not permit a CSR.
    #[error(transparent)]
    IllegalTransition(#[from] IllegalTransition),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(CsrError);

/// Maximum attempts of a deployment. All attempts and the pauses between them take a few hours.
const DEPLOY_ATTEMPTS_MAX: i64 = 10;

/// Converts the outcome of a deployment to its value in the database.
fn outcome_of(outcome: Deployed) -> DeploymentOutcome {
    match outcome {
        Deployed::Deployed => DeploymentOutcome::Deployed,
        Deployed::Unchanged => DeploymentOutcome::Unchanged,
        Deployed::Failed => DeploymentOutcome::Failed,
        Deployed::RolledBack => DeploymentOutcome::RolledBack,
        Deployed::Broken => DeploymentOutcome::Broken,
    }
}

fn state_of(outcome: Deployed) -> DeploymentState {
    match outcome {
        Deployed::Deployed => DeploymentState::Deployed,
        Deployed::Unchanged => DeploymentState::Unchanged,
        Deployed::Failed => DeploymentState::Failed,
        Deployed::RolledBack => DeploymentState::RolledBack,
        Deployed::Broken => DeploymentState::Broken,
    }
}

impl Lifecycle {
    /// Returns the jobs that an agent can do now. A job is offered again if the agent does not report within the lease.
    async fn offer(&self, agent: Uuid, limit: usize) -> Result<Vec<AgentJob>, ExportError> {
        let now_us = self.now_us();
        if !tables::Jobs::of(&self.inner.store).has_agent_work(agent, now_us).await? {
            return Ok(Vec::new());
        }
        let claim = transaction(move |tx| {
            async move {
                let jobs = claim_agent_jobs(tx, agent, now_us, now_us + LEASE_US, limit as i64).await?;
                let rows = managed_by_ids(tx, jobs.iter().map(|job| job.certificate).collect()).await?;
                let versions = versions_of(tx, jobs.iter().filter_map(|job| job.version).collect()).await?;
                Ok((jobs, rows, versions))
            }
            .boxed()
        });
        let (jobs, rows, versions) = self.inner.store.write("agent_jobs", claim).await?;
        let rows: HashMap<i64, ManagedRow> = rows.into_iter().map(|row| (row.id, row)).collect();
        let versions: HashMap<i64, ManagedVersion> = versions.into_iter().map(|one| (one.id, one)).collect();
        let mut offered = Vec::with_capacity(jobs.len());
        for job in jobs {
            let Some(row) = rows.get(&job.certificate) else { continue };
            let certificate = ManagedCertificate::from_row(row)?;
            let work = if job.kind == JobKind::Deployment {
                let version = job.version.and_then(|id| versions.get(&id));
                match self.deployment_work(&job, &certificate, version).await {
                    Ok(Some(work)) => work,
                    Ok(None) => {
                        self.fail_deployment(&job, "the target or the version no longer exists").await?;
                        continue;
                    }
                    Err(ExportError::NotApproved(error)) => {
                        self.fail_deployment(&job, &error.to_string()).await?;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            } else {
                csr_work(&certificate)
            };
            offered.push(AgentJob {
                job: id_of(&job).0,
                certificate: certificate.id,
                name: certificate.name.clone(),
                work,
                traceparent: telemetry::spans::is_installed()
                    .then(|| spans::run(certificate.id, id_of(&job)).to_string()),
            });
        }
        self.audit_key_delivery(agent, now_us, &offered).await?;
        Ok(offered)
    }

    /// Writes audit rows for the private keys in these jobs, before they are sent to the agent.
    async fn audit_key_delivery(
        &self,
        agent: Uuid,
        at_us: i64,
        offered: &[AgentJob],
    ) -> Result<(), ExportError> {
        let given = |job: &AgentJob| match &job.work {
            Work::Deploy { key_pem: Some(_), target, .. } => Some(AuditEvent {
                at_us,
                actor: format!("agent:{agent}"),
                action: "certificate.give_key",
                resource: format!("certificate/{}", job.certificate),
                details: json!({ "job": job.job, "target": target.id }),
            }),
            _ => None,
        };
        let events: Vec<AuditEvent> = offered.iter().filter_map(given).collect();
        if events.is_empty() {
            return Ok(());
        }
        let work = transaction(move |tx| async move { store::audit(tx, events).await }.boxed());
        Ok(self.inner.store.write("agent_keys", work).await?)
    }

    /// Returns the data an agent needs to deploy a version to a target. `None` if the target or version no longer exists.
    async fn deployment_work(
        &self,
        job: &JobRow,
        certificate: &ManagedCertificate,
        version: Option<&ManagedVersion>,
    ) -> Result<Option<Work>, ExportError> {
        let Some(version) = version else { return Ok(None) };
        let Some(target) = job.detail.as_deref().and_then(target_of) else { return Ok(None) };
        let Some(row) = agent::tables::Agents::of(&self.inner.store).target(target).await? else {
            return Ok(None);
        };
        let key_pem = match certificate.key_location {
            KeyLocation::Agent { .. } => None,
            _ => {
                let uses = KeyUse::Deploy { target, agent: job.agent.unwrap_or_default() };
                let key = self.private_key(certificate, version, uses).await?;
                Some(Secret::from(key.to_pkcs8_pem()))
            }
        };
        let chain_pem =
            split(&version.chain).iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect();
        let target =
            AssignedTarget { id: target, name: row.settings.name.clone(), target: self.open_target(&row)? };
        Ok(Some(Work::Deploy { chain_pem, key_pem, target }))
    }

    /// Returns the whole target, including passwords. Only the agent of the target may receive it.
    fn open_target(&self, row: &TargetRow) -> Result<Target, DataError> {
        let unreadable = |reason: String| {
            DataError::Unreadable(format!("cannot decrypt the target {}: {reason}", row.settings.name))
        };
        let Some(sealed) = &row.settings.secrets else {
            return serde_json::from_str(&row.settings.config).map_err(|error| unreadable(error.to_string()));
        };
        let context =
            Context { table: SEALED_TARGETS.table, row: row.id.as_bytes(), column: SEALED_TARGETS.column };
        let opened = self.inner.keystore.keyring().open_sealed(&context, sealed);
        let opened = opened.map_err(|error| unreadable(error.to_string()))?;
        serde_json::from_slice(&opened).map_err(|error| unreadable(error.to_string()))
    }

    async fn fail_deployment(&self, job: &JobRow, reason: &str) -> Result<(), DataError> {
        let result = JobResult::failed(None, reason);
        self.take_result(job.agent.unwrap_or_default(), id_of(job), &result, true).await
    }

    /// Accepts the CSR that an agent created for a run.
    ///
    /// # Errors
    /// [`CsrError::BadCsr`] says what is wrong with the CSR; [`DataError::NotFound`] if the job belongs to another agent.
    #[crate::boxed]
    pub async fn accept_csr(&self, job: JobId, agent: Uuid, csr_der: &[u8]) -> Result<(), CsrError> {
        let now_us = self.now_us();
        let csr = Arc::new(csr_der.to_vec());
        let outcome = attempt(&self.inner.store, "csr_accept", move || {
            let csr = Arc::clone(&csr);
            transaction(move |tx| async move { take_csr(tx, job, agent, &csr, now_us).await }.boxed())
        })
        .await?;
        outcome?;
        self.inner.wake.notify_one();
        Ok(())
    }

    /// Stores the result of a deployment, or of a failed CSR. A repeated result changes nothing.
    ///
    /// # Errors
    /// [`DataError::NotFound`] if the job belongs to another agent.
    #[crate::boxed]
    pub async fn deployed(&self, job: JobId, agent: Uuid, result: &JobResult) -> Result<(), DataError> {
        self.take_result(agent, job, result, false).await
    }

    async fn take_result(
        &self,
        agent: Uuid,
        job: JobId,
        result: &JobResult,
        for_good: bool,
    ) -> Result<(), DataError> {
        let (now_us, planner, result) = (self.now_us(), self.planner().await?, result.clone());
        attempt(&self.inner.store, "agent_result", move || {
            let (planner, result) = (planner.clone(), result.clone());
            transaction(move |tx| {
                async move {
                    let found = jobs_by_ids(tx, vec![job.row()]).await?.pop();
                    let Some(found) = found.filter(|found| found.agent == Some(agent) && id_of(found) == job)
                    else {
                        return Ok(Err(DataError::not_found("job", job)));
                    };
                    if found.kind == JobKind::Deployment {
                        handle_deployment_result(tx, found, &result, for_good, now_us).await?;
                    } else {
                        handle_missing_csr(tx, found, &result, &planner, now_us).await?;
                    }
                    Ok(Ok(()))
                }
                .boxed()
            })
        })
        .await?
    }
}

fn csr_work(certificate: &ManagedCertificate) -> Work {
    Work::Csr {
        key_type: certificate.key_type,
        names: certificate.names.iter().map(ToString::to_string).collect(),
        subject: certificate.options.subject.clone(),
        must_staple: certificate.options.must_staple,
    }
}

async fn take_csr(
    tx: &mut Tx,
    id: JobId,
    agent: Uuid,
    csr: &[u8],
    now_us: i64,
) -> Result<Result<(), CsrError>, StoreError> {
    let found = jobs_by_ids(tx, vec![id.row()]).await?.pop();
    let Some(job) = found.filter(|job| job.agent == Some(agent) && id_of(job) == id) else {
        return Ok(Err(DataError::not_found("job", id).into()));
    };
    if job.csr.as_deref() == Some(csr) {
        return Ok(Ok(()));
    }
    if job.state != JobState::AwaitingCsr {
        return Ok(Err(super::change::not_waiting(id, &job).into()));
    }
    let Some(row) = managed_by_ids(tx, vec![job.certificate]).await?.pop() else {
        return Ok(Err(DataError::not_found("certificate", job.certificate).into()));
    };
    let certificate =
        ManagedCertificate::from_row(&row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    if let Err(reason) = check_csr(csr, &certificate) {
        return Ok(Err(CsrError::BadCsr(reason)));
    }
    let mut ledger = Ledger::new(now_us, &format!("agent:{agent}"));
    let mut entry = Entry::new(row);
    if let Err(error) = ledger.step(&mut entry, Transition::Started(run_from_job(&job))) {
        return Ok(Err(error.into()));
    }
    let mut to = job.clone();
    to.state = JobState::Queued;
    to.csr = Some(csr.to_vec());
    to.next_attempt_at_us = now_us;
    ledger.change(job, to);
    ledger.put(entry);
    ledger.write(tx).await?;
    Ok(Ok(()))
}

/// Plans a retry after an agent failed to create the CSR. Fails the run if the retry would be after the run's deadline.
async fn handle_missing_csr(
    tx: &mut Tx,
    job: JobRow,
    result: &JobResult,
    planner: &crate::runs::Planner,
    now_us: i64,
) -> Result<(), StoreError> {
    if job.state != JobState::AwaitingCsr {
        return Ok(());
    }
    let error = result.error_text().unwrap_or_else(|| "the agent created no CSR".to_owned());
    let mut ledger = Ledger::new(now_us, "system:agents");
    let Some(row) = managed_by_ids(tx, vec![job.certificate]).await?.pop() else { return Ok(()) };
    let mut entry = Entry::new(row);
    let retry_at_us = now_us + backoff(&job, entry.row.life_us());
    entry.row.last_error = Some(error.clone());
    if retry_at_us < job.deadline_at_us {
        let mut to = job.clone();
        to.next_attempt_at_us = retry_at_us;
        to.last_error = Some(error);
        ledger.change(job, to);
    } else {
        entry.row.failures += 1;
        let failure = Failure { run: run_from_job(&job), error: Some(error.clone()), deployment: None };
        if ledger.step(&mut entry, Transition::RunFailed(failure)).is_ok() {
            replan(&mut ledger, planner, &entry.row);
        }
        ledger.end(job, JobState::Failed, Some(error));
    }
    ledger.put(entry);
    ledger.write(tx).await.map(drop)
}

async fn handle_deployment_result(
    tx: &mut Tx,
    job: JobRow,
    result: &JobResult,
    for_good: bool,
    now_us: i64,
) -> Result<(), StoreError> {
    if !job.state.is_open() {
        return Ok(());
    }
    let target = result.target.or_else(|| job.detail.as_deref().and_then(target_of));
    if let Some(target) = target {
        let noted = DeploymentResult {
            job: job.id,
            target,
            state: state_of(result.outcome),
            error: result.error_text(),
            served: result.served().map(|served| *served.as_bytes()),
            at_us: now_us,
        };
        finish_deployments(tx, &[noted]).await?;
    }
    let Some(row) = managed_by_ids(tx, vec![job.certificate]).await?.pop() else { return Ok(()) };
    let actor = job.agent.map_or_else(|| "system:agents".to_owned(), |agent| format!("agent:{agent}"));
    let mut ledger = Ledger::new(now_us, &actor);
    let verified = Verified::of(tx, &[&row]).await?;
    let mut entry = Entry::new(row);
    verified.note(&mut ledger, &mut entry);
    let (run, outcome) = (run_from_job(&job), outcome_of(result.outcome));
    let delivery = DeploymentCompletion { run, deployment: Deployment { target, outcome } };
    let (id, certificate, version) = (job.id, job.certificate, job.version);
    let over = for_good || job.attempts >= DEPLOY_ATTEMPTS_MAX || now_us >= job.deadline_at_us;
    let mut cancelled = false;
    if result.is_deployed() && open_deployments(tx, id).await?.0 == 0 {
        ledger.note(&entry.row, "certificate.deploy_target", json!(delivery));
        ledger.end(job, JobState::Done, None);
        let others = open_jobs_of(tx, vec![certificate]).await?;
        let others = others.iter().any(|other| other.kind == JobKind::Deployment && other.id != id);
        if !others && version == entry.row.version {
            entry.row.clear_undeployed();
        }
        if !others && entry.state() == State::Deploying {
            // The transition is always legal, because the state was checked.
            let _ = ledger.step(&mut entry, Transition::Deployed(delivery));
        }
    } else if over {
        let error = result.error_text().unwrap_or_else(|| "the deployment failed".to_owned());
        entry.row.failures += 1;
        entry.row.last_error = Some(error.clone());
        if entry.state() == State::Deploying {
            let DeploymentCompletion { run, deployment } = delivery;
            let failure = Failure { run, error: Some(error.clone()), deployment: Some(deployment) };
            let _ = ledger.step(&mut entry, Transition::RunFailed(failure));
        }
        ledger.end(job, JobState::Failed, Some(error));
        cancelled = true;
    } else {
        let error = result.error_text();
        entry.row.last_error.clone_from(&error);
        let mut to = job.clone();
        to.state = JobState::Queued;
        to.next_attempt_at_us = now_us + backoff(&job, entry.row.life_us());
        to.last_error = error;
        ledger.change(job, to);
    }
    ledger.put(entry);
    ledger.write(tx).await?;
    if cancelled {
        cancel_deployments_of(tx, vec![id], now_us).await?;
    }
    Ok(())
}

impl From<DataError> for WorkError {
    fn from(error: DataError) -> Self {
        match error {
            DataError::NotFound { .. } => Self::NotFound,
            error if error.is_transient() => Self::Unavailable(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<ExportError> for WorkError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Data(error) => error.into(),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<CsrError> for WorkError {
    fn from(error: CsrError) -> Self {
        match error {
            CsrError::Data(error) => error.into(),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl WorkSource for Lifecycle {
    fn jobs_for_agent(&self, agent: Uuid, limit: usize) -> BoxFuture<'_, Result<Vec<AgentJob>, WorkError>> {
        async move { self.offer(agent, limit).await.map_err(WorkError::from) }.boxed()
    }

    fn accept_csr(&self, agent: Uuid, job: Uuid, csr_der: Vec<u8>) -> BoxFuture<'_, Result<(), WorkError>> {
        async move { Self::accept_csr(self, JobId(job), agent, &csr_der).await.map_err(WorkError::from) }
            .boxed()
    }

    fn finished(&self, agent: Uuid, job: Uuid, result: JobResult) -> BoxFuture<'_, Result<(), WorkError>> {
        async move { self.deployed(JobId(job), agent, &result).await.map_err(WorkError::from) }.boxed()
    }
}
