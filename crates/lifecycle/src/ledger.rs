//! A transaction on certificates: their state transitions, with the counters, audit rows and events that belong to them.

use std::collections::BTreeMap;
use std::time::Duration;

use events::Event;
use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use store::series::{Series, SeriesCounts, count_series};
use store::{AuditEvent, NewEvent, Store, StoreError, Tx, new_event};
use uuid::Uuid;

use crate::job::JobState;
use crate::managed::{INTERNAL_ISSUER, version_status};
use crate::spans::PendingSpans;
use crate::state::{Current, Effect, IllegalTransition, Input, State, step};
use crate::tables::approvals::{
    ApprovalRow, clear_plan_changes, insert_approvals, note_plan_changes, void_approvals, withdraw_approvals,
};
use crate::tables::jobs::{
    JobChange, JobRow, NewJob, QueuedJob, change_jobs, insert_claimed_jobs, insert_jobs,
};
use crate::tables::managed::{
    GroupChanges, ManagedRow, ManagedTotal, adjust_managed_groups, adjust_managed_totals, move_managed,
    update_managed,
};
use crate::transition::{Transition, event_certificate};

/// Maximum attempts of a transaction that conflicts with others.
const ATTEMPTS_MAX: u32 = 12;
/// First pause between attempts. The pause doubles after each attempt, up to 64 times this value.
const PAUSE: Duration = Duration::from_millis(3);

/// Pending writes of a transaction. All decisions are collected here first. [`Ledger::write`] then writes them in a constant
/// number of statements.
pub(crate) struct Ledger {
    at_us: i64,
    actor: String,
    rows: Vec<(ManagedRow, ManagedRow)>,
    changes: Vec<JobChange>,
    jobs: Vec<NewJob>,
    claimed: Vec<NewJob>,
    approvals: Vec<ApprovalRow>,
    withdrawn: Vec<i64>,
    void: Vec<i64>,
    /// Changes of plans: row id of the certificate, and the actor that changed its plan.
    plan_changes: Vec<(i64, String)>,
    plans_issued: Vec<i64>,
    totals: BTreeMap<ManagedTotal, i64>,
    groups: GroupChanges,
    series: SeriesCounts,
    audit: Vec<AuditEvent>,
    events: Vec<NewEvent>,
    spans: PendingSpans,
}

/// A certificate within a transaction.
pub(crate) struct Entry {
    was: ManagedRow,
    /// The row to be written.
    pub(crate) row: ManagedRow,
}

impl Entry {
    pub(crate) fn new(row: ManagedRow) -> Self {
        Self { was: row.clone(), row }
    }

    /// Returns whether anything is to be written.
    pub(crate) fn is_changed(&self) -> bool {
        self.was != self.row
    }

    pub(crate) fn state(&self) -> State {
        self.row.state
    }

    pub(crate) fn current(&self) -> Current {
        version_status(self.row.fingerprint.is_some(), self.row.revoked)
    }
}

impl Ledger {
    pub(crate) fn new(at_us: i64, actor: &str) -> Self {
        Self {
            at_us,
            actor: actor.to_owned(),
            rows: Vec::new(),
            changes: Vec::new(),
            jobs: Vec::new(),
            claimed: Vec::new(),
            approvals: Vec::new(),
            withdrawn: Vec::new(),
            void: Vec::new(),
            plan_changes: Vec::new(),
            plans_issued: Vec::new(),
            totals: BTreeMap::new(),
            groups: GroupChanges::default(),
            series: SeriesCounts::default(),
            audit: Vec::new(),
            events: Vec::new(),
            spans: PendingSpans::default(),
        }
    }

    pub(crate) fn at_us(&self) -> i64 {
        self.at_us
    }

    pub(crate) fn actor(&self) -> &str {
        &self.actor
    }

    /// Applies a state transition to a certificate, with its audit row and event. The caller must carry out the returned effects.
    pub(crate) fn step(
        &mut self,
        entry: &mut Entry,
        transition: Transition,
    ) -> Result<Vec<Effect>, IllegalTransition> {
        let (state, input) = (entry.row.state, transition.input());
        let (next, effects) = step(state, input)?;
        entry.row.state = next;
        self.count_transition(entry, &transition);
        let mut details = transition.details();
        if let Some(event) = transition.event(event_certificate(&entry.row)) {
            self.announce(&entry.row, &event);
        }
        if let Json::Object(fields) = &mut details {
            fields.insert("from".to_owned(), state.name().into());
            fields.insert("to".to_owned(), next.name().into());
        }
        self.note(&entry.row, action(input), details);
        Ok(effects)
    }

