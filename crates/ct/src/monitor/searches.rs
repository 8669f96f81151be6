//! Searches of one node: claims due searches, renews their leases, and releases unfinished searches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use outbound::jitter;
use store::{Store, StoreError};
use telemetry::chain;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Monitor, in_us};
use crate::issuance::Verdict;
use crate::ledger::{ReportedIssuance, record, set_verdict};
use crate::search::{SearchCursor, SearchError, SearchOutcome, SearchPage, SearchQuery, SearchService, poll};
use crate::tables;
use crate::tables::{CtSearchRow, seed_ct_searches, store_ct_search};

/// Interval of checks for due searches and of lease extensions.
const PERIOD: Duration = Duration::from_secs(5);
/// Duration of a lease without renewal: twelve periods, so that a pause of the process or a database failover loses no search.
const LEASE: Duration = Duration::from_secs(60);
/// Periods between two checks for domains that a service has never searched: a minute. Domains added on this node need no check.
const SEED_EVERY: u64 = 12;
/// Minimum delay after a failure, even if the service requests a shorter one.
const RETRY_MIN: Duration = Duration::from_secs(60);
/// Searches that are due at the same time are spread over the interval divided by this number.
const JITTER: u32 = 10;
/// Timeout of the last database request during shutdown.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// Service name and domain.
type Key = (String, String);

/// The searches that a node runs.
struct SearchRunner {
    monitor: Monitor,
    node: Uuid,
    tasks: JoinSet<()>,
    running: HashMap<Id, (Key, CancellationToken)>,
}

impl Monitor {
    /// Runs searches when they are due, until `stop`; then releases the searches in progress.
    pub(super) async fn run_searches(&self, stop: &CancellationToken) {
        if self.0.services.is_empty() {
            return;
        }
        let monitor = self.clone();
        let mut runner =
            SearchRunner { monitor, node: Uuid::now_v7(), tasks: JoinSet::new(), running: HashMap::new() };
        let mut periods = 0_u64;
        loop {
            let woken = self.0.wake.notified();
            if let Err(error) = runner.tick(periods.is_multiple_of(SEED_EVERY)).await {
                tracing::warn!(error = chain(&error), "due CT searches could not be claimed");
            }
            let until = tokio::time::Instant::now() + PERIOD;
            let due = tokio::select! {
                () = stop.cancelled() => break,
                () = woken => false,
                Some(ended) = runner.tasks.join_next_with_id() => { runner.ended(ended); false }
                () = tokio::time::sleep_until(until) => true,
            };
            periods += u64::from(due);
        }
        runner.stop().await;
    }

    /// Runs a claimed search, page after page. If a result cannot be stored, the lease expires and the search is repeated.
    async fn query(&self, node: Uuid, service: Arc<SearchService>, row: CtSearchRow) {
        let cursor: SearchCursor = serde_json::from_str(&row.cursor).unwrap_or_default();
        let query = SearchQuery { domain: row.domain.clone(), cursor };
        // One page waits while another is stored.
        let (sender, mut answers) = mpsc::channel::<SearchOutcome>(1);
        let storing = async move {
            let mut row = row;
            while let Some(answer) = answers.recv().await {
                match self.store_search_result(node, &row, answer.result).await {
                    Ok(Some(updated)) => row = updated,
                    Ok(None) => return,
                    Err(error) => {
                        let (service, domain) = (&row.service, &row.domain);
                        tracing::warn!(
                            service,
                            domain,
                            error = chain(&error),
                            "the result of a CT search was not stored"
                        );
                        return;
                    }
                }
            }
        };
        tokio::join!(poll(vec![(service, vec![query])], sender), storing);
    }

    /// Stores a page and the next cursor in one transaction; `None` when another node has the search by now.
    async fn store_search_result(
        &self,
        node: Uuid,
        row: &CtSearchRow,
        result: Result<SearchPage, SearchError>,
    ) -> Result<Option<CtSearchRow>, StoreError> {
        let now_us = self.0.clock.now_us();
        self.count(&row.service, &result);
        let (updated, found) = match result {
            Ok(page) => {
                let updated = self.after(row, &page, node, now_us);
                let watched = self.0.watched.read().clone();
                let of =
                    |one| ReportedIssuance::from_search_result(one, &row.domain, &watched.all, &row.service);
                (updated, page.issuances.into_iter().map(of).collect())
            }
            Err(error) => (failed(row, &error, now_us), Vec::new()),
        };
        // Everything that a service reports before its first complete search is the baseline.
        let baseline = row.baseline_at_us.is_none();
        let next = updated.clone();
        let new = self.0.store.write("ct_answer", move |tx| {
            async move {
                if !store_ct_search(tx, node, &updated).await? {
                    return Ok(None);
                }
                let new = record(tx, found, now_us).await?;
                if baseline && !new.is_empty() {
                    set_verdict(tx, &new, &Verdict::Baseline).await?;
                }
                Ok(Some(new.len()))
            }
            .boxed()
        });
        let Some(new) = new.await? else { return Ok(None) };
        self.0.counters.lock().service(&row.service).new += new as u64;
        Ok(Some(next))
    }

