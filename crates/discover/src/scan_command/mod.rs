//! `bulla scan`: runs a scan, from the arguments to the results and the exit code.

mod args;
pub mod clouds;
mod demo;
mod liveness;
mod metrics;
pub mod plan;
mod progress;
mod refusal;
mod storing;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::output::ReportFormat;
use cli::exit::{Exit, Outcome, Problem};
use cli::terminal::{self, Paint};
use cli::units::now_us;
use inventory::history::CloudCalls;
use scan::target::{TargetError, Targets};
use scan::{Estate, KnownEndpoints, Observation, Run, ScanOptions, Scanner};
use store::Store;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use args::ScanArgs;
pub use clouds::PrepareClouds;
use plan::Spec;
use progress::Bar;
use storing::ScanStorage;

use crate::database;
use crate::fail_on::FailOn;
use crate::output::{self, Report, ReportStyle, ScanSummary, Summary, Tally};
use crate::running_scans;
use crate::settings::ScannerSettings;

/// Maximum number of rejected targets that are printed. Further ones are counted.
const REFUSALS_SHOWN: u64 = 20;

type TargetSource = Box<dyn Iterator<Item = Result<scan::target::Target, TargetError>> + Send>;

/// Runs `bulla scan`. `prepare_clouds` connects to the clouds of `--clouds`.
pub async fn run(
    args: &ScanArgs,
    mut settings: ScannerSettings,
    prepare_clouds: PrepareClouds,
) -> Outcome<Exit> {
    plan::apply(args, &mut settings)?;
    let anything =
        !args.targets.is_empty() || args.again || args.resume.is_some() || args.demo || args.clouds.is_some();
    if !anything {
        return Err(Problem::usage("no targets given")
            .hint("name a host (`bulla scan example.com`), a list (@FILE), --again, or --demo"));
    }
    let stop = cli::stop::on_signal()?;
    let demo = if args.demo { Some(demo::start().await?) } else { None };
    let spec = Spec::of(args, &settings);
    let ended = if args.liveness {
        liveness::run(args, &spec, demo.as_ref(), &stop).await
    } else {
        Box::pin(scan(args, &settings, spec, demo.as_ref(), prepare_clouds, stop)).await
    };
    if let Some(demo) = demo {
        demo.stop().await;
    }
    ended
}

/// Returns the number of clouds and clusters in the file of `watch.clouds_file`. Unknown providers are rejected.
pub fn cloud_sources(file: &std::path::Path) -> Outcome<usize> {
    let read = clouds::read(file).map_err(|error| {
        Problem::usage(format_args!("watch.clouds_file {}: {error}", file.display()))
            .hint("the providers are aws, azure, gcp and kubernetes")
    })?;
    Ok(read.names().len())
}

/// Everything that a scan needs before its first probe.
struct PreparedScan {
    spec: Spec,
    targets: TargetSource,
    expected: Option<u64>,
    known: KnownEndpoints,
    storing: Option<ScanStorage>,
}

