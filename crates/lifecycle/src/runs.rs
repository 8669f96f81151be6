//! Queueing, planning and postponing of runs.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use store::time_limits;
use uuid::Uuid;

use crate::job::{Consent, JobId, JobKind, JobState};
use crate::judgement::Judgement;
use crate::ledger::Ledger;
use crate::managed::ManagedCertificate;
use crate::policy::PolicySet;
use crate::renewal::{Life, SuggestedRenewalWindow, due, next_open};
use crate::state::{Current, State};
use crate::tables::jobs::{JobRow, NewJob};
use crate::tables::managed::ManagedRow;

/// Duration of the lease of a run, in µs. Other processes take over the run when the lease expires. The working process renews
/// the lease after each third of this time.
pub(crate) const LEASE_US: i64 = 120_000_000;

/// Number of certificates changed in one transaction: half a second of work, and a few MiB.
pub(crate) const CHUNK: usize = 2_000;

/// Data needed to plan the next run within a transaction.
#[derive(Clone)]
pub(crate) struct Planner {
    pub(crate) set: Arc<PolicySet>,
}

impl Planner {
    /// Returns the time of the next attempt after a failed run. `None` if the run is not retried automatically.
    fn retry_at(&self, row: &ManagedRow, now_us: i64) -> Option<i64> {
        let certificate = ManagedCertificate::from_row(row).ok()?;
        let rule = self.set.renewal_rule(&certificate, None);
        if !rule.auto_renew {
            return None;
        }
        let at = now_us + time_limits::retry_delay_us(row.life_us(), row.left_us(now_us));
        let open = next_open(&rule.windows, at).filter(|open| *open < row.not_after_us);
        Some(open.unwrap_or(at))
    }
}

/// Queues the next run after a failed one.
pub(crate) fn replan(ledger: &mut Ledger, planner: &Planner, row: &ManagedRow) {
    let now_us = ledger.at_us();
    if let Some(at_us) = planner.retry_at(row, now_us) {
        ledger.queue(planned(row, at_us, "retry", Consent::NotNeeded, now_us));
    }
}

/// Creates a run with a start time in the future.
pub(crate) fn planned(row: &ManagedRow, at_us: i64, reason: &str, consent: Consent, now_us: i64) -> NewJob {
    let kind = if row.fingerprint.is_some() { JobKind::Renewal } else { JobKind::Issuance };
    NewJob {
        certificate: row.id,
        kind,
        approval: consent,
        issuer: row.issuer.clone(),
        agent: row.agent,
        version: None,
        reason: reason.to_owned(),
        requested_by: "system:renewal".to_owned(),
        next_attempt_at_us: at_us,
        deadline_at_us: at_us.saturating_add(time_limits::run_timeout_us(row.life_us())),
        detail: None,
        created_at_us: now_us,
    }
}

/// Creates a run that is due immediately.
pub(crate) fn run_now(row: &ManagedRow, reason: &str, actor: &str, now_us: i64) -> NewJob {
    let kind = if row.fingerprint.is_some() { JobKind::Renewal } else { JobKind::Issuance };
    NewJob {
        certificate: row.id,
        kind,
        // Whether the run needs approval is decided when it starts.
        approval: Consent::NotNeeded,
        issuer: row.issuer.clone(),
        agent: row.agent,
        version: None,
        reason: reason.to_owned(),
        requested_by: actor.to_owned(),
        next_attempt_at_us: now_us,
        deadline_at_us: now_us + time_limits::run_timeout_us(row.life_us()),
        detail: None,
        created_at_us: now_us,
    }
}

/// Returns the certificate's open issuance or renewal run.
pub(crate) fn open_run(open: &HashMap<i64, Vec<JobRow>>, certificate: i64) -> Option<&JobRow> {
    open.get(&certificate)?.iter().find(|job| job.kind <= JobKind::Renewal)
}

