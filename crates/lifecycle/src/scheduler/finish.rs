//! End of an attempt: stores the delivered certificate, or the error and the time of the next attempt.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use agent::tables::{NewDeployment, insert_deployments};
use futures_util::FutureExt;
use issuers::{DeliveredChain, IssuerError, Retry};
use serde_json::json;
use store::time_limits::BACKOFF_MAX_US;
use store::{Batcher, BatcherOptions, StoreError, Tx};
use tracing::{error, warn};
use uuid::Uuid;
use x509::crl::Reason;
use x509::csr::CertificateRequest;
use x509::{Certificate, SpkiHash};

use crate::at_work::ActiveRunsGuard;
use crate::error::DataError;
use crate::finished::FinishedAttempt;
use crate::handle::{Lifecycle, ProcessState};
use crate::job::{Consent, JobId, JobKind, JobState, id_of, target_of};
use crate::judgement::{judge, violation_row};
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::managed::{ManagedCertificate, TargetRef, targets_of};
use crate::plan::{PlanFacts, active_approvals_by_job, void};
use crate::policy::PolicySet;
use crate::renewal::{Life, due};
use crate::runs::{Planner, backoff, deployment, planned, replan, run_now};
use crate::state::State;
use crate::surroundings::ProfileFacts;
use crate::tables::approvals::ApprovalRow;
use crate::tables::jobs::{JobRow, cancel_deployments_of, jobs_by_ids, open_jobs_of};
use crate::tables::managed::{
    ManagedRow, ManagedSuggestion, NewManagedVersion, drop_suggestions, insert_versions, managed_by_ids,
    set_suggestions,
};
use crate::tables::policies::{ViolationRow, replace_violations};
use crate::transition::{Failure, Transition, Version, run_from_job};

/// Maximum results stored in one transaction. Each contains a chain of a few KiB.
const BATCH_MAX: usize = 256;
/// Maximum tries to store the result of a run while the database is unavailable. After the last try, the lease of the run
/// expires, and another node repeats the run.
const STORE_ATTEMPTS_MAX: u32 = 6;
/// First pause between two tries to store a result. The pause doubles each time; all tries together take about half a minute.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Creates the batcher: attempts that end together share a transaction.
pub(crate) fn new_finish_batcher(inner: Weak<ProcessState>) -> Batcher<FinishedAttempt, ()> {
    let options = BatcherOptions { batch_max: BATCH_MAX, ..BatcherOptions::default() };
    Batcher::new("lifecycle-finish", options, move |batch| {
        let inner = inner.clone();
        async move {
            let answers = vec![(); batch.len()];
            // Without the handle nothing can be stored: the leases expire and another process takes over.
            if let Some(inner) = inner.upgrade() {
                Lifecycle { inner: inner.into() }.finish(batch).await;
            }
            answers
        }
        .boxed()
    })
}

/// Result of an ended attempt, with the data needed to store it.
#[derive(Clone)]
struct Ending {
    job: JobRow,
    facts: Option<ProfileFacts>,
    suggests: bool,
    what: EndingKind,
}

#[derive(Clone)]
enum EndingKind {
    /// A version was issued. The row id of its certificate is set later.
    Issued(Box<NewManagedVersion>),
    /// No version was issued.
    Failed { error: String, retry: Retry },
}

