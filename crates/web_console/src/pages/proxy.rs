//! The proxy in this process: held requests, and a summary of recent requests by client.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use super::held_requests;
use super::recent_requests::{self, client_name, is_refused};
use crate::api::Api;
use crate::cell::Cell;
use crate::facts::Facts;
use crate::failure::{Failure, if_allowed};
use crate::format;
use crate::json;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/proxy";
/// API path of the recent requests. The API keeps at most 1,000.
const RECENT: &str = "/api/v1/proxy/requests?limit=1000";

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(page))
}

#[derive(Template)]
#[template(path = "proxy.html")]
struct Overview {
    /// `None` if no proxy runs in this process.
    facts: Option<Facts>,
    held: Option<Table>,
    clients: Option<Table>,
    /// Whether the caller may read the metrics.
    reads_metrics: bool,
}

async fn page(session: Session) -> Result<Response, Failure> {
    let held = match session.api.get(held_requests::LIST).await {
        Ok(listing) => Some(listing),
        // This process has no proxy.
        Err(Failure::Refused(problem)) if problem.status == 503 => None,
        Err(other) => return Err(other),
    };
    let recent = if_allowed(session.api.get(RECENT).await)?;
    let requests = recent.as_ref().map(json::items).unwrap_or_default();
    let body = Overview {
        facts: held.as_ref().map(|held| facts(json::items(held).len(), requests)),
        held: held.as_ref().map(|held| held_requests::table(&session, held)),
        clients: recent.as_ref().map(|_| clients(&session, requests)),
        reads_metrics: session.may("metrics.read"),
    };
    Page::new(&session, "Proxy")
        .command("bulla proxy held")
        .command("bulla proxy top")
        .reads(held_requests::LIST)
        .reads(RECENT)
        .show(&body)
}

fn facts(held: usize, requests: &[Value]) -> Facts {
    let count = |count: usize| format::number(count as i64);
    let refused = requests.iter().filter(|one| is_refused(one)).count();
    let with_credential = requests.iter().filter(|one| !json::list(one, "/credentials").is_empty()).count();
    Facts::default()
        .with("Held requests", Cell::link(held_requests::PAGE, count(held)))
        .with("Recent requests", Cell::link(recent_requests::PAGE, count(requests.len())))
        .with(
            "Refused among them",
            Cell::link(format!("{}?denied=true", recent_requests::PAGE), count(refused)),
        )
        .with("With a credential", Cell::text(count(with_credential)))
}

/// Totals over the recent requests of one client.
#[derive(Default)]
struct Sums<'a> {
    requests: i64,
    refused: i64,
    bytes_sent: i64,
    bytes_received: i64,
    last: &'a str,
}

/// Returns the recent requests by client, busiest first.
fn clients(session: &Session, requests: &[Value]) -> Table {
    let mut by_client = BTreeMap::<&str, Sums<'_>>::new();
    for one in requests {
        let sums = by_client.entry(client_name(one)).or_default();
        sums.requests += 1;
        sums.refused += i64::from(is_refused(one));
        sums.bytes_sent += json::number(one, "/bytes_from_client");
        sums.bytes_received += json::number(one, "/bytes_to_client");
        sums.last = sums.last.max(json::text(one, "/time"));
    }
    let mut clients: Vec<_> = by_client.into_iter().collect();
    clients.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.requests));
    let rows = clients.into_iter().map(|(client, sums)| {
        let href = format!("{}?identity={}", recent_requests::PAGE, api::path::segment(client));
        vec![
            Cell::link(href, client),
            Cell::number(sums.requests),
            Cell::number(sums.refused),
            Cell::Number(format!(
                "{} / {}",
                format::number(sums.bytes_sent),
                format::number(sums.bytes_received)
            )),
            Cell::time(sums.last, session.now),
        ]
    });
    let columns =
        &["Identity, user or address", "Requests", "Refused", "Bytes sent / received", "Last request"];
    Table::new("Recent requests by client", columns, rows)
        .empty("No request yet. Requests appear here when the proxy answers them.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_count_refused_requests_and_credentials() {
        let requests = [
            json!({ "decision": "allow", "credentials": ["/shop/api"] }),
            json!({ "decision": "deny", "credentials": [] }),
            json!({ "decision": "allow", "reason": "budget" }),
        ];
        let shown = facts(4, &requests).render().unwrap();
        for text in [">4</a>", ">3</a>", ">2</a>", "denied=true"] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
    }
}
