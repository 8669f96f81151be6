//! Search over everything that a user may see.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::api::Api;
use crate::cell::Cell;
use crate::failure::Failure;
use crate::json;
use crate::query::parameter;
use crate::session::Session;
use crate::shell::{Page, quoted};
use crate::table::Table;

/// Minimum characters of a search.
const LETTERS_MIN: usize = 2;

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/console/search", get(page))
}

#[derive(Template)]
#[template(path = "search.html")]
struct Search {
    query: String,
    hits: Option<Table>,
    more: bool,
}

async fn page(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let search_text: String = parameter(query.as_deref(), "q");
    let search_text = search_text.trim().to_owned();
    let path = format!("/api/v1/search?q={}&limit=20", api::path::segment(&search_text));
    let found = match search_text.chars().count() {
        ..LETTERS_MIN => None,
        _ => Some(session.api.get(&path).await?),
    };
    let hits = found.as_ref().map(|found| hits(&session, found));
    let more = found.as_ref().is_some_and(|found| json::flag(found, "/more"));
    Page::new(&session, "Search")
        .command(format!("bulla search {}", quoted(&search_text)))
        .reads(path)
        .show(&Search { query: search_text, hits, more })
}

fn hits(session: &Session, found: &Value) -> Table {
    let rows = json::list(found, "/hits").iter().map(|hit| {
        let name = Cell::link(console_path(json::text(hit, "/href")), json::text(hit, "/name"));
        let how = format!("{} ({})", json::text(hit, "/matched"), json::text(hit, "/how"));
        vec![
            name,
            Cell::text(json::text(hit, "/kind")),
            Cell::state(json::text(hit, "/status")),
            Cell::time(json::text(hit, "/not_after"), session.now),
            Cell::text(how),
        ]
    });
    Table::new("Search results", &["Name", "Kind", "State", "Expires", "Found by"], rows).empty(
        "No object matches by name, serial number, fingerprint, key, owner or path. Try fewer characters.",
    )
}

/// Returns the console page for an API path.
fn console_path(href: &str) -> String {
    href.strip_prefix("/api/v1/").map_or_else(|| "/console".to_owned(), |rest| format!("/console/{rest}"))
}
