//! Start of a run: approval checks, keys and requests. Everything that must survive a crash is stored before the order is sent, so
//! that a retry repeats the same order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::join_all;
use issuers::Order;
use store::time_limits;
use store::{KeyRow, StoreError, Tx};
use uuid::Uuid;

use crate::at_work::ActiveRunsGuard;
use crate::csr::{requests_names, signed_csr};
use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::job::{Consent, JobState, id_of};
use crate::judgement::{Judgement, judge};
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::managed::{INTERNAL_ISSUER, KeyLocation, ManagedCertificate, first_der};
use crate::plan::{self, ApprovalFacts, active_approvals_by_job};
use crate::renewal::next_open;
use crate::runs::{LEASE_US, Planner, replan};
use crate::state::State;
use crate::surroundings::ProfileFacts;
use crate::tables::jobs::{JobRow, claim_jobs, insert_run_keys};
use crate::tables::managed::{ManagedRow, ManagedVersion, managed_by_ids, versions_of};
use crate::transition::{Failure, Transition, run_from_job};

/// Name of the provider for keys in the key service.
const KEY_SERVICE: &str = "pkcs11";

/// A run that is ready to be sent to its issuer, with the order.
#[derive(Clone, Debug)]
pub(super) struct ReadyRun {
    /// The run as it was before it started.
    pub(super) job: JobRow,
    /// Id of the certificate.
    pub(super) certificate: Uuid,
    pub(super) order: Order,
    pub(super) facts: Option<ProfileFacts>,
    /// Guard that keeps the lease of the run until the last clone is dropped.
    pub(super) at_work: Arc<ActiveRunsGuard>,
}

#[derive(Clone)]
struct BegunRun {
    job: JobRow,
    certificate: Uuid,
    order: Order,
    facts: Option<ProfileFacts>,
}

/// Data prepared for a run outside of the transaction.
#[derive(Clone)]
struct PreparedRun {
    facts: Option<ProfileFacts>,
    judged: Arc<Judgement>,
    /// A new key, with its CSR.
    key: Option<KeyRow>,
    csr: Option<Vec<u8>>,
    /// Error that prevents the start.
    error: Option<String>,
}

impl Lifecycle {
    /// Claims due runs of these issuers and starts them. Runs that need an approval or a CSR change to the waiting state.
    pub(super) async fn claim_and_begin(
        &self,
        wanted: Vec<(String, i64)>,
    ) -> Result<(usize, Vec<ReadyRun>), DataError> {
        let (now_us, node) = (self.now_us(), self.inner.node);
        let claim = transaction(move |tx| {
            async move {
                let jobs = claim_jobs(tx, &wanted, now_us, node, now_us + LEASE_US).await?;
                let rows = managed_by_ids(tx, jobs.iter().map(|job| job.certificate).collect()).await?;
                let versions = versions_of(tx, rows.iter().filter_map(|row| row.version).collect()).await?;
                Ok((jobs, rows, versions))
            }
            .boxed()
        });
        let (jobs, rows, versions) = self.inner.store.write("jobs_claim", claim).await?;
        if jobs.is_empty() {
            return Ok((0, Vec::new()));
        }
        let claimed = jobs.len();
        // If starting fails, the leases of the claimed runs expire.
        let mut at_work: HashMap<i64, Arc<ActiveRunsGuard>> =
            jobs.iter().map(|job| (job.id, Arc::new(self.inner.at_work.keep(vec![job.id])))).collect();
        let rows: HashMap<i64, ManagedRow> = rows.into_iter().map(|row| (row.id, row)).collect();
        let prepared =
            join_all(jobs.iter().map(|job| self.prepare_run(job, rows.get(&job.certificate)))).await;
        let prepared: HashMap<i64, PreparedRun> =
            jobs.iter().map(|job| job.id).zip(prepared.into_iter().collect::<Result<Vec<_>, _>>()?).collect();
        let (jobs, prepared, versions) = (Arc::new(jobs), Arc::new(prepared), Arc::new(versions));
        let deadline = Instant::now() + self.inner.options.order_timeout;
        let planner = self.planner().await?;
        let ready = attempt(&self.inner.store, "jobs_begin", move || {
            let (jobs, prepared, versions) =
                (Arc::clone(&jobs), Arc::clone(&prepared), Arc::clone(&versions));
            let planner = planner.clone();
            transaction(move |tx| {
                async move { begin(tx, &jobs, &prepared, &versions, &planner, now_us, deadline).await }
                    .boxed()
            })
        })
        .await?;
        let ready = ready.into_iter().filter_map(|BegunRun { job, certificate, order, facts }| {
            let at_work = at_work.remove(&job.id)?;
            Some(ReadyRun { job, certificate, order, facts, at_work })
        });
        Ok((claimed, ready.collect()))
    }

