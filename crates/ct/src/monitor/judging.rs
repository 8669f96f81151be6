//! Work that one node does for the cluster: judges issuances, reports lagging sources, deletes old rows.

use std::collections::HashMap;
use std::time::Duration;

use events::{CtIssuance, CtIssuanceExpected, CtLag, CtLagEnded, Event};
use futures_util::FutureExt;
use store::{Cursor, NewEvent, StoreError, emit, new_event};
use telemetry::chain;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Monitor, in_us, log_subject, service_subject};
use crate::issuance::{Unasked, Verdict};
use crate::ledger::{Judged, judge_issuances};
use crate::tables;
use crate::tables::{CT_JUDGED_MAX, CtIssuanceRow, CtVerdict};

/// Interval between rounds.
const PERIOD: Duration = Duration::from_secs(5);
/// Interval between rounds while no domain is watched.
const IDLE_PERIOD: Duration = Duration::from_secs(60);
/// Duration of the lease of the node that judges: twelve rounds.
const LEASE: Duration = Duration::from_secs(60);
/// Rounds between two checks for lagging sources: a minute.
const BEHIND_EVERY: u64 = 12;
/// Rounds between two reviews of unexpected issuances: ten minutes.
const REVIEW_EVERY: u64 = 120;
/// Rounds between two clean-ups: an hour.
const TRIM_EVERY: u64 = 720;
/// Time for which an unexpected issuance is judged again: longer than the interval between scans.
const REVIEW_FOR: Duration = Duration::from_secs(30 * 86_400);
/// Time for which issuances are stored after expiry. The renewal of a 90-day certificate is issued well before that.
const RETENTION_AFTER_EXPIRY: Duration = Duration::from_secs(90 * 86_400);
/// Maximum rows deleted in one transaction.
const TRIM_ROWS_MAX: usize = 1_000;
/// Maximum transactions of one clean-up.
const TRIM_TRANSACTIONS_MAX: usize = 100;
/// Maximum pages of one round, 256 issuances each. The next round continues.
const PAGES: usize = 64;
/// Maximum names of an issuance in an event.
const NAMES_LISTED: usize = 10;
/// Name of the cluster-wide lease for this work.
const LEASE_NAME: &str = "ct-judge";

/// Whether each source was lagging at the last check, by subject. A restarted process reports again; repeated alerts with the same
/// key are counted but not sent again.
type BehindBySubject = HashMap<String, bool>;

impl Monitor {
    /// Judges issuances and reports lagging sources until `stop`. Only one node of a cluster runs it at a time.
    pub(super) async fn judge(&self, stop: &CancellationToken) {
        let (node, mut seen, mut rounds) = (Uuid::now_v7(), BehindBySubject::new(), 0_u64);
        loop {
            let (woken, now_us) = (self.0.wake.notified(), self.0.clock.now_us());
            match self.0.store.lease(LEASE_NAME, node, now_us, in_us(LEASE)).await {
                Ok(true) => {
                    if let Err(error) = self.round(&mut seen, rounds).await {
                        tracing::warn!(error = chain(&error), "CT issuances could not be evaluated");
                    }
                    rounds += 1;
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    "the lease to evaluate CT issuances was not acquired: \
                 the database is unreachable"
                ),
            }
            let (domains, ..) = self.0.watched.read().stamp;
            tokio::select! {
                () = stop.cancelled() => break,
                () = woken => {}
                () = tokio::time::sleep(if domains == 0 { IDLE_PERIOD } else { PERIOD }) => {}
            }
        }
        let released = self.0.store.release(LEASE_NAME, node);
        if !matches!(tokio::time::timeout(PERIOD, released).await, Ok(Ok(()))) {
            tracing::warn!(
                "the lease to evaluate CT issuances could not be released; the lease expires within a minute"
            );
        }
    }

    /// Runs one round like a newly started node, for tests.
    ///
    /// # Errors
    /// Database errors.
    #[doc(hidden)]
    #[crate::boxed]
    pub async fn run_single_round(&self) -> Result<(), StoreError> {
        self.round(&mut BehindBySubject::new(), 0).await
    }

    async fn round(&self, seen: &mut BehindBySubject, rounds: u64) -> Result<(), StoreError> {
        let now_us = self.0.clock.now_us();
        let before = now_us.saturating_sub(in_us(self.0.options.grace));
        self.judge_range(CtVerdict::Pending, 0, before).await?;
        if rounds.is_multiple_of(REVIEW_EVERY) {
            self.judge_range(CtVerdict::Unasked, now_us.saturating_sub(in_us(REVIEW_FOR)), before).await?;
        }
        if rounds.is_multiple_of(BEHIND_EVERY) {
            self.report_lag(seen).await?;
        }
        if rounds % TRIM_EVERY == 1 {
            self.trim(now_us.saturating_sub(in_us(RETENTION_AFTER_EXPIRY))).await?;
        }
        Ok(())
    }

