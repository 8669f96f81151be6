//! Jobs: runs of issuance, renewal, deployment and revocation.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::Value;

use crate::api::Api;
use crate::cell::Cell;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::history;
use crate::json;
use crate::listing::Listing;
use crate::names::Names;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/jobs";

const DEPLOYMENTS: &str = "/console/deployments";

const DEPLOYMENT_STATES: &[&str] = &["waiting", "deployed", "unchanged", "failed", "rolled_back", "broken"];

const STATES: &[&str] =
    &["planned", "queued", "running", "awaiting_approval", "awaiting_csr", "done", "failed", "cancelled"];

const KINDS: &[&str] = &["issuance", "renewal", "deployment", "revocation"];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/jobs/{id}", get(one))
        .route("/console/jobs/{id}/retry", post(retry))
        .route("/console/jobs/{id}/cancel", post(cancel))
        .route(DEPLOYMENTS, get(deployments))
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct Jobs {
    page: &'static str,
    states: &'static [&'static str],
    kinds: &'static [&'static str],
    state: String,
    kind: String,
    table: Table,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, "/api/v1/jobs", query).await?;
    let table = listing
        .table("Jobs, newest first", COLUMNS, |job| row(&session, job))
        .empty("No job matches. Remove a filter, or renew a certificate on its page.")
        .exported("jobs");
    let of = |name| parameter::<String>(query, name);
    let body = Jobs { page: PAGE, states: STATES, kinds: KINDS, state: of("state"), kind: of("kind"), table };
    Page::new(&session, "Jobs").command("bulla job list").reads(listing.path()).show(&body)
}

/// Shows deployments to all targets.
async fn deployments(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, DEPLOYMENTS, "/api/v1/deployments", query).await?;
    let certificates = Names::read(&session, "certificates").await?;
    let targets = Names::read(&session, "targets").await?;
    let columns = &["Certificate", "Target", "State", "Changed", "Attempts", "Error"];
    let table = listing.table("Deployments, newest first", columns, |one| {
        vec![
            certificates.link(json::text(one, "/certificate")),
            targets.link(json::text(one, "/target")),
            Cell::state(json::text(one, "/state")),
            Cell::time(json::text(one, "/updated_at"), session.now),
            Cell::number(json::number(one, "/attempts")),
            Cell::text(json::text(one, "/error")),
        ]
    })
    .empty("No deployment matches. A certificate with targets is deployed by the agents there: `bulla target create`.")
    .exported("deployments");
    let state = parameter::<String>(query, "state");
    let body =
        Jobs { page: DEPLOYMENTS, states: DEPLOYMENT_STATES, kinds: &[], state, kind: String::new(), table };
    Page::new(&session, "Deployments").command("bulla job deployments").reads(listing.path()).show(&body)
}

const COLUMNS: &[&str] =
    &["Job", "Certificate", "State", "Next attempt", "Attempts", "Requested by", "Last error"];

pub(super) fn table(session: &Session, caption: &str, listing: &Value) -> Table {
    Table::of(caption, COLUMNS, listing, |job| row(session, job))
}

fn row(session: &Session, job: &Value) -> Vec<Cell> {
    let open = json::text(job, "/finished_at").is_empty();
    vec![
        Cell::link(item(PAGE, json::text(job, "/id")), json::text(job, "/kind")),
        certificate(job),
        Cell::state(json::text(job, "/state")),
        if open { Cell::time(json::text(job, "/next_attempt_at"), session.now) } else { Cell::Empty },
        Cell::number(json::number(job, "/attempts")),
        Cell::text(json::text(job, "/requested_by")),
        Cell::text(json::text(job, "/last_error")),
    ]
}

fn certificate(job: &Value) -> Cell {
    Cell::link(item("/console/certificates", json::text(job, "/certificate")), json::text(job, "/name"))
}

#[derive(Template)]
#[template(path = "job.html")]
struct One {
    page: String,
    csrf: String,
    error: String,
    facts: Facts,
    retried: bool,
    cancelled: bool,
    events: Table,
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = api_path(&id);
    let job = session.api.get(&path).await?;
    let events = session.api.get_if_allowed(&format!("{path}/events")).await?.unwrap_or_default();
    let manages = session.may("job.manage");
    let state = json::text(&job, "/state");
    let body = One {
        page: item(PAGE, &id),
        csrf: session.csrf().to_owned(),
        error: json::text(&job, "/last_error").to_owned(),
        facts: facts(&session, &job),
        retried: manages && matches!(state, "planned" | "queued"),
        cancelled: manages && matches!(state, "planned" | "queued" | "awaiting_approval" | "awaiting_csr"),
        events: history::table(&session, &events)
            .empty("The audit log has no event for this run yet: the run has not started."),
    };
    Page::new(&session, format!("Job: {} of {}", json::text(&job, "/kind"), json::text(&job, "/name")))
        .command(format!("bulla job show {id}"))
        .command(format!("bulla job events {id}"))
        .reads(path.clone())
        .reads(format!("{path}/events"))
        .show(&body)
}

fn facts(session: &Session, job: &Value) -> Facts {
    let text = |pointer| Cell::text(json::text(job, pointer));
    let time = |pointer| Cell::time(json::text(job, pointer), session.now);
    let agent = match json::text(job, "/agent") {
        "" => Cell::Empty,
        agent => Cell::link(item("/console/agents", agent), agent),
    };
    Facts::default()
        .with("State", Cell::state(json::text(job, "/state")))
        .with("Certificate", certificate(job))
        .with("Issuer", text("/issuer"))
        .with("Agent", agent)
        .with("Reason", text("/reason"))
        .with("Requested by", text("/requested_by"))
        .with("Attempts", Cell::number(json::number(job, "/attempts")))
        .with(
            "Next attempt",
            if json::text(job, "/finished_at").is_empty() { time("/next_attempt_at") } else { Cell::Empty },
        )
        .with("Created", time("/created_at"))
        .with("First attempt", time("/started_at"))
        .with("Finished", time("/finished_at"))
}

fn api_path(id: &str) -> String {
    item("/api/v1/jobs", id)
}

async fn retry(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &id, "retry", &form).await
}

async fn cancel(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &id, "cancel", &form).await
}

async fn perform(session: &Session, id: &str, action: &str, form: &FormData) -> Result<Response, Failure> {
    let path = format!("{}/{action}", api_path(id));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&item(PAGE, id), "saved", &answer))
}