    fn count(&self, service: &str, result: &Result<SearchPage, SearchError>) {
        let mut counters = self.0.counters.lock();
        let figures = counters.service(service);
        match result {
            Ok(_) => figures.answered += 1,
            Err(SearchError::Throttled { .. }) => figures.throttled += 1,
            Err(_) => figures.failed += 1,
        }
    }

    /// Returns the state of a search after a page.
    fn after(&self, row: &CtSearchRow, page: &SearchPage, node: Uuid, now_us: i64) -> CtSearchRow {
        let updated = CtSearchRow {
            // Serialization cannot fail.
            cursor: serde_json::to_string(&page.cursor).unwrap_or_default(),
            answered_at_us: Some(now_us),
            failures: 0,
            last_error: None,
            failing_since_us: None,
            ..row.clone()
        };
        if page.more {
            let until_us = Some(now_us.saturating_add(in_us(LEASE)));
            return CtSearchRow { holder: Some(node), until_us, ..updated };
        }
        let every = self.0.options.poll_every;
        let (wait, completed_at_us) =
            if page.doubtful { (page.poll_after, None) } else { (every.max(page.poll_after), Some(now_us)) };
        let of = format!("{}/{}", row.service, row.domain);
        let jitter = jitter::by_hash(of.as_bytes(), now_us, in_us(wait / JITTER));
        CtSearchRow {
            due_at_us: now_us.saturating_add(in_us(wait)).saturating_add(jitter),
            baseline_at_us: row.baseline_at_us.or(completed_at_us),
            holder: None,
            until_us: None,
            ..updated
        }
    }
}

/// Returns the state of a search after a failure; the cursor is unchanged.
fn failed(row: &CtSearchRow, error: &SearchError, now_us: i64) -> CtSearchRow {
    tracing::debug!(service = row.service, domain = row.domain, %error, "a CT search service does not answer");
    CtSearchRow {
        due_at_us: now_us.saturating_add(in_us(error.retry_after().max(RETRY_MIN))),
        failures: row.failures.saturating_add(1),
        last_error: Some(error.to_string()),
        failing_since_us: row.failing_since_us.or(Some(now_us)),
        holder: None,
        until_us: None,
        ..row.clone()
    }
}

impl SearchRunner {
    fn store(&self) -> &Store {
        &self.monitor.0.store
    }

    /// Extends leases, cancels searches whose lease was lost, and claims due searches up to the limit.
    async fn tick(&mut self, seed: bool) -> Result<(), StoreError> {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.ended(ended);
        }
        self.renew_leases().await?;
        // A server without watched domains writes nothing.
        if self.monitor.watched().await?.all.is_empty() {
            return Ok(());
        }
        for service in self.monitor.0.services.clone() {
            let now_us = self.monitor.0.clock.now_us();
            if seed {
                let name = service.name().to_owned();
                let seeded = self.store().write("ct_seed", move |tx| {
                    async move { seed_ct_searches(tx, &name, None, now_us).await }.boxed()
                });
                seeded.await?;
            }
            let under_way = self.running.values().filter(|((name, _), _)| name == service.name()).count();
            let room = service.in_flight().saturating_sub(under_way);
            if room == 0 {
                continue;
            }
            let until_us = now_us.saturating_add(in_us(LEASE));
            let due = tables::Ct::of(self.store())
                .claim_searches(service.name(), self.node, now_us, until_us, room)
                .await?;
            for row in due {
                self.begin(Arc::clone(&service), row);
            }
        }
        Ok(())
    }

    fn begin(&mut self, service: Arc<SearchService>, row: CtSearchRow) {
        let key = (row.service.clone(), row.domain.clone());
        let (monitor, node, stop) = (self.monitor.clone(), self.node, CancellationToken::new());
        let until = stop.clone();
        let task = self.tasks.spawn(async move {
            let _live = telemetry::tasks::guard("ct-question");
            tokio::select! {
                () = until.cancelled() => {}
                () = monitor.query(node, service, row) => {}
            }
        });
        self.running.insert(task.id(), (key, stop));
    }

    async fn renew_leases(&self) -> Result<(), StoreError> {
        if self.running.is_empty() {
            return Ok(());
        }
        let until_us = self.monitor.0.clock.now_us().saturating_add(in_us(LEASE));
        let keys: Vec<Key> = self.running.values().map(|(key, _)| key.clone()).collect();
        let renewed = tables::Ct::of(self.store()).renew_searches(self.node, &keys, until_us).await?;
        for (key, stop) in self.running.values() {
            // A search that has just finished has no lease any longer; cancelling it has no effect.
            if !renewed.contains(key) {
                stop.cancel();
            }
        }
        Ok(())
    }

    fn ended(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => {
                tracing::error!(%error, "a CT search ended in a panic");
                error.id()
            }
        };
        self.running.remove(&id);
    }

    async fn stop(mut self) {
        for (_, stop) in self.running.values() {
            stop.cancel();
        }
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.ended(ended);
        }
        let released = tables::Ct::of(self.store()).release_searches(self.node);
        if !matches!(tokio::time::timeout(RELEASE_LIMIT, released).await, Ok(Ok(()))) {
            tracing::warn!("running CT searches could not be released; their leases expire within a minute");
        }
    }
}
