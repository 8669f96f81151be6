//! Revocations: in one call at the internal CA, one by one at other issuers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use events::{CertificateRevocationFailed, CertificateRevoked, Event, RevocationOrigin};
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use issuers::{IssuerError, IssuerKind, Retry};
use serde::Deserialize;
use serde_json::json;
use store::{StoreError, Tx, read_event};
use tracing::warn;
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Certificate, Fingerprint};

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::job::{JobKind, JobState, id_of};
use crate::ledger::{Entry, Ledger, attempt, transaction};
use crate::managed::{first_der, options_of};
use crate::revocation::ClaimedRevocation;
use crate::runs::{CHUNK, LEASE_US, backoff, open_run, run_now, start_immediately};
use crate::state::Effect;
use crate::tables::jobs::{JobRow, claim_revocations, open_jobs_of};
use crate::tables::managed::{
    ManagedRow, ManagedVersion, managed_by_ids, revoke_versions, versions_of, versions_revoked_by,
};
use crate::transition::{Revocation, Transition, event_certificate};

/// Maximum concurrent revocations at other issuers.
const AT_ONCE: usize = 16;

/// Detail of a revocation run, as JSON.
#[derive(Clone, Copy, Debug)]
struct Detail {
    reason: Reason,
    replace: bool,
}

impl Detail {
    fn of(job: &JobRow) -> Result<Self, IssuerError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Stored {
            /// Code of the revocation reason.
            reason: i64,
            replace: bool,
        }
        let unreadable = |error: String| IssuerError::Misconfigured {
            reason: format!("cannot read jobs.detail of job {}: {error}", job.id),
        };
        let stored = match job.detail.as_deref() {
            Some(text) => {
                serde_json::from_str::<Stored>(text).map_err(|error| unreadable(error.to_string()))?
            }
            None => Stored::default(),
        };
        let reason = Reason::from_code(stored.reason)
            .ok_or_else(|| unreadable(format!("unknown revocation reason {}", stored.reason)))?;
        Ok(Self { reason, replace: stored.replace })
    }
}

/// Result of an attempt to carry out a claimed revocation.
#[derive(Clone)]
struct Outcome {
    claimed: ClaimedRevocation,
    error: Option<IssuerError>,
}

impl Lifecycle {
    pub(super) async fn revoke_all_due(&self) -> Result<u64, DataError> {
        let mut all = 0;
        loop {
            match self.revoke_due().await? {
                0 => return Ok(all),
                some => all += some,
            }
        }
    }

    /// Carries out due revocations, at most [`CHUNK`]. Returns the number of attempted revocations.
    pub(crate) async fn revoke_due(&self) -> Result<u64, DataError> {
        let (now_us, node) = (self.now_us(), self.inner.node);
        let claim = transaction(move |tx| {
            async move {
                let jobs = claim_revocations(tx, now_us, node, now_us + LEASE_US, CHUNK as i64).await?;
                let versions = versions_of(tx, jobs.iter().filter_map(|job| job.version).collect()).await?;
                Ok((jobs, versions))
            }
            .boxed()
        });
        let (jobs, versions) = self.inner.store.write("revocations_claim", claim).await?;
        if jobs.is_empty() {
            return Ok(0);
        }
        let tried = jobs.len() as u64;
        let _at_work = self.inner.at_work.keep(jobs.iter().map(|job| job.id).collect());
        let versions: HashMap<i64, ManagedVersion> = versions.into_iter().map(|one| (one.id, one)).collect();
        let mut by_issuer: BTreeMap<String, Vec<JobRow>> = BTreeMap::new();
        for job in jobs {
            by_issuer.entry(job.issuer.clone()).or_default().push(job);
        }
        let mut outcomes = Vec::new();
        for (issuer, jobs) in by_issuer {
            outcomes.extend(self.revoke_at_issuer(&issuer, jobs, &versions).await);
        }
        self.store_outcomes(outcomes).await?;
        Ok(tried)
    }

    async fn store_outcomes(&self, outcomes: Vec<Outcome>) -> Result<(), DataError> {
        let (outcomes, now_us) = (Arc::new(outcomes), self.now_us());
        attempt(&self.inner.store, "revocations_finish", move || {
            let outcomes = Arc::clone(&outcomes);
            transaction(move |tx| async move { finish(tx, &outcomes, now_us).await }.boxed())
        })
        .await?;
        Ok(())
    }

