//! The background tasks of a server.

use std::sync::Arc;
use std::time::Duration;

use inbound::ServiceTasks;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::access::AccessControl;
use crate::events::Events;
use crate::limit::Limits;

/// Between two rounds of forgetting idle keys of the rate limits.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// The background tasks of a server that do not run yet. A state gives them out once, so that none of them can run twice.
pub(crate) struct Upkeep {
    pub(crate) access: AccessControl,
    pub(crate) events: Events,
    pub(crate) limits: Arc<Limits>,
    pub(crate) store: Store,
    /// Ends them.
    pub(crate) stopping: CancellationToken,
}

impl Upkeep {
    /// Starts as some of the `tasks`.
    pub(crate) fn start(self, tasks: &ServiceTasks) {
        let Self { access, events, limits, store, stopping } = self;
        let stop = stopping.clone();
        tasks.spawn(async move { access.run(stop).await });
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