    /// Counts a transition in the hourly statistics.
    fn count_transition(&mut self, entry: &Entry, transition: &Transition) {
        let team = entry.row.team.as_deref();
        match transition {
            Transition::Issued { .. } => {
                self.series.add(Series::Issued, team, 1);
                self.series.add(Series::Renewed, team, u64::from(entry.was.fingerprint.is_some()));
            }
            Transition::Deployed(_) => self.series.add(Series::Deployed, team, 1),
            Transition::RunFailed(_) => self.series.add(Series::Failed, team, 1),
            // The internal CA counts its own revocations.
            Transition::Revoked(_) if entry.row.issuer != INTERNAL_ISSUER => {
                self.series.add(Series::Revoked, team, 1);
            }
            _ => {}
        }
    }

    /// Adds an audit row about a certificate.
    pub(crate) fn note(&mut self, row: &ManagedRow, action: &'static str, details: Json) {
        self.audit_as(None, row, action, details);
    }

    /// Adds an audit row with another actor than the transaction's.
    pub(crate) fn audit_as(
        &mut self,
        actor: Option<&str>,
        row: &ManagedRow,
        action: &'static str,
        details: Json,
    ) {
        self.spans.add_subject(row);
        self.audit.push(AuditEvent {
            at_us: self.at_us,
            actor: actor.unwrap_or(&self.actor).to_owned(),
            action,
            resource: format!("certificate/{}", row.uuid),
            details,
        });
    }

    /// Adds an audit row about any other resource.
    pub(crate) fn audit_resource(&mut self, resource: String, action: &'static str, details: Json) {
        let (at_us, actor) = (self.at_us, self.actor.clone());
        self.audit.push(AuditEvent { at_us, actor, action, resource, details });
    }

    /// Adds an event about a certificate.
    pub(crate) fn announce(&mut self, row: &ManagedRow, event: &Event) {
        self.spans.add(row, event, self.at_us);
        self.events.push(new_event(self.at_us, format!("certificate/{}", row.uuid), event));
    }

    /// Adds the new row of a certificate. The caller must call this method once for each certificate.
    pub(crate) fn put(&mut self, mut entry: Entry) {
        self.spans.add_subject(&entry.row);
        if entry.was == entry.row {
            return;
        }
        entry.row.updated_at_us = self.at_us;
        self.count(&entry.was, -1);
        self.count(&entry.row, 1);
        self.rows.push((entry.was, entry.row));
    }

    fn count(&mut self, row: &ManagedRow, by: i64) {
        self.groups.count(row, by);
        *self.totals.entry(ManagedTotal::State(row.state)).or_default() += by;
        if row.state != State::Archived
            && let Some(day) = ManagedTotal::expiry(row.ends_at_us())
        {
            *self.totals.entry(day).or_default() += by;
        }
    }

    /// Adds a new certificate to the counters.
    pub(crate) fn entered(&mut self, row: &ManagedRow) {
        self.count(row, 1);
    }

    pub(crate) fn change(&mut self, from: JobRow, to: JobRow) {
        self.changes.push(JobChange { from, to });
    }

    /// Ends an open run.
    pub(crate) fn end(&mut self, job: JobRow, state: JobState, error: Option<String>) {
        if job.state == JobState::AwaitingApproval {
            self.withdrawn.push(job.id);
        }
        let mut to = job.clone();
        to.state = state;
        to.finished_at_us = Some(self.at_us);
        to.last_error = error.or(to.last_error);
        self.change(job, to);
    }

    pub(crate) fn queue(&mut self, job: NewJob) {
        self.jobs.push(job);
    }

    /// Queues a run that the caller of [`Ledger::write_and_claim`] claims in the same transaction.
    pub(crate) fn claim(&mut self, job: NewJob) {
        self.claimed.push(job);
    }

    /// Voids the open or approved approval of a run.
    pub(crate) fn void(&mut self, job: i64) {
        self.void.push(job);
    }

    /// Records that the actor changed the plan of a certificate. This actor cannot approve the plan. System actors are not
    /// recorded.
    pub(crate) fn plan_changed(&mut self, certificate: i64, actor: &str) {
        let change = (certificate, actor.to_owned());
        if !actor.starts_with("system:") && !self.plan_changes.contains(&change) {
            self.plan_changes.push(change);
        }
    }

    /// Deletes the record of actors that changed the plan, because the plan was carried out.
    pub(crate) fn mark_plan_issued(&mut self, certificate: i64) {
        self.plans_issued.push(certificate);
    }

    pub(crate) fn request_approval(&mut self, approval: ApprovalRow) {
        self.approvals.push(approval);
    }

