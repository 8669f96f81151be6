//! Settings: the server's components, and links to people, roles, tokens and rules.

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/settings";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(page))
        .route("/console/settings/master-key", get(confirm_rotate))
        .route("/console/settings/master-key/rotate", post(rotate))
}

async fn page(session: Session) -> Result<Response, Failure> {
    let servers = session.api.get_if_allowed("/api/v1/servers").await?;
    let scheduler = session.api.get_if_allowed("/api/v1/scheduler").await?;
    let keys = session.api.get_if_allowed("/api/v1/master-key").await?;
    let links = Actions::default()
        .link("/console/users", "Users")
        .link("/console/roles", "Roles")
        .link("/console/tokens", "API tokens")
        .link("/console/teams", "Teams")
        .link("/console/owners", "Owners")
        .link("/console/ownership-rules", "Ownership rules")
        .link("/console/limits", "Limits and retention");
    let mut parts = Sections::default().plain(&links)?;
    if let Some(servers) = &servers {
        parts = parts.section("servers", "Servers", &servers_table(&session, servers))?;
    }
    if let Some(scheduler) = &scheduler {
        parts = parts
            .section("scheduler", "Scheduler", &scheduler_facts(scheduler))?
            .section("due", "Due jobs by issuer", &due(scheduler))?
            .section("leases", "Leases", &leases(&session, scheduler))?;
    }
    if let Some(keys) = &keys {
        let rotation = Actions::default()
            .link(format!("{PAGE}/master-key"), "Rotate")
            .only_if(session.may("key.rotate"));
        parts = parts.section("master-key", "Master key", &master_key(keys))?.plain(&rotation)?;
    }
    Page::new(&session, "Settings")
        .command("bulla doctor")
        .command("bulla key master status")
        .reads("/api/v1/servers")
        .reads("/api/v1/scheduler")
        .reads("/api/v1/master-key")
        .show(&parts)
}

fn servers_table(session: &Session, servers: &Value) -> Table {
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
                Cell::time(json::text(server, "/started_at"), session.now),
                Cell::time(json::text(server, "/seen_at"), session.now),
            ]
        },
    )
    .exported("servers")
}

fn scheduler_facts(scheduler: &Value) -> Facts {
    Facts::default()
        .with("Running", Cell::number(json::number(scheduler, "/running")))
        .with("Waiting for approval", Cell::number(json::number(scheduler, "/awaiting_approval")))
        .with("Waiting for a certificate request", Cell::number(json::number(scheduler, "/awaiting_csr")))
}

fn due(scheduler: &Value) -> Table {
    let due = json!({ "items": scheduler.get("due").cloned().unwrap_or_default() });
    Table::of("Due jobs", &["Issuer", "Due", "Oldest delay"], &due, |one| {
        vec![
            Cell::text(json::text(one, "/issuer")),
            Cell::number(json::number(one, "/count")),
            Cell::text(format!("{} seconds", json::number(one, "/late_seconds"))),
        ]
    })
    .empty("No job is due.")
}

fn leases(session: &Session, scheduler: &Value) -> Table {
    let leases = json!({ "items": scheduler.get("leases").cloned().unwrap_or_default() });
    Table::of("Leases", &["Task", "Process", "Lease expires"], &leases, |one| {
        vec![
            Cell::text(json::text(one, "/name")),
            Cell::code(json::text(one, "/holder")),
            Cell::time(json::text(one, "/until"), session.now),
        ]
    })
    .empty("No server holds a lease.")
}

fn master_key(keys: &Value) -> Table {
    let rows = json!({ "items": keys.get("keys").cloned().unwrap_or_default() });
    Table::of("Master keys", &["Key", "State", "Values sealed under the key"], &rows, |key| {
        let state = match (json::flag(key, "/current"), json::flag(key, "/configured")) {
            (true, _) => Cell::badge(Tone::Good, "current"),
            (false, true) => Cell::badge(Tone::Calm, "older"),
            (false, false) => Cell::badge(Tone::Bad, "not configured here"),
        };
        vec![Cell::code(json::text(key, "/id")), state, Cell::number(json::number(key, "/values"))]
    })
}

async fn confirm_rotate(session: Session) -> Result<Response, Failure> {
    let keys = session.api.get("/api/v1/master-key").await?;
    let body = Confirmation::new(&session, format!("{PAGE}/master-key/rotate"), PAGE, "Re-wrap all values")
        .danger()
        .says(format!(
            "{} values are not sealed under the current master key {}. Each is re-wrapped under it.",
            json::number(&keys, "/remaining"),
            json::text(&keys, "/current"),
        ))
        .says("Keep the older keys configured until no value is sealed under them. To use a new key, configure it first.");
    Page::new(&session, "Rotate the master key?").command("bulla key master rotate").show(&body)
}

async fn rotate(session: Session, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::POST, "/api/v1/master-key/rotate", form.csrf(), None).await?;
    Ok(redirect(PAGE, "rotated", &answer))
}
