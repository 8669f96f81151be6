//! Certificates under management: the list, one certificate, and what a person does with it.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::api::Api;
use crate::cell::Cell;
use crate::failure::Failure;
use crate::form::{filters, parameter};
use crate::json;
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

const PAGE: &str = "/console/certificates";

/// States to filter by.
const STATES: &[&str] = &[
    "active",
    "failed",
    "pending",
    "awaiting_approval",
    "awaiting_csr",
    "issuing",
    "deploying",
    "revoked",
    "archived",
];

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(list))
}

#[derive(Template)]
#[template(path = "certificates.html")]
struct Certificates {
    states: &'static [&'static str],
    status: String,
    contains: String,
    issuer: String,
    owner: String,
    table: Table,
}

async fn list(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let filters = filters(query);
    let cursor: String = parameter(query, "cursor");
    let cursor = Some(cursor).filter(|cursor| !cursor.is_empty());
    let mut path = format!("/api/v1/certificates?count=true&{filters}");
    if let Some(cursor) = &cursor {
        path = format!("{path}&cursor={}", api::path::segment(cursor));
    }
    let listing = visit.api.get(&path).await?;
    let table = Table::of(
        "Certificates under management",
        &["Name", "State", "Ends", "Served", "Issuer", "Owner", "Key"],
        &listing,
        |certificate| row(&visit, certificate),
    )
    .empty("No certificate matches. Take a filter away, or bring a certificate under management with `bulla certificate create`.")
    .paged(&listing, PAGE, &filters, cursor.as_deref())
    .exported("certificates", &filters);
    let of = |name| parameter::<String>(query, name);
    let body = Certificates {
        states: STATES,
        status: of("status"),
        contains: of("contains"),
        issuer: of("issuer"),
        owner: of("owner"),
        table,
    };
    Page::new(&visit, "Certificates").command("bulla certificate list").reads(path).show(&body)
}

fn row(visit: &Visit, certificate: &Value) -> Vec<Cell> {
    let id = json::text(certificate, "/id");
    vec![
        Cell::link(format!("{PAGE}/{id}"), json::text(certificate, "/name")),
        Cell::state(json::text(certificate, "/status")),
        Cell::time(json::text(certificate, "/ends_at"), visit.now),
        Cell::state(json::text(certificate, "/served_status")),
        Cell::text(json::text(certificate, "/issuer")),
        Cell::text(json::text(certificate, "/owner")),
        Cell::text(json::text(certificate, "/key_type")),
    ]
}
