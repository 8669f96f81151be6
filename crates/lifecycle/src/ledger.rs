//! One transaction over certificates: their moves, with the counts, audit rows and events that belong to them.

use std::collections::BTreeMap;
use std::time::Duration;

use events::Event;
use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use store::series::{Series, SeriesCounts, count_series};
use store::{AuditEvent, NewEvent, Store, StoreError, Tx, new_event};
use uuid::Uuid;

use crate::job::JobState;
use crate::managed::{INTERNAL_ISSUER, standing};
use crate::state::{Current, Effect, Illegal, Input, State, step};
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
use crate::transition::{Transition, described};

/// How often a transaction that lost against another is tried again.
const ATTEMPTS_MAX: u32 = 12;
/// The first pause between, doubled up to 64 times this.
const PAUSE: Duration = Duration::from_millis(3);

/// What a transaction will write. Everything is decided here first and written by [`Ledger::write`] in a constant number
/// of statements.
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
    /// Certificate and actor.
    plan_changes: Vec<(i64, String)>,
    plans_issued: Vec<i64>,
    totals: BTreeMap<ManagedTotal, i64>,
    groups: GroupChanges,
    series: SeriesCounts,
    audit: Vec<AuditEvent>,
    events: Vec<NewEvent>,
}

/// A certificate in a transaction.
pub(crate) struct Entry {
    was: ManagedRow,
    /// As it is to be.
    pub(crate) row: ManagedRow,
}

impl Entry {
    pub(crate) fn new(row: ManagedRow) -> Self {
        Self { was: row.clone(), row }
    }

    /// Whether anything is to be written.
    pub(crate) fn is_changed(&self) -> bool {
        self.was != self.row
    }

    pub(crate) fn state(&self) -> State {
        self.row.state
    }

