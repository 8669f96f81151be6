//! Watches: scans that the server runs on a schedule.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Field, Form};
use crate::form_data::{FormData, redirect};
use crate::format::duration;
use crate::json;
use crate::listing::Listing;
use crate::query::item;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/watches";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/watches/new", get(new_form))
        .route("/console/watches/{id}", get(one))
        .route("/console/watches/{id}/edit", get(edit_form).post(edit))
        .route("/console/watches/{id}/remove", get(confirm_remove).post(remove))
        .route("/console/watches/{id}/pause", post(pause))
        .route("/console/watches/{id}/resume", post(resume))
        .route("/console/watches/{id}/run", post(run))
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/watches", query.as_deref()).await?;
    let series = session.api.get_if_allowed("/api/v1/history").await?;
    let table = Table::of(
        "Watches",
        &[
            "Name",
            "State",
            "Group",
            "Interval",
            "Next run",
            "Last run",
            "Answering",
            "Changed",
            "New certificates",
        ],
        listing.answer(),
        |watch| row(&session, watch),
    )
    .empty("No watch yet. Add one: the server then scans its targets on schedule.");
    let actions =
        Actions::default().link(format!("{PAGE}/new"), "New watch").only_if(session.may("inventory.manage"));
    let mut parts = Sections::default().plain(&actions)?.live(
        "list",
        "All watches",
        "watch.",
        &listing.paged(table).exported("watches"),
    )?;
    if let Some(series) = &series {
        parts = parts.section("history", "Compared with the last seven days", &history(&session, series))?;
    }
    Page::new(&session, "Watches")
        .command("bulla watch list")
        .command("bulla watch history")
        .reads(listing.path())
        .reads("/api/v1/history")
        .show(&parts)
}

fn row(session: &Session, watch: &Value) -> Vec<Cell> {
    let last = watch.get("last_run").filter(|last| !last.is_null());
    let count =
        |name: &str| last.and_then(|last| last.pointer(&format!("/counts/{name}"))).and_then(Value::as_i64);
    let count = |name: &str| count(name).map_or(Cell::Empty, Cell::number);
    vec![
        Cell::link(item(PAGE, json::text(watch, "/id")), json::text(watch, "/name")),
        Cell::state(json::text(watch, "/state")),
        Cell::text(json::text(watch, "/group")),
        Cell::text(duration(json::number(watch, "/interval_s"))),
        next_run(session, watch),
        Cell::state(json::text(watch, "/last_run/outcome")),
        count("answered"),
        count("changed"),
        count("new_certificates"),
    ]
}

/// Returns the time of the next run; empty for a paused watch.
fn next_run(session: &Session, watch: &Value) -> Cell {
    if !json::flag(watch, "/enabled") {
        return Cell::Empty;
    }
    Cell::time(json::text(watch, "/next_run_at"), session.now)
}

/// Returns a table of scan durations, error rates and other metrics of the scanner.
fn history(session: &Session, series: &Value) -> Table {
    let figure = |value: &Value, pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_f64)
            .map_or(Cell::Empty, |it| Cell::Number(format!("{it:.2}")))
    };
    Table::of("Scan statistics", &["Series", "Unit", "Verdict", "Since", "Now", "Usual"], series, |one| {
        vec![
            Cell::text(json::text(one, "/series")),
            Cell::text(json::text(one, "/unit")),
            Cell::state(json::text(one, "/verdict")),
            Cell::time(json::text(one, "/since"), session.now),
            figure(one, "/value"),
            figure(one, "/baseline_value"),
        ]
    })
    .empty("No statistics yet: they start with the first runs.")
}

/// A run in progress. The page reloads every two seconds until the run ends.
#[derive(Template)]
#[template(path = "watch_run.html")]
struct Run {
    href: String,
    state: String,
    busy: bool,
    done: i64,
    of: Option<i64>,
    words: String,
}

