//! `bulla key trace`: shows how the services handled one request, from the records of all services that took part.

use clap::Args;
use cli::GlobalArgs;
use cli::control::segment;
use cli::exit::{Exit, Outcome, Problem};
use cli::format::TableOrJson;
use cli::terminal::{Colour, Paint, clean, shorten, table, width};
use comfy_table::{Cell, CellAlignment};
use keyless::traces;

use super::services::{Services, ServicesArgs, TRACES_MAX, UnreachableService, exit_code};
use super::tree::{Request, ServiceTraces, StageDurations, Tree};

/// Maximum characters of an id.
const ID_MAX: usize = 128;
/// Maximum number of characters shown of a key's name.
const KEY_DIGITS: usize = 13;

/// Arguments of `bulla key trace`.
#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    /// A trace (32 hexadecimal digits, as in `traceparent`) or the request id of a client; without an id, recent requests that
    /// failed or were slow
    id: Option<String>,
    #[command(flatten)]
    services: ServicesArgs,
    #[command(flatten)]
    format: TableOrJson,
    /// When to use colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Colour,
}

/// Runs `bulla key trace`.
pub(crate) async fn run(args: &TraceArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let is_json = args.format.is_json()?;
    let path = match &args.id {
        None => "/traces".to_owned(),
        Some(id) if id.is_empty() || id.chars().count() > ID_MAX => {
            return Err(Problem::usage(format_args!("an ID must have 1 to {ID_MAX} characters"))
                .hint("give the trace ID of a `traceparent`, or the request ID from the log"));
        }
        Some(id) => format!("/traces/{}", segment(id)),
    };
    let tree = read(&Services::open(&args.services, global)?, &path).await;
    let exit = exit_code(&tree.away, tree.services)?;
    if is_json {
        let document =
            serde_json::to_string_pretty(&tree).map_err(|error| Problem::new(Exit::Machine, error))?;
        cli::exit::print(&document)?;
    }
    match (&args.id, tree.requests.is_empty()) {
        (Some(id), true) => {
            // A service that is unavailable may have the trace.
            let (exit, report) = match tree.away.len() {
                0 => (Exit::Refused, format!("none of the services has a trace of {}", clean(id))),
                away => {
                    let all = tree.services + away;
                    let report = format!(
                        "none of the services that answered has a trace of {}; {away} of {all} are unreachable",
                        clean(id)
                    );
                    (Exit::Incomplete, report)
                }
            };
            let (requests_max, slow) = (traces::KEPT_MAX, traces::SLOW.as_millis());
            return Err(Problem::new(exit, report).hint(format!(
                "each service keeps the last {requests_max} requests that failed or took more than {slow} ms, and the last {requests_max} \
                 others with a traceparent or a request ID, until it is restarted; --url names more services"
            )));
        }
        (None, true) if !is_json => eprintln!("no request failed or was slow"),
        _ if is_json => {}
        _ => cli::exit::print(&text(&tree, Paint(args.color.applies_to_stdout()), width()))?,
    }
    if tree.more {
        eprintln!("there are more: each service returns the newest {}", traces::TRACES_FOUND_MAX);
    }
    Ok(exit)
}

pub(super) async fn read(services: &Services, path: &str) -> Tree {
    let (mut all, mut away) = (Vec::new(), Vec::new());
    for (url, answer) in services.fetch_all(path, TRACES_MAX).await {
        let read = answer.and_then(|text| {
            let strange = |error| UnreachableService {
                url: url.clone(),
                why: format!("its response is not a trace: {error}"),
            };
            serde_json::from_str::<ServiceTraces>(&text).map_err(strange)
        });
        match read {
            Ok(report) => all.push((url, report)),
            Err(unreachable) => away.push(unreachable),
        }
    }
    Tree::of(all, away)
}

/// Formats one line per request, and one per node that received it.
fn text(tree: &Tree, paint: Paint, width: Option<u16>) -> String {
    const HEAD: [&str; 10] =
        ["REQUEST", "AT", "TENANT", "KEY", "TOOK", "QUEUE", "CONNECT", "WIRE", "SIGN", "OUTCOME"];
    let mut shown = table(&HEAD, paint, width);
    for request in &tree.requests {
        shown.add_row(line(request, "", paint));
        for hop in &request.asked {
            let location = format!("  {} {} at {}", hop.why, clean(&hop.node), clean(&hop.site));
            let mut cells = vec![Cell::new(location), figure(&format!("+{}", ms(hop.after_us)))];
            cells.extend(["", ""].map(Cell::new));
            cells.push(figure(&hop.took_us.map(ms).unwrap_or_default()));
            cells.extend(["", "", "", ""].map(Cell::new));
            cells.push(outcome(&hop.outcome, None, paint));
            shown.add_row(cells);
            if let Some(below) = &hop.request {
                shown.add_row(line(below, "    ", paint));
            }
        }
    }
    let mut traces: Vec<&str> = tree.requests.iter().map(|request| request.trace_id.as_str()).collect();
    traces.sort_unstable();
    traces.dedup();
    match traces.as_slice() {
        [one] => format!("trace {}, times in ms\n{}", clean(one), shown.trim_fmt()),
        _ => {
            let ids: Vec<String> =
                tree.requests.iter().map(|one| clean(&one.trace_id).into_owned()).collect();
            let rows = shown.trim_fmt();
            format!("{rows}\n\ntraces, in this order (`bulla key trace ID`):\n{}", ids.join("\n"))
        }
    }
}

fn line(request: &Request, indent: &str, paint: Paint) -> Vec<Cell> {
    let location = match (&request.node, &request.site) {
        (Some(node), Some(site)) => format!("{node} at {site}"),
        _ => request.service.clone(),
    };
    let StageDurations { queue_us, connect_us, wire_us, sign_us } = request.stages;
    let stage = |us: Option<u64>| figure(&us.map(ms).unwrap_or_default());
    let key = request.key.as_deref().unwrap_or_default();
    vec![
        Cell::new(format!("{indent}{} by {}", clean(&request.opcode), clean(&location))),
        figure(&at(request.at_us)),
        Cell::new(clean(&request.tenant)),
        Cell::new(shorten(&clean(key), KEY_DIGITS)),
        figure(&ms(request.took_us)),
        stage(queue_us),
        stage(connect_us),
        stage(wire_us),
        stage(sign_us),
        outcome(&request.outcome, request.failure.as_deref(), paint),
    ]
}

fn outcome(word: &str, failure: Option<&str>, paint: Paint) -> Cell {
    let text = match failure {
        Some(failure) => format!("{}: {}", clean(word), clean(failure)),
        None => clean(word).into_owned(),
    };
    match word {
        "done" => paint.cell("ok", &text),
        "gone" | "taken-back" => paint.cell("faint", &text),
        _ => paint.cell("high", &text),
    }
}

fn figure(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn ms(us: u64) -> String {
    format!("{}.{:03}", us / 1_000, us % 1_000)
}

/// Formats a time as `17:40:01.123`.
fn at(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us)
        .map_or_else(|_| us.to_string(), |at| at.strftime("%H:%M:%S%.3f").to_string())
}
