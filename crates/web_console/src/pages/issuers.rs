//! External issuers and their health.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/issuers";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/issuers/{id}", get(one))
        .route("/console/issuers/{id}/test", post(test))
        .route("/console/issuers/{id}/disable", get(confirm_disable).post(disable))
        .route("/console/issuers/{id}/enable", post(enable))
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/issuers", query.as_deref()).await?;
    let columns = &["Name", "Type", "Health", "Consecutive failures", "Last success", "Last error", "Time"];
    let row = |issuer: &Value| {
        vec![
            Cell::link(item(PAGE, json::text(issuer, "/id")), json::text(issuer, "/name")),
            Cell::text(json::text(issuer, "/type")),
            health(issuer),
            Cell::number(json::number(issuer, "/health/failures")),
            Cell::time(json::text(issuer, "/health/last_success_at"), session.now),
            Cell::text(last_error(issuer)),
            Cell::time(json::text(issuer, "/health/last_error_at"), session.now),
        ]
    };
    let table = listing
        .table("Issuers", columns, row)
        .empty("No external issuer. Certificates come from Bulla's own CA (internal). Add an ACME server, Vault, step-ca, a program or a webhook with `bulla issuer create`.")
        .exported("issuers");
    let body = Issuers { may_manage: session.may("issuer.manage"), table };
    Page::new(&session, "Issuers").command("bulla issuer list").reads(listing.path()).show(&body)
}

#[derive(Template)]
#[template(path = "issuers.html")]
struct Issuers {
    may_manage: bool,
    table: Table,
}

/// Returns the issuer's health: the worst of enabled state, configuration and circuit breaker.
fn health(issuer: &Value) -> Cell {
    if !json::flag(issuer, "/enabled") {
        return Cell::badge(Tone::Calm, "disabled");
    }
    if !json::text(issuer, "/problem").is_empty() {
        return Cell::badge(Tone::Bad, "misconfigured");
    }
    match json::text(issuer, "/health/breaker") {
        "open" => Cell::badge(Tone::Bad, "circuit open"),
        "half_open" => Cell::badge(Tone::Warn, "half-open"),
        _ if json::number(issuer, "/health/failures") > 0 => Cell::badge(Tone::Warn, "failing"),
        _ if json::text(issuer, "/health/last_success_at").is_empty() => {
            Cell::badge(Tone::Calm, "not used yet")
        }
        _ => Cell::badge(Tone::Good, "healthy"),
    }
}

fn last_error(issuer: &Value) -> String {
    let code = json::text(issuer, "/health/last_error_code");
    let text = json::text(issuer, "/health/last_error");
    if code.is_empty() { text.to_owned() } else { format!("{code}: {text}") }
}

#[derive(Template)]
#[template(path = "issuer.html")]
struct Issuer {
    id: String,
    csrf: String,
    enabled: bool,
    may_manage: bool,
    problem: String,
    test: Option<(Cell, String)>,
    facts: Facts,
    health: Facts,
    config: String,
    secrets: String,
    used: Option<Table>,
    name: String,
}

/// Shows the page of an issuer. A name instead of an ID redirects to the page.
async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    if id.parse::<uuid::Uuid>().is_ok() {
        return show(&session, &id, None).await;
    }
    let issuers = session.api.get("/api/v1/issuers?limit=500").await?;
    let found = json::items(&issuers).iter().find(|issuer| json::text(issuer, "/name") == id);
    let found = found.ok_or_else(|| {
        let hint = "open the list of issuers";
        Failure::refused(StatusCode::NOT_FOUND, format!("unknown issuer {id}"), hint)
    })?;
    Ok(Redirect::to(&item(PAGE, json::text(found, "/id"))).into_response())
}

async fn show(session: &Session, id: &str, test: Option<&Value>) -> Result<Response, Failure> {
    let path = item("/api/v1/issuers", id);
    let issuer = session.api.get(&path).await?;
    let name = json::text(&issuer, "/name").to_owned();
    let used = format!("/api/v1/certificates?issuer={}&limit=10&count=true", api::path::segment(&name));
    let certificates = session.api.get_if_allowed(&used).await?;
    let config = issuer.pointer("/config").unwrap_or(&Value::Null);
    let body = Issuer {
        id: json::text(&issuer, "/id").to_owned(),
        csrf: session.csrf().to_owned(),
        enabled: json::flag(&issuer, "/enabled"),
        may_manage: session.may("issuer.manage"),
        problem: json::text(&issuer, "/problem").to_owned(),
        test: test.map(tested),
        facts: facts(session, &issuer),
        health: health_facts(session, &issuer),
        config: serde_json::to_string_pretty(config).map_err(Failure::unreadable)?,
        secrets: json::joined(&issuer, "/secrets_set"),
        used: certificates.map(|listing| super::profiles::followers(session, &listing)),
        name: api::path::segment(&name),
    };
    Page::new(session, format!("Issuer {name}"))
        .command(format!("bulla issuer show {name}"))
        .command(format!("bulla issuer test {name}"))
        .reads(path)
        .show(&body)
}