    /// Carries out revocations at the internal CA that this process has claimed, in one call.
    pub(crate) async fn revoke_claimed(
        &self,
        claimed: Vec<(ClaimedRevocation, Fingerprint)>,
        reason: Reason,
        actor: &str,
    ) -> Result<(), DataError> {
        if claimed.is_empty() {
            return Ok(());
        }
        let fingerprints: Vec<Fingerprint> = claimed.iter().map(|(_, fingerprint)| *fingerprint).collect();
        let error = self.revoke_at_internal_ca(&fingerprints, reason, actor).await;
        let outcome = |(claimed, _)| Outcome { claimed, error: error.clone() };
        self.store_outcomes(claimed.into_iter().map(outcome).collect()).await
    }

    async fn revoke_at_internal_ca(
        &self,
        fingerprints: &[Fingerprint],
        reason: Reason,
        actor: &str,
    ) -> Option<IssuerError> {
        match self.inner.internal_ca.revoke(fingerprints, reason, actor).await {
            Ok(_) => None,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "revocation at the internal CA failed");
                Some(IssuerError::Unavailable { reason: error.to_string(), retry_after: None })
            }
        }
    }

    async fn revoke_at_issuer(
        &self,
        name: &str,
        jobs: Vec<JobRow>,
        versions: &HashMap<i64, ManagedVersion>,
    ) -> Vec<Outcome> {
        let issuer = match self.inner.issuers.issuer(name).await {
            Ok(issuer) => issuer,
            Err(error) => {
                let failed =
                    |job| Outcome { claimed: ClaimedRevocation::of(job), error: Some(error.clone()) };
                return jobs.iter().map(failed).collect();
            }
        };
        if issuer.kind() == IssuerKind::Internal {
            return self.revoke_internal(jobs, versions).await;
        }
        let one = |job: JobRow| {
            let issuer = Arc::clone(&issuer);
            async move {
                let known =
                    certificate(&job, versions).and_then(|known| Ok((known, Detail::of(&job)?.reason)));
                let error = match known {
                    Ok((certificate, reason)) => issuer.revoke(&certificate, reason).await.err(),
                    Err(error) => Some(error),
                };
                Outcome { claimed: ClaimedRevocation::of(&job), error }
            }
        };
        stream::iter(jobs.into_iter().map(one)).buffer_unordered(AT_ONCE).collect().await
    }

    /// Revokes certificates at the internal CA. Revocations with the same reason and actor share a call.
    async fn revoke_internal(
        &self,
        jobs: Vec<JobRow>,
        versions: &HashMap<i64, ManagedVersion>,
    ) -> Vec<Outcome> {
        let mut groups: BTreeMap<(Reason, String), Vec<JobRow>> = BTreeMap::new();
        let mut outcomes = Vec::new();
        for job in jobs {
            match Detail::of(&job) {
                Ok(detail) => {
                    groups.entry((detail.reason, job.requested_by.clone())).or_default().push(job);
                }
                Err(error) => {
                    outcomes.push(Outcome { claimed: ClaimedRevocation::of(&job), error: Some(error) });
                }
            }
        }
        for ((reason, actor), jobs) in groups {
            let fingerprints: Vec<Fingerprint> = jobs
                .iter()
                .filter_map(|job| versions.get(&job.version?))
                .map(|version| Fingerprint::from_bytes(version.fingerprint))
                .collect();
            let error = self.revoke_at_internal_ca(&fingerprints, reason, &actor).await;
            outcomes.extend(
                jobs.iter().map(|job| Outcome { claimed: ClaimedRevocation::of(job), error: error.clone() }),
            );
        }
        outcomes
    }
}

fn certificate(job: &JobRow, versions: &HashMap<i64, ManagedVersion>) -> Result<Certificate, IssuerError> {
    let unreadable = |reason: String| IssuerError::Misconfigured { reason };
    let version = job.version.and_then(|id| versions.get(&id));
    let leaf = version.and_then(|version| first_der(&version.chain));
    let leaf = leaf.ok_or_else(|| unreadable("cannot parse the stored certificate chain".to_owned()))?;
    Certificate::parse(&leaf).map_err(|error| unreadable(error.to_string()))
}

