//! Whole lists as CSV or JSON.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::Value;

use crate::api::Api;
use crate::failure::Failure;
use crate::json;
use crate::session::Session;

/// Most rows of an export. `bulla … list --all` has no such bound.
const ROWS_MAX: usize = 10_000;

/// Rows asked for at once: the most that the API gives.
const PAGE: usize = 500;

/// The lists that are exported: the name in the address, and the path of the API.
const LISTS: &[(&str, &str)] = &[
    ("certificates", "/api/v1/certificates"),
    ("issued", "/api/v1/issued"),
    ("revocations", "/api/v1/revocations"),
    ("publications", "/api/v1/publications"),
    ("violations", "/api/v1/violations"),
    ("external-keys", "/api/v1/acme/external-keys"),
    ("limit-overrides", "/api/v1/acme/limit-overrides"),
    ("blocked-keys", "/api/v1/blocked-keys"),
    ("client-certificates", "/api/v1/client-certificates"),
    ("endpoints", "/api/v1/inventory"),
    ("watches", "/api/v1/watches"),
    ("agents", "/api/v1/agents"),
    ("targets", "/api/v1/targets"),
    ("jobs", "/api/v1/jobs"),
    ("deployments", "/api/v1/deployments"),
    ("alerts", "/api/v1/alerts"),
    ("silences", "/api/v1/alert-silences"),
    ("channels", "/api/v1/alert-channels"),
    ("rules", "/api/v1/alert-rules"),
    ("messages", "/api/v1/alert-deliveries"),
    ("approvals", "/api/v1/approvals"),
    ("changes", "/api/v1/changes"),
    ("enrolments", "/api/v1/enrolments"),
    ("audit", "/api/v1/audit"),
    ("issuances", "/api/v1/ct/issuances"),
    ("issuers", "/api/v1/issuers"),
    ("profiles", "/api/v1/profiles"),
    ("orders", "/api/v1/acme/orders"),
    ("accounts", "/api/v1/acme/accounts"),
    ("policies", "/api/v1/policies"),
    ("nodes", "/api/v1/key-nodes"),
    ("sites", "/api/v1/key-sites"),
    ("key-policies", "/api/v1/key-policies"),
    ("sealed-keys", "/api/v1/sealed-keys"),
    ("users", "/api/v1/users"),
    ("teams", "/api/v1/teams"),
    ("owners", "/api/v1/owners"),
    ("tokens", "/api/v1/tokens"),
];

/// Names of credentials, which the credential store lists: all at once, and not in pages.
const CREDENTIALS: &str = "credentials";

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/console/export/{file}", get(export))
}

async fn export(
    session: Session,
    Path(file): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let (name, kind) = file.rsplit_once('.').unwrap_or((&file, ""));
    let path = LISTS.iter().find(|(known, _)| *known == name).map(|(_, path)| *path);
    let path = path.or_else(|| (name == CREDENTIALS).then_some("/api/v1/data"));
    let (Some(path), true) = (path, matches!(kind, "csv" | "json")) else {
        let names: Vec<&str> = LISTS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::refused(
            StatusCode::NOT_FOUND,
            format!("there is no list {file}"),
            format!("the lists, each as .csv or .json: {}", names.join(", ")),
        ));
    };
    let query = query.as_deref().unwrap_or_default();
    let rows = match name {
        CREDENTIALS => credentials(&session, path, query).await?,
        _ => all(&session, path, query).await?,
    };
    let (media, body) = match kind {
        "csv" => ("text/csv; charset=utf-8", csv(&rows)),
        _ => ("application/json", serde_json::to_string_pretty(&rows).map_err(Failure::unreadable)?),
    };
    let kept = format!("attachment; filename=\"{name}.{kind}\"");
    Ok(([(CONTENT_TYPE, media.to_owned()), (CONTENT_DISPOSITION, kept)], body).into_response())
}

async fn credentials(session: &Session, path: &str, filters: &str) -> Result<Vec<Value>, Failure> {
    // A filter of another kind, such as a name, would read values.
    let wanted = ["path", "name-like"].into_iter().find_map(|filter| {
        let value: String = crate::query::parameter(Some(filters), filter);
        Some(format!("{path}?{filter}={}", api::path::segment(&value))).filter(|_| !value.is_empty())
    });
    let asked = wanted.unwrap_or_else(|| format!("{path}?path=/"));
    let found = session.api.credential_store()?.get(&asked).await?;
    Ok(json::list(&found, "/credentials").iter().take(ROWS_MAX).cloned().collect())
}

async fn all(session: &Session, path: &str, filters: &str) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    let mut cursor = String::new();
    while rows.len() < ROWS_MAX {
        let sign = if filters.is_empty() { "" } else { "&" };
        let from = if cursor.is_empty() {
            String::new()
        } else {
            format!("&cursor={}", api::path::segment(&cursor))
        };
        let page = session.api.get(&format!("{path}?{filters}{sign}limit={PAGE}{from}")).await?;
        rows.extend(json::items(&page).iter().cloned());
        json::text(&page, "/next").clone_into(&mut cursor);
        if cursor.is_empty() {
            break;
        }
    }
    rows.truncate(ROWS_MAX);
    Ok(rows)
}

/// One line a row (RFC 4180), the columns of the first row; what is no text or number is written as JSON.
fn csv(rows: &[Value]) -> String {
    let columns: Vec<&String> =
        rows.first().and_then(Value::as_object).map(|row| row.keys().collect()).unwrap_or_default();
    let line = |cells: Vec<String>| format!("{}\r\n", cells.join(","));
    let head = line(columns.iter().map(|name| field(name)).collect());
    let of = |row: &Value| line(columns.iter().map(|name| cell(row.get(name.as_str()))).collect());
    rows.iter().fold(head, |text, row| text + &of(row))
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => field(text),
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => field(&other.to_string()),
    }
}

/// A text that begins like a formula gets an apostrophe: a spreadsheet would compute what a certificate says.
fn field(text: &str) -> String {
    let guarded =
        if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() };
    if guarded.contains(['"', ',', '\n', '\r']) {
        return format!("\"{}\"", guarded.replace('"', "\"\""));
    }
    guarded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_spreadsheet_computes_nothing_that_a_certificate_says() {
        let rows =
            [json!({"name": "=cmd()", "names": ["a,b"], "n": 3, "x": null}), json!({"name": "q\"", "n": -1})];
        assert_eq!(csv(&rows), "n,name,names,x\r\n3,'=cmd(),\"[\"\"a,b\"\"]\",\r\n-1,\"q\"\"\",,\r\n");
        assert_eq!(csv(&[]), "\r\n");
    }
}