fn tested(test: &Value) -> (Cell, String) {
    let badge = match json::flag(test, "/ok") {
        true => Cell::badge(Tone::Good, "ready to issue"),
        false => Cell::badge(Tone::Bad, "cannot issue"),
    };
    (badge, json::text(test, "/message").to_owned())
}

fn facts(session: &Session, issuer: &Value) -> Facts {
    Facts::default()
        .with("Health", health(issuer))
        .with("Type", Cell::text(json::text(issuer, "/type")))
        .with("Account", Cell::code(json::text(issuer, "/account")))
        .with("Created", Cell::time(json::text(issuer, "/created_at"), session.now))
        .with("Changed", Cell::time(json::text(issuer, "/updated_at"), session.now))
}

fn health_facts(session: &Session, issuer: &Value) -> Facts {
    let text = |pointer| json::text(issuer, pointer);
    Facts::default()
        .with("Circuit breaker", Cell::text(text("/health/breaker").replace('_', " ")))
        .with("Paused until", Cell::time(text("/health/rests_until"), session.now))
        .with("Consecutive failures", Cell::number(json::number(issuer, "/health/failures")))
        .with("Last success", Cell::time(text("/health/last_success_at"), session.now))
        .with("Last error", Cell::text(last_error(issuer)))
        .with("Time", Cell::time(text("/health/last_error_at"), session.now))
}

/// Tests an issuer. The result is shown directly and not stored.
async fn test(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("/api/v1/issuers/{}/test", api::path::segment(&id));
    let result = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    show(&session, &id, Some(&result)).await
}

async fn confirm_disable(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let issuer = session.api.get(&item("/api/v1/issuers", &id)).await?;
    let name = json::text(&issuer, "/name");
    let used = format!("/api/v1/certificates?issuer={}&limit=1&count=true", api::path::segment(name));
    let used = session.api.get_if_allowed(&used).await?.unwrap_or_default();
    let count = crate::format::number(json::number(&used, "/total/value"));
    let page = item(PAGE, json::text(&issuer, "/id"));
    let confirmation = Confirmation::new(&session, format!("{page}/disable"), &page, "Disable").danger()
        .says(format!("{count} certificates under management are renewed by {name}. Their renewals fail until it is enabled again."))
        .says("Certificates that it issued stay valid.")
        .facts(facts(&session, &issuer));
    Page::new(&session, format!("Disable issuer {name}")).show(&confirmation)
}

async fn disable(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    switch(&session, &id, &form, false).await
}

async fn enable(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    switch(&session, &id, &form, true).await
}

async fn switch(session: &Session, id: &str, form: &FormData, on: bool) -> Result<Response, Failure> {
    let id = api::path::segment(id);
    let body = json!({ "enabled": on });
    let path = format!("/api/v1/issuers/{id}");
    let answer = session.api.change(Method::PATCH, &path, form.csrf(), Some(&body)).await?;
    Ok(redirect(&format!("{PAGE}/{id}"), "saved", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_health_shows_the_worst_state() {
        let word = |issuer: &Value| match health(issuer) {
            Cell::Badge { text, .. } => text,
            _ => String::new(),
        };
        assert_eq!(word(&json!({ "enabled": false, "problem": "x" })), "disabled");
        assert_eq!(
            word(&json!({ "enabled": true, "problem": "x", "health": { "breaker": "open" } })),
            "misconfigured"
        );
        assert_eq!(word(&json!({ "enabled": true, "health": { "breaker": "open" } })), "circuit open");
        assert_eq!(
            word(&json!({ "enabled": true, "health": { "breaker": "closed", "failures": 2 } })),
            "failing"
        );
        assert_eq!(word(&json!({ "enabled": true, "health": { "breaker": "closed" } })), "not used yet");
    }
}