    /// Writes all pending changes. Fails with [`StoreError::Busy`] if another transaction changed the same data; the caller must
    /// then read the data again.
    pub(crate) async fn write(self, tx: &mut Tx) -> Result<Vec<QueuedJob>, StoreError> {
        debug_assert!(self.claimed.is_empty(), "runs are claimed for nobody");
        Ok(self.write_and_claim(tx, Uuid::nil(), 0).await?.0)
    }

    /// Like [`Ledger::write`]. Also claims the runs of [`Ledger::claim`] for `holder`: their leases end at `until_us`. Returns the
    /// queued runs and the claimed runs.
    ///
    /// Returns a boxed future, because each of its many callers would otherwise contain a copy of the code.
    pub(crate) fn write_and_claim(
        self,
        tx: &mut Tx,
        holder: Uuid,
        until_us: i64,
    ) -> BoxFuture<'_, Result<(Vec<QueuedJob>, Vec<QueuedJob>), StoreError>> {
        Box::pin(async move {
            if !self.changes.is_empty() {
                let changed = change_jobs(tx, &self.changes).await?.len();
                if changed != self.changes.len() {
                    return Err(conflict_error("a run"));
                }
            }
            let (moved, changed): (Vec<_>, Vec<_>) =
                self.rows.into_iter().partition(|(was, row)| is_transition_only_change(was, row));
            let rows = |pairs: Vec<(ManagedRow, ManagedRow)>| {
                pairs.into_iter().map(|(_, row)| row).collect::<Vec<_>>()
            };
            let (moved, changed) = (rows(moved), rows(changed));
            if move_managed(tx, &moved).await? != moved.len()
                || update_managed(tx, &changed).await? != changed.len()
            {
                return Err(conflict_error("a certificate"));
            }
            if !self.void.is_empty() {
                void_approvals(tx, self.void, self.at_us).await?;
            }
            withdraw_approvals(tx, self.withdrawn, self.at_us).await?;
            insert_approvals(tx, &self.approvals).await?;
            if !self.plans_issued.is_empty() {
                clear_plan_changes(tx, self.plans_issued).await?;
            }
            if !self.plan_changes.is_empty() {
                note_plan_changes(tx, &self.plan_changes, self.at_us).await?;
            }
            let queued = insert_jobs(tx, &self.jobs).await?;
            let claimed = insert_claimed_jobs(tx, &self.claimed, holder, until_us).await?;
            adjust_managed_totals(tx, &self.totals).await?;
            adjust_managed_groups(tx, &self.groups).await?;
            count_series(tx, &self.series, self.at_us).await?;
            store::audit(tx, self.audit).await?;
            store::emit(tx, self.events).await?;
            self.spans.emit(&self.changes);
            Ok((queued, claimed))
        })
    }
}

/// Returns whether the rows differ only in state, revocation, failures, last error and time of change.
fn is_transition_only_change(was: &ManagedRow, row: &ManagedRow) -> bool {
    let moved = ManagedRow {
        state: row.state,
        revoked: row.revoked,
        failures: row.failures,
        last_error: row.last_error.clone(),
        updated_at_us: row.updated_at_us,
        ..was.clone()
    };
    moved == *row
}

/// Returns the error of a transaction whose data was changed by a concurrent transaction.
pub(crate) fn conflict_error(what: &'static str) -> StoreError {
    StoreError::Busy { source: format!("{what} was changed by another request").into() }
}

fn action(input: Input) -> &'static str {
    match input {
        Input::ApprovalNeeded => "certificate.approval_request",
        Input::Approved(_) => "certificate.approve",
        Input::Rejected(_) => "certificate.reject",
        Input::CsrNeeded => "certificate.csr_request",
        Input::Started => "certificate.start",
        Input::Issued { .. } => "certificate.issue",
        Input::Deployed => "certificate.deploy",
        Input::RedeployRequested => "certificate.redeploy",
        Input::RunFailed => "certificate.fail",
        Input::Cancelled(_) => "certificate.cancel",
        Input::Revoked => "certificate.revoke",
        Input::Archived => "certificate.archive",
        Input::Restored(_) => "certificate.restore",
    }
}

/// Runs a transaction, and retries it while it conflicts with others.
///
/// `work` creates the closure of each attempt.
pub(crate) async fn attempt<T: Send + 'static, W>(
    store: &Store,
    name: &'static str,
    mut work: impl FnMut() -> W,
) -> Result<T, StoreError>
where
    W: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
{
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS_MAX {
        match store.write(name, work()).await {
            Err(StoreError::Busy { .. }) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE * 64);
            }
            done => return done,
        }
    }
    store.write(name, work()).await
}

/// Helps the compiler to infer the closure type of a transaction. Returns `work` unchanged.
pub(crate) fn transaction<T, W>(work: W) -> W
where
    W: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
{
    work
}
