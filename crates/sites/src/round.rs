//! A round, four times a second: writes heartbeats, records nodes that became present or absent, signs due statements, and updates
//! the view.

use std::sync::atomic::Ordering;
use std::time::Duration;

use enrollment::TOKEN_RETENTION_US;
use futures_util::FutureExt;
use store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::directory::Sites;
use crate::error::SiteError;
use crate::tables;
use crate::timing::ROUND;

/// Number of rounds between checks while there is no node: another server may have enrolled one.
const IDLE_ROUNDS: u32 = 8;
/// Interval in which long expired tokens are removed.
const PURGE_EVERY: Duration = Duration::from_secs(3_600);
/// Number of rows per query of a view update.
const VIEW_ROWS: usize = 1_000;
/// Maximum number of changed wrapped policy keys per view update, 10 ms of database time. The nodes of these keys request all
/// updates. Further changes follow in the next view update.
const VIEW_WRAPS: usize = 10_000;

impl Sites {
    /// Processes heartbeats and tracks present nodes, until stopped.
    #[crate::boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("places");
        let every = |period| {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks
        };
        let (mut rounds, mut purges) = (every(ROUND), every(PURGE_EVERY));
        let mut number = 0_u32;
        loop {
            let failed: Vec<SiteError> = tokio::select! {
                () = stop.cancelled() => return,
                _ = rounds.tick() => {
                    number = number.wrapping_add(1);
                    if self.0.view.is_empty() && number % IDLE_ROUNDS != 1 {
                        continue;
                    }
                    self.round().await
                }
                _ = purges.tick() => self.purge().await.err().into_iter().collect(),
            };
            for error in failed {
                tracing::warn!(%error, "the periodic check of the key service's nodes failed");
            }
        }
    }

    /// Runs a round, and returns its errors. Updates which nodes are present even if there is no signing key.
    async fn round(&self) -> Vec<SiteError> {
        // If heartbeats cannot be written, leases expire wrongly, so no node is recorded as gone. The time is read before writing,
        // because heartbeats that arrive during the write are not written yet.
        let now = self.now_us();
        let announced = match self.write_heartbeats().await {
            Ok(()) => self.announce_presence(now).await,
            failed => failed,
        };
        let (signed, view_updated) = (self.sign_due().await, self.update_view().await);
        let all = [announced.map_err(SiteError::from), signed.map(drop), view_updated];
        all.into_iter().filter_map(Result::err).collect()
    }

    async fn purge(&self) -> Result<(), SiteError> {
        Ok(tables::SiteTables::of(self.store())
            .purge_node_tokens(self.now_us() - TOKEN_RETENTION_US)
            .await
            .map(drop)?)
    }

    async fn write_heartbeats(&self) -> Result<(), StoreError> {
        let leases = self.0.beats.take();
        if leases.is_empty() {
            return Ok(());
        }
        let work = leases.clone();
        let written = self
            .store()
            .write("key_node_leases", move |tx| async move { tables::put_leases(tx, &work).await }.boxed())
            .await;
        if written.is_err() {
            self.0.beats.requeue(leases);
        }
        written
    }

    /// Records nodes that became present, and nodes whose lease expired by `now`. Records no absence if this server may have missed
    /// heartbeats.
    async fn announce_presence(&self, now: i64) -> Result<(), StoreError> {
        let steady = self.0.steadiness.lock().round(now);
        let mut flips = tables::SiteTables::of(self.store()).presence_changes(now).await?;
        flips.retain(|(_, present)| *present || steady);
        if flips.is_empty() {
            return Ok(());
        }
        let (count, gone) = (flips.len(), flips.iter().filter(|(_, present)| !present).count());
        self.store()
            .write("key_node_flips", move |tx| {
                async move { tables::flip_nodes(tx, &flips, now).await }.boxed()
            })
            .await?;
        tracing::info!(came = count - gone, gone, "nodes of the key service joined or left");
        Ok(())
    }

    /// Updates the view of nodes and the numbers of changes of sealed keys. Concurrent callers share one update, if it started
    /// after their call.
    pub(super) async fn update_view(&self) -> Result<(), SiteError> {
        let started_before = self.0.view_updates_started.load(Ordering::SeqCst);
        let mut view_updated = self.0.view_updated.lock().await;
        if *view_updated > started_before {
            return Ok(());
        }
        let number = self.0.view_updates_started.fetch_add(1, Ordering::SeqCst) + 1;
        loop {
            let rows =
                tables::SiteTables::of(self.store()).nodes_changed(self.0.view.last(), VIEW_ROWS).await?;
            let is_full_page = rows.len() == VIEW_ROWS;
            self.0.view.take(rows);
            if !is_full_page {
                break;
            }
        }
        let (store, numbers) = (self.store(), &self.0.numbers);
        if numbers.seen() == 0 {
            numbers.begin(tables::SiteTables::of(store).last_change().await?);
        }
        let own = tables::SiteTables::of(store).wraps_changed(numbers.seen(), VIEW_WRAPS).await?;
        numbers.take(tables::SiteTables::of(store).last_state_change().await?, own);
        *view_updated = number;
        Ok(())
    }
}
