//! Client certificates that may use the API, and what each may do.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::get;
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

const PAGE: &str = "/console/client-certificates";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/client-certificates/{id}", get(one))
        .route("/console/client-certificates/{id}/remove", get(ask).post(remove))
}

#[derive(Template)]
#[template(path = "client_certificates.html")]
struct ClientCertificates {
    csrf: String,
    may_manage: bool,
    table: Table,
}

async fn list(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&visit, PAGE, "/api/v1/client-certificates", query.as_deref()).await?;
    let row = |one: &Value| {
        vec![
            Cell::link(format!("{PAGE}/{}", json::text(one, "/id")), json::text(one, "/name")),
            Cell::code(json::text(one, "/label")),
            Cell::text(grants(one)),
            enabled(one),
            Cell::time(json::text(one, "/last_used_at"), visit.now),
            Cell::time(json::text(one, "/expires_at"), visit.now),
        ]
    };
    let table = listing
        .table("Client certificates", &["Name", "Certificate", "May", "State", "Last used", "Ends"], row)
        .empty("No client certificate may use the API. Add one below: programs with it need no token.")
        .exported("client-certificates", listing.filters());
    let body =
        ClientCertificates { csrf: visit.csrf().to_owned(), may_manage: visit.may("access.manage"), table };
    Page::new(&visit, "Client certificates")
        .command("bulla api /api/v1/client-certificates")
        .reads(listing.path())
        .show(&body)
}

fn enabled(one: &Value) -> Cell {
    match json::flag(one, "/enabled") {
        true => Cell::badge(Tone::Good, "enabled"),
        false => Cell::badge(Tone::Calm, "disabled"),
    }
}

/// `viewer, operator in profile:web`.
fn grants(one: &Value) -> String {
    let shown = |grant: &Value| {
        let role = json::text(grant, "/role");
        match json::text(grant, "/scope") {
            "" | "any" => role.to_owned(),
            scope => format!("{role} in {scope}"),
        }
    };
    json::list(one, "/grants").iter().map(shown).collect::<Vec<_>>().join(", ")
}

async fn create(visit: Visit, form: Form) -> Result<Response, Failure> {
    let mut grant = json!({ "role": form.field("role").unwrap_or_default() });
    if let Some(scope) = form.field("scope") {
        grant["scope"] = scope.into();
    }
    let mut body = json!({
        "name": form.field("name").unwrap_or_default(),
        "match": form.field("match").unwrap_or_default(),
        "grants": [grant],
    });
    if let Some(profile) = form.field("profile") {
        body["profile"] = profile.into();
    }
    let path = "/api/v1/client-certificates";
    let made = visit.api.change(Method::POST, path, form.csrf(), Some(&body)).await?;
    Ok(back(PAGE, "created", &made))
}

#[derive(Template)]
#[template(path = "client_certificate.html")]
struct ClientCertificate {
    id: String,
    may_manage: bool,
    facts: Facts,
}

async fn one(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = format!("/api/v1/client-certificates/{}", api::path::segment(&id));
    let one = visit.api.get(&path).await?;
    let body = ClientCertificate {
        id: json::text(&one, "/id").to_owned(),
        may_manage: visit.may("access.manage"),
        facts: facts(&visit, &one),
    };
    Page::new(&visit, format!("Client certificate {}", json::text(&one, "/name")))
        .command(format!("bulla api {path}"))
        .reads(path)
        .show(&body)
}

fn facts(visit: &Visit, one: &Value) -> Facts {
    Facts::default()
        .with("Name", Cell::text(json::text(one, "/name")))
        .with("Certificate", Cell::code(json::text(one, "/label")))
        .with("May", Cell::text(grants(one)))
        .with("State", enabled(one))
        .with("Created", Cell::time(json::text(one, "/created_at"), visit.now))
        .with("By", Cell::text(json::text(one, "/created_by")))
        .with("Ends", Cell::time(json::text(one, "/expires_at"), visit.now))
        .with("Last used", Cell::time(json::text(one, "/last_used_at"), visit.now))
}

async fn ask(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let one = visit.api.get(&format!("/api/v1/client-certificates/{}", api::path::segment(&id))).await?;
    let page = format!("{PAGE}/{}", json::text(&one, "/id"));
    let question = Confirmation::new(&visit, format!("{page}/remove"), &page, "Remove")
        .danger()
        .says("Programs with this certificate are refused from now on.")
        .says("The certificate itself stays valid: revoke it too if its key is lost.")
        .facts(facts(&visit, &one));
    Page::new(&visit, format!("Remove client certificate {}", json::text(&one, "/name"))).show(&question)
}

async fn remove(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    let path = format!("/api/v1/client-certificates/{}", api::path::segment(&id));
    let answer = visit.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(back(PAGE, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_name_their_scope() {
        let one = json!({ "grants": [{ "role": "viewer", "scope": "any" }, { "role": "operator", "scope": "profile:web" }] });
        assert_eq!(grants(&one), "viewer, operator in profile:web");
    }
}
