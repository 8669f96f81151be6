//! Issuance plans of runs within a transaction. Voids the approval of a run if the plan differs from the approved plan.

use std::collections::HashMap;

use authority::plan::{DocumentVersion, IssuancePlan, PlannedKey};
use authority::profile::Profile;
use authority::tree::CaChoice;
use issuers::IssuerKind;
use serde_json::{Value, json};
use store::{StoreError, Tx};
use uuid::Uuid;

use crate::approval::new_approval;
use crate::job::{Consent, JobState};
use crate::ledger::{Entry, Ledger};
use crate::managed::{
    INTERNAL_ISSUER, KeyLocation, ManagedCertificate, TargetRef, json as json_text, targets_of,
};
use crate::runs::run_now;
use crate::state::State;
use crate::tables::approvals::{
    ApprovalRow, PlanDocument, active_approvals, newest_approvals, plan_change_actors, plan_issuers,
    plan_profiles, plan_targets,
};
use crate::tables::jobs::JobRow;
use crate::tables::managed::ManagedRow;
use crate::transition::{Transition, run_from_job};

/// Error text of a run that was voided because its plan changed.
const VOIDED_ERROR: &str =
    "the plan changed after the approval was requested: the next run requests approval again";

/// Stored data from which plans are computed: profiles, issuers, targets and CAs. Read in one transaction.
#[derive(Default)]
pub(crate) struct PlanFacts {
    profiles: HashMap<String, DocumentVersion>,
    /// Required number of approvals, by profile.
    approvals: HashMap<String, u32>,
    issuers: HashMap<String, DocumentVersion>,
    targets: HashMap<Uuid, DocumentVersion>,
    /// CA of each profile: the CA that the profile names, or else the default CA. No entry if this CA does not exist.
    cas: HashMap<String, String>,
    /// For each issuer entry of type `internal`: the CA that the entry names. `None`: the default CA of the profile.
    internal_cas: HashMap<String, Option<String>>,
}

/// Returns `Some` for an issuer configuration of type `internal`, with the CA that the configuration names, if any. Returns `None`
/// for an external issuer.
fn internal_ca(config: &str) -> Option<Option<String>> {
    let config: Value = serde_json::from_str(config).ok()?;
    (config["type"] == IssuerKind::Internal.name()).then(|| config["ca"].as_str().map(str::to_owned))
}

fn versions<K: Eq + std::hash::Hash>(found: Vec<PlanDocument<K>>) -> HashMap<K, DocumentVersion> {
    found.into_iter().map(|one| (one.key, DocumentVersion::of(one.revision, &one.body))).collect()
}

/// Returns the name of a profile and its required number of approvals.
fn approvals(profile: &PlanDocument<String>) -> Option<(String, u32)> {
    Profile::from_json(&profile.body).ok().map(|read| (profile.key.clone(), read.approvals))
}

