//! Load of the key services, and single requests across nodes.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde_json::Value;

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Field, Form};
use crate::query::{item, parameter};
use crate::sections::{Note, Sections};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json};

const LOAD: &str = "/console/key-load";
const TRACES: &str = "/console/key-traces";

/// Help text: the place where the addresses of the services are configured.
const WHERE: &str = "The server reads the addresses in keys.monitor_urls of its configuration. Without any it reads the key service of its own process, if that has keys.metrics_listen.";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(LOAD, get(load))
        .route(TRACES, get(traces))
        .route("/console/key-traces/{id}", get(trace))
}

async fn load(session: Session) -> Result<Response, Failure> {
    let path = "/api/v1/key-load";
    let load = match Answer::of(session.api.get(path).await)? {
        Answer::Read(load) => load,
        Answer::Absent(why) => {
            let parts = Sections::default().plain(&Note::hint(why))?;
            return Page::new(&session, "Load of the key service").command("bulla key top").show(&parts);
        }
    };
    let facts = Facts::default()
        .with("Services", Cell::number(json::number(&load, "/services")))
        .with("Interval", text(&load, "/seconds", " s"))
        .with("Requests per second", figure(&load, "/requests_per_s"))
        .with("Errors per second", figure(&load, "/errors_per_s"))
        .with("Refused per second", figure(&load, "/refused_per_s"))
        .with("In progress", figure(&load, "/in_flight"))
        .with("Sent to other nodes, in progress", number_with_max(&load, "/elsewhere", "/elsewhere_max"))
        .with("Connections", number_with_max(&load, "/connections", "/connections_max"))
        .with("Retried per second", figure(&load, "/retried_per_s"))
        .with("Keys", figure(&load, "/keys"));
    let mut parts = Sections::default().plain(
        &Actions::default().link(TRACES, "Traces of requests").link("/console/keys", "Sites and nodes"),
    )?;
    if json::list(&load, "/away").is_empty() {
        parts = parts.plain(&facts)?;
    } else {
        parts = parts
            .section("away", "Services that do not respond", &unavailable_services(&load))?
            .plain(&facts)?;
    }
    let parts = parts
        .section("operations", "Rates by operation", &operations(&load))?
        .section("queues", "Queues of the signing stage", &queues(&load))?
        .section("tenants", "Tenants", &tenants(&load))?
        .section("sites", "Other sites", &sites(&load))?
        .section("destinations", "Security modules and clouds", &destinations(&load))?;
    Page::new(&session, "Load of the key service").command("bulla key top").reads(path).show(&parts)
}

/// The response of the API, or the reason why there is none.
enum Answer {
    Read(Value),
    Absent(String),
}

impl Answer {
    /// Converts the result of an API request. A missing permission, or a server that reads no key service, becomes
    /// [`Self::Absent`].
    ///
    /// # Errors
    /// Any other failure.
    fn of(result: Result<Value, Failure>) -> Result<Self, Failure> {
        match result {
            Ok(value) => Ok(Self::Read(value)),
            Err(Failure::Refused(problem)) if problem.status == 403 => Ok(Self::Absent(
                "The load and the traces of key services need the permission node.read, which you do not have. Ask an administrator for a role that has it."
                    .to_owned(),
            )),
            Err(Failure::Refused(problem)) if problem.status == 503 => {
                Ok(Self::Absent(format!("This server reads no key service. {WHERE}")))
            }
            Err(other) => Err(other),
        }
    }
}

/// Returns the services that do not respond.
fn unavailable_services(answer: &Value) -> Table {
    let rows = json::list(answer, "/away").iter();
    let rows = rows.map(|one| vec![Cell::code(json::text(one, "/url")), Cell::text(json::text(one, "/why"))]);
    Table::new("Services that do not respond", &["Address", "Error"], rows)
}