async fn scan(
    args: &ScanArgs,
    settings: &ScannerSettings,
    spec: Spec,
    demo: Option<&demo::Demo>,
    prepare_clouds: PrepareClouds,
    stop: CancellationToken,
) -> Outcome<Exit> {
    let fail_on = settings.scan.fail_on()?;
    let sink = output::sink(args.output_file.as_deref())?;
    let PreparedScan { spec, targets, expected, known, mut storing } =
        prepare(args, settings, spec, demo).await?;
    let clouds = match &args.clouds {
        Some(file) => {
            let in_flight = Some(spec.settings.in_flight).filter(|in_flight| *in_flight > 0);
            let store = storing.as_ref().map(ScanStorage::store);
            Some(clouds::prepare(file, in_flight, store, prepare_clouds).await?)
        }
        None => None,
    };
    let in_flight = clouds.as_ref().map(|clouds| clouds.raw);
    let scanner = scanner(&spec, demo, in_flight, args.deadline)?;

    let (started_at_us, began) = (now_us(), Instant::now());
    let report = output::report(settings.scan.output, sink, style(args, settings), started_at_us);
    let run = scanner.start(targets, known, stop.clone());
    let (run, listing) = match clouds {
        Some(clouds) => {
            let options = ScanOptions { revocation: scanner.revocation(), ..spec.scan_options()? };
            let (run, listing) = clouds.join(run, &options, spec.trust()?, stop.clone());
            (run, Some(listing))
        }
        None => (run, None),
    };
    let progress = Arc::clone(&run.progress);
    let bar = Bar::new(Arc::clone(&progress), expected, should_show_progress(args, settings));
    let mut collector = ResultCollector::new(report, started_at_us);
    collector.collect(run, &mut storing, &bar, &stop).await;
    bar.clear();

    let ResultCollector { mut tally, estate, report, invalid_targets, unwritable } = collector;
    let estate_overflowed = estate.overflowed();
    let estate = estate.finish();
    tally.observe_estate(&estate);
    let end = progress.snapshot();
    let mut closing = ScanSummary {
        started_at_us,
        elapsed: began.elapsed(),
        interrupted: stop.is_cancelled(),
        invalid_targets,
        repeated_targets: end.repeated,
        skipped: end.skipped,
        stored: None,
        not_stored: match (demo.is_some(), args.no_store) {
            (true, _) => "a demo; --db FILE keeps it",
            (false, true) => "--no-store",
            (false, false) => "store.enabled is false",
        },
        store_error: None,
        estate_overflowed,
    };
    let inventory = storing.as_ref().map(ScanStorage::store);
    if let Some(storing) = storing {
        if demo.is_none() {
            let samples = storing.samples();
            samples.probes(&end);
            match &listing {
                Some(listing) => CloudCalls::new(listing.pools.clone()).count(samples),
                // The duration of a resumed or interrupted scan is not recorded, because it depends on when the user stopped the
                // scan.
                None if args.resume.is_none() && !closing.interrupted => {
                    samples.scanned(end.finished, closing.elapsed);
                }
                None => {}
            }
        }
        store_remaining(storing, &tally, &mut closing).await;
    }
    if let Some(error) = unwritable {
        return Err(Problem::output(&error));
    }
    let stored = closing.store_error.is_none() && !closing.interrupted;
    let not_listed = match listing {
        Some(listing) => listing.finish(stored).await?,
        None => 0,
    };
    report.close(&tally, &estate, &closing).map_err(|error| Problem::output(&error))?;
    if let Some(store) = inventory.filter(|_| stored) {
        crate::inventory::after_scan(&store, &settings.inventory).await;
    }
    if let Some(path) = &args.metrics_file {
        metrics::write(path, &tally, &closing)?;
    }
    match conclude(&tally, &closing, fail_on)? {
        Exit::Ok if not_listed > 0 => Ok(Exit::Incomplete),
        exit => Ok(exit),
    }
}

fn scanner(
    spec: &Spec,
    demo: Option<&demo::Demo>,
    in_flight: Option<usize>,
    deadline: Option<Duration>,
) -> Outcome<Scanner> {
    let mut trust = spec.trust()?;
    let resolver = match demo {
        Some(demo) => demo.resolver(&mut trust),
        None => spec.resolver()?,
    };
    let mut options = spec.scan_options()?;
    options.in_flight = in_flight.or(options.in_flight);
    options.deadline = deadline;
    options.revocation = spec.revocation(&resolver, outbound::guard::Guard::default())?;
    Scanner::new(options, resolver, trust)
        .map_err(|error| Problem::new(Exit::Machine, cli::exit::chain(&error)))
}

/// Returns whether to show the progress bar: not with `--quiet`, and not if results are printed to the same terminal during the
/// scan.
fn should_show_progress(args: &ScanArgs, settings: &ScannerSettings) -> bool {
    let to_terminal = args.output_file.is_none() && std::io::stdout().is_terminal();
    let streams =
        matches!(settings.scan.output, ReportFormat::Json | ReportFormat::Jsonl | ReportFormat::Csv);
    !(args.quiet || streams && to_terminal)
}

/// Stores the remaining results, and the summary with the scan.
async fn store_remaining(storing: ScanStorage, tally: &Tally, closing: &mut ScanSummary) {
    let stowed = storing
        // `--resume` scans the endpoints that the deadline cancelled.
        .finish(closing.interrupted || tally.cancelled() > 0, |stored| {
            let closing = ScanSummary { stored: stored.cloned(), ..closing.clone() };
            storing::summary_json(&Summary::of(tally, &closing))
        })
        .await;
    closing.stored = stowed.stored;
    closing.store_error = stowed.error;
}

