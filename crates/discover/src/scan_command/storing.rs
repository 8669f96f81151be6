//! Writes a scan to the inventory, and reads the results of earlier scans.

use std::time::Duration;

use cli::exit::{Outcome, Problem, chain};
use cli::units::now_us;
use inventory::history::Samples;
use inventory::record::{identity, target};
use inventory::{Recording, RecordingError, ScanEnd};
use scan::target::{Protocol, Target, TargetError};
use scan::{KnownEndpoints, Observation};
use store::{Clock, KnownEndpoint, ScanRow, ScanState, Status, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::database;
use crate::output::record::Detail;
use crate::output::{Stored, Summary};
use crate::running_scans::RunningScan;
use crate::store_settings::StoreSettings;

/// Rows per page when all rows are read.
const PAGE_ROWS: usize = 1_000;
/// Maximum size of the inventory, in endpoints, for a lookup of unresponsive endpoints before a scan with given targets. Such a
/// lookup takes a fifth of a second. In a larger inventory the lookup costs more time than it saves.
const SILENT_LOOKUP_MAX: u64 = 100_000;
/// Timeout for a database that does not respond, once the scan should stop.
const LAST_TRY_TIMEOUT: Duration = Duration::from_millis(1_000);

/// An open inventory with a scan in progress.
pub(crate) struct ScanStorage {
    store: Store,
    scan: Uuid,
    shown_url: String,
    recording: Recording,
    samples: Samples,
    running: Option<RunningScan>,
}

/// The result of storing: the scan and its counts, or the error.
pub(crate) struct StoreOutcome {
    pub(crate) stored: Option<Stored>,
    pub(crate) error: Option<String>,
}

impl ScanStorage {
    /// Records that a scan begins or resumes, and accepts its observations.
    pub(crate) async fn begin(
        store: Store,
        url: &store::StoreUrl,
        scan: Uuid,
        resumed: bool,
        spec: &str,
        settings: &StoreSettings,
    ) -> Outcome<Self> {
        let running = RunningScan::begin(scan)?;
        let begun = if resumed {
            store::Scans::of(&store).resume(scan).await
        } else {
            store::Scans::of(&store).begin(scan, now_us(), spec).await
        };
        if let Err(error) = begun {
            running.into_iter().for_each(RunningScan::end);
            return Err(database::problem(&error));
        }
        let samples = Samples::new(Clock::system());
        let retry_timeout = Duration::from_secs(settings.patience_s);
        let recording = Recording::start(store.clone(), scan, retry_timeout, Some(&samples));
        Ok(Self { store, scan, shown_url: url.to_string(), recording, samples, running })
    }

    /// Queues an observation for storage. Waits while the database is slow, but only for a moment once `stop` is cancelled.
    pub(crate) async fn store_observation(&mut self, observation: &Observation, stop: &CancellationToken) {
        let detail = serde_json::to_string(&Detail::of(observation)).unwrap_or_default();
        // Observations that were not recorded are reported at the end of the scan.
        self.recording.record(observation, detail, after(stop)).await;
    }

    /// Returns the open inventory database.
    pub(crate) fn store(&self) -> Store {
        self.store.clone()
    }

    /// Returns the performance samples of the scan, which are stored together with the last results of the scan.
    pub(crate) fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Returns the status of the task that writes observations to the inventory.
    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.recording.status()
    }

    /// Stores the remaining observations, and records how the scan ended.
    pub(crate) async fn finish(
        self,
        interrupted: bool,
        summary: impl Fn(Option<&Stored>) -> String,
    ) -> StoreOutcome {
        let Self { store, scan, shown_url, recording, samples, running } = self;
        let gave_up = StoreOutcome {
            stored: None,
            error: Some(
                "the database did not store the last results before the timeout; continue with --resume"
                    .into(),
            ),
        };
        let end = if interrupted { ScanEnd::Interrupted } else { ScanEnd::Complete };
        let totals = match recording.finish(end).await {
            Ok(totals) => totals,
            Err(RecordingError::OutOfTime) => return gave_up,
            Err(error) => return StoreOutcome { stored: None, error: Some(chain(&error)) },
        };
        let stored = Stored {
            inventory: shown_url,
            scan: scan.to_string(),
            observations: totals.recorded.inserted,
            new_certificates: totals.recorded.new_certificates,
            changed: totals.recorded.changed,
        };
        let state = if interrupted { ScanState::Interrupted } else { ScanState::Finished };
        let error =
            match store::Scans::of(&store).finish(scan, now_us(), state, &summary(Some(&stored))).await {
                Ok(()) => {
                    running.into_iter().for_each(RunningScan::end);
                    None
                }
                Err(error) => Some(chain(&error)),
            };
        match tokio::time::timeout(LAST_TRY_TIMEOUT, samples.store(&store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = chain(&error), "cannot store the scan's history"),
            Err(_) => tracing::debug!("the scan's history was not stored before the timeout"),
        }
        StoreOutcome { stored: Some(stored), error }
    }
}

async fn after(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_TRY_TIMEOUT).await;
}

