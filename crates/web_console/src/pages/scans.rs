//! Scans, and the differences between two of them.

use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use super::endpoints;
use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::failure::{Failure, if_allowed};
use crate::form::{Field, Form};
use crate::listing::Listing;
use crate::query::{parameter, with_query};
use crate::sections::{Note, Sections};
use crate::session::Session;
use crate::shell::Page;
use crate::{format, json};

const PAGE: &str = "/console/scans";
const DIFF: &str = "/console/inventory/diff";

/// The scans that can be chosen for a comparison: the newest.
const CHOICES: &str = "/api/v1/scans?limit=100";

/// Maximum characters of the targets of a scan.
const TARGETS_CHARS_MAX: usize = 60;

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(list)).route(DIFF, get(diff))
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/scans", query.as_deref()).await?;
    let columns =
        &["Started", "State", "Targets", "Endpoints", "Answered", "Changes", "New certificates", "Compare"];
    let table = listing
        .table("Scans, newest first", columns, |scan| {
            vec![
                Cell::time(json::text(scan, "/started_at"), session.now),
                state(json::text(scan, "/state")),
                Cell::text(targets(scan)),
                Cell::number(json::number(scan, "/endpoints")),
                Cell::number(json::number(scan, "/answered")),
                Cell::number(json::number(scan, "/changes")),
                Cell::number(json::number(scan, "/new_certificates")),
                Cell::link(format!("{DIFF}?to={}", api::path::segment(json::text(scan, "/id"))), "Compare"),
            ]
        })
        .empty("Nothing was scanned yet. Add a watch: the server scans its targets.")
        .exported("scans");
    let actions =
        Actions::default().link(DIFF, "Compare the last two scans").link("/console/watches", "Watches");
    let parts = Sections::default().plain(&actions)?.live("list", "All scans", "scan. watch.", &table)?;
    Page::new(&session, "Scans").command("bulla inventory scans").reads(listing.path()).show(&parts)
}

fn state(name: &str) -> Cell {
    match name {
        "finished" => Cell::badge(Tone::Good, "finished"),
        "running" => Cell::badge(Tone::Calm, "running"),
        other => Cell::badge(Tone::Warn, other),
    }
}

/// Formats the targets of a scan, shortened.
fn targets(scan: &Value) -> String {
    let mut all = json::joined(scan, "/spec/targets");
    let sources = json::joined(scan, "/spec/sources");
    if !sources.is_empty() {
        all = if all.is_empty() { sources } else { format!("{all}, {sources}") };
    }
    format::shortened(&all, TARGETS_CHARS_MAX)
}

/// Returns the finished scans as options: time, endpoints and targets.
fn options(scans: &Value) -> Vec<(String, String)> {
    let finished = json::items(scans).iter().filter(|scan| json::text(scan, "/state") == "finished");
    let options = finished.map(|scan| {
        let time = format::minute(json::text(scan, "/started_at"));
        let endpoints = format::number(json::number(scan, "/endpoints"));
        (json::text(scan, "/id").to_owned(), format!("{time}, {endpoints} endpoints: {}", targets(scan)))
    });
    std::iter::once((String::new(), "the last two of the same targets".to_owned())).chain(options).collect()
}

/// Returns the scan of the same targets that finished before another one.
fn before(scans: &Value, to: &str) -> Option<String> {
    let all = json::items(scans);
    let to = all.iter().position(|scan| json::text(scan, "/id") == to)?;
    let targets =
        |scan: &Value| (scan.pointer("/spec/targets").cloned(), scan.pointer("/spec/sources").cloned());
    let finished = all[to + 1..].iter().filter(|scan| json::text(scan, "/state") == "finished");
    let same = finished.filter(|scan| targets(scan) == targets(&all[to])).map(|scan| json::text(scan, "/id"));
    same.map(str::to_owned).next()
}