impl Lifecycle {
    /// Stores the ends of attempts. Retries while the database is unavailable. If that fails, the leases expire.
    async fn finish(&self, batch: Vec<FinishedAttempt>) {
        let now_us = self.now_us();
        let _at_work: Vec<Arc<ActiveRunsGuard>> = batch.iter().map(|one| Arc::clone(&one.at_work)).collect();
        let endings: Vec<Ending> = batch.into_iter().map(|one| ending(one, now_us)).collect();
        let endings = Arc::new(endings);
        let mut pause = STORE_PAUSE;
        for tried in 1..=STORE_ATTEMPTS_MAX {
            match self.store_finished_runs(&endings, now_us).await {
                Ok(()) => return,
                Err(error) if error.is_transient() && tried < STORE_ATTEMPTS_MAX => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot store the results of runs; retrying"
                    );
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => {
                    error!(
                        runs = endings.len(),
                        error = &error as &dyn std::error::Error,
                        "the results of runs were not stored; the runs are repeated when their leases expire"
                    );
                    return;
                }
            }
        }
    }

    async fn store_finished_runs(&self, endings: &Arc<Vec<Ending>>, now_us: i64) -> Result<(), DataError> {
        let set = self.policy_set().await?;
        let planner = self.planner().await?;
        let shared_endings = Arc::clone(endings);
        attempt(&self.inner.store, "jobs_finish", move || {
            let (endings, set, planner) = (Arc::clone(&shared_endings), Arc::clone(&set), planner.clone());
            transaction(move |tx| {
                async move { store_all(tx, &endings, &set, &planner, now_us).await }.boxed()
            })
        })
        .await?;
        Ok(())
    }
}

fn ending(finished: FinishedAttempt, now_us: i64) -> Ending {
    let FinishedAttempt { job, facts, profile, outcome, suggests, .. } = finished;
    let what = match outcome.and_then(|delivered| version(&job, profile, &delivered, now_us)) {
        Ok(version) => EndingKind::Issued(Box::new(version)),
        Err(error) => EndingKind::Failed { error: error.to_string(), retry: error.retry() },
    };
    Ending { job, facts, suggests, what }
}

/// Returns the time of the next attempt after a failed attempt, in µs since 1970. `None` if the run ends.
fn retry_at_us(job: &JobRow, retry: Retry, life_us: i64, now_us: i64) -> Option<i64> {
    let pause = match retry {
        Retry::Never => return None,
        Retry::Backoff => backoff(job, life_us),
        Retry::After(after) => {
            i64::try_from(after.as_micros()).unwrap_or(i64::MAX).clamp(1_000_000, BACKOFF_MAX_US)
        }
    };
    Some(now_us.saturating_add(pause)).filter(|at_us| *at_us < job.deadline_at_us)
}

/// Converts the delivered certificate into a version. Fails if the certificate has another key than requested, or lacks a requested
/// name.
fn version(
    job: &JobRow,
    profile: Option<String>,
    delivered: &DeliveredChain,
    now_us: i64,
) -> Result<NewManagedVersion, IssuerError> {
    let lying = |reason: String| IssuerError::Lying { reason };
    let leaf = delivered.chain.first().ok_or_else(|| lying("no certificate".to_owned()))?;
    let leaf =
        Certificate::parse(leaf).map_err(|error| lying(format!("not a valid certificate: {error}")))?;
    let request = CertificateRequest::parse(job.csr.as_deref().unwrap_or_default())
        .map_err(|error| IssuerError::Misconfigured { reason: format!("invalid stored CSR: {error}") })?;
    if leaf.public_key.spki != request.public_key.spki {
        return Err(lying("the certificate is for another key".to_owned()));
    }
    let mut wanted: Vec<String> = request.names().iter().map(ToString::to_string).collect();
    let names = leaf.names();
    wanted.retain(|name| !names.iter().any(|covered| covered.eq_ignore_ascii_case(name)));
    if !wanted.is_empty() {
        return Err(lying(format!("the certificate lacks {}", wanted.join(", "))));
    }
    Ok(NewManagedVersion {
        certificate: job.certificate,
        job: Some(job.id),
        fingerprint: *leaf.fingerprint.as_bytes(),
        serial: leaf.serial.to_string(),
        spki_sha256: *SpkiHash::of(&leaf.public_key.spki).as_bytes(),
        not_before_us: leaf.not_before.0.saturating_mul(1_000_000),
        not_after_us: leaf.not_after.0.saturating_mul(1_000_000),
        issuer: job.issuer.clone(),
        profile,
        // The transaction sets this field.
        policy: None,
        key: job.key,
        chain: delivered.chain.concat(),
        issued_at_us: now_us,
    })
}

