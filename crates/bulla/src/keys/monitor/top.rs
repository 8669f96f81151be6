//! `bulla key top`: current figures of key services.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem};
use cli::format::TableOrJson;
use cli::terminal::{Colour, Paint, width};
use cli::units;
use tokio_util::sync::CancellationToken;

use super::exposition::{Exposition, Rates};
use super::figures::View;
use super::screen::{Screen, text};
use super::services::{METRICS_MAX, Services, ServicesArgs, UnreachableService, exit_code};

/// Bounds of the interval between two samples. Shorter intervals have few events; for longer ones use `rate()` of Prometheus.
const INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

/// Arguments of `bulla key top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    services: ServicesArgs,
    /// Interval between two samples
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1s")]
    interval: Duration,
    /// Print the figures of one interval, and exit; the default for JSON, and if standard output is no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    format: TableOrJson,
    /// When to use colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Colour,
}

/// The metrics of a service at one time.
pub(super) struct Sample {
    at: Instant,
    shown: Exposition,
}

/// The samples of all services at one time, in the order of the services.
pub(super) type Samples = Vec<Result<Sample, UnreachableService>>;

/// Runs `bulla key top`.
pub(crate) async fn run(args: &TopArgs, global: &GlobalArgs) -> Outcome<Exit> {
    if !INTERVAL.contains(&args.interval) {
        return Err(Problem::usage("--interval must be from 100ms to 1h")
            .hint("for longer intervals, collect the metrics with Prometheus"));
    }
    let is_json = args.format.is_json()?;
    let services = Services::open(&args.services, global)?;
    if args.once || is_json || !std::io::stdout().is_terminal() {
        once(&services, args).await
    } else {
        live(&services, args).await
    }
}

async fn once(services: &Services, args: &TopArgs) -> Outcome<Exit> {
    let before = sample(services).await;
    // If no service responds, there is nothing to wait for.
    if before.iter().all(Result::is_err) {
        return exit_code(&away(&before), 0);
    }
    tokio::time::sleep(args.interval).await;
    let view = view(&before, &sample(services).await);
    let exit = exit_code(&view.away, view.services)?;
    if args.format.is_json()? {
        let document =
            serde_json::to_string_pretty(&view).map_err(|error| Problem::new(Exit::Machine, error))?;
        cli::exit::print(&document)?;
    } else {
        cli::exit::print(&text(&view, Paint(args.color.applies_to_stdout()), width()))?;
    }
    Ok(exit)
}

/// Updates the screen until Ctrl-C. Unavailable services are retried.
async fn live(services: &Services, args: &TopArgs) -> Outcome<Exit> {
    let stop = cli::stop::on_signal()?;
    let paint = Paint(args.color.applies_to_stdout());
    let screen = Screen::take().map_err(|error| Problem::output(&error))?;
    let show = |text: &str| screen.show(text).map_err(|error| Problem::output(&error));
    show(&paint.faint("looking …"))?;
    let Some(mut before) = until(&stop, sample(services)).await else { return Ok(Exit::Ok) };
    loop {
        let next = async {
            tokio::time::sleep(args.interval).await;
            sample(services).await
        };
        let Some(after) = until(&stop, next).await else { return Ok(Exit::Ok) };
        let foot = paint.faint(&format!("every {} ms; Ctrl-C ends", args.interval.as_millis()));
        show(&format!("{}\n\n{foot}", text(&view(&before, &after), paint, None)))?;
        before = after;
    }
}

/// Awaits `work`. Returns `None` if `stop` is cancelled first.
async fn until<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        done = work => Some(done),
    }
}

pub(super) async fn sample(services: &Services) -> Samples {
    let answers = services.fetch_all("/metrics", METRICS_MAX).await;
    let at = Instant::now();
    let read = |(url, answer): (String, Result<String, UnreachableService>)| {
        let shown = Exposition::parse(&answer?);
        let why = "its response contains no metrics of a key service".to_owned();
        shown.map(|shown| Sample { at, shown }).ok_or(UnreachableService { url, why })
    };
    answers.into_iter().map(read).collect()
}

fn away(samples: &Samples) -> Vec<UnreachableService> {
    samples.iter().filter_map(|sample| sample.as_ref().err().cloned()).collect()
}

/// Returns the figures between two samples of the same services. A service that has only the second sample has no figures yet.
pub(super) fn view(before: &Samples, after: &Samples) -> View {
    let (mut all, mut services, mut longest) = (Rates::default(), 0, Duration::ZERO);
    for (before, after) in before.iter().zip(after) {
        if let (Ok(before), Ok(after)) = (before, after) {
            let between = after.at.saturating_duration_since(before.at);
            all.add(&Rates::between(&before.shown, &after.shown, between.as_secs_f64()));
            services += 1;
            longest = longest.max(between);
        }
    }
    View::of(&all, services, away(after), longest.as_secs_f64())
}