async fn finish(tx: &mut Tx, outcomes: &[Outcome], now_us: i64) -> Result<(), StoreError> {
    let mut ids: Vec<i64> = outcomes.iter().map(|one| one.claimed.certificate).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows: HashMap<i64, ManagedRow> =
        managed_by_ids(tx, ids.clone()).await?.into_iter().map(|row| (row.id, row)).collect();
    let mut open: HashMap<i64, Vec<JobRow>> = HashMap::new();
    for job in open_jobs_of(tx, ids).await? {
        open.entry(job.certificate).or_default().push(job);
    }
    // Ignores runs whose lease was lost: another process has taken them over.
    let jobs: HashMap<i64, JobRow> = open
        .values()
        .flatten()
        .filter(|job| job.state == JobState::Running)
        .map(|job| (job.id, job.clone()))
        .collect();
    let is_still_claimed =
        |one: &&Outcome| jobs.get(&one.claimed.job).is_some_and(|job| job.attempts == one.claimed.attempts);
    let mut ledger = Ledger::new(now_us, "system:revocation");
    let mut revoked: BTreeMap<Reason, Vec<i64>> = BTreeMap::new();
    let mut entries: HashMap<i64, Entry> = HashMap::new();
    for one in outcomes.iter().filter(is_still_claimed) {
        let Some(job) = jobs.get(&one.claimed.job).cloned() else { continue };
        let Some(row) = rows.get(&job.certificate) else { continue };
        match one.error.clone().map_or_else(|| Detail::of(&job), Err) {
            Err(error) => failed(&mut ledger, row, job, &error, now_us),
            Ok(detail) => {
                revoked.entry(detail.reason).or_default().extend(job.version);
                let entry = entries.entry(row.id).or_insert_with(|| Entry::new(row.clone()));
                if row.version == job.version && !entry.row.revoked {
                    let revocation_details = RevocationDetails {
                        reason: detail.reason,
                        replace: detail.replace,
                        by: &job.requested_by,
                        origin: RevocationOrigin::Job(id_of(&job).0),
                    };
                    handle_current_revoked(&mut ledger, entry, revocation_details, &open);
                }
                ledger.end(job, JobState::Done, None);
            }
        }
    }
    for entry in entries.into_values() {
        ledger.put(entry);
    }
    for (reason, versions) in revoked {
        revoke_versions(tx, &versions, now_us, reason).await?;
    }
    ledger.write(tx).await.map(drop)
}

fn failed(ledger: &mut Ledger, row: &ManagedRow, job: JobRow, error: &IssuerError, now_us: i64) {
    let pause = match error.retry() {
        Retry::Never => None,
        Retry::Backoff => Some(backoff(&job, row.life_us())),
        Retry::After(after) => Some(i64::try_from(after.as_micros()).unwrap_or(i64::MAX)),
    };
    let retry_at_us = pause.map(|pause| now_us.saturating_add(pause)).filter(|at| *at < job.deadline_at_us);
    let Some(at) = retry_at_us else {
        let (id, error, attempts) = (id_of(&job), error.to_string(), job.attempts);
        let details = json!({ "job": id, "error": error, "attempts": attempts });
        ledger.note(row, "certificate.revoke_failed", details);
        let failed = CertificateRevocationFailed {
            certificate: event_certificate(row),
            job: id.0,
            error: error.clone(),
            attempts,
        };
        ledger.announce(row, &Event::CertificateRevocationFailed(failed));
        ledger.end(job, JobState::Failed, Some(error));
        return;
    };
    let mut to = job.clone();
    to.state = JobState::Queued;
    to.next_attempt_at_us = at;
    to.last_error = Some(error.to_string());
    ledger.change(job, to);
}

/// Revocation of the current version.
struct RevocationDetails<'a> {
    reason: Reason,
    replace: bool,
    by: &'a str,
    origin: RevocationOrigin,
}

/// Handles the revocation of the current version: ends the planned run, and requests a new version if wanted.
fn handle_current_revoked(
    ledger: &mut Ledger,
    entry: &mut Entry,
    revocation_details: RevocationDetails<'_>,
    open: &HashMap<i64, Vec<JobRow>>,
) {
    entry.row.revoked = true;
    let revocation = Revocation {
        origin: revocation_details.origin,
        reason: revocation_details.reason.to_string(),
        requested_by: revocation_details.by.to_owned(),
    };
    // Archived or never issued: the version is marked as revoked, and the state does not change.
    let Ok(effects) = ledger.step(entry, Transition::Revoked(revocation)) else { return };
    let run = open_run(open, entry.row.id);
    let queued_run = run.filter(|run| run.state == JobState::Queued);
    if revocation_details.replace {
        match queued_run {
            Some(run) => start_immediately(ledger, &entry.row, run, "revoked", revocation_details.by),
            // A run in progress already issues a replacement with a new key.
            None if run.is_some() => {}
            None => {
                let now_us = ledger.at_us();
                ledger.queue(run_now(&entry.row, "revoked", revocation_details.by, now_us));
            }
        }
    } else if effects.contains(&Effect::Unschedule)
        && let Some(run) = queued_run
    {
        ledger.end(run.clone(), JobState::Cancelled, Some("the certificate was revoked".to_owned()));
    }
    if effects.contains(&Effect::EndRun) {
        entry.row.clear_undeployed();
        for run in open.get(&entry.row.id).into_iter().flatten() {
            if run.kind == JobKind::Deployment {
                ledger.end(run.clone(), JobState::Cancelled, Some("the certificate was revoked".to_owned()));
            }
        }
    }
}