/// Returns the exit code. The most important reason has priority.
fn conclude(tally: &Tally, closing: &ScanSummary, fail_on: FailOn) -> Outcome<Exit> {
    if closing.interrupted {
        return Ok(Exit::Interrupted);
    }
    if let Some(error) = &closing.store_error {
        return Err(Problem::new(Exit::Inventory, error).hint(
            "the printed results are correct, but not all of them are stored: free disk space or repair the database, then \
             continue with `bulla scan --resume`",
        ));
    }
    if fail_on.fails(tally) {
        return Ok(Exit::Findings);
    }
    let nothing = tally.answered == 0 && closing.skipped == 0;
    Ok(if nothing || closing.invalid_targets > 0 || tally.cancelled() > 0 {
        Exit::Incomplete
    } else {
        Exit::Ok
    })
}

fn style(args: &ScanArgs, settings: &ScannerSettings) -> ReportStyle {
    let to_file = args.output_file.is_some();
    let colour = args.color == terminal::Colour::Always || !to_file && args.color.applies_to_stdout();
    ReportStyle {
        rows: settings.scan.table_rows,
        paint: Paint(colour),
        width: if to_file { None } else { terminal::width() },
        quiet: args.quiet,
        pem: args.include_pem,
    }
}

async fn prepare(
    args: &ScanArgs,
    settings: &ScannerSettings,
    mut spec: Spec,
    demo: Option<&demo::Demo>,
) -> Outcome<PreparedScan> {
    // A demo is not the user's estate, so it is stored only in a database that the user names.
    let stores = settings.store.enabled && (demo.is_none() || args.db.is_some());
    if !stores {
        if args.resume.is_some() || args.again {
            return Err(Problem::usage("an inventory is needed to resume or repeat a scan")
                .hint("set store.enabled, or name the targets"));
        }
        let (targets, expected) = given_targets(&spec, demo)?;
        return Ok(PreparedScan { spec, targets, expected, known: KnownEndpoints::default(), storing: None });
    }
    let url = database::inventory_url(args.db.as_deref(), &settings.store)?;
    let store = database::open(&url, &settings.store).await?;
    running_scans::mark_killed(&store).await;
    let resumed = match &args.resume {
        Some(wanted) => Some(storing::find_unfinished_scan(&store, wanted).await?),
        None => None,
    };
    if let Some(scan) = &resumed {
        spec = resumed_spec(args, scan)?;
    }
    let storing::EarlierResults { mut known, endpoints, by_address } =
        storing::earlier_results(&store, spec.again).await?;
    if let Some(scan) = &resumed {
        let observed = inventory::record::observed(&store, scan.id).await;
        known.observed = observed.map_err(|error| database::problem(&error))?;
    }
    let (targets, expected) =
        if spec.again { again(&store, &spec, endpoints, by_address) } else { given_targets(&spec, demo)? };
    let id = resumed.as_ref().map_or_else(Uuid::now_v7, |scan| scan.id);
    let storing =
        ScanStorage::begin(store, &url, id, resumed.is_some(), &spec.to_json(), &settings.store).await?;
    Ok(PreparedScan { spec, targets, expected, known, storing: Some(storing) })
}

/// Returns the targets of the spec or of the demo, and their number if it is known.
fn given_targets(spec: &Spec, demo: Option<&demo::Demo>) -> Outcome<(TargetSource, Option<u64>)> {
    let words = demo.map_or_else(|| spec.targets.clone(), demo::Demo::targets);
    let targets = Targets::new(words, spec.target_options()?);
    let expected = targets.expected();
    Ok((Box::new(targets), expected))
}

/// Returns the targets in the inventory, and their number.
fn again(store: &Store, spec: &Spec, endpoints: u64, by_address: u64) -> (TargetSource, Option<u64>) {
    let all_addresses = spec.settings.all_addresses;
    let mut expected = endpoints;
    if !all_addresses && by_address > 0 {
        let left_out = cli::units::counted(by_address, "endpoint");
        eprintln!(
            "note: {left_out} of scans with --all-addresses left out: add --all-addresses to scan them again"
        );
        expected = expected.saturating_sub(by_address);
    }
    (storing::again(store.clone(), all_addresses), Some(expected))
}