    /// Judges issuances. Verdicts and their events are stored in one transaction per page.
    async fn judge_range(&self, verdict: CtVerdict, from_us: i64, to_us: i64) -> Result<(), StoreError> {
        let watched = self.watched().await?;
        let mut after: Option<Cursor> = None;
        for _ in 0..PAGES {
            let page = tables::Ct::of(&self.0.store)
                .judgeable_issuances(verdict, from_us..=to_us, after.as_ref(), CT_JUDGED_MAX)
                .await?;
            if page.rows.is_empty() {
                return Ok(());
            }
            let (rules, now_us) = (std::sync::Arc::clone(&watched), self.0.clock.now_us());
            let judged = self.0.store.write("ct_judge", move |tx| {
                async move {
                    let judged = judge_issuances(tx, page.rows, |domain| rules.rule(domain)).await?;
                    emit(tx, judged.iter().filter_map(|one| event_of(one, now_us)).collect()).await?;
                    Ok(judged)
                }
                .boxed()
            });
            let judged = judged.await?;
            {
                let mut counters = self.0.counters.lock();
                for one in &judged {
                    let stored =
                        if one.verdict.raises_alert() { CtVerdict::Unasked } else { CtVerdict::Expected };
                    counters.verdict(stored.name());
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reports services and logs that have lagged for too long, and services and logs that have recovered.
    async fn report_lag(&self, seen: &mut BehindBySubject) -> Result<(), StoreError> {
        let (store, now_us) = (&self.0.store, self.0.clock.now_us());
        let too_long = in_us(self.0.options.behind_after);
        let mut events = Vec::new();
        let mut report = |subject: String, since_us: Option<i64>, lag: CtLag| {
            let lag_us = since_us.map_or(0, |since| now_us.saturating_sub(since).max(0));
            let behind = since_us.is_some() && lag_us >= too_long;
            if seen.insert(subject.clone(), behind) != Some(behind) {
                let event =
                    if behind { Event::CtBehind(lag) } else { Event::CtCaughtUp(CtLagEnded::CaughtUp(lag)) };
                events.push(new_event(now_us, subject, &event));
            }
            lag_us as f64 / 1e6
        };
        let configured = self.services();
        for row in tables::Ct::of(store).services().await? {
            if !configured.contains(&row.service.as_str()) {
                continue;
            }
            // The search is overdue, or its last attempt failed.
            let overdue = (row.due_at_us < now_us).then_some(row.due_at_us);
            let since = [overdue, row.failing_since_us].into_iter().flatten().min();
            let detail = format!("the last search failed for {} of {} domains", row.failing, row.domains);
            let lag = CtLag { name: row.service.clone(), detail };
            let lag_s = report(service_subject(&row.service), since, lag);
            self.0.counters.lock().service(&row.service).lag_s = lag_s;
        }
        for row in tables::Ct::of(store).logs().await? {
            if !self.0.counters.lock().follows(&row.name) {
                continue;
            }
            let since = [row.failing_since_us, row.behind_since_us].into_iter().flatten().min();
            let detail = row.last_error.unwrap_or_else(|| format!("{} entries are not read yet", row.behind));
            report(log_subject(&row.log_id), since, CtLag { name: row.name, detail });
        }
        if events.is_empty() {
            return Ok(());
        }
        store.write("ct_behind", move |tx| async move { emit(tx, events).await }.boxed()).await
    }

    async fn trim(&self, before_us: i64) -> Result<(), StoreError> {
        for _ in 0..TRIM_TRANSACTIONS_MAX {
            if tables::Ct::of(&self.0.store).issuances_trim(before_us, TRIM_ROWS_MAX).await?
                < TRIM_ROWS_MAX as u64
            {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the event for a verdict: an unexpected issuance, or one that turned out to be expected.
fn event_of(judged: &Judged, now_us: i64) -> Option<NewEvent> {
    let issuance = &judged.issuance;
    let body = || CtIssuance {
        name: judged.domain.clone(),
        issuer: issuance.issuer.clone(),
        serial: issuance.serial.clone(),
        names: issuance.names.iter().take(NAMES_LISTED).cloned().collect(),
        source: issuance.source.clone(),
        detail: detail(issuance, &judged.verdict),
    };
    let event = match &judged.verdict {
        Verdict::Unasked(_) => Event::CtUnexpectedIssuance(body()),
        _ if issuance.verdict == CtVerdict::Unasked => {
            Event::CtIssuanceExpected(CtIssuanceExpected::Known(body()))
        }
        _ => return None,
    };
    Some(new_event(now_us, format!("ct-issuance/{}", issuance.id), &event))
}

fn detail(issuance: &CtIssuanceRow, verdict: &Verdict) -> String {
    let names: Vec<&str> = issuance.names.iter().take(NAMES_LISTED).map(String::as_str).collect();
    let more = issuance.names.len().saturating_sub(NAMES_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let why = match verdict {
        Verdict::Unasked(why) => why.iter().map(describe_reason).collect::<Vec<_>>().join("; "),
        Verdict::NotWatched => "the domain is no longer watched".to_owned(),
        _ => "the issuance is now known".to_owned(),
    };
    format!("{}{more}: {why}", names.join(", "))
}

/// Returns a human-readable text for the reason.
fn describe_reason(why: &Unasked) -> String {
    match why {
        Unasked::IssuerNotAllowed => {
            "the issuer has no known certificate for the domain, or is not allowed".to_owned()
        }
        Unasked::NamesNotKnown(names) => {
            let listed: Vec<&str> = names.iter().take(NAMES_LISTED).map(String::as_str).collect();
            format!(
                "no known certificate of the issuer has all of these names; new names: {}",
                listed.join(", ")
            )
        }
        Unasked::TooEarly { .. } => {
            "a known certificate has these names, but it does not expire soon and has another key".to_owned()
        }
        Unasked::Unreadable => "the certificate cannot be parsed".to_owned(),
    }
}
