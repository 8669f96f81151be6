//! The background tasks of a server.

use std::sync::Arc;
use std::time::Duration;

use inbound::ServiceTasks;
use store::nodes::{ServerNode, ServerNodes};
use store::series::SeriesTable;
use store::{Clock, Store};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::access::AccessControl;
use crate::events::Events;
use crate::limit::Limits;

/// Interval of removing idle keys of the rate limits.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// Interval of deleting counts whose retention period has passed.
const TRIM_EVERY: Duration = Duration::from_secs(3_600);

/// Interval of the server's heartbeats.
const SEEN_EVERY: Duration = Duration::from_secs(15);

/// Records heartbeats of this server until the server stops.
async fn say_that_it_runs(store: &Store, clock: &Clock, stopping: CancellationToken) {
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
        if let Err(error) = ServerNodes::of(store).seen(&node).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the heartbeat of this server could not be stored; other servers consider it stopped"
            );
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(SEEN_EVERY) => {}
        }
    }
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
    /// Starts the background tasks among `tasks`.
    pub(crate) fn start(self, tasks: &ServiceTasks) {
        let Self { access, events, limits, store, clock, stopping } = self;
        let stop = stopping.clone();
        tasks.spawn(async move { access.run(stop).await });
        let (stop, own, time) = (stopping.clone(), store.clone(), clock.clone());
        tasks.spawn(async move { say_that_it_runs(&own, &time, stop).await });
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
