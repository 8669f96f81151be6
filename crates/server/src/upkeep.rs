//! The background tasks of a server.

use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::state::State;

/// Between two rounds of forgetting idle keys of the rate limits.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// Starts the background tasks of this server. They end with [`State::stopping`], and `tracker` waits for them.
pub(crate) fn start(state: &State, tracker: &TaskTracker) {
    let stopping = || state.stopping().clone();
    let (access, stop) = (state.access().clone(), stopping());
    tracker.spawn(async move { access.run(stop).await });
    let (events, store, stop) = (state.events().clone(), state.store().clone(), stopping());
    tracker.spawn(async move { events.feed(store, stop).await });
    let (state, stop) = (state.clone(), stopping());
    tracker.spawn(async move {
        let _task = telemetry::tasks::guard("server-upkeep");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(FORGET_EVERY) => state.limits().forget_idle(),
            }
        }
    });
}