/// Returns the stored scan's spec. Targets given now replace those from standard input.
fn resumed_spec(args: &ScanArgs, scan: &store::ScanRow) -> Outcome<Spec> {
    let mut spec = Spec::from_json(&scan.spec)?;
    if !args.targets.is_empty() {
        spec.targets = args.targets.iter().map(|target| target.to_string_lossy().into_owned()).collect();
    } else if spec.targets.iter().any(|target| target == "-") {
        return Err(Problem::usage(format_args!("scan {} read its targets from standard input", scan.id))
            .hint("give them again: … | bulla scan --resume -"));
    }
    Ok(spec)
}

/// A collector that counts, reports and evaluates observations as they arrive.
struct ResultCollector {
    tally: Tally,
    estate: Estate,
    report: Box<dyn Report>,
    invalid_targets: u64,
    unwritable: Option<std::io::Error>,
}

impl ResultCollector {
    fn new(report: Box<dyn Report>, started_at_us: i64) -> Self {
        Self {
            tally: Tally::new(started_at_us),
            estate: Estate::default(),
            report,
            invalid_targets: 0,
            unwritable: None,
        }
    }

    async fn collect(
        &mut self,
        run: Run,
        storing: &mut Option<ScanStorage>,
        bar: &Bar,
        stop: &CancellationToken,
    ) {
        let Run { mut observations, mut refused, .. } = run;
        let status = storing.as_ref().map(ScanStorage::status);
        let mut tick = tokio::time::interval(Bar::interval());
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut refusing = true;
        loop {
            tokio::select! {
                next = observations.recv() => match next {
                    Some(observation) => {
                        self.observe(&observation, stop);
                        // `--resume` scans the endpoints that the deadline cancelled.
                        let ended = observation.outcome != scan::ProbeOutcome::Cancelled;
                        if let Some(storing) = storing.as_mut().filter(|_| ended) {
                            store_observation(storing, &observation, stop, bar).await;
                        }
                    }
                    None => break,
                },
                next = refused.recv(), if refusing => match next {
                    Some(error) => self.refuse(&error, bar),
                    None => refusing = false,
                },
                _ = tick.tick() => {
                    bar.update(status.as_ref().and_then(storing::waiting).as_deref());
                    self.write_report(|report| report.flush(), stop);
                }
            }
        }
        while let Ok(error) = refused.try_recv() {
            self.refuse(&error, bar);
        }
        if self.invalid_targets > REFUSALS_SHOWN {
            bar.print_line(&format!("error: and {} more targets", self.invalid_targets - REFUSALS_SHOWN));
        }
    }

    fn observe(&mut self, observation: &Observation, stop: &CancellationToken) {
        self.tally.observe(observation);
        self.estate.observe(observation);
        self.write_report(|report| report.observe(observation), stop);
    }

    /// Writes to the report, unless an earlier write failed. A write error stops the scan.
    fn write_report(
        &mut self,
        write: impl FnOnce(&mut dyn Report) -> std::io::Result<()>,
        stop: &CancellationToken,
    ) {
        if self.unwritable.is_some() {
            return;
        }
        if let Err(error) = write(&mut *self.report) {
            self.unwritable = Some(error);
            stop.cancel();
        }
    }

    fn refuse(&mut self, error: &TargetError, bar: &Bar) {
        self.invalid_targets += 1;
        if self.invalid_targets <= REFUSALS_SHOWN {
            bar.print_line(&format!("error: {}", refusal::text(error)));
        }
    }
}

/// Stores an observation. Keeps the progress bar updated while the database is slow.
async fn store_observation(
    storing: &mut ScanStorage,
    observation: &Observation,
    stop: &CancellationToken,
    bar: &Bar,
) {
    let status = storing.status();
    let mut storage = std::pin::pin!(storing.store_observation(observation, stop));
    loop {
        tokio::select! {
            biased;
            () = &mut storage => return,
            () = tokio::time::sleep(Bar::interval()) => bar.update(storing::waiting(&status).as_deref()),
        }
    }
}