    pub(crate) fn current(&self) -> Current {
        standing(self.row.fingerprint.is_some(), self.row.revoked)
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
        }
    }

    pub(crate) fn at_us(&self) -> i64 {
        self.at_us
    }

    pub(crate) fn actor(&self) -> &str {
        &self.actor
    }

    /// Moves a certificate; the transition's audit row and event are written with it. The effects that it returns are the
    /// caller's to carry out.
    pub(crate) fn step(&mut self, entry: &mut Entry, transition: Transition) -> Result<Vec<Effect>, Illegal> {
        let (state, input) = (entry.row.state, transition.input());
        let (next, effects) = step(state, input)?;
        entry.row.state = next;
        self.count_transition(entry, &transition);
        let mut details = transition.details();
        if let Some(event) = transition.event(described(&entry.row)) {
            self.announce(&entry.row, &event);
        }
        if let Json::Object(fields) = &mut details {
            fields.insert("from".to_owned(), state.name().into());
            fields.insert("to".to_owned(), next.name().into());
        }
        self.note(&entry.row, action(input), details);
        Ok(effects)
    }

    /// Counts what happens to a certificate in the series of the hour.
    fn count_transition(&mut self, entry: &Entry, transition: &Transition) {
        let team = entry.row.team.as_deref();
        match transition {
            Transition::Issued { .. } => {
                self.series.add(Series::Issued, team, 1);
                self.series.add(Series::Renewed, team, u64::from(entry.was.fingerprint.is_some()));
            }
            Transition::Deployed(_) => self.series.add(Series::Deployed, team, 1),
            Transition::RunFailed(_) => self.series.add(Series::Failed, team, 1),
            // The own CA counts what it revokes.
            Transition::Revoked(_) if entry.row.issuer != INTERNAL_ISSUER => {
                self.series.add(Series::Revoked, team, 1);
            }
            _ => {}
        }
    }

    /// An audit row about a certificate.
    pub(crate) fn note(&mut self, row: &ManagedRow, action: &'static str, details: Json) {
        self.note_as(None, row, action, details);
    }

    /// An audit row by somebody else than the transaction's actor.
    pub(crate) fn note_as(
        &mut self,
        actor: Option<&str>,
        row: &ManagedRow,
        action: &'static str,
        details: Json,
    ) {
        self.audit.push(AuditEvent {
            at_us: self.at_us,
            actor: actor.unwrap_or(&self.actor).to_owned(),
            action,
            resource: format!("certificate/{}", row.uuid),
            details,
        });
    }

    /// An audit row about anything else.
    pub(crate) fn note_on(&mut self, resource: String, action: &'static str, details: Json) {
        let (at_us, actor) = (self.at_us, self.actor.clone());
        self.audit.push(AuditEvent { at_us, actor, action, resource, details });
    }

    /// An event about a certificate.
    pub(crate) fn announce(&mut self, row: &ManagedRow, event: &Event) {
        self.events.push(new_event(self.at_us, format!("certificate/{}", row.uuid), event));
    }

    /// Takes a certificate as it is to be; each once.
    pub(crate) fn put(&mut self, mut entry: Entry) {
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

    /// Counts certificates that are new.
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

    /// Queues a run for anyone who writes this: see [`Ledger::write_claiming`].
    pub(crate) fn claim(&mut self, job: NewJob) {
        self.claimed.push(job);
    }

    /// Voids what is open or given for a run.
    pub(crate) fn void(&mut self, job: i64) {
        self.void.push(job);
    }

    /// Notes who changed the plan of a certificate: they cannot approve it. What the system does by itself is left out.
    pub(crate) fn plan_changed(&mut self, certificate: i64, actor: &str) {
        let change = (certificate, actor.to_owned());
        if !actor.starts_with("system:") && !self.plan_changes.contains(&change) {
            self.plan_changes.push(change);
        }
    }

    /// The plan of a certificate is carried out: who changed it is forgotten.
    pub(crate) fn plan_issued(&mut self, certificate: i64) {
        self.plans_issued.push(certificate);
    }

    pub(crate) fn ask(&mut self, approval: ApprovalRow) {
        self.approvals.push(approval);
    }

    /// Writes it all. Whatever was read meanwhile by another writer makes it [`StoreError::Busy`]: read again.
    pub(crate) async fn write(self, tx: &mut Tx) -> Result<Vec<QueuedJob>, StoreError> {
        debug_assert!(self.claimed.is_empty(), "runs are claimed for nobody");
        Ok(self.write_claiming(tx, Uuid::nil(), 0).await?.0)
    }

    /// [`Ledger::write`], with the runs of [`Ledger::claim`] in the hands of `holder` until `until_us`: those queued, and
    /// those claimed.
    ///
    /// On the heap: its callers are many, and each would have a copy of its code.
    pub(crate) fn write_claiming(
        self,
        tx: &mut Tx,
        holder: Uuid,
        until_us: i64,
    ) -> BoxFuture<'_, Result<(Vec<QueuedJob>, Vec<QueuedJob>), StoreError>> {
        Box::pin(async move {
            if !self.changes.is_empty() {
                let changed = change_jobs(tx, &self.changes).await?.len();
                if changed != self.changes.len() {
                    return Err(lost("a run"));
                }
            }
            let (moved, changed): (Vec<_>, Vec<_>) =
                self.rows.into_iter().partition(|(was, row)| differs_in_its_move_only(was, row));
            let rows = |pairs: Vec<(ManagedRow, ManagedRow)>| {
                pairs.into_iter().map(|(_, row)| row).collect::<Vec<_>>()
            };
            let (moved, changed) = (rows(moved), rows(changed));
            if move_managed(tx, &moved).await? != moved.len()
                || update_managed(tx, &changed).await? != changed.len()
            {
                return Err(lost("a certificate"));
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
            Ok((queued, claimed))
        })
    }
}

/// Whether nothing changed but what a move changes while the version stays.
fn differs_in_its_move_only(was: &ManagedRow, row: &ManagedRow) -> bool {
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

/// The error of a transaction that was overtaken.
pub(crate) fn lost(what: &'static str) -> StoreError {
    StoreError::Busy { source: format!("{what} was changed meanwhile").into() }
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
        Input::RedeployAsked => "certificate.redeploy",
        Input::RunFailed => "certificate.fail",
        Input::Cancelled(_) => "certificate.cancel",
        Input::Revoked => "certificate.revoke",
        Input::Archived => "certificate.archive",
        Input::Restored(_) => "certificate.restore",
    }
}

/// Runs a transaction; once more, and again, while it loses against others.
///
/// `work` makes the transaction's work again each time.
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

/// Names the type of a transaction's work, which the compiler cannot guess from a closure alone.
pub(crate) fn on<T, W>(work: W) -> W
where
    W: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
{
    work
}