/// All changes by a batch of ended attempts.
struct Changes<'a> {
    ledger: Ledger,
    set: &'a PolicySet,
    planner: &'a Planner,
    now_us: i64,
    /// Stored data from which the current plans of the runs are computed.
    plans: PlanFacts,
    approvals: HashMap<i64, ApprovalRow>,
    open: HashMap<i64, Vec<JobRow>>,
    /// Deployment targets of each certificate with a new version, by the row id of the certificate.
    deployments: HashMap<i64, Vec<DeploymentTarget>>,
    cancelled: Vec<i64>,
    suggestions: Vec<ManagedSuggestion>,
    dropped_suggestions: Vec<i64>,
    judged: Vec<i64>,
    violations: Vec<ViolationRow>,
}

/// Target of a new version.
struct DeploymentTarget {
    target: Uuid,
    agent: Uuid,
    certificate: Uuid,
    fingerprint: [u8; 32],
}

async fn store_all(
    tx: &mut Tx,
    endings: &[Ending],
    set: &PolicySet,
    planner: &Planner,
    now_us: i64,
) -> Result<(), StoreError> {
    let jobs: HashMap<i64, JobRow> = jobs_by_ids(tx, endings.iter().map(|one| one.job.id).collect())
        .await?
        .into_iter()
        .map(|job| (job.id, job))
        .collect();
    // Ignores attempts whose lease was lost: another process has taken over the run.
    let mine: Vec<&Ending> = endings
        .iter()
        .filter(|one| {
            jobs.get(&one.job.id)
                .is_some_and(|job| job.state == JobState::Running && job.attempts == one.job.attempts)
        })
        .collect();
    let mut ids: Vec<i64> = mine.iter().map(|one| one.job.certificate).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows: HashMap<i64, ManagedRow> =
        managed_by_ids(tx, ids.clone()).await?.into_iter().map(|row| (row.id, row)).collect();
    let mut open: HashMap<i64, Vec<JobRow>> = HashMap::new();
    for job in open_jobs_of(tx, ids).await? {
        open.entry(job.certificate).or_default().push(job);
    }
    let versions: Vec<NewManagedVersion> = mine
        .iter()
        .filter_map(|one| match &one.what {
            EndingKind::Issued(version) => {
                let policy = rows.get(&version.certificate).and_then(|row| row.policy.clone());
                Some(NewManagedVersion { policy, ..(**version).clone() })
            }
            _ => None,
        })
        .collect();
    let given: HashMap<i64, i64> = insert_versions(tx, &versions)
        .await?
        .into_iter()
        .map(|(id, certificate)| (certificate, id))
        .collect();
    let is_gated = |one: &&&Ending| {
        matches!(one.what, EndingKind::Issued(_))
            && jobs.get(&one.job.id).is_some_and(|job| job.approval == Consent::Given)
    };
    let gated: Vec<&&Ending> = mine.iter().filter(is_gated).collect();
    let gated_rows = gated.iter().filter_map(|one| rows.get(&one.job.certificate));
    let plans = PlanFacts::of(tx, gated_rows, now_us).await?;
    let approvals = active_approvals_by_job(tx, gated.iter().map(|one| one.job.id).collect()).await?;
    let mut changes = Changes {
        ledger: Ledger::new(now_us, "system:scheduler"),
        plans,
        approvals,
        set,
        planner,
        now_us,
        open,
        deployments: HashMap::new(),
        cancelled: Vec::new(),
        suggestions: Vec::new(),
        dropped_suggestions: Vec::new(),
        judged: Vec::new(),
        violations: Vec::new(),
    };
    for one in mine {
        let Some(job) = jobs.get(&one.job.id).cloned() else { continue };
        let Some(row) = rows.get(&one.job.certificate) else {
            changes.ledger.end(job, JobState::Cancelled, Some("the certificate no longer exists".to_owned()));
            continue;
        };
        let entry = Entry::new(row.clone());
        match &one.what {
            EndingKind::Issued(version) => {
                changes.issued(job, entry, version, given.get(&row.id).copied(), one)?;
            }
            EndingKind::Failed { error, retry } => changes.failed(job, entry, error, *retry),
        }
    }
    changes.write(tx).await
}