    /// Prepares the data that cannot be created within the run's transaction: rules, a new key and the CSR.
    async fn prepare_run(&self, job: &JobRow, row: Option<&ManagedRow>) -> Result<PreparedRun, DataError> {
        let mut prepared = PreparedRun {
            facts: None,
            judged: Arc::new(Judgement::default()),
            key: None,
            csr: job.csr.clone(),
            error: None,
        };
        let Some(row) = row else { return Ok(prepared) };
        let certificate = match ManagedCertificate::from_row(row) {
            Ok(certificate) => certificate,
            Err(error) => {
                prepared.error = Some(error.to_string());
                return Ok(prepared);
            }
        };
        prepared.facts = self.profile_facts(&certificate.profile).await?;
        prepared.judged = Arc::new(judge(&*self.policy_set().await?, prepared.facts, &certificate));
        if prepared.judged.approval.is_some() && job.approval != Consent::Given {
            return Ok(prepared);
        }
        if let Err(reason) = self.check_teams(&certificate).await? {
            prepared.error = Some(reason);
            return Ok(prepared);
        }
        // A CSR created before the names changed has the wrong names.
        if prepared.csr.as_deref().is_some_and(|csr| !requests_names(csr, &certificate.names)) {
            prepared.csr = None;
        }
        if prepared.csr.is_none() {
            match self.request(job, &certificate).await {
                Ok(Some((key, csr))) => (prepared.key, prepared.csr) = (Some(key), Some(csr)),
                Ok(None) => {}
                Err(error) => prepared.error = Some(error),
            }
        }
        Ok(prepared)
    }

    /// Creates a new key and its CSR. Returns neither if an agent creates them.
    async fn request(
        &self,
        job: &JobRow,
        certificate: &ManagedCertificate,
    ) -> Result<Option<(KeyRow, Vec<u8>)>, String> {
        let label = format!("certificate/{}/{}", certificate.id, id_of(job));
        let keystore = &self.inner.keystore;
        let key = match certificate.key_location {
            KeyLocation::Agent { .. } => return Ok(None),
            KeyLocation::Server => keystore.prepare(certificate.key_type, &label).await,
            KeyLocation::KeyService => {
                keystore.prepare_in_provider(KEY_SERVICE, certificate.key_type, &label).await
            }
        };
        let key = key.map_err(|error| error.to_string())?;
        let csr = signed_csr(&*key.signer, certificate)
            .await
            .map_err(|reason| format!("cannot create the CSR: {reason}"))?;
        Ok(Some((key.row, csr)))
    }
}