async fn diff(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let of = |name| parameter::<String>(query, name);
    let scans = session.api.get(CHOICES).await?;
    let (mut from, to, since) = (of("from"), of("to"), of("since"));
    if from.is_empty() && !to.is_empty() {
        from = before(&scans, &to).unwrap_or_default();
    }
    let form = Form::filters(
        DIFF,
        vec![
            Field::choice("from", "Earlier scan", options(&scans)).value(&from),
            Field::choice("to", "Later scan", options(&scans)).value(&to),
            Field::date("since", "Or all changes since").value(&since),
        ],
    );
    let filters = filters(&from, &to, &since);
    let path = "/api/v1/inventory/diff";
    let listing = Listing::filtered(&session, DIFF, path, filters.clone(), query).await;
    let parts = Sections::default().plain(&form)?;
    let parts = match if_allowed(listing)? {
        Some(listing) => {
            let table = listing
                .table("Differences", &["Change", "Endpoint", "Time", "Before", "Now", "Worst finding"], |change| {
                    row(&session, change)
                })
                .empty("No difference: each endpoint is as it was.")
                .exported("differences");
            parts.section("list", "Differences", &table)?
        }
        None => parts.plain(&Note::hint(
            "There are no two finished scans of the same targets. Run a watch again, choose two scans, or give a day.",
        ))?,
    };
    let command = match (from.as_str(), to.as_str(), since.as_str()) {
        (from, to, "") if !from.is_empty() && !to.is_empty() => format!("bulla inventory diff {from} {to}"),
        (_, _, "") => "bulla inventory diff".to_owned(),
        (_, _, since) => format!("bulla inventory diff --since {since}"),
    };
    Page::new(&session, "Differences between scans")
        .command(command)
        .reads(with_query(path, &filters))
        .reads(CHOICES)
        .show(&parts)
}

/// Returns the query of the API: a day goes before two scans.
fn filters(from: &str, to: &str, since: &str) -> String {
    let segment = api::path::segment;
    match (from, to, since) {
        ("", "", "") => String::new(),
        (_, _, "") => format!("from={}&to={}", segment(from), segment(to)),
        (_, _, day) if day.len() == 10 => format!("since={}", segment(&format!("{day}T00:00:00Z"))),
        (_, _, time) => format!("since={}", segment(time)),
    }
}

fn row(session: &Session, change: &Value) -> Vec<Cell> {
    let endpoint = change.get("endpoint").unwrap_or(&Value::Null);
    vec![
        kind(json::text(change, "/change")),
        endpoints::link(endpoint),
        Cell::time(json::text(change, "/observed_at"), session.now),
        side(json::text(change, "/old_fingerprint"), json::text(change, "/old_outcome")),
        side(json::text(change, "/new_fingerprint"), json::text(change, "/new_outcome")),
        Cell::state(json::text(change, "/severity")),
    ]
}

fn kind(name: &str) -> Cell {
    let tone = match name {
        "new" | "returned" => Tone::Good,
        "gone" => Tone::Bad,
        "not-scanned" => Tone::Calm,
        _ => Tone::Warn,
    };
    Cell::badge(tone, name.replace('-', " "))
}

/// Returns the certificate on one side of a comparison, or else the outcome.
fn side(fingerprint: &str, outcome: &str) -> Cell {
    let short: String = fingerprint.chars().take(12).collect();
    match (short.is_empty(), outcome) {
        (true, outcome) => Cell::text(outcome),
        (false, outcome) => {
            let text = if matches!(outcome, "" | "answered") { short } else { format!("{short}, {outcome}") };
            Cell::link(format!("/console/search?q={}", api::path::segment(fingerprint)), text)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scan_is_compared_with_the_previous_scan_of_the_same_targets() {
        let scan = |id: &str, state: &str, target: &str| json!({ "id": id, "state": state, "spec": { "targets": [target] } });
        let scans = json!({ "items": [
            scan("d", "finished", "a"), scan("c", "interrupted", "a"), scan("b", "finished", "x"),
            scan("a", "finished", "a"),
        ] });
        assert_eq!(before(&scans, "d").as_deref(), Some("a"));
        assert_eq!(before(&scans, "b"), None);
        assert_eq!(options(&scans).len(), 4);
    }

    #[test]
    fn scan_diff_date_takes_precedence_over_two_scans() {
        assert_eq!(filters("", "", ""), "");
        assert_eq!(filters("a", "b&", ""), "from=a&to=b%26");
        assert_eq!(filters("a", "b", "2026-11-01"), "since=2026-11-01T00%3A00%3A00Z");
    }

    #[test]
    fn long_scan_targets_are_truncated() {
        let scan = json!({ "spec": { "targets": ["ä".repeat(100)] } });
        assert_eq!(targets(&scan).chars().count(), TARGETS_CHARS_MAX + 1);
    }
}