impl PlanFacts {
    /// Loads the data from which the plans of these certificates are computed, with four statements. Runs no statement if there are
    /// no certificates.
    pub(crate) async fn of<'a>(
        tx: &mut Tx,
        rows: impl Iterator<Item = &'a ManagedRow>,
        now_us: i64,
    ) -> Result<Self, StoreError> {
        let (mut profiles, mut issuers, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            profiles.push(row.profile.clone());
            if row.issuer != INTERNAL_ISSUER {
                issuers.push(row.issuer.clone());
            }
            targets.extend(targets_of(row).unwrap_or_default().iter().filter_map(|target| match target {
                TargetRef::Deploy { target, .. } => Some(*target),
                TargetRef::Endpoint { .. } => None,
            }));
        }
        if profiles.is_empty() {
            return Ok(Self::default());
        }
        profiles.sort_unstable();
        profiles.dedup();
        issuers.sort_unstable();
        issuers.dedup();
        targets.sort_unstable();
        targets.dedup();
        let profiles = plan_profiles(tx, profiles).await?;
        let issuers = plan_issuers(tx, issuers).await?;
        let choice = CaChoice::read(tx, now_us).await?;
        let named = |issuer: &PlanDocument<String>| {
            let ca = internal_ca(&issuer.body)?;
            Some((issuer.key.clone(), ca.and_then(|ca| choice.issuing(Some(&ca)))))
        };
        let of_profile =
            |profile: &PlanDocument<String>| Some((profile.key.clone(), choice.of_profile(&profile.body)?));
        Ok(Self {
            approvals: profiles.iter().filter_map(approvals).collect(),
            cas: profiles.iter().filter_map(of_profile).collect(),
            internal_cas: issuers.iter().filter_map(named).collect(),
            profiles: versions(profiles),
            issuers: versions(issuers),
            targets: versions(plan_targets(tx, targets).await?),
        })
    }

    /// Returns the internal CA that issues the certificate; `None` for an external issuer.
    fn ca(&self, certificate: &ManagedCertificate) -> Option<String> {
        let named = match certificate.issuer.as_str() {
            INTERNAL_ISSUER => None,
            issuer => self.internal_cas.get(issuer)?.clone(),
        };
        named.or_else(|| self.cas.get(&certificate.profile).cloned())
    }

    /// Returns the plan of a certificate's next version.
    pub(crate) fn plan(&self, row: &ManagedRow) -> Result<IssuancePlan, StoreError> {
        let certificate =
            ManagedCertificate::from_row(row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let location = match certificate.key_location {
            KeyLocation::Server => "server".to_owned(),
            KeyLocation::Agent { agent } => format!("agent {agent}"),
            KeyLocation::KeyService => "key service".to_owned(),
        };
        let ca = self.ca(&certificate);
        Ok(IssuancePlan {
            object: format!("certificate/{}", certificate.id),
            names: certificate.names.iter().map(ToString::to_string).collect(),
            subject: certificate.options.subject,
            key: PlannedKey::New { key_type: certificate.key_type.name().to_owned(), location },
            must_staple: certificate.options.must_staple,
            ca,
            profile_version: self.profiles.get(&certificate.profile).cloned(),
            profile: certificate.profile,
            issuer_version: self.issuers.get(&certificate.issuer).cloned(),
            issuer: certificate.issuer,
            issuer_profile: certificate.options.issuer_profile,
            lifetime_seconds: certificate.options.lifetime_seconds,
            targets: certificate.targets.iter().map(|target| self.target(target)).collect(),
        })
    }

    fn target(&self, target: &TargetRef) -> String {
        match target {
            TargetRef::Deploy { target, agent } => target_text(*target, *agent, self.targets.get(target)),
            TargetRef::Endpoint { host, port, protocol, server_name } => {
                json!({ "endpoint": host, "port": port, "protocol": protocol, "server_name": server_name })
                    .to_string()
            }
        }
    }

    /// Returns whether an approval covers the current plan.
    pub(crate) fn is_covered_by(&self, row: &ManagedRow, approval: &ApprovalRow) -> Result<bool, StoreError> {
        Ok(approval.plan_sha256 == Some(self.plan(row)?.sha256()))
    }
}

fn target_text(target: Uuid, agent: Uuid, version: Option<&DocumentVersion>) -> String {
    match version {
        Some(DocumentVersion { revision, sha256 }) => {
            format!("target {target} agent {agent} revision {revision} sha256:{sha256}")
        }
        None => format!("target {target} agent {agent}"),
    }
}

/// Returns the current plan text of each pair of target and agent.
pub(crate) async fn target_texts(
    tx: &mut Tx,
    target_agents: &[(Uuid, Uuid)],
) -> Result<Vec<String>, StoreError> {
    let mut targets: Vec<Uuid> = target_agents.iter().map(|(target, _)| *target).collect();
    targets.sort_unstable();
    targets.dedup();
    let known = versions(plan_targets(tx, targets).await?);
    Ok(target_agents.iter().map(|(target, agent)| target_text(*target, *agent, known.get(target))).collect())
}

