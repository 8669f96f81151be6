//! Runs watches on a node: claims due runs, renews their leases, and releases runs that it cannot finish.

use std::collections::HashMap;
use std::time::Duration;

use store::StoreError;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::claims::{LEASE, LeasedParts, Node, RunClaim};
use super::{Watches, in_us};
use crate::tables;

/// Interval of checks for due runs and of lease renewals; also the maximum delay of a due run.
const PERIOD: Duration = Duration::from_secs(5);
/// Timeout of the last database request during shutdown.
const LAST_TRY: Duration = Duration::from_secs(2);

/// The runs of a node. Dropping the runner aborts the runs; their leases then expire.
pub struct Runner {
    watches: Watches,
    node: Node,
    runs: JoinSet<()>,
    claimed: HashMap<Id, (RunClaim, CancellationToken)>,
    /// Token that cancels parts of other nodes' runs.
    stop: CancellationToken,
}

impl Watches {
    /// Runs watches when they are due, until `stop`; then releases the runs in progress.
    #[crate::boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("watches");
        let mut runner = self.runner();
        loop {
            if let Err(error) = runner.tick().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "due watches could not be processed"
                );
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
        runner.stop().await;
    }

    /// Returns a runner that tests drive manually.
    #[doc(hidden)]
    #[must_use]
    pub fn runner(&self) -> Runner {
        let node = Node { id: Uuid::now_v7(), parts: LeasedParts::default() };
        Runner {
            watches: self.clone(),
            node,
            runs: JoinSet::new(),
            claimed: HashMap::new(),
            stop: CancellationToken::new(),
        }
    }
}

impl Runner {
    /// Renews leases, cancels runs with lost leases, then starts due runs and parts of other nodes' runs, up to the limit.
    /// Returns the number of started runs and parts.
    ///
    /// # Errors
    /// Database errors. Runs in progress continue.
    #[crate::boxed]
    pub async fn tick(&mut self) -> Result<usize, StoreError> {
        while let Some(ended) = self.runs.try_join_next_with_id() {
            self.ended(ended);
        }
        self.keep().await?;
        Ok(self.begin_runs().await? + self.begin_parts().await?)
    }

    /// Returns the number of free slots for runs and parts.
    fn free_slots(&self) -> usize {
        self.watches.0.options.at_once.max(1).saturating_sub(self.runs.len())
    }

    async fn begin_runs(&mut self) -> Result<usize, StoreError> {
        let (store, room) = (&self.watches.0.store, self.free_slots());
        if room == 0 {
            return Ok(0);
        }
        let now_us = self.watches.0.clock.now_us();
        let until_us = now_us.saturating_add(in_us(LEASE));
        let due = tables::Watches::of(store).claim(self.node.id, now_us, until_us, room).await?;
        let began = due.len();
        for row in due {
            let claimed = RunClaim { id: row.id, node: self.node.id, claims: row.claims };
            let (watches, node, stop) = (self.watches.clone(), self.node.clone(), CancellationToken::new());
            let until = stop.clone();
            let task = self.runs.spawn(async move {
                let _live = telemetry::tasks::guard("watch-run");
                watches.run_claimed(claimed, row, node, until).await;
            });
            self.claimed.insert(task.id(), (claimed, stop));
        }
        Ok(began)
    }

    async fn begin_parts(&mut self) -> Result<usize, StoreError> {
        let (store, room) = (&self.watches.0.store, self.free_slots());
        if room == 0 {
            return Ok(0);
        }
        let now_us = self.watches.0.clock.now_us();
        let until_us = now_us.saturating_add(in_us(LEASE));
        let parts = tables::WatchParts::of(store).claim(self.node.id, None, now_us, until_us, room).await?;
        let began = parts.len();
        for part in parts {
            let (watches, node) = (self.watches.clone(), self.node.clone());
            let stop = self.stop.child_token();
            self.runs.spawn(async move {
                let _live = telemetry::tasks::guard("watch-part");
                watches.scan_claimed_part(part, node, stop).await;
            });
        }
        Ok(began)
    }

    /// Renews the leases of this node: of all runs in one statement, and of all parts in another. Cancels runs and parts that
    /// another node has claimed, or whose watch was deleted.
    async fn keep(&self) -> Result<(), StoreError> {
        let store = &self.watches.0.store;
        let until_us = self.watches.0.clock.now_us().saturating_add(in_us(LEASE));
        let runs: Vec<_> = self.claimed.values().map(|(claimed, _)| (claimed.id, claimed.claims)).collect();
        if !runs.is_empty() {
            let renewed = tables::Watches::of(store).renew(self.node.id, &runs, until_us).await?;
            for (claimed, stop) in self.claimed.values() {
                if !renewed.contains(&claimed.id) {
                    stop.cancel();
                }
            }
        }
        let parts = self.node.parts.rows();
        if !parts.is_empty() {
            let renewed = tables::WatchParts::of(store).renew(self.node.id, &parts, until_us).await?;
            self.node.parts.keep(&parts, &renewed);
        }
        Ok(())
    }

    /// Waits until no run is in progress.
    #[crate::boxed]
    pub async fn idle(&mut self) {
        while let Some(ended) = self.runs.join_next_with_id().await {
            self.ended(ended);
        }
    }

    fn ended(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            // The lease expires. The node that claims the run continues after the last stored observation.
            Err(error) => {
                tracing::error!(%error, "a watch run ended in a panic");
                error.id()
            }
        };
        self.claimed.remove(&id);
    }

    /// Cancels the runs in progress and releases them.
    #[crate::boxed]
    pub async fn stop(mut self) {
        for (_, stop) in self.claimed.values() {
            stop.cancel();
        }
        self.stop.cancel();
        self.idle().await;
        let store = &self.watches.0.store;
        let given_back = async {
            tables::WatchParts::of(store).release(self.node.id).await?;
            tables::Watches::of(store).release(self.node.id).await
        };
        if !matches!(tokio::time::timeout(LAST_TRY, given_back).await, Ok(Ok(()))) {
            tracing::warn!(
                "watch runs in progress could not be released; their leases expire within a minute"
            );
        }
    }
}
