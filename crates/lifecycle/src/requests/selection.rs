//! Bulk operations on certificates, selected by ids or by a filter. They run in batches, each in its own transaction.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::Event;
use futures_util::FutureExt;
use serde_json::json;
use store::time_limits;
use store::{StoreError, Tx};
use uuid::Uuid;
use x509::Fingerprint;
use x509::crl::Reason;

use crate::error::{DataError, Missing, from_data};
use crate::handle::Lifecycle;
use crate::job::{Consent, JobKind, JobState};
use crate::judgement::violation_row;
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::managed::{
    BadRequest, INTERNAL_ISSUER, ManagedCertificate, TAGS_MAX, check_label, json as json_text,
};
use crate::policy::PolicySet;
use crate::revocation::ClaimedRevocation;
use crate::runs::{CHUNK, LEASE_US, open_run, run_now, start_immediately};
use crate::state::State;
use crate::tables::jobs::{JobRow, NewJob, jobs_by_ids, open_jobs_of};
use crate::tables::managed::{
    ManagedFilter, ManagedRow, managed_by_uuids, managed_matching, replace_managed_tags,
};
use crate::tables::policies::replace_violations;
use crate::transition::event_certificate;

/// Maximum ids in one selection. A filter selects any number.
pub const IDS_MAX: usize = 10_000;

/// Maximum reasons in a report. The count of refusals has no limit.
const REASONS_MAX: usize = 100;

/// Maximum wait for a revocation that another process carries out. After this time, the revocation is counted as in progress.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);
/// First pause between two checks of pending revocations. The pause doubles after each check, up to 16 times this value.
const REVOKE_PAUSE: Duration = Duration::from_millis(5);

/// Selection of certificates, by ids or by a filter.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// The certificates with these ids; up to [`IDS_MAX`].
    Ids(Vec<Uuid>),
    /// All certificates that match the filter.
    Filter(ManagedFilter),
}

/// Result of a bulk operation: numbers of selected, changed and refused certificates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BulkReport {
    /// Number of certificates selected.
    pub matched: u64,
    /// Number of certificates changed by the operation.
    pub done: u64,
    /// Number of certificates that already had the requested state, or whose change is in progress.
    pub already: u64,
    /// Number of certificates for which the operation was refused.
    pub refused: u64,
    /// Number of requested ids that do not exist.
    pub missing: u64,
    /// Reasons of the first hundred refusals.
    pub reasons: Vec<(Uuid, String)>,
}

impl BulkReport {
    fn refuse(&mut self, id: Uuid, reason: impl Into<String>) {
        self.refused += 1;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push((id, reason.into()));
        }
    }

    fn add(&mut self, other: Self) {
        self.matched += other.matched;
        self.done += other.done;
        self.already += other.already;
        self.refused += other.refused;
        self.missing += other.missing;
        let room = REASONS_MAX.saturating_sub(self.reasons.len());
        self.reasons.extend(other.reasons.into_iter().take(room));
    }
}

/// New settings for many certificates. `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reassign {
    /// New owner, or `Some(None)` to remove the owner.
    pub owner: Option<Option<String>>,
    /// New team, or `Some(None)` to remove the team.
    pub team: Option<Option<String>>,
    /// New environment, or `Some(None)` to remove it.
    pub environment: Option<Option<String>>,
    /// New policy, or `Some(None)` to remove it.
    pub policy: Option<Option<String>>,
    /// Tags to set.
    pub tags_set: BTreeMap<String, String>,
    /// Tags to remove.
    pub tags_unset: Vec<String>,
}

/// Reason why a bulk operation was not started.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BulkError {
    /// The request is invalid.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The request names an object that does not exist.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The request has too many ids.
    #[error("{0} ids given: a selection has at most {IDS_MAX}; use a filter for more")]
    TooMany(usize),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(BulkError);

/// Request to revoke certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct RevokeRequest {
    /// One of [`REVOCATION_REASONS`].
    pub reason: Reason,
    /// Whether to request a new version with a new key for each certificate immediately.
    pub replace: bool,
}

