//! Limits, timeouts and retention of the server, with the source of each value.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::failure::Failure;
use crate::format;
use crate::json;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/limits";
/// API path of the list of limits.
const LIST: &str = "/api/v1/limits";

/// The sections: kind in the API, heading, caption of the table.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("retention", "Retention", "Retention: how long and how much is stored"),
    ("limit", "Limits", "Limits of rates, connections and sizes"),
    ("timeout", "Timeouts", "Timeouts"),
];

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(page))
}

/// How to change a value.
#[derive(Template)]
#[template(path = "limits_change.html")]
struct Change {
    /// Whether the caller may see the overrides of ACME limits.
    reads_overrides: bool,
}

async fn page(session: Session) -> Result<Response, Failure> {
    let all = session.api.get(LIST).await?;
    let exports = Actions::default()
        .link("/console/export/limits.csv", "Export CSV")
        .link("/console/export/limits.json", "Export JSON");
    let change = Change { reads_overrides: session.may("protocol.read") };
    let mut parts = Sections::default().plain(&exports)?.section("change", "Change a value", &change)?;
    for (kind, heading, caption) in SECTIONS {
        let table = table(&all, caption, |one| json::text(one, "/kind") == *kind);
        parts = parts.section(kind, heading, &table)?;
    }
    // A newer server may have further kinds of values.
    let others = table(&all, "Other values", |one| {
        SECTIONS.iter().all(|(kind, ..)| json::text(one, "/kind") != *kind)
    });
    if !others.is_empty() {
        parts = parts.section("others", "Others", &others)?;
    }
    Page::new(&session, "Limits and retention")
        .command("bulla config limits")
        .command("bulla config show")
        .reads(LIST)
        .show(&parts)
}

fn table(all: &Value, caption: &str, is_shown: impl Fn(&Value) -> bool) -> Table {
    let rows = json::items(all).iter().filter(|one| is_shown(one)).map(|one| {
        vec![
            name(one),
            value(one.get("value").unwrap_or(&Value::Null)),
            Cell::text(json::text(one, "/unit")),
            source(one),
            Cell::text(json::text(one, "/meaning")),
        ]
    });
    Table::new(caption, &["Key", "Value", "Unit", "Source", "Meaning"], rows)
        .empty("This server reports none.")
}

/// Returns the key. A built-in value has a name, and no key.
fn name(one: &Value) -> Cell {
    match json::text(one, "/source") {
        "built-in" => Cell::text(json::text(one, "/name")),
        _ => Cell::code(json::text(one, "/name")),
    }
}

fn value(value: &Value) -> Cell {
    match value {
        Value::Number(number) => {
            Cell::Number(number.as_i64().map_or_else(|| number.to_string(), format::number))
        }
        Value::String(text) => Cell::text(text),
        Value::Array(items) => {
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Cell::text(texts.join(", "))
        }
        _ => Cell::Empty,
    }
}

/// Returns the source, with the file or the variable.
fn source(one: &Value) -> Cell {
    match (json::text(one, "/source"), json::text(one, "/origin")) {
        ("default" | "built-in", _) => Cell::text(json::text(one, "/source")),
        (source, "") => Cell::badge(Tone::Calm, source),
        (source, origin) => Cell::text(format!("{source}: {origin}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_with_their_source() {
        let shown = |cell: Cell| format!("{cell:?}");
        assert!(shown(value(&json!(8192))).contains("8,192"));
        assert!(shown(value(&json!(0.5))).contains("0.5"));
        assert!(shown(value(&json!(["/ci/* 10", "/* 90d"]))).contains("/ci/* 10, /* 90d"));
        assert!(shown(value(&json!([]))).contains("Empty"));
        let of = |source_name: &str, origin: Option<&str>| {
            shown(source(&json!({ "source": source_name, "origin": origin })))
        };
        assert!(of("file", Some("/etc/bulla.toml")).contains("file: /etc/bulla.toml"));
        assert!(of("default", None).contains("default"));
    }
}
