//! Sends notices about the results of a run: endpoints with new or resolved problems, new or changed certificates, and certificates
//! whose expiry must be monitored. The inventory stores the notices. Each is therefore sent once, whichever nodes run the scan and
//! however often a run is continued.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use events::{CertificateUnserved, Event};
use futures_util::FutureExt;
use store::{NewEvent, StoreError, emit, new_event};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Watches;
use super::news::{
    Budget, News, NotifyingRun, changed_since, condition_ended, conditions_in, endpoint_news, found,
    is_silent, news_of_silent,
};
use super::spans;
use crate::ownership::{Candidate, Rules};
use crate::tables;
use crate::tables::endpoint_notices::{EndpointNotice, SeenEndpoint, delete_notices, put_notices, unserved};
use crate::tables::watches::WatchRow;

/// Maximum endpoints whose notices are sent in one transaction.
const PAGE: usize = 500;
/// Interval of notices during a run.
const NOTIFY_EVERY: Duration = Duration::from_secs(20);
/// Pause after a pass, as a multiple of the pass's duration. Notices about a million endpoints then use a tenth of a core.
const PAUSE_FACTOR: u32 = 9;

/// A pass over the endpoints that sends notices.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Pass {
    /// A pass while the scan is running.
    Meanwhile,
    /// The last pass, at the end of the run.
    Last,
}

impl Watches {
    /// Repeatedly sends notices about the results that `scan` has stored so far, until `ended` is cancelled, so that recipients
    /// need not wait for the end of a long run. Each pass is short compared with the pause after it. A pass ends only between two
    /// pages and is never dropped: otherwise the database could commit the last transaction of a pass after the next pass has read
    /// which notices were sent.
    pub(super) async fn notify_during_run(
        &self,
        scan: Uuid,
        row: &WatchRow,
        budget: &mut Budget,
        ended: &CancellationToken,
    ) {
        let mut pause = NOTIFY_EVERY;
        while ended.run_until_cancelled(self.0.environment.between_notices(pause)).await.is_some() {
            let began = tokio::time::Instant::now();
            if let Err(error) = self.notify_seen(scan, row, Pass::Meanwhile, budget, ended).await {
                tracing::debug!(%scan, error = &error as &dyn std::error::Error, "results of a watch run could not be \
                 reported yet; retrying");
            }
            pause = NOTIFY_EVERY.max(began.elapsed() * PAUSE_FACTOR);
        }
    }

    /// Sends notices about the results of `scan`. If the scan is complete (`whole`), also sends notices about endpoints that
    /// `row` no longer scans. Returns the number of omitted notices. Stops between two pages if requested; the node that
    /// continues the run also continues the notices.
    pub(super) async fn put_notices(
        &self,
        scan: Uuid,
        row: &WatchRow,
        whole: bool,
        mut budget: Budget,
        stop: &CancellationToken,
    ) -> Result<u64, StoreError> {
        self.notify_seen(scan, row, Pass::Last, &mut budget, stop).await?;
        if whole && !stop.is_cancelled() {
            self.notify_unseen(row, Some(scan)).await?;
        }
        Ok(budget.omitted)
    }

    async fn notify_seen(
        &self,
        scan: Uuid,
        row: &WatchRow,
        pass: Pass,
        budget: &mut Budget,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        budget.begin_pass();
        let (store, mut after) = (&self.0.store, 0);
        // Read before the rules, so that a concurrent change causes repeated notices rather than missing ones.
        let owners_changed =
            pass == Pass::Last && changed_since(tables::Ownership::of(store).changed_us().await?, row);
        let rules = Rules::read(store).await?;
        let run = NotifyingRun { watch: row, baseline: row.last.is_none(), owners_changed };
        while !stop.is_cancelled() {
            let seen = tables::EndpointNotices::of(store)
                .seen_endpoints(scan, after, self.0.clock.now_us(), PAGE)
                .await?;
            let Some(last) = seen.last() else { break };
            after = last.row;
            let (mut events, mut sent, mut unmonitored) = (Vec::new(), Vec::new(), BTreeSet::new());
            let (mut scheduled, mut all_found) = (HashSet::new(), Vec::new());
            let mut all: Vec<News> =
                seen.iter().map(|endpoint| endpoint_news(endpoint, run, budget)).collect();
            self.add_owners(&rules, row, &seen, &mut all).await?;
            for (endpoint, news) in seen.iter().zip(all) {
                events.extend(news.events.into_iter().map(NewEvent::from));
                // Many endpoints may show the same certificate, which has one expiry.
                let found = news.found.filter(|found| scheduled.insert(found.subject.clone()));
                events.extend(found.clone().map(NewEvent::from));
                all_found.extend(found);
                sent.extend(news.sent.map(|sent| (endpoint.row, sent)));
                unmonitored.extend(news.unmonitored);
            }
            if !(sent.is_empty() && events.is_empty()) {
                self.write_notices(row.id, events, sent, Vec::new(), unmonitored).await?;
                spans::certificates_found(scan, &row.settings.name, &all_found);
            }
        }
        self.notify_silent(scan, row, budget, stop).await
    }