/// Revocation reasons that can be requested. The other reasons do not apply to server certificates.
pub const REVOCATION_REASONS: [Reason; 6] = [
    Reason::Unspecified,
    Reason::KeyCompromise,
    Reason::AffiliationChanged,
    Reason::Superseded,
    Reason::CessationOfOperation,
    Reason::PrivilegeWithdrawn,
];

/// A bulk operation and its parameters. Runs as a series of transactions.
struct BulkWork {
    actor: String,
    now_us: i64,
    what: BulkAction,
}

enum BulkAction {
    /// Starts at most `limit` renewals.
    Renew {
        reason: String,
        limit: Option<u64>,
    },
    Reassign {
        to: Reassign,
        policies: Arc<PolicySet>,
    },
    Revoke {
        request: RevokeRequest,
        node: Uuid,
    },
}

/// Result of one transaction of a bulk operation.
struct BulkPart {
    report: BulkReport,
    /// Row id of the last certificate of this part. `None` if there are no more certificates.
    last: Option<i64>,
    /// Queued runs, which any node can claim.
    queued: Vec<i64>,
    /// Runs that this process has claimed, for certificates of the internal CA.
    claimed: Vec<(ClaimedRevocation, Fingerprint)>,
}

impl Lifecycle {
    /// Renews certificates immediately, regardless of their planned renewal. A waiting run is started; a run in progress
    /// continues unchanged.
    ///
    /// # Errors
    /// [`BulkError`]. Work done before the error stays done.
    #[crate::boxed]
    pub async fn renew(
        &self,
        selection: &Selection,
        reason: &str,
        actor: &str,
    ) -> Result<BulkReport, BulkError> {
        self.renew_up_to(None, selection, reason, actor).await
    }

    /// Renews at most `limit` certificates like [`Self::renew`], in the order of their creation. Certificates whose renewal is
    /// due or in progress do not count towards the limit, so that the next call starts the next wave.
    ///
    /// # Errors
    /// As of [`Self::renew`].
    #[crate::boxed]
    pub async fn renew_up_to(
        &self,
        limit: Option<u64>,
        selection: &Selection,
        reason: &str,
        actor: &str,
    ) -> Result<BulkReport, BulkError> {
        check_label("the reason", reason)?;
        let what = BulkAction::Renew { reason: reason.to_owned(), limit };
        let (report, _) = self.each(selection, actor, what).await?;
        self.inner.wake.notify_one();
        Ok(report)
    }

    /// Changes owner, team, environment, policy and tags.
    ///
    /// # Errors
    /// [`BulkError`]. Work done before the error stays done.
    #[crate::boxed]
    pub async fn reassign(
        &self,
        selection: &Selection,
        to: Reassign,
        actor: &str,
    ) -> Result<BulkReport, BulkError> {
        for (field, text) in [
            ("the owner", &to.owner),
            ("the team", &to.team),
            ("the environment", &to.environment),
            ("the policy", &to.policy),
        ] {
            if let Some(Some(text)) = text {
                check_label(field, text)?;
            }
        }
        if to.tags_set.len() > TAGS_MAX {
            return Err(BadRequest::TooManyTags.into());
        }
        for (tag, value) in &to.tags_set {
            check_label("a tag", tag)?;
            check_label("a tag's value", value)?;
        }
        let policies = self.policy_set().await?;
        if let Some(Some(name)) = &to.policy
            && policies.get(name).is_none()
        {
            return Err(Missing { what: "policy", name: name.clone() }.into());
        }
        let reschedule = to.policy.is_some();
        let (report, _) = self.each(selection, actor, BulkAction::Reassign { to, policies }).await?;
        if reschedule {
            self.reschedule(selection).await?;
        }
        Ok(report)
    }

