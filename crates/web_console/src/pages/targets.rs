//! Deployment targets of agents.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Field, Form};
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::names::Names;
use crate::query::item;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/targets";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/targets/new", get(new_form))
        .route("/console/targets/{id}", get(one))
        .route("/console/targets/{id}/remove", get(confirm_remove).post(remove))
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/targets", query.as_deref()).await?;
    let actions =
        Actions::default().link(format!("{PAGE}/new"), "New target").only_if(session.may("target.manage"));
    let agents = Names::read(&session, "agents").await?;
    let any = std::iter::once((String::new(), "any".to_owned()));
    let agent = Field::choice("agent", "Agent", any.chain(agents.options()))
        .value(crate::query::parameter::<String>(query.as_deref(), "agent"));
    let table = listing.paged(table(&session, listing.answer(), &agents)).exported("targets");
    let parts = Sections::default().plain(&actions)?.plain(&Form::filters(PAGE, vec![agent]))?.section(
        "list",
        "All targets",
        &table,
    )?;
    Page::new(&session, "Targets").command("bulla target list").reads(listing.path()).show(&parts)
}

pub(crate) fn table(session: &Session, listing: &Value, agents: &Names) -> Table {
    Table::of("Deployment targets", &["Name", "Kind", "Agent", "Changed"], listing, |target| {
        vec![
            Cell::link(item(PAGE, json::text(target, "/id")), json::text(target, "/name")),
            Cell::text(json::text(target, "/kind")),
            agents.link(json::text(target, "/agent")),
            Cell::time(json::text(target, "/updated_at"), session.now),
        ]
    })
    .empty("No deployment target. Add one: it defines where an agent installs a certificate.")
}

/// Returns deployments as a table.
///
/// # Errors
/// See [`Names::read`].
pub(crate) async fn deployments(session: &Session, listing: &Value) -> Result<Table, Failure> {
    let certificates = Names::read(session, "certificates").await?;
    let targets = Names::read(session, "targets").await?;
    let columns = ["Certificate", "Target", "State", "Served", "Attempts", "Changed", "Error"];
    let table = Table::of("Deployments, newest first", &columns, listing, |one| {
        vec![
            certificates.link(json::text(one, "/certificate")),
            targets.link(json::text(one, "/target")),
            Cell::state(json::text(one, "/state")),
            Cell::code(shortened(json::text(one, "/served"))),
            Cell::number(json::number(one, "/attempts")),
            Cell::time(json::text(one, "/updated_at"), session.now),
            Cell::text(json::text(one, "/error")),
        ]
    })
    .empty("Nothing was deployed yet. Add the target to a certificate: its next version is deployed there.");
    Ok(table)
}

/// Returns the first digits of a fingerprint, enough to distinguish versions.
pub(crate) fn shortened(fingerprint: &str) -> &str {
    fingerprint.get(..16).unwrap_or(fingerprint)
}

fn at(id: &str) -> String {
    item("/api/v1/targets", id)
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = at(&id);
    let target = session.api.get(&path).await?;
    let of_target = session.api.get_if_allowed(&format!("{path}/deployments")).await?.unwrap_or_default();
    let page_path = item(PAGE, &id);
    let actions = Actions::default()
        .link(format!("{page_path}/document"), "Edit")
        .danger(format!("{page_path}/remove"), "Remove")
        .only_if(session.may("target.manage"));
    let facts = Facts::default()
        .with("Kind", Cell::text(json::text(&target, "/kind")))
        .with("Agent", Names::read(&session, "agents").await?.link(json::text(&target, "/agent")))
        .with("Created", Cell::time(json::text(&target, "/created_at"), session.now))
        .with("Changed", Cell::time(json::text(&target, "/updated_at"), session.now));
    let members = members(target.get("target").unwrap_or(&Value::Null));
    let parts = Sections::default()
        .plain(&actions)?
        .plain(&facts)?
        .section("place", "Configuration", &members)?
        .live(
            "deployments",
            "Deployments",
            "certificate. job. deployment.",
            &deployments(&session, &of_target).await?,
        )?;
    let name = json::text(&target, "/name");
    Page::new(&session, name)
        .command(format!("bulla target show {name}"))
        .reads(path.clone())
        .reads(format!("{path}/deployments"))
        .show(&parts)
}

/// Returns the settings of a target as a table. The settings differ by kind.
fn members(target: &Value) -> Table {
    let members = target.as_object().into_iter().flatten();
    let rows = members.filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![Cell::text(name.replace('_', " ")), Cell::code(value)]
    });
    Table::new("Members of the target", &["Member", "Value"], rows)
}

async fn new_form(session: Session) -> Result<Response, Failure> {
    let agents = Names::read(&session, "agents").await?;
    let example = "{\n  \"type\": \"nginx\",\n  \"fullchain\": \"/etc/nginx/tls/a.pem\",\n  \"key\": \"/etc/nginx/tls/a.key\"\n}";
    let fields = vec![
        Field::line("name", "Name").required(),
        Field::choice("agent", "Agent", agents.options()),
        Field::lines("target", "Configuration").value(example)
            .hint("JSON, by type: nginx, apache, haproxy, caddy, traefik, envoy, postfix, dovecot, files, pkcs12, jks, exec.")
            .required(),
    ];
    let form = Form::post(PAGE, session.csrf(), "Add the target", fields);
    Page::new(&session, "New target").command("bulla target create --file target.toml").show(&form)
}

async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let target: Value = serde_json::from_str(form.text("target")).map_err(|error| {
        Failure::refused(
            StatusCode::BAD_REQUEST,
            format!("the configuration is not valid JSON: {error}"),
            "go back and correct it",
        )
    })?;
    let body = json!({
        "name": form.text("name"),
        "agent": form.text("agent"),
        "target": target,
    });
    let created = session.api.change(Method::POST, "/api/v1/targets", form.csrf(), Some(&body)).await?;
    Ok(redirect(&item(PAGE, json::text(&created, "/id")), "created", &created))
}

async fn confirm_remove(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let target = session.api.get(&at(&id)).await?;
    let of_target = session.api.get_if_allowed(&format!("{}/deployments?limit=500", at(&id))).await?;
    let count = of_target.map_or(0, |listing| json::items(&listing).len());
    let name = json::text(&target, "/name");
    let page_path = item(PAGE, &id);
    let body = Confirmation::new(&session, format!("{page_path}/remove"), &page_path, "Delete the target")
        .danger()
        .says(format!(
            "No further certificates are deployed there. It has {}.",
            crate::format::counted(count, false, "deployment")
        ))
        .says("The files on the host stay. A policy may require another person's approval first.");
    Page::new(&session, format!("Delete {name}?")).command(format!("bulla target delete {name}")).show(&body)
}

async fn remove(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &at(&id), form.csrf(), None).await?;
    // A 202 response contains the change that waits for approval.
    let done = if answer.is_null() { "removed" } else { "waiting" };
    Ok(redirect(PAGE, done, &Value::Null))
}