/// Returns the text for the progress bar while the writer waits; `None` while it does not wait.
pub(crate) fn waiting(status: &watch::Receiver<Status>) -> Option<String> {
    match &*status.borrow() {
        Status::Healthy => None,
        Status::Waiting { since, error } => {
            Some(format!("{error} (for {})", cli::units::elapsed(since.elapsed())))
        }
    }
}

/// Returns the summary that is stored with the scan.
pub(crate) fn summary_json(summary: &Summary<'_>) -> String {
    serde_json::to_string(summary).unwrap_or_default()
}

/// Returns the scan to resume: `last`, or a scan by its id.
pub(crate) async fn find_unfinished_scan(store: &Store, wanted: &str) -> Outcome<ScanRow> {
    let inventory = |error: StoreError| database::problem(&error);
    if wanted == "last" {
        let last =
            store::Scans::of(store).latest_unfinished().await.map_err(inventory)?.ok_or_else(|| {
                Problem::usage("no scan was interrupted").hint("`bulla inventory scans` lists them")
            })?;
        return require_unpruned(last);
    }
    let id = wanted.parse::<Uuid>().map_err(|_| {
        Problem::usage(format_args!("{wanted:?} is not a scan ID")).hint("`bulla inventory scans` lists them")
    })?;
    let scan = store::Scans::of(store).get(id).await.map_err(inventory)?.ok_or_else(|| {
        Problem::usage(format_args!("the inventory has no scan {id}"))
            .hint("`bulla inventory scans` lists them")
    })?;
    if scan.state == ScanState::Finished {
        return Err(Problem::usage(format_args!("scan {id} is complete")).hint("start a new scan"));
    }
    require_unpruned(scan)
}

/// Rejects a scan whose observations were pruned, because resuming it would probe those endpoints again.
fn require_unpruned(scan: ScanRow) -> Outcome<ScanRow> {
    let Some(pruned_us) = scan.pruned_at_us else { return Ok(scan) };
    let day = cli::units::day(pruned_us.div_euclid(1_000_000));
    Err(Problem::usage(format_args!(
        "scan {} cannot be resumed: its observations were pruned on {day} (inventory.observations_days)",
        scan.id
    ))
    .hint("start a new scan"))
}

/// The endpoints that did not respond in earlier scans, and the numbers of endpoints in the inventory.
pub(crate) struct EarlierResults {
    pub(crate) known: KnownEndpoints,
    /// Number of endpoints in the inventory. Counting may stop at a maximum.
    pub(crate) endpoints: u64,
    /// Number of these endpoints that are single addresses of a host name, from scans with `--all-addresses`.
    pub(crate) by_address: u64,
}

/// Returns the endpoints that did not respond last time, so that they are scanned last. `all`: look them up in an inventory of any
/// size.
pub(crate) async fn earlier_results(store: &Store, all: bool) -> Outcome<EarlierResults> {
    let inventory = |error: StoreError| database::problem(&error);
    let mut before = EarlierResults { known: KnownEndpoints::default(), endpoints: 0, by_address: 0 };
    if !all
        && store::Inventory::of(store).summary(now_us(), 0).await.map_err(inventory)?.endpoints
            > SILENT_LOOKUP_MAX
    {
        return Ok(before);
    }
    let mut after = None;
    loop {
        let page = store::Inventory::of(store)
            .known_endpoints(after.as_ref(), PAGE_ROWS)
            .await
            .map_err(inventory)?;
        before.endpoints += page.rows.len() as u64;
        before.by_address += page.rows.iter().filter(|row| by_address(row)).count() as u64;
        let silent = page.rows.iter().filter(|row| row.silent);
        before.known.silent.extend(silent.filter_map(|row| identity(&row.endpoint)));
        after = page.next;
        if after.is_none() {
            return Ok(before);
        }
    }
}

fn by_address(row: &KnownEndpoint) -> bool {
    !row.endpoint.address.is_empty()
}

/// Returns all endpoints of the inventory, read page by page as the scan consumes them. Single addresses of names are included only in a
/// scan of all addresses. Other scans would treat the name as a new endpoint.
pub(crate) fn again(
    store: Store,
    all_addresses: bool,
) -> Box<dyn Iterator<Item = Result<Target, TargetError>> + Send> {
    let (give, mut take) = mpsc::channel(2 * PAGE_ROWS);
    tokio::spawn(async move {
        let mut after = None;
        loop {
            let page = match store::Inventory::of(&store).known_endpoints(after.as_ref(), PAGE_ROWS).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(error = chain(&error), "cannot read the inventory completely");
                    return;
                }
            };
            let wanted = page.rows.iter().filter(|row| all_addresses || !by_address(row));
            // Certificates in clouds are listed by their source, not probed.
            let targets = wanted.filter_map(|row| target(&row.endpoint));
            for target in targets.filter(|target| !matches!(target.protocol, Protocol::Cloud(_))) {
                if give.send(Ok(target)).await.is_err() {
                    return;
                }
            }
            after = page.next;
            if after.is_none() {
                return;
            }
        }
    });
    // The scan reads its targets on a separate thread, where blocking is allowed.
    Box::new(std::iter::from_fn(move || take.blocking_recv()))
}
