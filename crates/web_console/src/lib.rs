//! The web console: HTML pages over the HTTP API.
//!
//! Each page is rendered from API responses, requested within this process with the browser's own session. A page therefore shows
//! only data that the API returns to the same user, and the API checks every action. The console has no permissions and no data of
//! its own. Pages work without scripts; scripts add live updates, charts and shortcuts.

mod actions;
mod api;
mod assets;
mod attributes;
mod cell;
mod confirmation;
mod events;
mod export;
mod facts;
mod failure;
mod form;
mod form_data;
mod format;
mod headers;
mod history;
mod json;
mod listing;
mod member_fields;
mod metrics;
mod names;
mod pages;
mod query;
mod revocation_reasons;
mod sections;
mod security_key;
mod session;
mod shell;
mod table;

use axum::Router;
use axum::middleware::from_fn;
use axum::response::Redirect;
use axum::routing::get;
use http::{StatusCode, Uri};

use crate::api::Api;
use crate::failure::Failure;

/// Returns the router of the pages below `/console`, which call the API's routes. `/` redirects there. `credentials` are the routes
/// of the credential store, which identify callers by their sessions as the API does. Without them the credential pages show that
/// the process has no credential store.
pub fn pages(api: Router, credentials: Option<Router>) -> Router {
    pages::routes()
        .merge(events::routes())
        .merge(export::routes())
        .with_state(Api::new(api, credentials))
        .merge(assets::routes())
        .route("/console/{*rest}", get(not_found))
        .method_not_allowed_fallback(only_forms)
        .route("/", get(async || Redirect::to("/console")))
        .route("/console/", get(async || Redirect::to("/console")))
        .layer(from_fn(headers::add_page_headers))
}

/// Returns the error for a GET request to a URL that accepts only forms. After a sign-in, the browser's address bar may show such a
/// URL.
async fn only_forms(uri: Uri) -> Failure {
    Failure::refused(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} has no page: a form is sent to it", uri.path()),
        "go back to the page with the form",
    )
}

async fn not_found(uri: Uri) -> Failure {
    Failure::refused(
        StatusCode::NOT_FOUND,
        format!("no page at {}", uri.path()),
        "the menu links to every page",
    )
}
