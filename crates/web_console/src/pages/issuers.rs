//! External issuers and their health.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Form, back};
use crate::json;
use crate::listing::Listing;
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

const PAGE: &str = "/console/issuers";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/issuers/{id}", get(one))
        .route("/console/issuers/{id}/test", post(test))
        .route("/console/issuers/{id}/disable", get(ask).post(disable))
        .route("/console/issuers/{id}/enable", post(enable))
}

async fn list(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&visit, PAGE, "/api/v1/issuers", query.as_deref()).await?;
    let columns = &["Name", "Type", "Health", "Failures in a row", "Last success", "Last error", "When"];
    let row = |issuer: &Value| {
        vec![
            Cell::link(format!("{PAGE}/{}", json::text(issuer, "/id")), json::text(issuer, "/name")),
            Cell::text(json::text(issuer, "/type")),
            health(issuer),
            Cell::number(json::number(issuer, "/health/failures")),
            Cell::time(json::text(issuer, "/health/last_success_at"), visit.now),
            Cell::text(last_error(issuer)),
            Cell::time(json::text(issuer, "/health/last_error_at"), visit.now),
        ]
    };
    let table = listing
        .table("Issuers", columns, row)
        .empty("No external issuer. Certificates come from Bulla's own CA (internal). Add an ACME server, Vault, step-ca, a program or a webhook with `bulla issuer create`.")
        .exported("issuers", listing.filters());
    let body = Issuers { table };
    Page::new(&visit, "Issuers").command("bulla issuer list").reads(listing.path()).show(&body)
}

#[derive(Template)]
#[template(path = "issuers.html")]
struct Issuers {
    table: Table,
}

/// Its health in a word: of its switch, its configuration and its circuit breaker, the worst.
fn health(issuer: &Value) -> Cell {
    if !json::flag(issuer, "/enabled") {
        return Cell::badge(Tone::Calm, "disabled");
    }
    if !json::text(issuer, "/problem").is_empty() {
        return Cell::badge(Tone::Bad, "misconfigured");
    }
    match json::text(issuer, "/health/breaker") {
        "open" => Cell::badge(Tone::Bad, "paused after failures"),
        "half_open" => Cell::badge(Tone::Warn, "on probation"),
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

async fn one(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    show(&visit, &id, None).await
}

async fn show(visit: &Visit, id: &str, test: Option<&Value>) -> Result<Response, Failure> {
    let path = format!("/api/v1/issuers/{}", api::path::segment(id));
    let issuer = visit.api.get(&path).await?;
    let name = json::text(&issuer, "/name").to_owned();
    let used = format!("/api/v1/certificates?issuer={}&limit=10&count=true", api::path::segment(&name));
    let certificates = visit.api.get_if_allowed(&used).await?;
    let config = issuer.pointer("/config").unwrap_or(&Value::Null);
    let body = Issuer {
        id: json::text(&issuer, "/id").to_owned(),
        csrf: visit.csrf().to_owned(),
        enabled: json::flag(&issuer, "/enabled"),
        may_manage: visit.may("issuer.manage"),
        problem: json::text(&issuer, "/problem").to_owned(),
        test: test.map(tested),
        facts: facts(visit, &issuer),
        health: health_facts(visit, &issuer),
        config: serde_json::to_string_pretty(config).map_err(Failure::unreadable)?,
        secrets: json::joined(&issuer, "/secrets_set"),
        used: certificates.map(|listing| super::profiles::followers(visit, &listing)),
        name: api::path::segment(&name),
    };
    Page::new(visit, format!("Issuer {name}"))
        .command(format!("bulla issuer show {name}"))
        .command(format!("bulla issuer test {name}"))
        .reads(path)
        .show(&body)
}

fn tested(test: &Value) -> (Cell, String) {
    let badge = match json::flag(test, "/ok") {
        true => Cell::badge(Tone::Good, "could issue"),
        false => Cell::badge(Tone::Bad, "could not issue"),
    };
    (badge, json::text(test, "/message").to_owned())
}

fn facts(visit: &Visit, issuer: &Value) -> Facts {
    Facts::default()
        .with("Health", health(issuer))
        .with("Type", Cell::text(json::text(issuer, "/type")))
        .with("Account", Cell::code(json::text(issuer, "/account")))
        .with("Created", Cell::time(json::text(issuer, "/created_at"), visit.now))
        .with("Changed", Cell::time(json::text(issuer, "/updated_at"), visit.now))
}

fn health_facts(visit: &Visit, issuer: &Value) -> Facts {
    let text = |pointer| json::text(issuer, pointer);
    Facts::default()
        .with("Circuit breaker", Cell::text(text("/health/breaker").replace('_', " ")))
        .with("Paused until", Cell::time(text("/health/rests_until"), visit.now))
        .with("Failures in a row", Cell::number(json::number(issuer, "/health/failures")))
        .with("Last success", Cell::time(text("/health/last_success_at"), visit.now))
        .with("Last error", Cell::text(last_error(issuer)))
        .with("When", Cell::time(text("/health/last_error_at"), visit.now))
}

/// A test issues nothing, so its result is shown at once and kept nowhere.
async fn test(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    let path = format!("/api/v1/issuers/{}/test", api::path::segment(&id));
    let result = visit.api.change(Method::POST, &path, form.csrf(), None).await?;
    show(&visit, &id, Some(&result)).await
}

async fn ask(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let issuer = visit.api.get(&format!("/api/v1/issuers/{}", api::path::segment(&id))).await?;
    let name = json::text(&issuer, "/name");
    let used = format!("/api/v1/certificates?issuer={}&limit=1&count=true", api::path::segment(name));
    let used = visit.api.get_if_allowed(&used).await?.unwrap_or_default();
    let count = crate::format::number(json::number(&used, "/total/value"));
    let page = format!("{PAGE}/{}", json::text(&issuer, "/id"));
    let question = Confirmation::new(&visit, format!("{page}/disable"), &page, "Disable").danger()
        .says(format!("{count} certificates under management renew by {name}. Their renewals fail until it is enabled again."))
        .says("Certificates that it issued stay valid.")
        .facts(facts(&visit, &issuer));
    Page::new(&visit, format!("Disable issuer {name}")).show(&question)
}

async fn disable(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    switch(&visit, &id, &form, false).await
}

async fn enable(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    switch(&visit, &id, &form, true).await
}

async fn switch(visit: &Visit, id: &str, form: &Form, on: bool) -> Result<Response, Failure> {
    let id = api::path::segment(id);
    let body = json!({ "enabled": on });
    let path = format!("/api/v1/issuers/{id}");
    let answer = visit.api.change(Method::PATCH, &path, form.csrf(), Some(&body)).await?;
    Ok(back(&format!("{PAGE}/{id}"), "saved", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_its_states_is_its_health() {
        let word = |issuer: &Value| match health(issuer) {
            Cell::Badge { text, .. } => text,
            _ => String::new(),
        };
        assert_eq!(word(&json!({ "enabled": false, "problem": "x" })), "disabled");
        assert_eq!(
            word(&json!({ "enabled": true, "problem": "x", "health": { "breaker": "open" } })),
            "misconfigured"
        );
        assert_eq!(
            word(&json!({ "enabled": true, "health": { "breaker": "open" } })),
            "paused after failures"
        );
        assert_eq!(
            word(&json!({ "enabled": true, "health": { "breaker": "closed", "failures": 2 } })),
            "failing"
        );
        assert_eq!(word(&json!({ "enabled": true, "health": { "breaker": "closed" } })), "not used yet");
    }
}
