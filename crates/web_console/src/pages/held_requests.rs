//! Held requests of the proxy in this process, which wait for approval: the list, and the decision about a request.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::session::Session;
use crate::shell::{Page, quoted};
use crate::table::Table;

/// Console path of the list of held requests.
pub(super) const PAGE: &str = "/console/proxy/held";
/// API path of the list of held requests.
pub(super) const LIST: &str = "/api/v1/proxy/held";
/// Permission to approve and reject held requests.
const DECIDE: &str = "proxy.decide";

/// The choices of how long an approval applies: value in seconds (empty: once), text.
const TIMES: &[(&str, &str)] = &[
    ("", "only this request"),
    ("900", "equal requests for 15 minutes"),
    ("3600", "equal requests for 1 hour"),
    ("28800", "equal requests for 8 hours"),
    ("86400", "equal requests for 24 hours"),
];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/proxy/held/{id}", get(one))
        .route("/console/proxy/held/{id}/approve", post(approve))
        .route("/console/proxy/held/{id}/reject", post(reject))
}

#[derive(Template)]
#[template(path = "held_requests.html")]
struct HeldRequests {
    /// `None` if no proxy runs in this process.
    table: Option<Table>,
}

async fn list(session: Session) -> Result<Response, Failure> {
    let table = match session.api.get(LIST).await {
        Ok(listing) => Some(table(&session, &listing).exported("held-requests")),
        // This process has no proxy.
        Err(Failure::Refused(problem)) if problem.status == 503 => None,
        Err(other) => return Err(other),
    };
    Page::new(&session, "Held requests")
        .command("bulla proxy held")
        .command("bulla proxy approve ID --for 1h")
        .reads(LIST)
        .show(&HeldRequests { table })
}

/// Returns the table of held requests. Each row links to the page that approves or rejects the request.
pub(super) fn table(session: &Session, listing: &Value) -> Table {
    let row = |request: &Value| {
        vec![
            Cell::link(path_of(request), json::text(request, "/client")),
            Cell::text(json::text(request, "/method")),
            Cell::text(json::text(request, "/url")),
            Cell::text(json::text(request, "/rule")),
            Cell::text(json::joined(request, "/credentials")),
            Cell::time(json::text(request, "/since"), session.now),
            Cell::time(json::text(request, "/deadline"), session.now),
        ]
    };
    let columns = &["Client", "Method", "URL", "Rule", "Credentials", "Arrived", "Deadline"];
    Table::of("Requests that wait for an approval", columns, listing, row)
        .empty("No request is held. Requests that match a rule with action = \"hold\" wait here until a person decides.")
}

fn path_of(request: &Value) -> String {
    format!("{PAGE}/{}", api::path::segment(json::text(request, "/id")))
}

fn api_path(id: &str) -> String {
    format!("{LIST}/{}", api::path::segment(id))
}

/// Returns the properties of a held request, with the names of the credentials that the proxy adds after approval.
fn facts(session: &Session, request: &Value) -> Facts {
    let text = |pointer| Cell::text(json::text(request, pointer));
    let credentials = match json::joined(request, "/credentials") {
        none if none.is_empty() => Cell::text("none"),
        names => Cell::text(names),
    };
    Facts::default()
        .with("State", Cell::badge(Tone::Warn, "held"))
        .with("Identity", text("/identity"))
        .with("User", text("/user"))
        .with("Client", text("/client"))
        .with("Method", text("/method"))
        .with("URL", Cell::code(json::text(request, "/url")))
        .with("Rule", text("/rule"))
        .with("Credentials", credentials)
        .with("Arrived", Cell::time(json::text(request, "/since"), session.now))
        .with("Deadline", Cell::time(json::text(request, "/deadline"), session.now))
}

#[derive(Template)]
#[template(path = "held_request.html")]
struct One<'a> {
    page: String,
    csrf: &'a str,
    decides: bool,
    facts: Facts,
    times: &'static [(&'static str, &'static str)],
    /// A rule for the configuration file that allows such requests; empty if no rule can match the request.
    rule: &'a str,
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = api_path(&id);
    let request = session.api.get(&path).await?;
    let body = One {
        page: path_of(&request),
        csrf: session.csrf(),
        decides: session.may(DECIDE),
        facts: facts(&session, &request),
        times: TIMES,
        rule: json::text(&request, "/allowing_rule"),
    };
    let id = json::text(&request, "/id");
    Page::new(&session, "Held request")
        .command(format!("bulla proxy approve {}", quoted(id)))
        .command(format!("bulla proxy reject {} --reason TEXT", quoted(id)))
        .reads(path)
        .show(&body)
}

async fn approve(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let mut body = Map::new();
    if let Some(seconds) = form.field("for_s") {
        let seconds: u64 = seconds.parse().map_err(|_| {
            let hint = "go back and choose how long the approval applies";
            Failure::refused(StatusCode::BAD_REQUEST, "for_s is not a number of seconds", hint)
        })?;
        body.insert("for_s".to_owned(), seconds.into());
    }
    decide(&session, &id, "approve", &form, &Value::Object(body)).await?;
    Ok(redirect(PAGE, "approved", &Value::Null))
}

async fn reject(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let body = json!({ "reason": form.field("reason") });
    decide(&session, &id, "reject", &form, &body).await?;
    Ok(redirect(PAGE, "rejected", &Value::Null))
}

async fn decide(
    session: &Session,
    id: &str,
    action: &str,
    form: &FormData,
    body: &Value,
) -> Result<(), Failure> {
    let path = format!("{}/{action}", api_path(id));
    session.api.change(Method::POST, &path, form.csrf(), Some(body)).await.map(drop)
}