fn running(watch: &Value) -> Run {
    let state = json::text(watch, "/state").to_owned();
    let of = watch.pointer("/progress/endpoints").and_then(Value::as_i64);
    let done = json::number(watch, "/progress/endpoints_done");
    let words = match (state.as_str(), of) {
        ("running", Some(of)) => format!("{done} of {of} endpoints are stored."),
        ("running", None) => format!("{done} endpoints and certificates are stored."),
        ("due" | "waiting", _) => "The run is waiting for a server.".to_owned(),
        ("paused", _) => "Paused: no run starts.".to_owned(),
        _ => "No run is in progress.".to_owned(),
    };
    let busy = matches!(state.as_str(), "running" | "due" | "waiting");
    Run { href: item(PAGE, json::text(watch, "/id")), state, busy, done, of, words }
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = at(&id);
    let watch = session.api.get(&path).await?;
    let name = json::text(&watch, "/name");
    let mut parts = Sections::default()
        .plain(&actions(&session, &watch))?
        .live("run", "Run", "watch.", &running(&watch))?
        .live("last", "Last run", "watch.", &last_run(&session, &watch))?;
    if let Some(worst) = worst(&watch) {
        parts = parts.live("worst", "Endpoints by worst finding", "watch.", &worst)?;
    }
    parts = parts.live("settings", "Schedule", "watch.", &settings(&session, &watch))?.section(
        "targets",
        "Targets",
        &targets(&watch),
    )?;
    Page::new(&session, name)
        .command(format!("bulla watch show {name}"))
        .command("bulla inventory diff")
        .reads(path)
        .show(&parts)
}

fn at(id: &str) -> String {
    item("/api/v1/watches", id)
}

fn actions(session: &Session, watch: &Value) -> Actions {
    let page = item(PAGE, json::text(watch, "/id"));
    let enabled = json::flag(watch, "/enabled");
    let mut actions = Actions::default();
    if enabled {
        actions = actions.button(format!("{page}/run"), session.csrf(), "Scan now").button(
            format!("{page}/pause"),
            session.csrf(),
            "Pause",
        );
    } else {
        actions = actions.button(format!("{page}/resume"), session.csrf(), "Resume");
    }
    actions
        .link(format!("{page}/edit"), "Edit")
        .danger(format!("{page}/remove"), "Remove")
        .only_if(session.may("inventory.manage"))
}

fn last_run(session: &Session, watch: &Value) -> Facts {
    let count = |name: &str| {
        let count = watch.pointer(&format!("/last_run/counts/{name}")).and_then(Value::as_i64);
        count.map_or(Cell::Empty, Cell::number)
    };
    let outcome = match json::text(watch, "/last_run/outcome") {
        "" => Cell::text("none yet"),
        outcome => Cell::state(outcome),
    };
    Facts::default()
        .with("Outcome", outcome)
        .with("Started", Cell::time(json::text(watch, "/last_run/began_at"), session.now))
        .with("Finished", Cell::time(json::text(watch, "/last_run/ended_at"), session.now))
        .with("Error", Cell::text(json::text(watch, "/last_run/error")))
        .with("Endpoints", count("endpoints"))
        .with("Answered with a certificate", count("answered"))
        .with("Changed since the previous run", count("changed"))
        .with("New certificates", count("new_certificates"))
        .with("Sources not listed", count("not_listed"))
        .with("Scan", Cell::code(json::text(watch, "/last_run/scan")))
}

fn worst(watch: &Value) -> Option<Facts> {
    let worst = watch.pointer("/last_run/counts/worst_findings")?.as_object()?;
    let severities =
        [("critical", "Critical"), ("high", "High"), ("medium", "Medium"), ("low", "Low"), ("info", "Info")];
    let facts = severities.into_iter().fold(Facts::default(), |facts, (name, term)| {
        facts.with(term, worst.get(name).and_then(Value::as_i64).map_or(Cell::Empty, Cell::number))
    });
    (!worst.is_empty()).then_some(facts)
}

fn settings(session: &Session, watch: &Value) -> Facts {
    Facts::default()
        .with("Interval", Cell::text(duration(json::number(watch, "/interval_s"))))
        .with("Maximum jitter", Cell::text(duration(json::number(watch, "/jitter_s"))))
        .with("Next run", next_run(session, watch))
        .with("Group", Cell::text(json::text(watch, "/group")))
        .with("Ports", Cell::text(json::text(watch, "/ports")))
        .with("Server names", Cell::text(json::joined(watch, "/server_names")))
        .with("STARTTLS", Cell::text(json::text(watch, "/starttls")))
        .with("Sources", Cell::text(json::joined(watch, "/sources")))
        .with("Changed", Cell::time(json::text(watch, "/updated_at"), session.now))
}

#[derive(Template)]
#[template(path = "watch_targets.html")]
struct Targets {
    targets: Vec<String>,
}

fn targets(watch: &Value) -> Targets {
    let targets = json::list(watch, "/targets").iter().filter_map(Value::as_str);
    Targets { targets: targets.map(str::to_owned).collect() }
}

