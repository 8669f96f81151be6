//! `bulla scan --clouds FILE`: lists the certificates in clouds and clusters, concurrently with the scan.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cli::exit::{Exit, Outcome, Problem, chain};
use cli::units::now_us;
use clouds::{CloudSettings, CloudSource, Database, LIST_LIMIT, Listed, Machine, Pools, SourceError, State};
use futures_util::future::BoxFuture;
use inventory::sources::{Observer, keep, observe, source_states};
use scan::{Run, ScanOptions, Trusted};
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::database;

/// Function that creates the sources of a configuration, with credentials and clients. The caller passes it, because the SDKs of
/// clouds are not part of this crate.
pub type PrepareClouds =
    for<'a> fn(&'a CloudSettings, &'a Pools) -> BoxFuture<'a, Result<Vec<Arc<dyn CloudSource>>, SourceError>>;

/// Sources that are ready to be listed.
pub(crate) struct Clouds {
    sources: Vec<Arc<dyn CloudSource>>,
    states: HashMap<String, State>,
    store: Option<Store>,
    pools: Pools,
    /// Maximum number of endpoint probes that may run concurrently with the listings.
    pub(crate) raw: usize,
}

/// The listings in progress. Their results are available once all listings have ended.
pub(crate) struct RunningListings {
    ended: tokio::task::JoinHandle<Result<Vec<Listed>, inventory::sources::ObserveError>>,
    /// Call pools, which limit the rate and the concurrency of API calls.
    pub(crate) pools: Pools,
    store: Option<Store>,
}

/// Reads the sources from `file`, and their previous state from the inventory. `in_flight` is the scan's limit, if the user set
/// one.
pub(crate) async fn prepare(
    file: &Path,
    in_flight: Option<usize>,
    store: Option<Store>,
    prepare: PrepareClouds,
) -> Outcome<Clouds> {
    let refused = |error: String| Problem::usage(format_args!("--clouds {}: {error}", file.display()));
    let mut settings = read(file).map_err(refused)?;
    settings.pools.raw = settings.pools.raw.or(in_flight);
    let pools = pools(&settings, store.as_ref()).await?;
    let sources = prepare(&settings, &pools).await.map_err(|error| refused(chain(&error)))?;
    let states = match &store {
        Some(store) => source_states(store, &sources).await.map_err(|error| database::problem(&error))?,
        None => HashMap::new(),
    };
    Ok(Clouds { sources, states, store, raw: pools.raw(), pools })
}

/// Parses the sources in `file`. Returns an error as a message for the user.
pub fn read(file: &Path) -> Result<CloudSettings, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    toml::from_str(&text).map_err(|error| format!("{error}(docs/clouds.md has an example)"))
}

/// Returns the pools of the sources, checked against the limits of the machine and the database.
pub async fn pools(settings: &CloudSettings, store: Option<&Store>) -> Outcome<Pools> {
    let mut database = None;
    if let Some(store) = store {
        let connections = store.connections().await.map_err(|error| database::problem(&error))?;
        database = Some(Database { connections: connections.ours, connections_max: connections.servers });
    }
    let machine = Machine { descriptors: outbound::limits::descriptor_budget(), database };
    Pools::new(settings.pools.clone(), machine).map_err(|error| Problem::usage(&error).hint(error.hint()))
}

impl Clouds {
    /// Starts the listings, and merges their observations into the observations of `run`.
    pub(crate) fn join(
        self,
        run: Run,
        options: &ScanOptions,
        trust: Trusted,
        stop: CancellationToken,
    ) -> (Run, RunningListings) {
        let Self { sources, states, store, pools, .. } = self;
        let observer = Observer::new(options, trust, store.clone());
        let (run, ended) = observe(sources, states, LIST_LIMIT, observer, stop).merge_with(run);
        (run, RunningListings { ended, pools, store })
    }
}

impl RunningListings {
    /// Reports the parts of sources that could not be listed. If the observations are `stored`, also stores the state of the
    /// sources. Returns the number of failed parts.
    pub(crate) async fn finish(self, stored: bool) -> Outcome<usize> {
        let ended = self.ended.await.map_err(|error| Problem::new(Exit::Machine, error.to_string()))?;
        let ended = ended.map_err(|error| Problem::new(Exit::Inventory, chain(&error)))?;
        let mut failures = 0;
        for remark in ended.iter().flat_map(Listed::remark_texts) {
            tracing::warn!(error = remark, "cannot read additional data of the certificates, such as tags");
        }
        for failure in ended.iter().flat_map(Listed::failures) {
            failures += 1;
            eprintln!("error: {}", cli::terminal::clean(&failure));
        }
        if let Some(store) = self.store.as_ref().filter(|_| stored) {
            keep(store, &ended, now_us()).await.map_err(|error| database::problem(&error))?;
        }
        Ok(failures)
    }
}