    /// Revokes the current versions, and replaces them if requested. The internal CA revokes all in one call; other issuers revoke
    /// one by one. The scheduler retries revocations that an issuer does not complete immediately; they are counted as in progress.
    ///
    /// # Errors
    /// [`BulkError`]. Revocations that were queued before the error are still carried out.
    #[crate::boxed]
    pub async fn revoke(
        &self,
        selection: &Selection,
        request: RevokeRequest,
        actor: &str,
    ) -> Result<BulkReport, BulkError> {
        if !REVOCATION_REASONS.contains(&request.reason) {
            return Err(DataError::not_found("revocation reason with number", request.reason.code()).into());
        }
        let what = BulkAction::Revoke { request, node: self.inner.node };
        let (mut report, queued) = self.each(selection, actor, what).await?;
        while self.revoke_due().await? > 0 {}
        let open = self.count_pending_revocations(&queued).await?;
        report.done -= open;
        report.already += open;
        self.inner.wake.notify_one();
        Ok(report)
    }

    /// Returns how many of these revocations wait for a retry. Waits for revocations that another process or the scheduler is
    /// carrying out.
    async fn count_pending_revocations(&self, queued: &[i64]) -> Result<u64, DataError> {
        let began = Instant::now();
        let mut pause = REVOKE_PAUSE;
        loop {
            let (mut open, mut under_way) = (0, false);
            for ids in queued.chunks(CHUNK) {
                let ids = ids.to_vec();
                let read = transaction(move |tx| jobs_by_ids(tx, ids).boxed());
                for job in self.inner.store.write("revoke_outcome", read).await? {
                    open += u64::from(job.state != JobState::Done);
                    under_way |= job.state == JobState::Running;
                }
            }
            if !under_way || began.elapsed() > REVOKE_TIMEOUT {
                return Ok(open);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(REVOKE_PAUSE * 16);
        }
    }

    /// Runs the operation in transactions of up to [`CHUNK`] certificates each.
    async fn each(
        &self,
        selection: &Selection,
        actor: &str,
        what: BulkAction,
    ) -> Result<(BulkReport, Vec<i64>), BulkError> {
        let work = Arc::new(BulkWork { actor: actor.to_owned(), now_us: self.now_us(), what });
        let mut report = BulkReport::default();
        let mut queued = Vec::new();
        for source in sources(selection)? {
            let mut after = Some(0);
            while let Some(from) = after {
                let (shared_work, source, done) = (Arc::clone(&work), source.clone(), report.done);
                let part = attempt(&self.inner.store, "certificates_bulk", move || {
                    let (work, source) = (Arc::clone(&shared_work), source.clone());
                    transaction(move |tx| async move { part(tx, &work, &source, from, done).await }.boxed())
                })
                .await?;
                report.add(part.report);
                queued.extend(part.queued);
                if let BulkAction::Revoke { request, .. } = &work.what {
                    queued.extend(part.claimed.iter().map(|(claimed, _)| claimed.job));
                    self.revoke_claimed(part.claimed, request.reason, &work.actor).await?;
                }
                after = part.last;
            }
        }
        Ok((report, queued))
    }
}

/// Splits the ids of a selection so that each part fits into a transaction. A filter is returned unsplit, and read page by page.
fn sources(selection: &Selection) -> Result<Vec<Arc<Selection>>, BulkError> {
    match selection {
        Selection::Ids(ids) if ids.len() > IDS_MAX => Err(BulkError::TooMany(ids.len())),
        Selection::Ids(ids) => {
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids.dedup();
            Ok(ids.chunks(CHUNK).map(|chunk| Arc::new(Selection::Ids(chunk.to_vec()))).collect())
        }
        Selection::Filter(_) => Ok(vec![Arc::new(selection.clone())]),
    }
}

/// Returns the certificates of this part in row order, and the start of the next part.
pub(super) async fn selected(
    tx: &mut Tx,
    source: &Selection,
    after: i64,
) -> Result<(Vec<ManagedRow>, u64, Option<i64>), StoreError> {
    match source {
        Selection::Ids(ids) => {
            let mut rows = managed_by_uuids(tx, ids.clone()).await?;
            rows.sort_by_key(|row| row.id);
            let missing = (ids.len() - rows.len()) as u64;
            Ok((rows, missing, None))
        }
        Selection::Filter(filter) => {
            let rows = managed_matching(tx, filter, after, CHUNK as i64).await?;
            let last = rows.last().filter(|_| rows.len() == CHUNK).map(|row| row.id);
            Ok((rows, 0, last))
        }
    }
}

/// Carries out the operation on the next certificates. `done` is the number of certificates that earlier parts changed.
async fn part(
    tx: &mut Tx,
    work: &BulkWork,
    source: &Selection,
    after: i64,
    done: u64,
) -> Result<BulkPart, StoreError> {
    let (rows, missing, last) = selected(tx, source, after).await?;
    let report = BulkReport { matched: rows.len() as u64, missing, ..BulkReport::default() };
    let mut part = BulkPart { report, last, queued: Vec::new(), claimed: Vec::new() };
    let mut ledger = Ledger::new(work.now_us, &work.actor);
    match &work.what {
        BulkAction::Renew { reason, limit } => {
            let open = open_jobs_by_certificate(tx, &rows).await?;
            let most = limit.map(|limit| limit.saturating_sub(done));
            part.report.matched = 0;
            for row in rows {
                if most.is_some_and(|most| part.report.done >= most) {
                    part.last = None;
                    break;
                }
                part.report.matched += 1;
                renew_one(&mut ledger, &mut part.report, row, &open, reason, work);
            }
            ledger.write(tx).await?;
        }
        BulkAction::Revoke { request, node } => {
            let open = open_jobs_by_certificate(tx, &rows).await?;
            for row in &rows {
                revoke_one(&mut ledger, &mut part.report, row, &open, request, work);
            }
            let until = work.now_us + LEASE_US;
            let (queued, claimed_jobs) = ledger.write_and_claim(tx, *node, until).await?;
            part.queued = queued.into_iter().map(|job| job.id).collect();
            let leaves: HashMap<i64, [u8; 32]> =
                rows.iter().filter_map(|row| Some((row.id, row.fingerprint?))).collect();
            part.claimed = claimed_jobs
                .into_iter()
                .filter_map(|job| {
                    let leaf = leaves.get(&job.certificate)?;
                    let claimed =
                        ClaimedRevocation { job: job.id, attempts: 1, certificate: job.certificate };
                    Some((claimed, Fingerprint::from_bytes(*leaf)))
                })
                .collect();
        }
        BulkAction::Reassign { to, policies } => {
            reassign(tx, ledger, &mut part.report, rows, to, policies).await?
        }
    }
    Ok(part)
}

async fn open_jobs_by_certificate(
    tx: &mut Tx,
    rows: &[ManagedRow],
) -> Result<HashMap<i64, Vec<JobRow>>, StoreError> {
    let mut open: HashMap<i64, Vec<JobRow>> = HashMap::new();
    for job in open_jobs_of(tx, rows.iter().map(|row| row.id).collect()).await? {
        open.entry(job.certificate).or_default().push(job);
    }
    Ok(open)
}

/// Returns whether a renewal in waves must not change this run, because the run is already due.
fn is_started(job: &JobRow, work: &BulkWork) -> bool {
    matches!(work.what, BulkAction::Renew { limit: Some(_), .. }) && job.next_attempt_at_us <= work.now_us
}

fn renew_one(
    ledger: &mut Ledger,
    report: &mut BulkReport,
    row: ManagedRow,
    open: &HashMap<i64, Vec<JobRow>>,
    reason: &str,
    work: &BulkWork,
) {
    if row.state == State::Archived {
        report.refuse(row.uuid, "the certificate is archived: restore it first");
        return;
    }
    match open_run(open, row.id) {
        Some(job) if job.state == JobState::Queued && !is_started(job, work) => {
            start_immediately(ledger, &row, job, reason, &work.actor)
        }
        Some(_) => {
            report.already += 1;
            return;
        }
        None => ledger.queue(run_now(&row, reason, &work.actor, work.now_us)),
    }
    report.done += 1;
    ledger.note(&row, "certificate.renew", json!({ "reason": reason }));
}

fn revoke_one(
    ledger: &mut Ledger,
    report: &mut BulkReport,
    row: &ManagedRow,
    open: &HashMap<i64, Vec<JobRow>>,
    request: &RevokeRequest,
    work: &BulkWork,
) {
    let Some(version) = row.version else {
        report.refuse(row.uuid, "the certificate was never issued");
        return;
    };
    let under_way = open.get(&row.id).into_iter().flatten();
    let under_way =
        under_way.filter(|job| job.kind == JobKind::Revocation).any(|job| job.version == Some(version));
    if row.revoked || under_way {
        report.already += 1;
        return;
    }
    let job = NewJob {
        certificate: row.id,
        kind: JobKind::Revocation,
        approval: Consent::NotNeeded,
        issuer: row.issuer.clone(),
        agent: None,
        version: Some(version),
        reason: "requested".to_owned(),
        requested_by: work.actor.clone(),
        next_attempt_at_us: work.now_us,
        deadline_at_us: work.now_us + time_limits::run_timeout_us(row.life_us()),
        detail: Some(json!({ "reason": request.reason.code(), "replace": request.replace }).to_string()),
        created_at_us: work.now_us,
    };
    // The internal CA revokes all certificates in the call that follows. Other issuers revoke one by one.
    if row.issuer == INTERNAL_ISSUER {
        ledger.claim(job);
    } else {
        ledger.queue(job);
    }
    report.done += 1;
}

async fn reassign(
    tx: &mut Tx,
    mut ledger: Ledger,
    report: &mut BulkReport,
    rows: Vec<ManagedRow>,
    to: &Reassign,
    policies: &PolicySet,
) -> Result<(), StoreError> {
    let now_us = ledger.at_us();
    let (mut tags, mut checked, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let before = match ManagedCertificate::from_row(&row) {
            Ok(certificate) => certificate,
            Err(error) => {
                report.refuse(row.uuid, error.to_string());
                continue;
            }
        };
        let after = to.applied(&before);
        if after == before {
            report.already += 1;
            continue;
        }
        if after.tags.len() > TAGS_MAX {
            report.refuse(row.uuid, BadRequest::TooManyTags.to_string());
            continue;
        }
        if let (Some(policy), None) = (policies.approval_needed(&before), policies.approval_needed(&after)) {
            report.refuse(
                row.uuid,
                format!(
                    "the policy {policy} requires approval: change this certificate alone, so that another person approves the change"
                ),
            );
            continue;
        }
        let violations = policies.violations(&after, &policies.renewal_rule(&after, None));
        if let Some(one) = violations.iter().find(|one| one.enforced) {
            report.refuse(row.uuid, format!("{} ({})", one.message, one.policy));
            continue;
        }
        found.extend(violations.iter().map(|one| violation_row(row.id, one, now_us)));
        checked.push(row.id);
        let mut entry = Entry::new(row);
        entry.row.owner.clone_from(&after.owner);
        entry.row.team.clone_from(&after.team);
        entry.row.environment.clone_from(&after.environment);
        entry.row.policy.clone_from(&after.policy);
        if after.tags != before.tags {
            entry.row.tags = json_text(&after.tags);
            tags.push((entry.row.id, after.tags.clone().into_iter().collect()));
        }
        let changes = json!({ "owner": after.owner, "team": after.team, "environment": after.environment,
            "policy": after.policy, "tags": after.tags });
        ledger.note(&entry.row, "certificate.reassign", changes);
        ledger.announce(&entry.row, &Event::CertificateChanged(event_certificate(&entry.row)));
        ledger.put(entry);
        report.done += 1;
    }
    ledger.write(tx).await?;
    replace_managed_tags(tx, &tags).await?;
    replace_violations(tx, checked, &found).await
}

impl Reassign {
    fn applied(&self, to: &ManagedCertificate) -> ManagedCertificate {
        let mut after = to.clone();
        for (into, from) in [
            (&mut after.owner, &self.owner),
            (&mut after.team, &self.team),
            (&mut after.environment, &self.environment),
            (&mut after.policy, &self.policy),
        ] {
            if let Some(text) = from {
                into.clone_from(text);
            }
        }
        for tag in &self.tags_unset {
            after.tags.remove(tag);
        }
        after.tags.extend(self.tags_set.clone());
        after
    }
}