/// Returns a table of the objects in a list.
fn list_table(
    caption: &str,
    columns: &[&'static str],
    answer: &Value,
    pointer: &str,
    row: impl Fn(&Value) -> Vec<Cell>,
) -> Table {
    Table::new(caption, columns, json::list(answer, pointer).iter().map(row))
}

fn operations(load: &Value) -> Table {
    let columns =
        ["Operation", "Requests/s", "Errors/s", "Refused/s", "In progress", "Queued", "Median", "p99"];
    list_table("Rates by operation", &columns, load, "/opcodes", |one| {
        vec![
            Cell::text(json::text(one, "/opcode")),
            figure(one, "/requests_per_s"),
            figure(one, "/errors_per_s"),
            figure(one, "/refused_per_s"),
            figure(one, "/in_flight"),
            figure(one, "/queued"),
            text(one, "/p50_ms", " ms"),
            text(one, "/p99_ms", " ms"),
        ]
    })
    .empty("No request in this interval.")
}

fn queues(load: &Value) -> Table {
    let columns =
        ["Cost", "Busy", "Workers", "Waiting", "Done/s", "Refused/s", "Late/s", "Wait", "Signature"];
    list_table("Queues by cost of the operation", &columns, load, "/classes", |one| {
        let busy = one.get("busy").and_then(Value::as_f64).unwrap_or_default() * 100.0;
        let tone = if busy >= 90.0 {
            Tone::Bad
        } else if busy >= 70.0 {
            Tone::Warn
        } else {
            Tone::Good
        };
        vec![
            Cell::text(json::text(one, "/cost")),
            Cell::badge(tone, format!("{busy:.0} %")),
            number_with_max(one, "/working", "/running_max"),
            number_with_max(one, "/waiting", "/waiting_max"),
            figure(one, "/done_per_s"),
            figure(one, "/refused_per_s"),
            figure(one, "/late_per_s"),
            text(one, "/wait_ms", " ms"),
            text(one, "/sign_ms", " ms"),
        ]
    })
    .empty("No service responds.")
}

fn tenants(load: &Value) -> Table {
    let columns = ["Tenant", "Requests/s", "Refused/s", "In progress", "Mean"];
    list_table("Tenants, the busiest first", &columns, load, "/tenants", |one| {
        vec![
            Cell::text(json::text(one, "/tenant")),
            figure(one, "/requests_per_s"),
            figure(one, "/refused_per_s"),
            number_with_max(one, "/in_flight", "/in_flight_max"),
            text(one, "/mean_ms", " ms"),
        ]
    })
    .empty("No tenant has sent a request.")
}

fn sites(load: &Value) -> Table {
    let columns = ["Site", "Nodes", "Round trip", "Requests/s", "Errors/s", "In progress", "Median", "p99"];
    list_table("Other sites", &columns, load, "/sites", |one| {
        let site = json::text(one, "/site");
        vec![
            Cell::link(item("/console/key-sites", site), site),
            figure(one, "/nodes_up"),
            text(one, "/round_trip_ms", " ms"),
            figure(one, "/requests_per_s"),
            figure(one, "/errors_per_s"),
            number_with_max(one, "/in_flight", "/in_flight_max"),
            text(one, "/p50_ms", " ms"),
            text(one, "/p99_ms", " ms"),
        ]
    })
    .empty("The services know no other site.")
}

fn destinations(load: &Value) -> Table {
    let columns = ["Destination", "Requests/s", "Errors/s", "Refused/s", "In progress"];
    list_table("Security modules and clouds", &columns, load, "/destinations", |one| {
        vec![
            Cell::text(json::text(one, "/destination")),
            figure(one, "/requests_per_s"),
            figure(one, "/errors_per_s"),
            figure(one, "/refused_per_s"),
            number_with_max(one, "/in_flight", "/in_flight_max"),
        ]
    })
    .empty("Every key is in the services themselves.")
}

/// Formats a number without needless decimals.
fn number(value: &Value, pointer: &str) -> Option<String> {
    let number = value.pointer(pointer).and_then(Value::as_f64)?;
    Some(if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") })
}

fn figure(value: &Value, pointer: &str) -> Cell {
    number(value, pointer).map_or(Cell::Empty, Cell::Number)
}

fn text(value: &Value, pointer: &str, unit: &str) -> Cell {
    number(value, pointer).map_or(Cell::Empty, |number| Cell::Number(format!("{number}{unit}")))
}

/// Formats a number together with its limit.
fn number_with_max(value: &Value, pointer: &str, max: &str) -> Cell {
    match (number(value, pointer), number(value, max)) {
        (Some(number), Some(max)) if max != "0" => Cell::Number(format!("{number} of {max}")),
        (Some(number), _) => Cell::Number(number),
        _ => Cell::Empty,
    }
}

async fn traces(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let id = parameter::<String>(query.as_deref(), "id");
    let id = id.trim();
    if !id.is_empty() {
        return Ok(Redirect::to(&item(TRACES, id)).into_response());
    }
    let answer = Answer::of(session.api.get("/api/v1/key-traces").await)?;
    let empty = "No recent request failed or was slow.";
    let parts = Sections::default().plain(&search(""))?;
    let parts = requests(parts, &answer, "Requests that failed or were slow", empty)?;
    Page::new(&session, "Traces of the key service")
        .command("bulla key trace")
        .reads("/api/v1/key-traces")
        .show(&parts)
}

async fn trace(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/key-traces", &id);
    let answer = Answer::of(session.api.get(&path).await)?;
    let empty = "No service that responded knows this ID. Each keeps recent requests in memory until it is restarted.";
    let parts = requests(Sections::default().plain(&search(&id))?, &answer, "Course of the request", empty)?;
    Page::new(&session, format!("Trace {id}"))
        .command(format!("bulla key trace {id}"))
        .reads(path)
        .show(&parts)
}

fn search(id: &str) -> Form {
    let field = Field::search("id", "Trace or request ID").value(id);
    Form::filters(
        TRACES,
        vec![field.hint("32 hexadecimal digits, as in traceparent, or the request ID that the log shows.")],
    )
}

/// Adds a table of the requests in an API response to a page.
fn requests(parts: Sections, answer: &Answer, heading: &str, empty: &str) -> Result<Sections, Failure> {
    let answer = match answer {
        Answer::Read(answer) => answer,
        Answer::Absent(why) => return parts.plain(&Note::hint(why)),
    };
    let columns = [
        "Request",
        "Time",
        "Tenant",
        "Key",
        "Duration",
        "Queue",
        "Connect",
        "Wire",
        "Signature",
        "Outcome",
        "Trace",
    ];
    let mut rows = Vec::new();
    for request in json::list(answer, "/requests") {
        rows.push(line(request, "", true));
        for hop in json::list(request, "/asked") {
            rows.push(hop_line(hop));
            if let Some(below) = hop.get("request").filter(|below| below.is_object()) {
                rows.push(line(below, "\u{a0}\u{a0}\u{a0}\u{a0}", false));
            }
        }
    }
    let table = Table::new(heading, &columns, rows).empty(empty);
    let parts = parts.section("requests", heading, &table)?;
    if json::list(answer, "/away").is_empty() {
        return Ok(parts);
    }
    parts.section("away", "Services that do not respond", &unavailable_services(answer))
}

fn line(request: &Value, indent: &str, has_link: bool) -> Vec<Cell> {
    let of = |pointer| json::text(request, pointer);
    let location = match (of("/node"), of("/site")) {
        ("", _) => of("/service").to_owned(),
        (node, site) => format!("{node} at {site}"),
    };
    let trace = of("/trace_id");
    let at = request
        .get("at_us")
        .and_then(Value::as_i64)
        .and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    vec![
        Cell::text(format!("{indent}{} by {location}", of("/opcode"))),
        at.map_or(Cell::Empty, |at| Cell::text(at.strftime("%F %T%.3f").to_string())),
        Cell::text(of("/tenant")),
        Cell::text(format::shortened(of("/key"), 13)),
        milliseconds(request, "/took_us"),
        milliseconds(request, "/stages/queue_us"),
        milliseconds(request, "/stages/connect_us"),
        milliseconds(request, "/stages/wire_us"),
        milliseconds(request, "/stages/sign_us"),
        outcome(of("/outcome"), of("/failure")),
        if has_link { Cell::link(item(TRACES, trace), format::shortened(trace, 8)) } else { Cell::Empty },
    ]
}

fn hop_line(hop: &Value) -> Vec<Cell> {
    let of = |pointer| json::text(hop, pointer);
    let mut cells = vec![
        Cell::text(format!("\u{a0}\u{a0}{} {} at {}", of("/why"), of("/node"), of("/site"))),
        number(hop, "/after_us").map_or(Cell::Empty, |_| match milliseconds(hop, "/after_us") {
            Cell::Number(after) => Cell::text(format!("after {after}")),
            other => other,
        }),
        Cell::Empty,
        Cell::Empty,
        milliseconds(hop, "/took_us"),
    ];
    cells.extend(std::iter::repeat_n(Cell::Empty, 4));
    cells.extend([outcome(of("/outcome"), ""), Cell::Empty]);
    cells
}

fn milliseconds(value: &Value, pointer: &str) -> Cell {
    let us = value.pointer(pointer).and_then(Value::as_i64);
    us.map_or(Cell::Empty, |us| Cell::Number(format!("{}.{:03} ms", us / 1_000, us % 1_000)))
}

fn outcome(word: &str, failure: &str) -> Cell {
    let tone = match word {
        "done" => Tone::Good,
        "gone" | "taken-back" => Tone::Calm,
        _ => Tone::Bad,
    };
    let text = if failure.is_empty() { word.to_owned() } else { format!("{word}: {failure}") };
    Cell::badge(tone, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn key_load_numbers_are_formatted_with_limits_and_units() {
        let load = json!({ "a": 2.0, "max": 8.0, "b": 0.125, "none": null, "zero": 0.0 });
        let shown = |cell: Cell| match cell {
            Cell::Number(text) => text,
            _ => String::new(),
        };
        assert_eq!(shown(number_with_max(&load, "/a", "/max")), "2 of 8");
        assert_eq!(shown(number_with_max(&load, "/a", "/zero")), "2");
        assert_eq!(shown(text(&load, "/b", " ms")), "0.12 ms");
        assert_eq!(shown(figure(&load, "/none")), "");
        assert_eq!(shown(milliseconds(&json!({ "us": 1_234_005 }), "/us")), "1234.005 ms");
    }

    #[test]
    fn the_page_says_whether_a_permission_or_a_key_service_is_missing() {
        let refused = |status| Err(Failure::refused(status, "", ""));
        let absent = |status| match Answer::of(refused(status)).unwrap() {
            Answer::Absent(why) => why,
            Answer::Read(answer) => panic!("{answer}"),
        };
        let forbidden = absent(http::StatusCode::FORBIDDEN);
        assert!(forbidden.contains("node.read") && !forbidden.contains("monitor_urls"), "{forbidden}");
        assert!(absent(http::StatusCode::SERVICE_UNAVAILABLE).contains("keys.monitor_urls"));
        assert!(Answer::of(refused(http::StatusCode::INTERNAL_SERVER_ERROR)).is_err());
    }

    #[test]
    fn request_and_hop_rows_have_equal_column_counts() {
        let request = json!({
            "node": "a", "site": "s", "trace_id": "t", "opcode": "sign", "outcome": "done", "took_us": 5,
            "stages": { "queue_us": 1 }, "asked": [{ "node": "b", "site": "x", "why": "first", "after_us": 2, "outcome": "done" }],
        });
        assert_eq!(line(&request, "", true).len(), hop_line(&request["asked"][0]).len());
    }
}