    /// Sends notices about endpoints that responded before and did not respond in `scan`.
    async fn notify_silent(
        &self,
        scan: Uuid,
        row: &WatchRow,
        budget: &mut Budget,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut after = 0;
        while !stop.is_cancelled() {
            let now_us = self.0.clock.now_us();
            let silent = tables::EndpointNotices::of(&self.0.store)
                .silent_endpoints(row.id, scan, after, now_us, PAGE)
                .await?;
            let Some(last) = silent.last() else { return Ok(()) };
            after = last.row;
            let (mut events, mut sent) = (Vec::new(), Vec::new());
            for endpoint in silent.iter().filter(|endpoint| !is_silent(&endpoint.sent)) {
                let Some(news) = news_of_silent(endpoint, row, budget) else { continue };
                events.extend(news.events.into_iter().map(NewEvent::from));
                sent.extend(news.sent.map(|sent| (endpoint.row, sent)));
            }
            if !sent.is_empty() {
                self.write_notices(row.id, events, sent, Vec::new(), BTreeSet::new()).await?;
            }
        }
        Ok(())
    }

    /// Adds owners to notices, by the ownership rules. Reads nothing from the database for endpoints without notices.
    async fn add_owners(
        &self,
        rules: &Rules,
        watch: &WatchRow,
        seen: &[SeenEndpoint],
        news: &mut [News],
    ) -> Result<(), StoreError> {
        if rules.is_empty() {
            return Ok(());
        }
        let mut leaves = BTreeSet::new();
        if rules.uses_names() {
            let sent = seen.iter().zip(news.iter()).filter(|(_, news)| news.has_notices());
            leaves.extend(sent.map(|(endpoint, _)| endpoint.leaf.sha256));
        }
        let names = tables::Ownership::of(&self.0.store).names(leaves.into_iter().collect()).await?;
        let sent: Vec<_> = seen.iter().zip(news).filter(|(_, news)| news.has_notices()).collect();
        let served = sent.iter().map(|(seen, _)| (seen.endpoint.clone(), Some(seen.leaf.sha256)));
        let tags = rules.tags(&self.0.store, served.collect()).await?;
        for ((endpoint, news), tags) in sent.into_iter().zip(tags) {
            let names = names.get(&endpoint.leaf.sha256).map_or(&[][..], Vec::as_slice);
            let candidate = Candidate { tags, ..candidate_of(endpoint, watch, names) };
            let Some(assign) = rules.of(&candidate) else { continue };
            for event in news.events.iter_mut().chain(&mut news.found) {
                event.set_ownership(assign.clone().into());
            }
        }
        Ok(())
    }

    /// Ends the alerts about endpoints that are no longer scanned: those that `scan` did not include, or all endpoints without a
    /// scan.
    pub(super) async fn notify_unseen(&self, row: &WatchRow, scan: Option<Uuid>) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let unseen = tables::EndpointNotices::of(&self.0.store)
                .unseen_endpoints(row.id, scan, after, PAGE)
                .await?;
            let Some(last) = unseen.last() else { return Ok(()) };
            after = last.row;
            let (mut events, mut unmonitored) = (Vec::new(), BTreeSet::new());
            for endpoint in &unseen {
                let at_us = self.0.clock.now_us();
                for condition in conditions_in(endpoint.sent.conditions) {
                    events.push(condition_ended(&endpoint.endpoint, condition, at_us).into());
                }
                unmonitored.extend(endpoint.sent.expiry.then_some(endpoint.sent.leaf));
            }
            let removed = unseen.iter().map(|endpoint| endpoint.row).collect();
            self.write_notices(row.id, events, Vec::new(), removed, unmonitored).await?;
        }
    }

    async fn write_notices(
        &self,
        watch: Uuid,
        events: Vec<NewEvent>,
        sent: Vec<(i64, EndpointNotice)>,
        removed: Vec<i64>,
        unmonitored: BTreeSet<i64>,
    ) -> Result<(), StoreError> {
        let (at_us, mut events) = (self.0.clock.now_us(), events);
        let write = self.0.store.write("watch_tell", move |tx| {
            async move {
                // A run may continue briefly after its watch was deleted: its notices are dropped.
                if tables::watches::watch(tx, watch).await?.is_none() && removed.is_empty() {
                    return Ok(());
                }
                put_notices(tx, watch, &sent).await?;
                delete_notices(tx, removed).await?;
                let unserved = unserved(tx, unmonitored.into_iter().collect()).await?;
                let removed = Event::CertificateUnserved(CertificateUnserved {});
                events.extend(unserved.into_iter().map(|leaf| new_event(at_us, found(&leaf), &removed)));
                emit(tx, events).await
            }
            .boxed()
        });
        write.await
    }
}

fn candidate_of(seen: &SeenEndpoint, watch: &WatchRow, names: &[String]) -> Candidate {
    let candidate = Candidate::of(&seen.endpoint, seen.address);
    let (issuer, group) = (seen.leaf.issuer_name.clone(), watch.settings.group.clone());
    Candidate { issuer, group, ..candidate }.named(names)
}
