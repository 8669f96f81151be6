//! `bulla keys top`: what key services do right now.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use cli::Global;
use cli::exit::{Exit, Outcome, Problem};
use cli::terminal::{Colour, Paint, width};
use cli::units;
use tokio_util::sync::CancellationToken;

use super::exposition::{Exposition, Rates};
use super::figures::View;
use super::screen::{Screen, text};
use super::services::{Away, Services, ServicesArgs, told};

/// Between two looks: shorter ones count little, longer ones are for `rate()` of Prometheus.
const INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

/// `bulla keys top`
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    services: ServicesArgs,
    /// Between two looks
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1s")]
    interval: Duration,
    /// Look twice, print what happened in between, and end; as it is where standard output is no terminal
    #[arg(long)]
    once: bool,
    /// Print it as JSON, once
    #[arg(long)]
    json: bool,
    /// When to colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Colour,
}

/// What a service showed, and when.
struct Look {
    at: Instant,
    shown: Exposition,
}

/// All services at one time, in their order.
type Looks = Vec<Result<Look, Away>>;

/// Runs it.
pub(crate) async fn run(args: &TopArgs, global: &Global) -> Outcome<Exit> {
    if !INTERVAL.contains(&args.interval) {
        return Err(Problem::usage("--interval is from 100ms to 1h")
            .hint("for longer ones keep figures in Prometheus"));
    }
    let services = Services::open(&args.services, global)?;
    if args.once || args.json || !std::io::stdout().is_terminal() {
        once(&services, args).await
    } else {
        live(&services, args).await
    }
}

async fn once(services: &Services, args: &TopArgs) -> Outcome<Exit> {
    let before = look(services).await;
    // Where all are away there is nothing to wait for.
    if before.iter().all(Result::is_err) {
        return told(&away(&before), 0);
    }
    tokio::time::sleep(args.interval).await;
    let view = view(&before, &look(services).await);
    let exit = told(&view.away, view.services)?;
    if args.json {
        let document =
            serde_json::to_string_pretty(&view).map_err(|error| Problem::new(Exit::Machine, error))?;
        cli::exit::print(&document)?;
    } else {
        cli::exit::print(&text(&view, Paint(args.color.on_stdout()), width()))?;
    }
    Ok(exit)
}

/// Until Ctrl-C. Services that are away are asked on.
async fn live(services: &Services, args: &TopArgs) -> Outcome<Exit> {
    let stop = cli::stop::on_signal()?;
    let paint = Paint(args.color.on_stdout());
    let screen = Screen::take().map_err(|error| Problem::output(&error))?;
    let show = |text: &str| screen.show(text).map_err(|error| Problem::output(&error));
    show(&paint.faint("looking …"))?;
    let Some(mut before) = until(&stop, look(services)).await else { return Ok(Exit::Ok) };
    loop {
        let next = async {
            tokio::time::sleep(args.interval).await;
            look(services).await
        };
        let Some(after) = until(&stop, next).await else { return Ok(Exit::Ok) };
        let foot = paint.faint(&format!("every {} ms; Ctrl-C ends", args.interval.as_millis()));
        show(&format!("{}\n\n{foot}", text(&view(&before, &after), paint, None)))?;
        before = after;
    }
}

/// `None` when told to stop.
async fn until<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        done = work => Some(done),
    }
}

async fn look(services: &Services) -> Looks {
    let answers = services.ask("/metrics").await;
    let at = Instant::now();
    let read = |(url, answer): (String, Result<String, Away>)| {
        let shown = Exposition::parse(&answer?);
        let why = "it shows no figures of a key service".to_owned();
        shown.map(|shown| Look { at, shown }).ok_or(Away { url, why })
    };
    answers.into_iter().map(read).collect()
}

fn away(looks: &Looks) -> Vec<Away> {
    looks.iter().filter_map(|look| look.as_ref().err().cloned()).collect()
}

/// What happened between two looks at the same services; of one that has just come back nothing is known yet.
fn view(before: &Looks, after: &Looks) -> View {
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
