//! The background tasks of a server, such as heartbeats and the deletion of old counts.

use std::sync::Arc;
use std::time::Duration;

use inbound::ServiceTasks;
use store::nodes::{ServerNode, ServerNodes};
use store::series::SeriesTable;
use store::{Clock, Store, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::access::AccessControl;
use crate::events::Events;
use crate::limit::Limits;

/// Interval between removals of idle keys from the rate limiters.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// Interval between deletions of counts whose retention period has passed.
const TRIM_EVERY: Duration = Duration::from_secs(3_600);

/// Interval between heartbeats of the server.
const SEEN_EVERY: Duration = Duration::from_secs(15);

/// Time in µs without a heartbeat after which a server has no share of the teams' rates: two heartbeats are late.
const SHARE_US: i64 = 35_000_000;

/// Records heartbeats of this server until the server stops, and counts the servers that share the teams' rates.
async fn report_heartbeat(
    store: &Store,
    clock: &Clock,
    limits: &Limits,
    every: Duration,
    stopping: CancellationToken,
) {
    let _task = telemetry::tasks::guard("server-node");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut node = ServerNode {
        id: Uuid::now_v7(),
        host: host.trim().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at_us: clock.now_us(),
        seen_at_us: 0,
    };
    loop {
        node.seen_at_us = clock.now_us();
        match beat(store, &node).await {
            Ok(servers) => limits.set_servers(servers),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the heartbeat of this server could not be stored; other servers consider it stopped"
            ),
        }
        tokio::select! {
            () = stopping.cancelled() => break,
            () = tokio::time::sleep(every) => {}
        }
    }
    if let Err(error) = ServerNodes::of(store).leave(node.id).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "this server stays in the list of servers");
    }
}

/// Records a heartbeat, and returns the number of running servers.
async fn beat(store: &Store, node: &ServerNode) -> Result<u32, StoreError> {
    ServerNodes::of(store).record_heartbeat(node).await?;
    let servers = ServerNodes::of(store).list().await?;
    let is_running = |server: &&ServerNode| node.seen_at_us.saturating_sub(server.seen_at_us) <= SHARE_US;
    Ok(u32::try_from(servers.iter().filter(is_running).count()).unwrap_or(u32::MAX))
}

/// Deletes hourly and daily counts whose retention period has passed.
async fn trim_series(store: &Store, clock: &Clock, stopping: CancellationToken) {
    let _task = telemetry::tasks::guard("server-series");
    loop {
        if let Err(error) = SeriesTable::of(store).trim(clock.now_us()).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "expired counts could not be deleted yet"
            );
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(TRIM_EVERY) => {}
        }
    }
}

/// The background tasks of a server, not yet started. Only one caller can take them from a state, so that no task runs twice.
pub(crate) struct BackgroundTasks {
    pub(crate) access: AccessControl,
    pub(crate) events: Events,
    pub(crate) limits: Arc<Limits>,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    /// Canceled to end the tasks.
    pub(crate) stopping: CancellationToken,
}

impl BackgroundTasks {
    /// Spawns the background tasks in `tasks`.
    pub(crate) fn start(self, tasks: &ServiceTasks) {
        let Self { access, events, limits, store, clock, stopping } = self;
        let stop = stopping.clone();
        tasks.spawn(async move { access.run(stop).await });
        let (stop, own, time, shared) = (stopping.clone(), store.clone(), clock.clone(), Arc::clone(&limits));
        tasks.spawn(async move { report_heartbeat(&own, &time, &shared, SEEN_EVERY, stop).await });
        let (stop, trimmed) = (stopping.clone(), store.clone());
        tasks.spawn(async move { trim_series(&trimmed, &clock, stop).await });
        let stop = stopping.clone();
        tasks.spawn(async move { events.feed(store, stop).await });
        tasks.spawn(async move {
            let _task = telemetry::tasks::guard("server-upkeep");
            loop {
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = tokio::time::sleep(FORGET_EVERY) => limits.forget_idle(),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use authority::teams::{Ownership, Quota};
    use store::StoreUrl;

    use super::*;
    use crate::access::{Caller, CallerKind, Granted, Permissions};
    use crate::limit::LimitOptions;

    /// Returns how many requests of a team with a rate of 10 pass. In unit tests the clock of the limiters does not advance.
    fn passed(limits: &Limits) -> usize {
        let quota = Quota { requests_per_second: Some(10), ..Quota::default() };
        let ownership = Arc::new(Ownership::new([], [("shop".to_owned(), quota)]));
        let scope = "team:shop".parse().unwrap();
        let granted = vec![Granted { permissions: Permissions::all(), scope }];
        let caller = Caller::new("token:x".to_owned(), CallerKind::Token, Uuid::nil(), granted);
        let caller = caller.with_ownership(ownership);
        (0..100).filter(|_| limits.teams(&caller).is_ok()).count()
    }

    #[tokio::test]
    async fn servers_of_a_cluster_share_the_rate_of_a_team() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let running = |limits: &Arc<Limits>| {
            let (store, limits, stop) = (store.clone(), Arc::clone(limits), CancellationToken::new());
            let until = stop.clone();
            let task = tokio::spawn(async move {
                let every = Duration::from_millis(5);
                report_heartbeat(&store, &Clock::system(), &limits, every, until).await;
            });
            (task, stop)
        };
        let [one, two] = [0, 1].map(|_| Arc::new(Limits::new(&LimitOptions::unlimited())));
        let (first, stop_first) = running(&one);
        let (second, stop_second) = running(&two);
        testbed::until("the servers know each other", || one.servers() == 2 && two.servers() == 2).await;
        assert_eq!((passed(&one), passed(&two)), (5, 5));
        // A server that stops returns its share.
        stop_second.cancel();
        second.await.unwrap();
        testbed::until("the share of the other server", || one.servers() == 1).await;
        assert_eq!(passed(&one), 10);
        stop_first.cancel();
        first.await.unwrap();
        assert!(ServerNodes::of(&store).list().await.unwrap().is_empty());
    }
}
