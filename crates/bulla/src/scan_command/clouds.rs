//! `bulla scan --clouds FILE`: what clouds and clusters keep, listed beside the scan.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scan::clouds::{
    CloudRun, CloudSettings, CloudSource, Database, Listed, Machine, Observer, Pools, State, observe,
};
use scan::{Observation, Run, ScanOptions, Trusted};
use store::Store;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Outcome, Problem, chain};
use crate::units::now_us;

/// Longest that listing one source may take: an estate of a hundred thousand, at documented quotas, from an empty state.
const LIST_LIMIT: Duration = Duration::from_secs(4 * 3_600);
/// Observations under way from both runs.
const IN_CHANNEL: usize = 256;

/// Sources ready to be listed.
pub(crate) struct Clouds {
    sources: Vec<Arc<dyn CloudSource>>,
    states: HashMap<String, State>,
    store: Option<Store>,
    /// Looks at endpoints that may be in flight beside them.
    pub(crate) raw: usize,
}

/// How the listings will have ended.
pub(crate) struct Ending {
    ended: tokio::task::JoinHandle<Result<Vec<Listed>, scan::clouds::ObserveError>>,
    store: Option<Store>,
}

/// Reads what to list from `file`, and what was listed before from the inventory. `in_flight` is what the scan is allowed,
/// if anybody said so.
pub(crate) async fn prepare(file: &Path, in_flight: Option<usize>, store: Option<Store>) -> Outcome<Clouds> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Problem::usage(format_args!("--clouds {}: {error}", file.display())))?;
    let mut settings: CloudSettings = toml::from_str(&text).map_err(|error| {
        Problem::usage(format_args!("--clouds {}: {error}", file.display())).hint("see docs/clouds.md")
    })?;
    settings.pools.raw = settings.pools.raw.or(in_flight);
    let (mut states, mut database) = (HashMap::new(), None);
    if let Some(store) = &store {
        let connections = store.connections().await.map_err(|error| Problem::inventory(&error))?;
        database = Some(Database { connections: connections.ours, connections_max: connections.servers });
        for (source, state) in store.source_states().await.map_err(|error| Problem::inventory(&error))? {
            // A state that cannot be read costs one listing in full.
            states.insert(source, State::from_text(&state).unwrap_or_default());
        }
    }
    let machine = Machine { descriptors: outbound::limits::descriptor_budget(), database };
    let pools = Pools::new(settings.pools.clone(), machine)
        .map_err(|error| Problem::usage(&error).hint(error.hint()))?;
    let sources = settings
        .sources(&pools)
        .await
        .map_err(|error| Problem::usage(format_args!("--clouds {}: {}", file.display(), chain(&error))))?;
    Ok(Clouds { sources, states, store, raw: pools.raw() })
}

impl Clouds {
    /// Begins to list, with the observations among those of `run`.
    pub(crate) fn join(
        self,
        run: Run,
        options: &ScanOptions,
        trust: Trusted,
        stop: CancellationToken,
    ) -> (Run, Ending) {
        let Self { sources, states, store, .. } = self;
        let observer = Observer::new(options, trust, store.clone());
        let CloudRun { observations, ended } = observe(sources, states, LIST_LIMIT, observer, stop);
        let (out, both) = mpsc::channel(IN_CHANNEL);
        let Run { observations: endpoints, refused, progress } = run;
        for from in [endpoints, observations] {
            tokio::spawn(forward(from, out.clone()));
        }
        (Run { observations: both, refused, progress }, Ending { ended, store })
    }
}

/// Ends with its source, or with the reader.
async fn forward(mut from: mpsc::Receiver<Observation>, to: mpsc::Sender<Observation>) {
    while let Some(observation) = from.recv().await {
        if to.send(observation).await.is_err() {
            return;
        }
    }
}

impl Ending {
    /// Says what could not be listed, and keeps what was, if its observations are `stored`. How many parts failed.
    pub(crate) async fn finish(self, stored: bool) -> Outcome<usize> {
        let ended = self.ended.await.map_err(|error| Problem::new(Exit::Machine, error.to_string()))?;
        let ended = ended.map_err(|error| Problem::new(Exit::Inventory, chain(&error)))?;
        let mut failures = 0;
        for listed in ended {
            for (part, error) in &listed.failed {
                failures += 1;
                let part = if part.is_empty() { String::new() } else { format!(" {part}") };
                eprintln!("error: {}{part}: {}", listed.source, crate::terminal::clean(&chain(error)));
            }
            if let Some(store) = self.store.as_ref().filter(|_| stored) {
                let kept = store.put_source_state(&listed.source, &listed.state.to_text(), now_us()).await;
                kept.map_err(|error| Problem::inventory(&error))?;
            }
        }
        Ok(failures)
    }
}