/// Name of this consumer in the outbox.
const CONSUMER: &str = "lifecycle";
/// Revocation reasons after which the certificate is not replaced (RFC 5280 section 5.3.1).
const FINAL_REASONS: [Reason; 2] = [Reason::CessationOfOperation, Reason::PrivilegeWithdrawn];
/// Maximum events read in one step.
const EVENTS_MAX: i64 = 1_000;

impl Lifecycle {
    /// Processes revocations that were requested at the internal CA and not by a run (over ACME, by public key, or through the CA's
    /// own API). Marks each version as revoked. If the certificate is renewed automatically and the reason permits a replacement,
    /// requests a new version with a new key immediately. Returns the number of marked versions. Part of [`Lifecycle::run`].
    ///
    /// # Errors
    /// [`DataError`] of the database; the next call continues at the same event.
    #[crate::boxed]
    pub async fn follow_revocations(&self) -> Result<u64, DataError> {
        let store = &self.inner.store;
        let mut marked = 0;
        loop {
            let position = store.outbox_position(CONSUMER).await?;
            let events = store.outbox_after(position, EVENTS_MAX).await?;
            let Some(last) = events.last() else { return Ok(marked) };
            let to = last.position;
            let full = events.len() as i64 == EVENTS_MAX;
            let actions: BTreeSet<Uuid> =
                events.iter().filter_map(|row| action_of(&read_event(row)?)).collect();
            for action in actions {
                marked += self.follow(action).await?;
            }
            store.outbox_advance(CONSUMER, to).await?;
            if !full {
                if marked > 0 {
                    self.inner.wake.notify_one();
                }
                return Ok(marked);
            }
        }
    }

    async fn follow(&self, action: Uuid) -> Result<u64, DataError> {
        let now_us = self.now_us();
        let (mut after, mut marked) = (0, 0);
        loop {
            let (last, some) = attempt(&self.inner.store, "revocations_follow", move || {
                transaction(move |tx| async move { follow(tx, action, after, now_us).await }.boxed())
            })
            .await?;
            marked += some;
            match last {
                Some(last) => after = last,
                None => return Ok(marked),
            }
        }
    }
}

/// Returns the id of the revocation at the internal CA that an event reports.
fn action_of(event: &Event) -> Option<Uuid> {
    match event {
        Event::CertificatesRevoked(revoked)
        | Event::CertificateRevoked(CertificateRevoked::ByAuthority(revoked)) => Some(revoked.action),
        // Other events need no action: the version of `CertificateRevoked::Version` is already marked as revoked.
        _ => None,
    }
}

/// Processes a batch of revoked versions in one transaction. Returns the start of the next batch, if any, and the number of marked
/// versions.
async fn follow(
    tx: &mut Tx,
    action: Uuid,
    after: i64,
    now_us: i64,
) -> Result<(Option<i64>, u64), StoreError> {
    let revoked = versions_revoked_by(tx, action, after, CHUNK as i64).await?;
    let next = revoked.last().filter(|_| revoked.len() == CHUNK).map(|one| one.version);
    let mut ids: Vec<i64> = revoked.iter().map(|one| one.certificate).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows: HashMap<i64, ManagedRow> =
        managed_by_ids(tx, ids.clone()).await?.into_iter().map(|row| (row.id, row)).collect();
    let mut open: HashMap<i64, Vec<JobRow>> = HashMap::new();
    for job in open_jobs_of(tx, ids).await? {
        open.entry(job.certificate).or_default().push(job);
    }
    let mut ledger = Ledger::new(now_us, "system:revocation");
    let mut by_reason: BTreeMap<Reason, Vec<i64>> = BTreeMap::new();
    let mut marked = 0;
    for one in revoked {
        // A run of the lifecycle revoked this version. The run itself marks the version, and decides about the replacement.
        let ours = open.get(&one.certificate).into_iter().flatten();
        if ours.filter(|job| job.kind == JobKind::Revocation).any(|job| job.version == Some(one.version)) {
            continue;
        }
        marked += 1;
        by_reason.entry(one.reason).or_default().push(one.version);
        let Some(row) = rows.get(&one.certificate).filter(|row| row.version == Some(one.version)) else {
            continue;
        };
        let mut entry = Entry::new(row.clone());
        let replace =
            !FINAL_REASONS.contains(&one.reason) && options_of(row).is_ok_and(|options| options.auto_renew);
        let revocation_details = RevocationDetails {
            reason: one.reason,
            replace,
            by: &one.actor,
            origin: RevocationOrigin::Action(action),
        };
        handle_current_revoked(&mut ledger, &mut entry, revocation_details, &open);
        ledger.put(entry);
    }
    for (reason, versions) in by_reason {
        revoke_versions(tx, &versions, now_us, reason).await?;
    }
    ledger.write(tx).await?;
    Ok((next, marked))
}
