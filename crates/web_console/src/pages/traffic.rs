//! Traffic: metrics of proxies and edges on this server, and recent reads of credentials.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::api::Api;
use crate::cell::Cell;
use crate::failure::Failure;
use crate::json;
use crate::metrics::{Sample, samples};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

/// Prefix of all metrics of proxies and edges.
const PREFIX: &str = "bulla_intercept_";

/// Metrics of a proxy, as pairs of name without prefix and meaning.
const PROXY: &[(&str, &str)] = &[
    ("proxy_connections", "Open connections"),
    ("proxy_request_duration_seconds_count", "Requests"),
    ("proxy_handshakes_total", "TLS handshakes with clients"),
    ("proxy_credentials_injected_total", "Credentials injected"),
    ("proxy_rule_answers_total", "Requests answered by a rule"),
    ("proxy_denied_total", "Failed authentication"),
    ("proxy_rejected_total", "Refused destinations"),
    ("proxy_tunnels_total", "Connections passed through"),
    ("leaves", "Leaf certificates cached"),
    ("leaves_minted_total", "Leaf certificates minted"),
    ("leaves_failed_total", "Leaf certificates that could not be minted"),
];

/// Metrics of an edge, as pairs of name without prefix and meaning.
const EDGE: &[(&str, &str)] = &[
    ("edge_connections", "Open connections"),
    ("edge_handshakes_total", "TLS handshakes"),
    ("edge_signatures_total", "Signatures by the key service"),
    ("edge_request_duration_seconds_count", "Requests"),
    ("edge_upstream_errors_total", "Requests without an upstream response"),
    ("edge_refused_connections_total", "Refused connections"),
    ("edge_certificates", "Certificates served"),
];

/// API path of the recent reads of credentials.
const READINGS: &str = "/api/v1/audit?action=credential.read&limit=50";

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/console/traffic", get(page))
}

#[derive(Template)]
#[template(path = "traffic.html")]
struct Traffic {
    proxy: Table,
    edge: Table,
    is_proxy: bool,
    is_edge: bool,
    readings: Option<Table>,
}

async fn page(session: Session) -> Result<Response, Failure> {
    let text = session.api.text("/metrics").await?;
    let figures = samples(&text, |name| name.starts_with(PREFIX));
    let readings = session.api.get_if_allowed(READINGS).await?;
    let (proxy, edge) = (figures_of(&figures, PROXY), figures_of(&figures, EDGE));
    let body = Traffic {
        is_proxy: !proxy.is_empty(),
        is_edge: !edge.is_empty(),
        proxy: table("Proxy in this process", proxy),
        edge: table("Edge in this process", edge),
        readings: readings.as_ref().map(|readings| readings_of(&session, readings)),
    };
    Page::new(&session, "Traffic")
        .command("curl http://127.0.0.1:2409/metrics")
        .command("bulla audit list --action credential.read")
        .reads("/metrics")
        .reads(READINGS)
        .show(&body)
}

/// Returns the samples of the `known` metrics in the order of `known`, each as (meaning, labels, value).
fn figures_of(
    figures: &[Sample],
    known: &[(&'static str, &'static str)],
) -> Vec<(&'static str, String, String)> {
    let of = |(name, meaning): &(&'static str, &'static str)| {
        let full = format!("{PREFIX}{name}");
        let own = figures.iter().filter(move |sample| sample.name == full);
        let meaning = *meaning;
        own.map(|sample| (meaning, sample.labels.clone(), sample.value.clone())).collect::<Vec<_>>()
    };
    known.iter().flat_map(of).collect()
}

fn table(caption: &str, figures: Vec<(&'static str, String, String)>) -> Table {
    let row = |(meaning, labels, value): (&'static str, String, String)| {
        vec![Cell::text(meaning), Cell::text(labels), Cell::Number(value)]
    };
    Table::new(caption, &["Metric", "Labels", "Value since startup"], figures.into_iter().map(row))
}

fn readings_of(session: &Session, readings: &Value) -> Table {
    let row = |reading: &Value| {
        let name = json::text(reading, "/resource").strip_prefix("credential").unwrap_or_default();
        let href = format!("/console/credentials/one?name={}", api::path::segment(name));
        vec![
            Cell::time(json::text(reading, "/at"), session.now),
            Cell::text(json::text(reading, "/actor")),
            Cell::link(href, name),
        ]
    };
    Table::of("Recent credential reads", &["Time", "Actor", "Credential"], readings, row)
        .empty("No credential was read yet.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_figures_are_listed_in_order_with_each_label() {
        let text = "bulla_intercept_proxy_handshakes_total{outcome=\"full\"} 3\n\
                    bulla_intercept_proxy_handshakes_total{outcome=\"resumed\"} 1\n\
                    bulla_intercept_proxy_connections 2\nbulla_intercept_leaves_other 9\n";
        let figures = samples(text, |name| name.starts_with(PREFIX));
        let shown = figures_of(&figures, PROXY);
        let values: Vec<&str> = shown.iter().map(|(_, _, value)| value.as_str()).collect();
        assert_eq!(values, ["2", "3", "1"]);
        assert!(figures_of(&figures, EDGE).is_empty());
    }
}