fn fields(watch: &Value) -> Vec<Field> {
    let minutes = match json::number(watch, "/interval_s") {
        0 => 360,
        seconds => seconds / 60,
    };
    let lines = |pointer: &str| {
        let texts: Vec<&str> = json::list(watch, pointer).iter().filter_map(Value::as_str).collect();
        texts.join("\n")
    };
    vec![
        Field::line("name", "Name")
            .value(json::text(watch, "/name"))
            .hint("Letters, digits, \".\", \"_\" and \"-\".")
            .required(),
        Field::lines("targets", "Targets, one per line").value(lines("/targets")).hint(
            "Hosts, addresses, networks and URLs: www.example.net, 192.0.2.0/24, smtp://mx.example.net.",
        ),
        Field::line("ports", "Ports")
            .value(json::text(watch, "/ports"))
            .hint("For targets without a port: 443,8443,9000-9010. Empty: 443."),
        Field::line("server_names", "Server names")
            .value(json::joined(watch, "/server_names"))
            .hint("Sent as SNI to targets without a name, separated by commas."),
        Field::line("sources", "Clouds and clusters")
            .value(json::joined(watch, "/sources"))
            .hint("Configured on the server: aws, aws/123456789012, all. Separated by commas."),
        Field::number("minutes", "Minutes between runs").value(minutes.to_string()).required(),
        Field::line("group", "Group").value(json::text(watch, "/group")),
        Field::checkbox("all_addresses", "Scan every address of a name")
            .checked(json::flag(watch, "/all_addresses")),
    ]
}

/// Returns the request body for the API, from a form and the watch before the change.
fn body(form: &FormData, before: &Value) -> Value {
    let minutes = form.field("minutes").and_then(|minutes| minutes.parse::<i64>().ok()).unwrap_or_default();
    let interval = minutes.saturating_mul(60);
    json!({
        "name": form.text("name"),
        "group": form.text("group"),
        "targets": form.words("targets"),
        "sources": form.words("sources"),
        "ports": form.field("ports"),
        "server_names": form.words("server_names"),
        "starttls": before.get("starttls"),
        "all_addresses": form.is_checked("all_addresses"),
        "interval_s": interval,
        "jitter_s": interval / 10,
        "enabled": before.get("enabled").and_then(Value::as_bool).unwrap_or(true),
    })
}

async fn new_form(session: Session) -> Result<Response, Failure> {
    let form = Form::post(PAGE, session.csrf(), "Add the watch", fields(&Value::Null));
    Page::new(&session, "New watch")
        .command("bulla watch add NAME www.example.net 192.0.2.0/24 --every 6h")
        .show(&form)
}

async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = body(&form, &Value::Null);
    let created = session.api.change(Method::POST, "/api/v1/watches", form.csrf(), Some(&body)).await?;
    Ok(redirect(&item(PAGE, json::text(&created, "/id")), "created", &created))
}

async fn edit_form(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let watch = session.api.get(&at(&id)).await?;
    let name = json::text(&watch, "/name");
    let action = format!("{}/edit", page(&id));
    let form = Form::post(action, session.csrf(), "Save", fields(&watch));
    Page::new(&session, format!("Change {name}"))
        .command(format!("bulla watch set {name} --every 6h"))
        .show(&form)
}

async fn edit(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let before = session.api.get(&at(&id)).await?;
    let body = body(&form, &before);
    let answer = session.api.change(Method::PUT, &at(&id), form.csrf(), Some(&body)).await?;
    Ok(redirect(&page(&id), "saved", &answer))
}

fn page(id: &str) -> String {
    item(PAGE, id)
}

async fn confirm_remove(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let watch = session.api.get(&at(&id)).await?;
    let name = json::text(&watch, "/name");
    let targets = json::list(&watch, "/targets").len();
    let body = Confirmation::new(&session, format!("{}/remove", page(&id)), page(&id), "Delete the watch")
        .danger()
        .says(format!(
            "Its {targets} targets are not scanned any more, so changes and expiry there raise no alert."
        ))
        .says("Results of its scans stay in the inventory.");
    Page::new(&session, format!("Delete {name}?")).command(format!("bulla watch remove {name}")).show(&body)
}

async fn remove(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &at(&id), form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

async fn pause(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &id, "pause", "saved", &form).await
}

async fn resume(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &id, "resume", "saved", &form).await
}

async fn run(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &id, "run", "scanning", &form).await
}

async fn perform(
    session: &Session,
    id: &str,
    what: &str,
    done: &str,
    form: &FormData,
) -> Result<Response, Failure> {
    let path = format!("{}/{what}", at(id));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&page(id), done, &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_watch_is_busy_and_shows_its_progress() {
        let run = running(&json!({
            "id": "a", "state": "running", "progress": {"endpoints": 10, "endpoints_done": 4}
        }));
        assert!(run.busy);
        assert_eq!((run.done, run.of), (4, Some(10)));
        assert!(!running(&json!({"id": "a", "state": "planned"})).busy);
    }
}
