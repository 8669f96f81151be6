//! What a run saw that people should hear of: endpoints that are in trouble or are well again, certificates that are new
//! or come from somewhere else, ends of certificates to be watched. The inventory keeps what was told, so that all of it
//! is told once, anyone who makes the run, however often it is taken up.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use events::{CertificateUnserved, Event};
use futures_util::FutureExt;
use store::{NewEvent, StoreError, emit, new_event};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Watches;
use super::news::{
    Budget, News, TellingRun, changed_since, condition_ended, found, in_set, is_silent, news_of,
    news_of_silent,
};
use crate::ownership::{Candidate, Rules};
use crate::tables;
use crate::tables::endpoint_notices::{EndpointNotice, SeenEndpoint, tell, unserved, untell};
use crate::tables::watches::WatchRow;

/// Endpoints told of in one transaction.
const PAGE: usize = 500;
/// How often people are told of what a run has seen so far.
const TELL_EVERY: Duration = Duration::from_secs(20);
/// The pause after a pass is so many times as long as the pass: telling of a million endpoints takes a tenth of a core.
const PASS_SHARE: u32 = 9;

/// When a run tells.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Pass {
    /// During the scan.
    Meanwhile,
    /// At its end.
    Last,
}

impl Watches {
    /// Tells of what `scan` has stored so far, again and again, until the caller drops this: people hear of a long run's
    /// findings before its end. What one pass costs is small beside the pause after it.
    pub(super) async fn tell_meanwhile(
        &self,
        scan: Uuid,
        row: &WatchRow,
        budget: &mut Budget,
        stop: &CancellationToken,
    ) {
        let mut pause = TELL_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            let began = tokio::time::Instant::now();
            if let Err(error) = self.tell_of_seen(scan, row, Pass::Meanwhile, budget, stop).await {
                tracing::debug!(%scan, error = &error as &dyn std::error::Error, "what a run saw is told later");
            }
            pause = TELL_EVERY.max(began.elapsed() * PASS_SHARE);
        }
    }

    /// Tells of what `scan` saw and, if it saw `whole` of it, of what `row` does not look at any more; answers what was left
    /// untold. Stops between two pages when told to; anyone who takes the run up goes on.
    pub(super) async fn tell(
        &self,
        scan: Uuid,
        row: &WatchRow,
        whole: bool,
        mut budget: Budget,
        stop: &CancellationToken,
    ) -> Result<u64, StoreError> {
        self.tell_of_seen(scan, row, Pass::Last, &mut budget, stop).await?;
        if whole && !stop.is_cancelled() {
            self.tell_of_unseen(row, Some(scan)).await?;
        }
        Ok(budget.untold)
    }

    async fn tell_of_seen(
        &self,
        scan: Uuid,
        row: &WatchRow,
        pass: Pass,
        budget: &mut Budget,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        budget.begin_pass();
        let (store, mut after) = (&self.0.store, 0);
        // Before the rules, so that a change between the two is met again rather than missed.
        let again =
            pass == Pass::Last && changed_since(tables::Ownership::of(store).changed_us().await?, row);
        let rules = Rules::read(store).await?;
        let run = TellingRun { watch: row, baseline: row.last.is_none(), again };
        while !stop.is_cancelled() {
            let seen = tables::EndpointNotices::of(store)
                .seen_endpoints(scan, after, self.0.clock.now_us(), PAGE)
                .await?;
            let Some(last) = seen.last() else { break };
            after = last.row;
            let (mut events, mut told, mut left) = (Vec::new(), Vec::new(), BTreeSet::new());
            let mut scheduled = HashSet::new();
            let mut all: Vec<News> = seen.iter().map(|endpoint| news_of(endpoint, run, budget)).collect();
            self.say_whose(&rules, row, &seen, &mut all).await?;
            for (endpoint, news) in seen.iter().zip(all) {
                events.extend(news.events.into_iter().map(NewEvent::from));
                // Many endpoints show one certificate, whose end is one date.
                let found = news.found.filter(|found| scheduled.insert(found.subject.clone()));
                events.extend(found.map(NewEvent::from));
                told.extend(news.told.map(|told| (endpoint.row, told)));
                left.extend(news.left);
            }
            if !(told.is_empty() && events.is_empty()) {
                self.write_told(row.id, events, told, Vec::new(), left).await?;
            }
        }
        self.tell_of_silent(scan, row, budget, stop).await
    }

    /// Tells of endpoints that answered before and did not answer `scan`.
    async fn tell_of_silent(
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
            let (mut events, mut told) = (Vec::new(), Vec::new());
            for endpoint in silent.iter().filter(|endpoint| !is_silent(&endpoint.told)) {
                let Some(news) = news_of_silent(endpoint, row, budget) else { continue };
                events.extend(news.events.into_iter().map(NewEvent::from));
                told.extend(news.told.map(|told| (endpoint.row, told)));
            }
            if !told.is_empty() {
                self.write_told(row.id, events, told, Vec::new(), BTreeSet::new()).await?;
            }
        }
        Ok(())
    }

    /// Says in what is told of endpoints who answers for them, by the rules of ownership. Nothing is asked of the database
    /// for endpoints of which nothing is told.
    async fn say_whose(
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
        if rules.look_at_names() {
            let told = seen.iter().zip(news.iter()).filter(|(_, news)| news.tells());
            leaves.extend(told.map(|(endpoint, _)| endpoint.leaf.sha256));
        }
        let names = tables::Ownership::of(&self.0.store).names(leaves.into_iter().collect()).await?;
        let told: Vec<_> = seen.iter().zip(news).filter(|(_, news)| news.tells()).collect();
        let kept = told.iter().map(|(seen, _)| (seen.endpoint.clone(), Some(seen.leaf.sha256)));
        let tags = rules.tags(&self.0.store, kept.collect()).await?;
        for ((endpoint, news), tags) in told.into_iter().zip(tags) {
            let names = names.get(&endpoint.leaf.sha256).map_or(&[][..], Vec::as_slice);
            let place = Candidate { tags, ..place_of(endpoint, watch, names) };
            let Some(assign) = rules.of(&place) else { continue };
            for event in news.events.iter_mut().chain(&mut news.found) {
                event.set_ownership(assign.clone().into());
            }
        }
        Ok(())
    }

    /// Ends what was told of endpoints that are no longer looked at: those that `scan` left out, or all.
    pub(super) async fn tell_of_unseen(&self, row: &WatchRow, scan: Option<Uuid>) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let unseen = tables::EndpointNotices::of(&self.0.store)
                .unseen_endpoints(row.id, scan, after, PAGE)
                .await?;
            let Some(last) = unseen.last() else { return Ok(()) };
            after = last.row;
            let (mut events, mut left) = (Vec::new(), BTreeSet::new());
            for endpoint in &unseen {
                let at_us = self.0.clock.now_us();
                for condition in in_set(endpoint.told.conditions) {
                    events.push(condition_ended(&endpoint.endpoint, condition, at_us).into());
                }
                left.extend(endpoint.told.expiry.then_some(endpoint.told.leaf));
            }
            let gone = unseen.iter().map(|endpoint| endpoint.row).collect();
            self.write_told(row.id, events, Vec::new(), gone, left).await?;
        }
    }

    async fn write_told(
        &self,
        watch: Uuid,
        events: Vec<NewEvent>,
        told: Vec<(i64, EndpointNotice)>,
        gone: Vec<i64>,
        left: BTreeSet<i64>,
    ) -> Result<(), StoreError> {
        let (at_us, mut events) = (self.0.clock.now_us(), events);
        let write = self.0.store.write("watch_tell", move |tx| {
            async move {
                // A run may go on for a moment after its watch was removed: of that nobody is to be told.
                if tables::watches::watch(tx, watch).await?.is_none() && gone.is_empty() {
                    return Ok(());
                }
                tell(tx, watch, &told).await?;
                untell(tx, gone).await?;
                let unserved = unserved(tx, left.into_iter().collect()).await?;
                let gone = Event::CertificateUnserved(CertificateUnserved {});
                events.extend(unserved.into_iter().map(|leaf| new_event(at_us, found(&leaf), &gone)));
                emit(tx, events).await
            }
            .boxed()
        });
        write.await
    }
}

fn place_of(seen: &SeenEndpoint, watch: &WatchRow, names: &[String]) -> Candidate {
    let place = Candidate::of(&seen.endpoint, seen.address);
    let (issuer, group) = (seen.leaf.issuer_name.clone(), watch.settings.group.clone());
    Candidate { issuer, group, ..place }.named(names)
}
