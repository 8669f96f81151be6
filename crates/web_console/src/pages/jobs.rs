//! Jobs: runs of issuance, renewal, deployment and revocation.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::Value;

use super::history;
use crate::api::Api;
use crate::cell::Cell;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Form, back, filters, parameter};
use crate::json;
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

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

async fn list(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let filters = filters(query);
    let cursor = Some(parameter::<String>(query, "cursor")).filter(|cursor| !cursor.is_empty());
    let mut path = format!("/api/v1/jobs?{filters}");
    if let Some(cursor) = &cursor {
        path = format!("{path}&cursor={}", api::path::segment(cursor));
    }
    let listing = visit.api.get(&path).await?;
    let table = table(&visit, "Jobs, newest first", &listing)
        .empty("No job matches. Take a filter away, or renew a certificate: its page has the action.")
        .paged(&listing, PAGE, &filters, cursor.as_deref())
        .exported("jobs", &filters);
    let of = |name| parameter::<String>(query, name);
    let body = Jobs { page: PAGE, states: STATES, kinds: KINDS, state: of("state"), kind: of("kind"), table };
    Page::new(&visit, "Jobs").command("bulla job list").reads(path).show(&body)
}

/// Deployments to all targets.
async fn deployments(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let filters = filters(query);
    let cursor = Some(parameter::<String>(query, "cursor")).filter(|cursor| !cursor.is_empty());
    let mut path = format!("/api/v1/deployments?{filters}");
    if let Some(cursor) = &cursor {
        path = format!("{path}&cursor={}", api::path::segment(cursor));
    }
    let listing = visit.api.get(&path).await?;
    let link = |list: &str, id: &str| Cell::link(format!("/console/{list}/{id}"), id);
    let columns = &["Certificate", "Target", "State", "Changed", "Attempts", "Error"];
    let table = Table::of("Deployments, newest first", columns, &listing, |one| {
        vec![
            link("certificates", json::text(one, "/certificate")),
            link("targets", json::text(one, "/target")),
            Cell::state(json::text(one, "/state")),
            Cell::time(json::text(one, "/updated_at"), visit.now),
            Cell::number(json::number(one, "/attempts")),
            Cell::text(json::text(one, "/error")),
        ]
    })
    .empty("No deployment matches. A certificate with targets is deployed by the agents there: `bulla target create`.")
    .paged(&listing, DEPLOYMENTS, &filters, cursor.as_deref())
    .exported("deployments", &filters);
    let state = parameter::<String>(query, "state");
    let body =
        Jobs { page: DEPLOYMENTS, states: DEPLOYMENT_STATES, kinds: &[], state, kind: String::new(), table };
    Page::new(&visit, "Deployments").command("bulla job deployments").reads(path).show(&body)
}

/// A listing of jobs as a table.
pub(super) fn table(visit: &Visit, caption: &str, listing: &Value) -> Table {
    Table::of(
        caption,
        &["Job", "Certificate", "State", "Next attempt", "Attempts", "Asked by", "Last error"],
        listing,
        |job| {
            let open = json::text(job, "/finished_at").is_empty();
            vec![
                Cell::link(format!("{PAGE}/{}", json::text(job, "/id")), json::text(job, "/kind")),
                certificate(job),
                Cell::state(json::text(job, "/state")),
                if open { Cell::time(json::text(job, "/next_attempt_at"), visit.now) } else { Cell::Empty },
                Cell::number(json::number(job, "/attempts")),
                Cell::text(json::text(job, "/requested_by")),
                Cell::text(json::text(job, "/last_error")),
            ]
        },
    )
}

fn certificate(job: &Value) -> Cell {
    Cell::link(format!("/console/certificates/{}", json::text(job, "/certificate")), json::text(job, "/name"))
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

async fn one(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = api_path(&id);
    let job = visit.api.get(&path).await?;
    let events = visit.api.get_if_allowed(&format!("{path}/events")).await?.unwrap_or_default();
    let manages = visit.may("job.manage");
    let state = json::text(&job, "/state");
    let body = One {
        page: format!("{PAGE}/{}", api::path::segment(&id)),
        csrf: visit.csrf().to_owned(),
        error: json::text(&job, "/last_error").to_owned(),
        facts: facts(&visit, &job),
        retried: manages && matches!(state, "planned" | "queued"),
        cancelled: manages && matches!(state, "planned" | "queued" | "awaiting_approval" | "awaiting_csr"),
        events: history::table(&visit, &events)
            .empty("The audit log has nothing about this run yet: it has not begun."),
    };
    Page::new(&visit, format!("Job: {} of {}", json::text(&job, "/kind"), json::text(&job, "/name")))
        .command(format!("bulla job show {id}"))
        .command(format!("bulla job events {id}"))
        .reads(path.clone())
        .reads(format!("{path}/events"))
        .show(&body)
}

fn facts(visit: &Visit, job: &Value) -> Facts {
    let text = |pointer| Cell::text(json::text(job, pointer));
    let time = |pointer| Cell::time(json::text(job, pointer), visit.now);
    let agent = match json::text(job, "/agent") {
        "" => Cell::Empty,
        agent => Cell::link(format!("/console/agents/{agent}"), agent),
    };
    Facts::default()
        .with("State", Cell::state(json::text(job, "/state")))
        .with("Certificate", certificate(job))
        .with("Issuer", text("/issuer"))
        .with("Agent", agent)
        .with("Reason", text("/reason"))
        .with("Asked by", text("/requested_by"))
        .with("Attempts", Cell::number(json::number(job, "/attempts")))
        .with(
            "Next attempt",
            if json::text(job, "/finished_at").is_empty() { time("/next_attempt_at") } else { Cell::Empty },
        )
        .with("Made", time("/created_at"))
        .with("First tried", time("/started_at"))
        .with("Ended", time("/finished_at"))
}

fn api_path(id: &str) -> String {
    format!("/api/v1/jobs/{}", api::path::segment(id))
}

async fn retry(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    act(&visit, &id, "retry", &form).await
}

async fn cancel(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    act(&visit, &id, "cancel", &form).await
}

async fn act(visit: &Visit, id: &str, action: &str, form: &Form) -> Result<Response, Failure> {
    let path = format!("{}/{action}", api_path(id));
    let answer = visit.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(back(&format!("{PAGE}/{}", api::path::segment(id)), "saved", &answer))
}