async fn begin(
    tx: &mut Tx,
    jobs: &[JobRow],
    prepared: &HashMap<i64, PreparedRun>,
    versions: &[ManagedVersion],
    planner: &Planner,
    now_us: i64,
    deadline: Instant,
) -> Result<Vec<BegunRun>, StoreError> {
    let rows: HashMap<i64, ManagedRow> = managed_by_ids(tx, jobs.iter().map(|job| job.certificate).collect())
        .await?
        .into_iter()
        .map(|row| (row.id, row))
        .collect();
    // An approval is bound to a plan, so the plan is read in the same transaction that starts the run.
    let is_gated = |job: &&JobRow| {
        job.approval != Consent::NotNeeded
            || prepared.get(&job.id).is_some_and(|prepared| prepared.judged.approval.is_some())
    };
    let gated: Vec<&JobRow> = jobs.iter().filter(is_gated).collect();
    let gated_rows: Vec<&ManagedRow> = gated.iter().filter_map(|job| rows.get(&job.certificate)).collect();
    let facts = ApprovalFacts::of(tx, &gated_rows, now_us).await?;
    let approvals = active_approvals_by_job(tx, gated.iter().map(|job| job.id).collect()).await?;
    let mut ledger = Ledger::new(now_us, "system:scheduler");
    let (mut keys, mut ready) = (Vec::new(), Vec::new());
    for job in jobs {
        let (Some(row), Some(prepared)) = (rows.get(&job.certificate), prepared.get(&job.id)) else {
            ledger.end(job.clone(), JobState::Cancelled, Some("the certificate no longer exists".to_owned()));
            continue;
        };
        let mut entry = Entry::new(row.clone());
        let approval = approvals.get(&job.id);
        let covered = match approval {
            // A run uses the issuer and agent that it was queued for.
            Some(approval) => {
                (&job.issuer, job.agent) == (&row.issuer, row.agent)
                    && facts.plans().is_covered_by(row, approval)?
            }
            None => false,
        };
        if job.approval == Consent::Given && !covered && entry.state() != State::Archived {
            plan::void(&mut ledger, &mut entry, job, approval, &facts.plans().plan(row)?);
            ledger.put(entry);
            continue;
        }
        match decide(job, &entry, prepared, now_us)? {
            Decision::End(error) => ledger.end(job.clone(), JobState::Cancelled, Some(error)),
            Decision::Fail(error) => {
                entry.row.failures += 1;
                entry.row.last_error = Some(error.clone());
                let failure =
                    Failure { run: run_from_job(job), error: Some(error.clone()), deployment: None };
                // Ignores an error: a run that was never sent to its issuer has not changed the state.
                let _ = ledger.step(&mut entry, Transition::RunFailed(failure));
                ledger.end(job.clone(), JobState::Failed, Some(error));
                replan(&mut ledger, planner, &entry.row);
            }
            Decision::Postpone(at_us, error) => {
                let mut to = job.clone();
                to.last_error = error.or(to.last_error);
                to.state = JobState::Queued;
                to.next_attempt_at_us = at_us;
                ledger.change(job.clone(), to);
            }
            Decision::RequestApproval(reason) => {
                if let Err(error) = ledger.step(&mut entry, Transition::ApprovalNeeded(run_from_job(job))) {
                    ledger.end(job.clone(), JobState::Cancelled, Some(error.to_string()));
                    continue;
                }
                ledger.request_approval(facts.approval(job, row, &reason, now_us)?);
                let mut to = job.clone();
                to.state = JobState::AwaitingApproval;
                to.approval = Consent::Needed;
                to.deadline_at_us = i64::MAX;
                ledger.change(job.clone(), to);
            }
            Decision::RequestCsr => {
                if entry.state() != State::AwaitingCsr
                    && let Err(error) = ledger.step(&mut entry, Transition::CsrNeeded(run_from_job(job)))
                {
                    ledger.end(job.clone(), JobState::Cancelled, Some(error.to_string()));
                    continue;
                }
                let mut to = job.clone();
                to.state = JobState::AwaitingCsr;
                to.csr = None;
                to.next_attempt_at_us = now_us;
                to.deadline_at_us = now_us + time_limits::run_timeout_us(row.life_us());
                ledger.change(job.clone(), to);
            }
            Decision::Go(csr) => {
                if entry.state() != State::Issuing
                    && let Err(error) = ledger.step(&mut entry, Transition::Started(run_from_job(job)))
                {
                    ledger.end(job.clone(), JobState::Cancelled, Some(error.to_string()));
                    continue;
                }
                let mut to = job.clone();
                to.csr = Some(csr);
                if let Some(key) = &prepared.key {
                    to.key = Some(key.id);
                    keys.push(key.clone());
                }
                // The deadline counts from the first attempt, so a run that became due during downtime gets the full time.
                if job.attempts == 1 {
                    to.deadline_at_us = now_us + time_limits::run_timeout_us(row.life_us());
                }
                ledger.change(job.clone(), to.clone());
                let before = versions.iter().find(|version| Some(version.id) == row.version);
                let ca = approval.map(|_| facts.plans().plan(row)).transpose()?.and_then(|plan| plan.ca_id());
                if let Some(order) = order(&to, row, before, ca, deadline) {
                    ready.push(BegunRun { job: to, certificate: row.uuid, order, facts: prepared.facts });
                }
            }
        }
        ledger.put(entry);
    }
    insert_run_keys(tx, &keys).await?;
    ledger.write(tx).await?;
    Ok(ready)
}

