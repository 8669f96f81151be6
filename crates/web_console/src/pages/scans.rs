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

/// API path of the scans that can be chosen for a comparison: the newest 100.
const CHOICES: &str = "/api/v1/scans?limit=100";

/// Maximum characters of a scan's targets on a page.
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
                compared(scan),
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

/// Returns the link that compares a finished scan with the previous scan.
fn compared(scan: &Value) -> Cell {
    if is_pruned(scan) {
        return Cell::text("pruned");
    }
    if !is_comparable(scan) {
        return Cell::Empty;
    }
    Cell::link(format!("{DIFF}?to={}", api::path::segment(json::text(scan, "/id"))), "Compare")
}

/// Returns whether the scan finished and the retention has removed none of its observations.
fn is_comparable(scan: &Value) -> bool {
    json::text(scan, "/state") == "finished" && !is_pruned(scan)
}

fn is_pruned(scan: &Value) -> bool {
    !json::text(scan, "/pruned_at").is_empty()
}

/// Formats the targets of a scan, shortened, and the number of targets if the response does not contain all of them.
fn targets(scan: &Value) -> String {
    let inventory = json::flag(scan, "/spec/again").then(|| "endpoints of the inventory".to_owned());
    let all =
        [inventory, Some(json::joined(scan, "/spec/targets")), Some(json::joined(scan, "/spec/sources"))];
    let all: Vec<String> = all.into_iter().flatten().filter(|names| !names.is_empty()).collect();
    let shown = format::shortened(&all.join(", "), TARGETS_CHARS_MAX);
    let count = json::number(scan, "/targets");
    if count > json::list(scan, "/spec/targets").len() as i64 {
        return format!("{shown} ({} targets)", format::number(count));
    }
    shown
}

/// Returns the comparable scans as options: time, endpoints and targets.
fn options(scans: &Value) -> Vec<(String, String)> {
    let finished = json::items(scans).iter().filter(|scan| is_comparable(scan));
    let options = finished.map(|scan| {
        let time = format::minute(json::text(scan, "/started_at"));
        let count = json::number(scan, "/endpoints");
        let noun = format::noun(usize::try_from(count).unwrap_or_default(), "endpoint");
        let endpoints = format!("{} {noun}", format::number(count));
        (json::text(scan, "/id").to_owned(), format!("{time}, {endpoints}: {}", targets(scan)))
    });
    std::iter::once((String::new(), "the last two of the same targets".to_owned())).chain(options).collect()
}

/// Returns the ID of a scan that finished before the scan `to`, and that has the same targets and options.
fn previous_scan(scans: &Value, to: &str) -> Option<String> {
    let all = json::items(scans);
    let to = all.iter().position(|scan| json::text(scan, "/id") == to)?;
    let scope = |scan: &Value| json::text(scan, "/scope").to_owned();
    let mut finished = all[to + 1..].iter().filter(|scan| is_comparable(scan));
    let same = finished.find(|scan| scope(scan) == scope(&all[to]));
    same.map(|scan| json::text(scan, "/id").to_owned())
}

