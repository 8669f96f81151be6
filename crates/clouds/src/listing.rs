//! Lists many sources concurrently; each ends independently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outbound::Deadline;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::SourceError;
use crate::event::Event;
use crate::sink::Sink;
use crate::source::CloudSource;
use crate::state::State;

/// Maximum number of events buffered for the reader. A hundred certificates with their chains have about 400 KB, so 6 MB in
/// total.
const EVENTS_IN_CHANNEL: usize = 16;

/// Time limit of listing one source: enough for a hundred thousand certificates at the documented quotas, without a previous state.
pub const LIST_LIMIT: Duration = Duration::from_secs(4 * 3_600);

/// Lists all `sources` concurrently, each for `limit` at most. `states` contains the state of each source after its last listing,
/// by name.
///
/// The pools limit concurrency and rates, so a slow, throttled or failed source does not delay the others. A full channel slows the
/// listing; no event is dropped.
///
/// # Cancellation
/// When `stop` is cancelled, calls in progress are dropped and the channel closes without [`Event::Ended`]: the stored states stay
/// valid.
#[must_use = "the channel is where the results come from"]
pub fn start(
    sources: Vec<Arc<dyn CloudSource>>,
    mut states: HashMap<String, State>,
    limit: Duration,
    stop: CancellationToken,
) -> mpsc::Receiver<Event> {
    let (out, events) = mpsc::channel(EVENTS_IN_CHANNEL);
    let guard = telemetry::tasks::guard("cloud-listing");
    tokio::spawn(async move {
        let _guard = guard;
        let deadline = Deadline::within(limit);
        let mut listings = JoinSet::new();
        let mut names = HashMap::new();
        for source in sources {
            let name = source.name().clone();
            let state = states.remove(&*name).unwrap_or_default();
            let listing = list(source, state, deadline, out.clone());
            names.insert(listings.spawn(listing).id(), name);
        }
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break listings.shutdown().await,
                ended = listings.join_next_with_id() => match ended {
                    Some(Ok((id, ()))) => drop(names.remove(&id)),
                    Some(Err(error)) => {
                        let Some(name) = names.remove(&error.id()) else { continue };
                        let broke_off = Err(SourceError::BrokeOff(error.to_string()));
                        // Without the previous state, no certificate is reported as gone.
                        Sink::new(name, State::default(), out.clone()).end(broke_off).await;
                    }
                    None => break,
                },
            }
        }
    });
    events
}

async fn list(source: Arc<dyn CloudSource>, previous: State, deadline: Deadline, out: mpsc::Sender<Event>) {
    let _guard = telemetry::tasks::guard("cloud-source");
    let sink = Sink::new(source.name().clone(), previous, out);
    let ended = deadline.bound(source.list(&sink, deadline)).await;
    sink.end(ended.unwrap_or(Err(SourceError::OutOfTime))).await;
}