/// Decision on a claimed run.
enum Decision {
    Go(Vec<u8>),
    RequestApproval(String),
    RequestCsr,
    Postpone(i64, Option<String>),
    End(String),
    Fail(String),
}

fn decide(job: &JobRow, entry: &Entry, prepared: &PreparedRun, now_us: i64) -> Result<Decision, StoreError> {
    if let Some(error) = &prepared.error {
        // The key service may be unavailable, so a run that cannot start is retried.
        let pause = crate::runs::backoff(job, entry.row.life_us());
        return Ok(if now_us < job.deadline_at_us || job.attempts == 1 {
            tracing::warn!(job = %id_of(job), error, "cannot start a run");
            Decision::Postpone(now_us + pause, Some(error.clone()))
        } else {
            Decision::Fail(error.clone())
        });
    }
    if entry.state() == State::Archived {
        return Ok(Decision::End("the certificate is archived".to_owned()));
    }
    if let Some(reason) = &prepared.judged.approval
        && job.approval != Consent::Given
    {
        return Ok(Decision::RequestApproval(reason.clone()));
    }
    // A planned run or retry may be outside of the maintenance windows: it became due during downtime, or the windows changed.
    let by_itself = matches!(job.reason.as_str(), "planned" | "retry") && job.attempts == 1;
    let windows = &prepared.judged.rule.windows;
    if by_itself
        && !windows.is_empty()
        && let Some(open) = next_open(windows, now_us)
        && open > now_us
        && open < entry.row.not_after_us
    {
        return Ok(Decision::Postpone(open, None));
    }
    Ok(match &prepared.csr {
        Some(csr) => Decision::Go(csr.clone()),
        None => Decision::RequestCsr,
    })
}

/// Creates the order for the issuer. `None` for an unreadable row: the run then waits until its lease expires.
fn order(
    job: &JobRow,
    row: &ManagedRow,
    before: Option<&ManagedVersion>,
    ca: Option<Uuid>,
    deadline: Instant,
) -> Option<Order> {
    let certificate = ManagedCertificate::from_row(row).ok()?;
    let own = row.issuer == INTERNAL_ISSUER;
    let profile = if own { Some(certificate.profile.clone()) } else { certificate.options.issuer_profile };
    let replaces = before.filter(|version| version.issuer == row.issuer && version.revoked_at_us.is_none());
    Some(Order {
        key: id_of(job).to_string(),
        csr_der: job.csr.clone().unwrap_or_default(),
        names: certificate.names,
        profile,
        certificate_profile: Some(certificate.profile),
        ca,
        lifetime_seconds: certificate.options.lifetime_seconds,
        replaces: replaces.and_then(|version| first_der(&version.chain)).map(Arc::from),
        deadline,
        requester: job.requested_by.clone(),
    })
}
