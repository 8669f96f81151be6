//! Exports of complete lists as CSV or JSON.

use std::io;

use api::csv::Csv;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::Stream;
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::Value;

use crate::api::{Api, Client};
use crate::failure::Failure;
use crate::json;
use crate::query::{filters, parameter, with_query};
use crate::session::Session;

/// Rows of one page of the API: the maximum that the API allows.
const PAGE_ROWS: usize = 500;

/// The exported lists: the name in the URL, and the path of the API.
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
    ("scans", "/api/v1/scans"),
    ("differences", "/api/v1/inventory/diff"),
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
    ("roles", "/api/v1/roles"),
    ("ownership-rules", "/api/v1/ownership-rules"),
    ("domains", "/api/v1/ct/domains"),
    ("logs", "/api/v1/ct/logs"),
    ("agent-groups", "/api/v1/agent-groups"),
    ("agent-tokens", "/api/v1/agent-tokens"),
    ("node-tokens", "/api/v1/key-node-tokens"),
    ("servers", "/api/v1/servers"),
    ("limits", "/api/v1/limits"),
    ("held-requests", "/api/v1/proxy/held"),
];

/// The recent requests of the proxy: the name in the URL, and the path of the API. The proxy keeps at most 1,000 requests.
const REQUESTS: (&str, &str) = ("requests", "/api/v1/proxy/requests?limit=1000");

/// The list of credential names, which the credential store returns in one response.
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
    let path = path.or_else(|| (name == REQUESTS.0).then_some(REQUESTS.1));
    let (Some(path), true) = (path, matches!(kind, "csv" | "json")) else {
        let names: Vec<&str> = LISTS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::refused(
            StatusCode::NOT_FOUND,
            format!("unknown list {file}"),
            format!("the lists, each as .csv or .json: {}", names.join(", ")),
        ));
    };
    let query = query.as_deref().unwrap_or_default();
    let format = if kind == "csv" { Format::Csv } else { Format::Json };
    let export = match name {
        CREDENTIALS => Export::of(credentials(&session, path, query).await?, format),
        _ if name == REQUESTS.0 => Export::of(requests(&session, path, query).await?, format),
        _ => Export::begin(session.api.clone(), path, filters(Some(query)), format).await?,
    };
    let media = if kind == "csv" { "text/csv; charset=utf-8" } else { "application/json" };
    let disposition = format!("attachment; filename=\"{name}.{kind}\"");
    let headers = [(CONTENT_TYPE, media.to_owned()), (CONTENT_DISPOSITION, disposition)];
    Ok((headers, Body::from_stream(export.into_stream())).into_response())
}

async fn credentials(session: &Session, path: &str, filters: &str) -> Result<Vec<Value>, Failure> {
    // Other parameters, such as `name`, would return credential values, so only these filters are passed on.
    let filter = ["path", "name-like"].into_iter().find_map(|filter| {
        let value: String = parameter(Some(filters), filter);
        Some(format!("{path}?{filter}={}", api::path::segment(&value))).filter(|_| !value.is_empty())
    });
    let path = filter.unwrap_or_else(|| format!("{path}?path=/"));
    let found = session.api.credential_store()?.get(&path).await?;
    Ok(json::list(&found, "/credentials").to_vec())
}