async fn diff(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let of = |name| parameter::<String>(query, name);
    let scans = session.api.get(CHOICES).await?;
    let (mut from, to, since) = (of("from"), of("to"), of("since"));
    if from.is_empty() && !to.is_empty() {
        from = previous_scan(&scans, &to).unwrap_or_default();
    }
    let form = Form::filters(
        DIFF,
        vec![
            Field::choice("from", "Earlier scan", options(&scans)).value(&from),
            Field::choice("to", "Later scan", options(&scans)).value(&to),
            Field::date("since", "Or all changes since").value(&since),
        ],
    );
    let path = "/api/v1/inventory/diff";
    let parts = Sections::default().plain(&form)?;
    let Some(filters) = filters(&from, &to, &since) else {
        let parts = parts.plain(&Note::hint(
            "The other scan to compare with is missing: no earlier finished scan of the same targets and options is among the newest 100. Choose two scans, or give a day.",
        ))?;
        return Page::new(&session, "Differences between scans")
            .command("bulla inventory diff")
            .reads(CHOICES)
            .show(&parts);
    };
    let listing = Listing::filtered(&session, DIFF, path, filters.clone(), query).await;
    let parts = match if_allowed(listing)? {
        Some(listing) => {
            let table = listing
                .table("Differences", &["Change", "Endpoint", "Time", "Before", "Now", "Worst finding"], |change| {
                    row(&session, change)
                })
                .empty(no_differences(listing.answer()))
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

/// Returns the text for a page of a comparison that has no differences. The API compares only a part of the endpoints for each
/// page.
fn no_differences(answer: &Value) -> &'static str {
    match json::text(answer, "/next") {
        "" => "No difference: each endpoint is as it was.",
        _ => "No difference among the endpoints of this page. The next page compares more.",
    }
}

/// Returns the query for the API. If a day is given, it is used instead of the two scans. `None` if there is only one scan.
fn filters(from: &str, to: &str, since: &str) -> Option<String> {
    let segment = api::path::segment;
    match (from, to, since) {
        ("", "", "") => Some(String::new()),
        ("", _, "") | (_, "", "") => None,
        (_, _, "") => Some(format!("from={}&to={}", segment(from), segment(to))),
        (_, _, day) if day.len() == 10 => Some(format!("since={}", segment(&format!("{day}T00:00:00Z")))),
        (_, _, time) => Some(format!("since={}", segment(time))),
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
        let scan = |id: &str, state: &str, scope: &str| json!({ "id": id, "state": state, "scope": scope, "spec": { "targets": ["net"] } });
        let scans = json!({ "items": [
            scan("d", "finished", "a"), scan("c", "interrupted", "a"), scan("b", "finished", "x"),
            scan("a", "finished", "a"),
        ] });
        assert_eq!(previous_scan(&scans, "d").as_deref(), Some("a"));
        assert_eq!(previous_scan(&scans, "b"), None);
        assert_eq!(options(&scans).len(), 4);
    }

    #[test]
    fn scan_diff_date_takes_precedence_over_two_scans() {
        assert_eq!(filters("", "", "").as_deref(), Some(""));
        assert_eq!(filters("a", "b&", "").as_deref(), Some("from=a&to=b%26"));
        let since = Some("since=2026-11-01T00%3A00%3A00Z");
        assert_eq!(filters("a", "b", "2026-11-01").as_deref(), since);
        assert_eq!(filters("", "b", "2026-11-01").as_deref(), since);
        assert_eq!((filters("", "b", ""), filters("a", "", "")), (None, None), "the API needs both scans");
    }

    #[test]
    fn a_page_without_a_difference_says_whether_all_endpoints_were_compared() {
        assert!(no_differences(&json!({ "items": [], "next": null })).contains("each endpoint"));
        assert!(no_differences(&json!({ "items": [], "next": "c" })).contains("The next page compares more"));
    }

    #[test]
    fn only_finished_scans_are_compared() {
        let link = |state: &str| compared(&json!({ "id": "a", "state": state }));
        assert!(matches!(link("finished"), Cell::Link { .. }));
        assert!(matches!(link("running"), Cell::Empty));
        assert!(matches!(link("interrupted"), Cell::Empty));
    }

    #[test]
    fn the_number_of_targets_is_shown_if_some_are_left_out() {
        let scan = json!({ "spec": { "targets": ["a", "b"], "sources": ["aws"] }, "targets": 2 });
        assert_eq!(targets(&scan), "a, b, aws");
        let scan = json!({ "spec": { "targets": ["a", "b"] }, "targets": 10_000 });
        assert_eq!(targets(&scan), "a, b (10,000 targets)");
        let scan = json!({ "spec": { "targets": [], "again": true }, "targets": 0 });
        assert_eq!(targets(&scan), "endpoints of the inventory");
    }

    #[test]
    fn long_scan_targets_are_truncated() {
        let scan = json!({ "spec": { "targets": ["ä".repeat(100)] } });
        assert_eq!(targets(&scan).chars().count(), TARGETS_CHARS_MAX + 1);
    }
}