/// Returns the open and approved approvals, by run.
pub(crate) async fn active_approvals_by_job(
    tx: &mut Tx,
    jobs: Vec<i64>,
) -> Result<HashMap<i64, ApprovalRow>, StoreError> {
    if jobs.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(active_approvals(tx, jobs).await?.into_iter().map(|one| (one.job, one)).collect())
}

/// Data for approval requests, loaded for many certificates together.
#[derive(Default)]
pub(crate) struct ApprovalFacts {
    plans: PlanFacts,
    newest: HashMap<i64, ApprovalRow>,
    changers: HashMap<i64, Vec<String>>,
}

impl ApprovalFacts {
    pub(crate) async fn of(tx: &mut Tx, rows: &[&ManagedRow], now_us: i64) -> Result<Self, StoreError> {
        if rows.is_empty() {
            return Ok(Self::default());
        }
        let plans = PlanFacts::of(tx, rows.iter().copied(), now_us).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let newest = newest_approvals(tx, ids.clone()).await?;
        let mut changers: HashMap<i64, Vec<String>> = HashMap::new();
        for (certificate, actor) in plan_change_actors(tx, ids).await? {
            changers.entry(certificate).or_default().push(actor);
        }
        Ok(Self { plans, newest: newest.into_iter().map(|one| (one.certificate, one)).collect(), changers })
    }

    pub(crate) fn plans(&self) -> &PlanFacts {
        &self.plans
    }

    /// Creates the approval that a run needs, bound to the current plan.
    pub(crate) fn approval(
        &self,
        job: &JobRow,
        row: &ManagedRow,
        reason: &str,
        now_us: i64,
    ) -> Result<ApprovalRow, StoreError> {
        let plan = self.plans.plan(row)?;
        let mut barred = vec![job.requested_by.clone()];
        barred.extend(self.changers.get(&row.id).into_iter().flatten().cloned());
        barred.sort_unstable();
        barred.dedup();
        let mut approval = new_approval(job, reason, row.life_us(), now_us);
        approval.needed = self.plans.approvals.get(&row.profile).copied().unwrap_or(1);
        approval.plan_sha256 = Some(plan.sha256());
        approval.plan = Some(json_text(&plan));
        approval.previous = self.newest.get(&row.id).map(|one| one.uuid);
        approval.barred = barred;
        Ok(approval)
    }
}

/// Voids the approval of a run whose plan changed, ends the run, and queues a new run that needs approval of the current plan.
/// Actors that could not approve the old plan cannot approve the new one.
pub(crate) fn void(
    ledger: &mut Ledger,
    entry: &mut Entry,
    job: &JobRow,
    approval: Option<&ApprovalRow>,
    plan: &IssuancePlan,
) {
    let current = entry.current();
    if matches!(entry.state(), State::AwaitingApproval | State::AwaitingCsr | State::Issuing) {
        let _ = ledger.step(entry, Transition::Cancelled(current, run_from_job(job)));
    }
    ledger.void(job.id);
    let before = approval.and_then(|one| one.plan.as_deref());
    let before: Option<IssuancePlan> = before.and_then(|text| serde_json::from_str(text).ok());
    let changes: Vec<&str> =
        before.iter().flat_map(|before| plan.differences(before)).map(|one| one.name).collect();
    let details = json!({
        "approval": approval.map(|one| one.uuid),
        "job": crate::job::id_of(job).0,
        "plan_sha256": x509::Fingerprint::from_bytes(plan.sha256()),
        "changes": changes,
    });
    ledger.note(&entry.row, "certificate.approval_void", details);
    for actor in approval.iter().flat_map(|one| &one.barred) {
        ledger.plan_changed(entry.row.id, actor);
    }
    ledger.plan_changed(entry.row.id, &job.requested_by);
    ledger.end(job.clone(), JobState::Cancelled, Some(VOIDED_ERROR.to_owned()));
    let now_us = ledger.at_us();
    let mut next = run_now(&entry.row, "changed", &job.requested_by, now_us);
    next.approval = Consent::Needed;
    ledger.queue(next);
}
