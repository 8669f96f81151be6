//! Deployment targets: where agents put certificates.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::ask::{Actions, Ask, Field};
use crate::cell::Cell;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Form, back};
use crate::json;
use crate::listed::Listed;
use crate::parts::{Note, Parts};
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

const PAGE: &str = "/console/targets";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/targets/new", get(ask_new))
        .route("/console/targets/{id}", get(one))
        .route("/console/targets/{id}/remove", get(ask_remove).post(remove))
}

async fn list(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listed = Listed::read(&visit, "/api/v1/targets", query.as_deref()).await?;
    let actions =
        Actions::default().link(format!("{PAGE}/new"), "New target").only_if(visit.may("target.manage"));
    let agent = Field::line("agent", "Agent", crate::form::parameter::<String>(query.as_deref(), "agent"))
        .hint("Its id.");
    let table = listed.exported(table(&visit, &listed.answer), PAGE, "targets");
    let parts = Parts::default().plain(&actions)?.plain(&Ask::filters(PAGE, vec![agent]))?.section(
        "list",
        "All targets",
        &table,
    )?;
    Page::new(&visit, "Targets").command("bulla target list").reads(listed.path).show(&parts)
}

/// Targets as a table.
pub(crate) fn table(visit: &Visit, listing: &Value) -> Table {
    Table::of("Deployment targets", &["Name", "Kind", "Agent", "Changed"], listing, |target| {
        vec![
            Cell::link(format!("{PAGE}/{}", json::text(target, "/id")), json::text(target, "/name")),
            Cell::text(json::text(target, "/kind")),
            agent(json::text(target, "/agent")),
            Cell::time(json::text(target, "/updated_at"), visit.now),
        ]
    })
    .empty("No deployment target. Add one: it says where on an agent's host a certificate goes.")
}

fn agent(id: &str) -> Cell {
    if id.is_empty() {
        return Cell::Empty;
    }
    Cell::link(format!("/console/agents/{}", api::path::segment(id)), id)
}

/// Deployments as a table.
pub(crate) fn deployments(visit: &Visit, listing: &Value) -> Table {
    let columns = ["Certificate", "Target", "State", "Served", "Attempts", "Changed", "Error"];
    Table::of("Deployments, newest first", &columns, listing, |one| {
        let link = |noun: &str, id: &str| {
            Cell::link(format!("/console/{noun}/{}", api::path::segment(id)), id.to_owned())
        };
        vec![
            link("certificates", json::text(one, "/certificate")),
            link("targets", json::text(one, "/target")),
            deployment_state(json::text(one, "/state")),
            Cell::state(json::text(one, "/served")),
            Cell::number(json::number(one, "/attempts")),
            Cell::time(json::text(one, "/updated_at"), visit.now),
            Cell::text(json::text(one, "/error")),
        ]
    })
    .empty("Nothing was deployed yet. Add the target to a certificate: its next version goes there.")
}

fn deployment_state(state: &str) -> Cell {
    use crate::cell::Tone;
    match state {
        "deployed" | "unchanged" => Cell::badge(Tone::Good, state),
        "broken" | "rolled_back" => Cell::badge(Tone::Bad, state.replace('_', " ")),
        other => Cell::state(other),
    }
}

fn at(id: &str) -> String {
    format!("/api/v1/targets/{}", api::path::segment(id))
}

async fn one(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = at(&id);
    let target = visit.api.get(&path).await?;
    let of_target = visit.api.get_if_allowed(&format!("{path}/deployments")).await?.unwrap_or_default();
    let here = format!("{PAGE}/{}", api::path::segment(&id));
    let actions =
        Actions::default().danger(format!("{here}/remove"), "Remove").only_if(visit.may("target.manage"));
    let facts = Facts::default()
        .with("Kind", Cell::text(json::text(&target, "/kind")))
        .with("Agent", agent(json::text(&target, "/agent")))
        .with("Made", Cell::time(json::text(&target, "/created_at"), visit.now))
        .with("Changed", Cell::time(json::text(&target, "/updated_at"), visit.now));
    let members = members(target.get("target").unwrap_or(&Value::Null));
    let parts = Parts::default()
        .plain(&actions)?
        .plain(&facts)?
        .section("place", "Where certificates go", &members)?
        .live(
            "deployments",
            "Deployments",
            "certificate. job. deployment.",
            &deployments(&visit, &of_target),
        )?;
    let name = json::text(&target, "/name");
    Page::new(&visit, name)
        .command(format!("bulla target show {name}"))
        .reads(path.clone())
        .reads(format!("{path}/deployments"))
        .show(&parts)
}

