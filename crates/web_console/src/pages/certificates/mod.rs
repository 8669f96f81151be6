//! Managed certificates: the list, one certificate, and its actions.

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
use crate::form_data::FormData;
use crate::listing::Listing;
use crate::query::parameter;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

/// Bulk actions: the name, the text, and the required permission.
const MANY: &[(&str, &str, &str)] = &[
    ("renew", "Renew all of these", "certificate.renew"),
    ("reassign", "Change their owner", "certificate.manage"),
    ("revoke", "Revoke all of these", "certificate.revoke"),
];

/// API path of the list with its total count.
const COUNTED: &str = "/api/v1/certificates?count=true";

/// States that the filter offers.
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
        .route("/console/certificates/new", get(new::show_form).post(new::create))
        .route("/console/certificates/{id}", get(one::page))
        .route("/console/certificates/{id}/chain", get(one::chain_file))
        .route("/console/certificates/{id}/{action}", get(actions::confirm).post(actions::perform));
    MANY.iter().fold(router, |router, (action, ..)| {
        let confirm = async |session: Session, RawQuery(query): RawQuery| {
            bulk::confirm(&session, action, query.as_deref()).await
        };
        let perform = async |session: Session, form: FormData| bulk::perform(&session, action, &form).await;
        router.route(&format!("{PAGE}/{action}"), get(confirm).post(perform))
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
    finding: String,
    kept: Vec<(String, String)>,
    facets: Vec<Facet>,
    many: Vec<(&'static str, &'static str)>,
    filters: String,
    creates: bool,
    table: Table,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, COUNTED, query).await?;
    let table = listing
        .table("Certificates under management", COLUMNS, |certificate| row(&session, certificate))
        .empty("No certificate matches. Remove a filter, or create a certificate with `bulla cert create`.")
        .exported("certificates");
    let filters = listing.filters().to_owned();
    let of = |name| parameter::<String>(query, name);
    let body = Certificates {
        states: STATES,
        status: of("status"),
        contains: of("contains"),
        issuer: of("issuer"),
        owner: of("owner"),
        finding: of("finding"),
        kept: kept(&filters),
        facets: facets::of(&session, &filters).await?,
        many: MANY
            .iter()
            .filter(|(.., may)| session.may(may))
            .map(|(name, words, _)| (*name, *words))
            .collect(),
        filters,
        creates: session.may("certificate.request"),
        table,
    };
    Page::new(&session, "Certificates").command("bulla cert list").reads(listing.path()).show(&body)
}

/// Returns filters without a form field, which a facet or a link has set. The form keeps them.
fn kept(filters: &str) -> Vec<(String, String)> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(filters).unwrap_or_default();
    let of_form = ["status", "contains", "issuer", "owner", "finding"];
    pairs.into_iter().filter(|(name, _)| !of_form.contains(&name.as_str())).collect()
}