async fn requests(session: &Session, path: &str, query: &str) -> Result<Vec<Value>, Failure> {
    let listing = session.api.get(&with_query(path, &filters(Some(query)))).await?;
    Ok(json::items(&listing).to_vec())
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Format {
    Csv,
    Json,
}

/// The export of a list. Reads one page of the API after the other, so that only one page is in memory.
struct Export {
    /// The API client and the path of the next page; `None` once the last page is read.
    rest: Option<(Client, String)>,
    format: Format,
    columns: Vec<String>,
    rows: Vec<Value>,
    cursor: String,
    begun: bool,
    /// Whether a row has been written.
    has_rows: bool,
}

impl Export {
    /// Creates an export that contains exactly these rows.
    fn of(rows: Vec<Value>, format: Format) -> Self {
        let columns = columns(&rows);
        Self { rest: None, format, columns, rows, cursor: String::new(), begun: false, has_rows: false }
    }

    /// Reads the first page before the file begins, so that an error can still be shown as a page.
    async fn begin(api: Client, path: &str, filters: String, format: Format) -> Result<Self, Failure> {
        let separator = if filters.is_empty() { "" } else { "&" };
        let mut export = Self::of(Vec::new(), format);
        export.rest = Some((api, format!("{path}?{filters}{separator}limit={PAGE_ROWS}")));
        // A page may have no items although more follow. The columns are the members of the first item.
        export.read_page().await?;
        while export.rows.is_empty() && export.rest.is_some() {
            export.read_page().await?;
        }
        export.columns = columns(&export.rows);
        Ok(export)
    }

    async fn read_page(&mut self) -> Result<(), Failure> {
        let Some((api, path)) = self.rest.take() else { return Ok(()) };
        let page = match self.cursor.as_str() {
            "" => api.get(&path).await?,
            cursor => api.get(&format!("{path}&cursor={}", api::path::segment(cursor))).await?,
        };
        self.rows = json::items(&page).to_vec();
        json::text(&page, "/next").clone_into(&mut self.cursor);
        self.rest = Some((api, path)).filter(|_| !self.cursor.is_empty());
        Ok(())
    }

    /// Returns the bytes of the file. A failure ends the stream early, which the browser reports as a failed download.
    fn into_stream(self) -> impl Stream<Item = Result<Vec<u8>, Failure>> {
        futures_util::stream::try_unfold(Some(self), async |export| {
            let Some(mut export) = export else { return Ok(None) };
            if export.begun && export.rest.is_some() {
                export.read_page().await?;
            } else if export.begun {
                return Ok(None);
            }
            let bytes = export.bytes()?;
            let ends = export.rest.is_none();
            export.begun = true;
            export.has_rows |= !export.rows.is_empty();
            Ok(Some((bytes, Some(export).filter(|_| !ends))))
        })
    }

    /// Returns the rows of the current page, with the start or end of the file.
    fn bytes(&self) -> Result<Vec<u8>, Failure> {
        match self.format {
            Format::Csv => self.csv().map_err(Failure::unreadable),
            Format::Json => self.json().map_err(Failure::unreadable),
        }
    }

    fn csv(&self) -> io::Result<Vec<u8>> {
        let mut csv = Csv::new(Vec::new());
        if !self.begun {
            csv.record(self.columns.iter().map(String::as_str))?;
        }
        for row in &self.rows {
            for column in &self.columns {
                match row.get(column) {
                    None | Some(Value::Null) => csv.text("")?,
                    Some(Value::String(text)) => csv.text(text)?,
                    Some(Value::Number(number)) if number.is_i64() => csv.number(number.as_i64())?,
                    Some(other) => csv.text(&other.to_string())?,
                }
            }
            csv.end()?;
        }
        Ok(csv.into_inner())
    }

    fn json(&self) -> serde_json::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if !self.begun {
            bytes.push(b'[');
        }
        for (index, row) in self.rows.iter().enumerate() {
            bytes.extend_from_slice(if index > 0 || self.has_rows { b",\n" } else { b"\n" });
            serde_json::to_writer(&mut bytes, row)?;
        }
        if self.rest.is_none() {
            bytes.extend_from_slice(b"\n]\n");
        }
        Ok(bytes)
    }
}

/// Returns the columns of a CSV file: the members of the first page's rows, in their order. All rows of a list have the same
/// members, except optional ones.
fn columns(rows: &[Value]) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for name in rows.iter().filter_map(Value::as_object).flat_map(|row| row.keys()) {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(rows: &[Value], format: Format) -> String {
        String::from_utf8(Export::of(rows.to_vec(), format).bytes().unwrap()).unwrap()
    }

    #[test]
    fn exported_files_contain_every_field_and_escape_formulas() {
        let rows = [json!({"name": "=cmd()", "names": ["a,b"]}), json!({"name": "q\"", "n": -1, "x": null})];
        let csv = "name,names,n,x\r\n\"'=cmd()\",\"[\"\"a,b\"\"]\",,\r\n\"q\"\"\",,-1,\r\n";
        assert_eq!(file(&rows, Format::Csv), csv);
        assert_eq!(serde_json::from_str::<Vec<Value>>(&file(&rows, Format::Json)).unwrap(), rows);
        assert_eq!(file(&[], Format::Json), "[\n]\n");
        assert_eq!(file(&[], Format::Csv), "\r\n");
    }
}
