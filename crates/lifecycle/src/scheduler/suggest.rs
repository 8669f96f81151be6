//! Renewal windows suggested by issuers (ARI, RFC 9773), requested at the interval that the issuer gives.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use issuers::Window;
use store::time_limits;
use store::{StoreError, Tx};
use tracing::debug;
use x509::Certificate;

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::job::JobState;
use crate::ledger::{Ledger, attempt, transaction};
use crate::managed::{ManagedCertificate, first_der};
use crate::renewal::{Life, SuggestedRenewalWindow, due};
use crate::runs::open_run;
use crate::tables::jobs::{JobRow, open_jobs_of};
use crate::tables::managed::{
    ManagedRow, ManagedSuggestion, ManagedVersion, drop_suggestions, due_suggestions, managed_by_ids,
    set_suggestions, versions_of,
};

/// Maximum suggestions requested in one step.
const DUE_MAX: i64 = 500;
/// Maximum concurrent requests to issuers per step.
const AT_ONCE: usize = 16;

#[derive(Clone)]
enum SuggestionResult {
    Window(Window),
    /// The issuer makes no suggestions for this certificate.
    None,
    /// The issuer did not respond. Try again later.
    Later,
}

impl Lifecycle {
    /// Requests the suggestions that are due, and moves planned runs into the suggested windows. Returns the number of requests.
    /// Part of [`Lifecycle::run`].
    ///
    /// # Errors
    /// [`DataError`] of the database. An issuer that does not respond is not an error.
    #[crate::boxed]
    pub async fn request_suggestions(&self) -> Result<u64, DataError> {
        let now_us = self.now_us();
        let read = transaction(move |tx| {
            async move {
                let due = due_suggestions(tx, now_us, DUE_MAX).await?;
                let rows = managed_by_ids(tx, due.iter().map(|one| one.certificate).collect()).await?;
                let versions = versions_of(tx, rows.iter().filter_map(|row| row.version).collect()).await?;
                Ok((due, rows, versions))
            }
            .boxed()
        });
        let (due, rows, versions) = self.inner.store.write("suggestions_due", read).await?;
        if due.is_empty() {
            return Ok(0);
        }
        let rows: HashMap<i64, ManagedRow> = rows.into_iter().map(|row| (row.id, row)).collect();
        let request = |one: ManagedSuggestion| {
            let row = rows.get(&one.certificate);
            let version = row.and_then(|row| versions.iter().find(|version| Some(version.id) == row.version));
            async move { (one, self.request_suggestion(version).await) }
        };
        let answers: Vec<(ManagedSuggestion, SuggestionResult)> =
            stream::iter(due.into_iter().map(request)).buffer_unordered(AT_ONCE).collect().await;
        let requested = answers.len() as u64;
        let mut facts = HashMap::new();
        for row in rows.values() {
            if !facts.contains_key(&row.profile) {
                facts.insert(row.profile.clone(), self.profile_facts(&row.profile).await?);
            }
        }
        let (set, answers, facts) = (self.policy_set().await?, Arc::new(answers), Arc::new(facts));
        attempt(&self.inner.store, "suggestions_store", move || {
            let (set, answers, facts) = (Arc::clone(&set), Arc::clone(&answers), Arc::clone(&facts));
            transaction(move |tx| {
                async move {
                    let rule = |certificate: &ManagedCertificate| {
                        let facts = facts.get(&certificate.profile).copied().flatten();
                        set.renewal_rule(certificate, facts.map(|facts| facts.renew_at))
                    };
                    store_suggestions(tx, &answers, now_us, rule).await
                }
                .boxed()
            })
        })
        .await?;
        Ok(requested)
    }

    async fn request_suggestion(&self, version: Option<&ManagedVersion>) -> SuggestionResult {
        let Some(version) = version.filter(|version| version.revoked_at_us.is_none()) else {
            return SuggestionResult::None;
        };
        let leaf = first_der(&version.chain).and_then(|leaf| Certificate::parse(&leaf).ok());
        let Some(leaf) = leaf else { return SuggestionResult::None };
        let requested = async {
            let issuer = self.inner.issuers.issuer(&version.issuer).await?;
            issuer.renewal_window(&leaf).await
        };
        match requested.await {
            Ok(Some(window)) => SuggestionResult::Window(window),
            Ok(None) => SuggestionResult::None,
            // The run keeps its planned time, because a failed request must not prevent a renewal.
            Err(error) => {
                debug!(issuer = version.issuer, %error, "cannot get a renewal suggestion from the issuer");
                SuggestionResult::Later
            }
        }
    }
}

async fn store_suggestions(
    tx: &mut Tx,
    answers: &[(ManagedSuggestion, SuggestionResult)],
    now_us: i64,
    rule: impl Fn(&ManagedCertificate) -> crate::renewal::RenewalRule,
) -> Result<(), StoreError> {
    let ids: Vec<i64> = answers.iter().map(|(one, _)| one.certificate).collect();
    let rows: HashMap<i64, ManagedRow> =
        managed_by_ids(tx, ids.clone()).await?.into_iter().map(|row| (row.id, row)).collect();
    let mut open: HashMap<i64, Vec<JobRow>> = HashMap::new();
    for job in open_jobs_of(tx, ids).await? {
        open.entry(job.certificate).or_default().push(job);
    }
    let mut ledger = Ledger::new(now_us, "system:renewal");
    let (mut updated, mut dropped) = (Vec::new(), Vec::new());
    for (before, answer) in answers {
        let mut next = before.clone();
        match answer {
            SuggestionResult::None => {
                dropped.push(before.certificate);
                continue;
            }
            SuggestionResult::Later => {
                let life_us =
                    rows.get(&before.certificate).map_or(time_limits::LIFE_UNKNOWN_US, ManagedRow::life_us);
                next.check_at_us = now_us + time_limits::suggestion_retry_us(life_us);
            }
            SuggestionResult::Window(window) => {
                next.check_at_us = now_us + i64::from(window.retry_after_seconds) * 1_000_000;
                next.window_us = Some((window.start.0 * 1_000_000, window.end.0 * 1_000_000));
                next.explanation.clone_from(&window.explanation);
            }
        }
        if next.window_us != before.window_us
            && let Some((start_us, end_us)) = next.window_us
            && let Some(row) = rows.get(&before.certificate)
            && let Some(run) = open_run(&open, row.id)
            && let Ok(certificate) = ManagedCertificate::from_row(row)
        {
            move_run(&mut ledger, row, run, &rule(&certificate), SuggestedRenewalWindow { start_us, end_us });
        }
        updated.push(next);
    }
    set_suggestions(tx, &updated).await?;
    drop_suggestions(tx, dropped).await?;
    ledger.write(tx).await.map(drop)
}

/// Moves a planned run into the issuer's window. A run that was already attempted is not moved.
fn move_run(
    ledger: &mut Ledger,
    row: &ManagedRow,
    run: &JobRow,
    rule: &crate::renewal::RenewalRule,
    suggested: SuggestedRenewalWindow,
) {
    let untouched = run.state == JobState::Queued && run.attempts == 0 && run.reason == "planned";
    let life = Life { not_before_us: row.not_before_us, not_after_us: row.not_after_us };
    let Some(due) = due(row.uuid, life, rule, Some(suggested)).filter(|_| untouched) else { return };
    let mut to = run.clone();
    to.next_attempt_at_us = due.at_us;
    ledger.change(run.clone(), to);
    let details = serde_json::json!({ "renew_at_us": due.at_us, "because": due.because });
    ledger.note(row, "certificate.reschedule", details);
}
