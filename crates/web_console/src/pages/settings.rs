//! Settings: what the server runs on, and the way to people, roles, tokens and rules.

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::ask::{Actions, Ask};
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Form, back};
use crate::json;
use crate::parts::{Note, Parts};
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

const PAGE: &str = "/console/settings";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(page))
        .route("/console/settings/master-key", get(ask_rotate))
        .route("/console/settings/master-key/rotate", post(rotate))
}

async fn page(visit: Visit) -> Result<Response, Failure> {
    let servers = visit.api.get_if_allowed("/api/v1/servers").await?;
    let scheduler = visit.api.get_if_allowed("/api/v1/scheduler").await?;
    let keys = visit.api.get_if_allowed("/api/v1/master-key").await?;
    let links = Actions::default()
        .link("/console/users", "Users")
        .link("/console/roles", "Roles")
        .link("/console/tokens", "API tokens")
        .link("/console/teams", "Teams")
        .link("/console/owners", "Owners")
        .link("/console/ownership-rules", "Ownership rules");
    let mut parts = Parts::default().plain(&links)?;
    if let Some(servers) = &servers {
        parts = parts.section("servers", "Servers", &servers_table(&visit, servers))?;
    }
    if let Some(scheduler) = &scheduler {
        parts = parts
            .section("scheduler", "Scheduler", &scheduler_facts(scheduler))?
            .section("due", "Runs that are due, by issuer", &due(scheduler))?
            .section("leases", "Work that one server does for all", &leases(&visit, scheduler))?;
    }
    if let Some(keys) = &keys {
        let rotation =
            Actions::default().link(format!("{PAGE}/master-key"), "Rotate").only_if(visit.may("key.rotate"));
        parts = parts.section("master-key", "Master key", &master_key(keys))?.plain(&rotation)?;
    }
    Page::new(&visit, "Settings")
        .command("bulla doctor")
        .command("bulla key master status")
        .reads("/api/v1/servers")
        .reads("/api/v1/scheduler")
        .reads("/api/v1/master-key")
        .show(&parts)
}

fn servers_table(visit: &Visit, servers: &Value) -> Table {
    Table::of(
        "Processes of the control plane",
        &["Host", "State", "Version", "Started", "Last seen"],
        servers,
        |server| {
            let state = match json::text(server, "/state") {
                "up" => Cell::badge(Tone::Good, "up"),
                "down" | "lost" => Cell::badge(Tone::Bad, json::text(server, "/state")),
                other => Cell::state(other),
            };
            vec![
                Cell::text(json::text(server, "/host")),
                state,
                Cell::text(json::text(server, "/version")),
                Cell::time(json::text(server, "/started_at"), visit.now),
                Cell::time(json::text(server, "/seen_at"), visit.now),
            ]
        },
    )
}

fn scheduler_facts(scheduler: &Value) -> Facts {
    Facts::default()
        .with("Runs with an issuer or an agent", Cell::number(json::number(scheduler, "/running")))
        .with("Wait for approval", Cell::number(json::number(scheduler, "/awaiting_approval")))
        .with("Wait for a certificate request", Cell::number(json::number(scheduler, "/awaiting_csr")))
}

fn due(scheduler: &Value) -> Table {
    let due = json!({ "items": scheduler.get("due").cloned().unwrap_or_default() });
    Table::of("Due runs", &["Issuer", "Due", "Oldest is late by"], &due, |one| {
        vec![
            Cell::text(json::text(one, "/issuer")),
            Cell::number(json::number(one, "/count")),
            Cell::text(format!("{} seconds", json::number(one, "/late_seconds"))),
        ]
    })
    .empty("Nothing is due.")
}

fn leases(visit: &Visit, scheduler: &Value) -> Table {
    let leases = json!({ "items": scheduler.get("leases").cloned().unwrap_or_default() });
    Table::of("Leases", &["Work", "Process", "Lease ends"], &leases, |one| {
        vec![
            Cell::text(json::text(one, "/name")),
            Cell::code(json::text(one, "/holder")),
            Cell::time(json::text(one, "/until"), visit.now),
        ]
    })
    .empty("No server holds a lease.")
}

fn master_key(keys: &Value) -> Table {
    let rows = json!({ "items": keys.get("keys").cloned().unwrap_or_default() });
    Table::of("Master keys", &["Key", "State", "Values sealed under it"], &rows, |key| {
        let state = match (json::flag(key, "/current"), json::flag(key, "/configured")) {
            (true, _) => Cell::badge(Tone::Good, "current"),
            (false, true) => Cell::badge(Tone::Calm, "older"),
            (false, false) => Cell::badge(Tone::Bad, "not configured here"),
        };
        vec![Cell::code(json::text(key, "/id")), state, Cell::number(json::number(key, "/values"))]
    })
}

async fn ask_rotate(visit: Visit) -> Result<Response, Failure> {
    let keys = visit.api.get("/api/v1/master-key").await?;
    let form = Ask::post(format!("{PAGE}/master-key/rotate"), visit.csrf(), "Wrap all values again", vec![])
        .danger(PAGE);
    let parts = Parts::default()
        .plain(&Note::hint(format!(
            "{} values are not sealed under the current master key {}. Each is wrapped again under it. Keep the older keys configured until none is left. To bring in a new key, configure it first.",
            json::number(&keys, "/remaining"),
            json::text(&keys, "/current"),
        )))?
        .plain(&form)?;
    Page::new(&visit, "Rotate the master key?").command("bulla key master rotate").show(&parts)
}

async fn rotate(visit: Visit, form: Form) -> Result<Response, Failure> {
    let answer = visit.api.change(Method::POST, "/api/v1/master-key/rotate", form.csrf(), None).await?;
    Ok(back(PAGE, "rotated", &answer))
}