impl Changes<'_> {
    fn issued(
        &mut self,
        job: JobRow,
        mut entry: Entry,
        version: &NewManagedVersion,
        id: Option<i64>,
        ending: &Ending,
    ) -> Result<(), StoreError> {
        if job.approval == Consent::Given && !self.is_covered_by_approval(&job, &entry.row)? {
            return self.void_issued_version(job, entry, version, id);
        }
        self.ledger.mark_plan_issued(entry.row.id);
        let targets = targets_of(&entry.row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let destinations: Vec<DeploymentTarget> = targets
            .into_iter()
            .filter_map(|target| match target {
                TargetRef::Deploy { target, agent } => {
                    let (certificate, fingerprint) = (entry.row.uuid, version.fingerprint);
                    Some(DeploymentTarget { target, agent, certificate, fingerprint })
                }
                TargetRef::Endpoint { .. } => None,
            })
            .collect();
        entry.row.version = id;
        entry.row.fingerprint = Some(version.fingerprint);
        entry.row.not_before_us = version.not_before_us;
        entry.row.not_after_us = version.not_after_us;
        entry.row.revoked = false;
        entry.row.failures = 0;
        entry.row.last_error = None;
        let version = Version {
            run: run_from_job(&job),
            serial: version.serial.clone(),
            fingerprint: x509::Fingerprint::from_bytes(version.fingerprint),
        };
        let details = json!(version);
        let has_targets = !destinations.is_empty();
        // A certificate that was archived or cancelled during issuance keeps the new version, but does not change its state.
        let transitioned = self.ledger.step(&mut entry, Transition::Issued { has_targets, version }).is_ok();
        if !transitioned {
            self.ledger.note(&entry.row, "certificate.issue_late", details);
        }
        self.cancel_deployments(entry.row.id);
        let run = id_of(&job);
        let mut to = job.clone();
        to.state = JobState::Done;
        to.version = id;
        to.last_error = None;
        to.finished_at_us = Some(self.now_us);
        self.ledger.change(job, to);
        if transitioned && has_targets {
            entry.row.set_undeployed(self.now_us);
        }
        if transitioned {
            self.plan_next(&entry, ending);
            self.deploy(&entry.row, id, run, destinations);
        }
        self.ledger.put(entry);
        Ok(())
    }

    fn is_covered_by_approval(&self, job: &JobRow, row: &ManagedRow) -> Result<bool, StoreError> {
        match self.approvals.get(&job.id) {
            Some(approval) => self.plans.is_covered_by(row, approval),
            None => Ok(false),
        }
    }

    /// Handles a plan that changed during issuance: the new version is revoked and not deployed, and a new run needs approval.
    fn void_issued_version(
        &mut self,
        job: JobRow,
        mut entry: Entry,
        version: &NewManagedVersion,
        id: Option<i64>,
    ) -> Result<(), StoreError> {
        let plan = self.plans.plan(&entry.row)?;
        let fingerprint = x509::Fingerprint::from_bytes(version.fingerprint);
        self.ledger.note(&entry.row, "certificate.issue_void", json!({ "fingerprint": fingerprint }));
        void(&mut self.ledger, &mut entry, &job, self.approvals.get(&job.id), &plan);
        let mut revocation = run_now(&entry.row, "plan_changed", "system:scheduler", self.now_us);
        revocation.kind = JobKind::Revocation;
        revocation.issuer = job.issuer;
        revocation.agent = None;
        revocation.version = id;
        let reason = Reason::CessationOfOperation.code();
        revocation.detail = Some(json!({ "reason": reason, "replace": false }).to_string());
        self.ledger.queue(revocation);
        self.ledger.put(entry);
        Ok(())
    }

    /// Ends the incomplete deployments of the old version.
    fn cancel_deployments(&mut self, certificate: i64) {
        for job in self.open.remove(&certificate).unwrap_or_default() {
            if job.kind == JobKind::Deployment {
                self.cancelled.push(job.id);
                self.ledger.end(job, JobState::Cancelled, Some("replaced by a newer version".to_owned()));
            }
        }
    }

    /// Plans the next renewal, schedules the request for the issuer's suggestion, and evaluates the policies for the new version.
    fn plan_next(&mut self, entry: &Entry, ending: &Ending) {
        let Ok(certificate) = ManagedCertificate::from_row(&entry.row) else { return };
        let judged = judge(self.set, ending.facts, &certificate);
        let life = Life { not_before_us: entry.row.not_before_us, not_after_us: entry.row.not_after_us };
        if let Some(due) = due(certificate.id, life, &judged.rule, None) {
            self.ledger.queue(planned(&entry.row, due.at_us, "planned", judged.consent(), self.now_us));
        }
        if ending.suggests && judged.rule.obey_issuer {
            self.suggestions.push(ManagedSuggestion {
                certificate: entry.row.id,
                check_at_us: self.now_us,
                window_us: None,
                explanation: None,
            });
        } else {
            self.dropped_suggestions.push(entry.row.id);
        }
        self.judged.push(entry.row.id);
        let found = self.set.violations(&certificate, &judged.rule);
        self.violations.extend(found.iter().map(|one| violation_row(entry.row.id, one, self.now_us)));
    }

    fn deploy(
        &mut self,
        row: &ManagedRow,
        version: Option<i64>,
        run: JobId,
        destinations: Vec<DeploymentTarget>,
    ) {
        for destination in &destinations {
            self.ledger.queue(deployment(
                row,
                version,
                destination.agent,
                destination.target,
                Some(run),
                self.now_us,
            ));
        }
        if !destinations.is_empty() {
            self.deployments.insert(row.id, destinations);
        }
    }

    /// Handles a failed attempt: plans a retry and sets the certificate's last error, or ends the run.
    fn failed(&mut self, job: JobRow, mut entry: Entry, error: &str, retry: Retry) {
        match retry_at_us(&job, retry, entry.row.life_us(), self.now_us) {
            Some(at_us) => {
                let mut to = job.clone();
                to.state = JobState::Queued;
                to.next_attempt_at_us = at_us;
                to.last_error = Some(error.to_owned());
                self.ledger.change(job, to);
                entry.row.last_error = Some(error.to_owned());
                self.ledger.put(entry);
            }
            None if matches!(retry, Retry::Never) => self.end_failed_run(job, entry, error),
            None => {
                let error = format!("{error}; failed after {} attempts", job.attempts);
                self.end_failed_run(job, entry, &error);
            }
        }
    }

    fn end_failed_run(&mut self, job: JobRow, mut entry: Entry, error: &str) {
        entry.row.failures += 1;
        entry.row.last_error = Some(error.to_owned());
        let failure = Failure { run: run_from_job(&job), error: Some(error.to_owned()), deployment: None };
        let transitioned = self.ledger.step(&mut entry, Transition::RunFailed(failure)).is_ok();
        self.ledger.end(job, JobState::Failed, Some(error.to_owned()));
        if transitioned && entry.row.state != State::Archived {
            replan(&mut self.ledger, self.planner, &entry.row);
        }
        self.ledger.put(entry);
    }

    async fn write(self, tx: &mut Tx) -> Result<(), StoreError> {
        let queued = self.ledger.write(tx).await?;
        let mut deployments = Vec::new();
        for job in queued.iter().filter(|job| job.kind == JobKind::Deployment) {
            let target = job.detail.as_deref().and_then(target_of);
            let destinations = self.deployments.get(&job.certificate).into_iter().flatten();
            deployments.extend(destinations.filter(|destination| Some(destination.target) == target).map(
                |destination| NewDeployment {
                    job: job.id,
                    target: destination.target,
                    agent: destination.agent,
                    certificate: destination.certificate,
                    fingerprint: destination.fingerprint,
                    created_at_us: self.now_us,
                },
            ));
        }
        insert_deployments(tx, &deployments).await?;
        cancel_deployments_of(tx, self.cancelled, self.now_us).await?;
        set_suggestions(tx, &self.suggestions).await?;
        drop_suggestions(tx, self.dropped_suggestions).await?;
        replace_violations(tx, self.judged, &self.violations).await
    }
}
