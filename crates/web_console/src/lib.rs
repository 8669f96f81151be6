//! The web console: pages for people over the HTTP API.
//!
//! Each page is made from answers of the API, asked for in this process with the browser's own session. So a page shows what the API
//! would show to the same person, and an action is refused where the API refuses it; the console holds no rights and no data of its
//! own. Pages work without script; script adds live updates, charts and shortcuts.

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
mod metrics;
mod pages;
mod query;
mod revocation_reasons;
mod sections;
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

/// The pages below `/console`, made from the API's routes. Browsers that open `/` are sent there. `credentials` are the routes of the
/// credential store, which identify callers by their sessions as the API does; without them its pages say that there is none.
pub fn pages(api: Router, credentials: Option<Router>) -> Router {
    pages::routes()
        .merge(events::routes())
        .merge(export::routes())
        .with_state(Api::new(api, credentials))
        .merge(assets::routes())
        .route("/console/{*rest}", get(nothing_here))
        .route("/", get(async || Redirect::to("/console")))
        .layer(from_fn(headers::for_pages))
}

async fn nothing_here(uri: Uri) -> Failure {
    Failure::refused(
        StatusCode::NOT_FOUND,
        format!("nothing is at {}", uri.path()),
        "the menu of the overview leads to every page",
    )
}
