//! Client certificates that may use the API, and their permissions.

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
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/client-certificates";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/client-certificates/{id}", get(one))
        .route("/console/client-certificates/{id}/remove", get(confirm_remove).post(remove))
}

#[derive(Template)]
#[template(path = "client_certificates.html")]
struct ClientCertificates {
    csrf: String,
    may_manage: bool,
    table: Table,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/client-certificates", query.as_deref()).await?;
    let row = |one: &Value| {
        vec![
            Cell::link(item(PAGE, json::text(one, "/id")), json::text(one, "/name")),
            Cell::code(json::text(one, "/label")),
            Cell::text(grants(one)),
            enabled(one),
            Cell::time(json::text(one, "/last_used_at"), session.now),
            Cell::time(json::text(one, "/expires_at"), session.now),
        ]
    };
    let table = listing
        .table(
            "Client certificates",
            &["Name", "Certificate", "Grants", "State", "Last used", "Expires"],
            row,
        )
        .empty("No client certificate may use the API. Add one below: programs that use it need no token.")
        .exported("client-certificates");
    let body = ClientCertificates {
        csrf: session.csrf().to_owned(),
        may_manage: session.may("access.manage"),
        table,
    };
    Page::new(&session, "Client certificates")
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

/// Formats grants: `viewer, operator in profile:web`.
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

async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let mut grant = json!({ "role": form.text("role") });
    if let Some(scope) = form.field("scope") {
        grant["scope"] = scope.into();
    }
    let mut body = json!({
        "name": form.text("name"),
        "match": form.text("match"),
        "grants": [grant],
    });
    if let Some(profile) = form.field("profile") {
        body["profile"] = profile.into();
    }
    let path = "/api/v1/client-certificates";
    let created = session.api.change(Method::POST, path, form.csrf(), Some(&body)).await?;
    Ok(redirect(PAGE, "created", &created))
}

#[derive(Template)]
#[template(path = "client_certificate.html")]
struct ClientCertificate {
    id: String,
    may_manage: bool,
    facts: Facts,
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/client-certificates", &id);
    let one = session.api.get(&path).await?;
    let body = ClientCertificate {
        id: json::text(&one, "/id").to_owned(),
        may_manage: session.may("access.manage"),
        facts: facts(&session, &one),
    };
    Page::new(&session, format!("Client certificate {}", json::text(&one, "/name")))
        .command(format!("bulla api {path}"))
        .reads(path)
        .show(&body)
}

fn facts(session: &Session, one: &Value) -> Facts {
    Facts::default()
        .with("Name", Cell::text(json::text(one, "/name")))
        .with("Certificate", Cell::code(json::text(one, "/label")))
        .with("Grants", Cell::text(grants(one)))
        .with("State", enabled(one))
        .with("Created", Cell::time(json::text(one, "/created_at"), session.now))
        .with("Actor", Cell::text(json::text(one, "/created_by")))
        .with("Expires", Cell::time(json::text(one, "/expires_at"), session.now))
        .with("Last used", Cell::time(json::text(one, "/last_used_at"), session.now))
}

async fn confirm_remove(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let one = session.api.get(&item("/api/v1/client-certificates", &id)).await?;
    let page = item(PAGE, json::text(&one, "/id"));
    let confirmation = Confirmation::new(&session, format!("{page}/remove"), &page, "Remove")
        .danger()
        .says("Requests with this certificate are rejected from now on.")
        .says("The certificate itself stays valid: revoke it too if its key is lost.")
        .facts(facts(&session, &one));
    Page::new(&session, format!("Remove client certificate {}", json::text(&one, "/name")))
        .show(&confirmation)
}

async fn remove(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = item("/api/v1/client-certificates", &id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_shown_with_their_scope() {
        let one = json!({ "grants": [{ "role": "viewer", "scope": "any" }, { "role": "operator", "scope": "profile:web" }] });
        assert_eq!(grants(&one), "viewer, operator in profile:web");
    }
}
