//! Certificates under management: the list, one certificate, and what a person does with it.

mod actions;
mod bulk;
mod chain;
mod facets;
mod new;
mod one;
mod shared;

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;

use self::facets::Facet;
use self::shared::{COLUMNS, PAGE, row};
use crate::api::Api;
use crate::failure::Failure;
use crate::form::{Form, filters, parameter};
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

/// Actions on many: the name, its words, and the permission.
const MANY: &[(&str, &str, &str)] = &[
    ("renew", "Renew all of these", "certificate.renew"),
    ("reassign", "Change their owner", "certificate.manage"),
    ("revoke", "Revoke all of these", "certificate.revoke"),
];

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
    let router = Router::new()
        .route(PAGE, get(list))
        .route("/console/certificates/new", get(new::ask).post(new::act))
        .route("/console/certificates/{id}", get(one::page))
        .route("/console/certificates/{id}/chain", get(one::chain_file))
        .route("/console/certificates/{id}/{action}", get(actions::ask).post(actions::act));
    MANY.iter().fold(router, |router, (action, ..)| {
        let ask =
            async |visit: Visit, RawQuery(query): RawQuery| bulk::ask(&visit, action, query.as_deref()).await;
        let act = async |visit: Visit, form: Form| bulk::act(&visit, action, &form).await;
        router.route(&format!("{PAGE}/{action}"), get(ask).post(act))
    })
}

#[derive(Template)]
#[template(path = "certificates.html")]
struct Certificates {
    states: &'static [&'static str],
    status: String,
    contains: String,
    issuer: String,
    owner: String,
    kept: Vec<(String, String)>,
    facets: Vec<Facet>,
    many: Vec<(&'static str, &'static str)>,
    filters: String,
    creates: bool,
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
        COLUMNS,
        &listing,
        |certificate| row(&visit, certificate),
    )
    .empty("No certificate matches. Take a filter away, or bring a certificate under management with `bulla cert create`.")
    .paged(&listing, PAGE, &filters, cursor.as_deref())
    .exported("certificates", &filters);
    let of = |name| parameter::<String>(query, name);
    let body = Certificates {
        states: STATES,
        status: of("status"),
        contains: of("contains"),
        issuer: of("issuer"),
        owner: of("owner"),
        kept: kept(&filters),
        facets: facets::of(&visit, &filters).await?,
        many: MANY
            .iter()
            .filter(|(.., may)| visit.may(may))
            .map(|(name, words, _)| (*name, *words))
            .collect(),
        filters,
        creates: visit.may("certificate.request"),
        table,
    };
    Page::new(&visit, "Certificates").command("bulla cert list").reads(path).show(&body)
}

/// Filters that the form has no field for: chosen by a facet or a link, and kept when the form is sent.
fn kept(filters: &str) -> Vec<(String, String)> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(filters).unwrap_or_default();
    let of_form = ["status", "contains", "issuer", "owner"];
    pairs.into_iter().filter(|(name, _)| !of_form.contains(&name.as_str())).collect()
}