/// Starts a waiting run immediately.
pub(crate) fn start_immediately(
    ledger: &mut Ledger,
    row: &ManagedRow,
    job: &JobRow,
    reason: &str,
    actor: &str,
) {
    // The original requester still must not approve the run, although another person now requests it.
    ledger.plan_changed(job.certificate, &job.requested_by);
    let mut to = job.clone();
    to.next_attempt_at_us = ledger.at_us();
    to.deadline_at_us = ledger.at_us() + time_limits::run_timeout_us(row.life_us());
    to.reason = reason.to_owned();
    to.requested_by = actor.to_owned();
    ledger.change(job.clone(), to);
}

/// Moves, deletes or creates the planned run so that it matches the current renewal plan. Runs that have started, or that a person
/// requested, are not changed.
pub(crate) fn plan(
    ledger: &mut Ledger,
    certificate: &ManagedCertificate,
    row: &ManagedRow,
    run: Option<&JobRow>,
    judged: &Judgement,
    suggested: Option<SuggestedRenewalWindow>,
) {
    let life = Life { not_before_us: row.not_before_us, not_after_us: row.not_after_us };
    let good = certificate.version_status() == Current::Good && certificate.state != State::Archived;
    let wanted = if good { due(certificate.id, life, &judged.rule, suggested) } else { None };
    match run {
        None => {
            if let Some(wanted) = wanted {
                let now_us = ledger.at_us();
                ledger.queue(planned(row, wanted.at_us, "planned", judged.consent(), now_us));
            }
        }
        Some(run) => {
            let untouched = run.state == JobState::Queued
                && run.attempts == 0
                && run.kind == JobKind::Renewal
                && run.reason == "planned";
            if !untouched {
                return;
            }
            let other_door = run.issuer != row.issuer || run.agent != row.agent;
            match wanted {
                None => ledger.end(
                    run.clone(),
                    JobState::Cancelled,
                    Some("automatic renewal is disabled".to_owned()),
                ),
                Some(wanted) if other_door => {
                    ledger.end(
                        run.clone(),
                        JobState::Cancelled,
                        Some("replaced by a run with another issuer".to_owned()),
                    );
                    let now_us = ledger.at_us();
                    ledger.queue(planned(row, wanted.at_us, "planned", judged.consent(), now_us));
                }
                Some(wanted) => {
                    let mut to = run.clone();
                    to.next_attempt_at_us = wanted.at_us;
                    to.approval = judged.consent();
                    if to != *run {
                        ledger.change(run.clone(), to);
                    }
                }
            }
        }
    }
}

/// Returns the pause before the next attempt for a certificate with this lifetime, in µs. It doubles with each attempt and varies
/// by up to a quarter for each run, so that runs that failed together are not retried together.
pub(crate) fn backoff(job: &JobRow, life_us: i64) -> i64 {
    let doubled = time_limits::initial_backoff_us(life_us) << (job.attempts.clamp(1, 20) - 1).min(7);
    let bounded = doubled.min(time_limits::max_backoff_us(life_us));
    let share = (job.id.wrapping_mul(0x9e37) & 0xff) as f64 / 255.0;
    (bounded as f64 * (0.75 + 0.5 * share)) as i64
}

/// Creates the run that deploys a version to one target. `issued_by` is the run that issued the version, if it has just ended.
pub(crate) fn deployment(
    row: &ManagedRow,
    version: Option<i64>,
    agent: Uuid,
    target: Uuid,
    issued_by: Option<JobId>,
    now_us: i64,
) -> NewJob {
    let detail = match issued_by {
        Some(run) => json!({ "target": target, "run": run }),
        None => json!({ "target": target }),
    };
    NewJob {
        certificate: row.id,
        kind: JobKind::Deployment,
        approval: Consent::NotNeeded,
        issuer: row.issuer.clone(),
        agent: Some(agent),
        version,
        reason: "issued".to_owned(),
        requested_by: "system:scheduler".to_owned(),
        next_attempt_at_us: now_us,
        deadline_at_us: now_us + time_limits::run_timeout_us(row.life_us()),
        detail: Some(detail.to_string()),
        created_at_us: now_us,
    }
}