/// The members of a target, which differ by kind.
fn members(target: &Value) -> Table {
    let members = target.as_object().into_iter().flatten();
    let rows = members.filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![Cell::text(name.replace('_', " ")), Cell::code(value)]
    });
    Table {
        caption: "Members of the target".to_owned(),
        columns: vec!["Member", "Value"],
        rows: rows.collect(),
        ..Table::default()
    }
}

async fn ask_new(visit: Visit) -> Result<Response, Failure> {
    let agents =
        visit.api.get_if_allowed("/api/v1/agents?limit=500&fields=id,name").await?.unwrap_or_default();
    let choices: Vec<(String, String)> = json::items(&agents)
        .iter()
        .map(|one| (json::text(one, "/id").to_owned(), json::text(one, "/name").to_owned()))
        .collect();
    let example = "{\n  \"type\": \"nginx\",\n  \"fullchain\": \"/etc/nginx/tls/a.pem\",\n  \"key\": \"/etc/nginx/tls/a.key\"\n}";
    let fields = vec![
        Field::line("name", "Name", "").required(),
        Field::choice("agent", "Agent", "", choices),
        Field::area("target", "Where certificates go", example)
            .hint("JSON, by type: nginx, apache, haproxy, caddy, traefik, envoy, postfix, dovecot, files, pkcs12, jks, exec.")
            .required(),
    ];
    let form = Ask::post(PAGE, visit.csrf(), "Add the target", fields);
    Page::new(&visit, "New target").command("bulla target create --file target.toml").show(&form)
}

async fn create(visit: Visit, form: Form) -> Result<Response, Failure> {
    let target: Value = serde_json::from_str(form.field("target").unwrap_or_default()).map_err(|error| {
        Failure::refused(
            StatusCode::BAD_REQUEST,
            format!("\"Where certificates go\" is no JSON: {error}"),
            "go back and mend it",
        )
    })?;
    let body = json!({
        "name": form.field("name").unwrap_or_default(),
        "agent": form.field("agent").unwrap_or_default(),
        "target": target,
    });
    let made = visit.api.change(Method::POST, "/api/v1/targets", form.csrf(), Some(&body)).await?;
    Ok(back(&format!("{PAGE}/{}", json::text(&made, "/id")), "created", &made))
}

async fn ask_remove(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let target = visit.api.get(&at(&id)).await?;
    let of_target = visit.api.get_if_allowed(&format!("{}/deployments?limit=500", at(&id))).await?;
    let count = of_target.map_or(0, |listing| json::items(&listing).len());
    let name = json::text(&target, "/name");
    let here = format!("{PAGE}/{}", api::path::segment(&id));
    let form = Ask::post(format!("{here}/remove"), visit.csrf(), "Remove the target", vec![]).danger(here);
    let parts = Parts::default()
        .plain(&Note::hint(format!(
            "Certificates are deployed there no more; {count} deployments are on record. The files on the host stay. A policy may ask for another person's approval first."
        )))?
        .plain(&form)?;
    Page::new(&visit, format!("Remove {name}?")).command(format!("bulla target delete {name}")).show(&parts)
}

async fn remove(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    let answer = visit.api.change(Method::DELETE, &at(&id), form.csrf(), None).await?;
    // 202 answers with the change that waits for approval.
    let done = if answer.is_null() { "removed" } else { "waiting" };
    Ok(back(PAGE, done, &Value::Null))
}
