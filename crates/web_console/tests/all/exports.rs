//! Exports contain every row of a list and no formulas.

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::hostile_api::Console;

const ROWS: usize = 1_203;

/// Returns a list of [`ROWS`] jobs. The request sets the page size.
async fn jobs(RawQuery(query): RawQuery) -> Response {
    let query: Vec<(String, String)> = serde_urlencoded::from_str(&query.unwrap()).unwrap();
    let of = |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(of("state"), Some("failed"), "the filters of the page hold for the export");
    let from: usize = of("cursor").map_or(0, |cursor| cursor.parse().unwrap());
    let to = ROWS.min(from + of("limit").unwrap().parse::<usize>().unwrap());
    let items: Vec<Value> =
        (from..to).map(|row| json!({ "id": row, "name": format!("=cmd{row}()") })).collect();
    let next = (to < ROWS).then(|| to.to_string());
    axum::Json(json!({ "items": items, "next": next })).into_response()
}

async fn export(kind: &str) -> String {
    let me = async || axum::Json(json!({ "csrf_token": "t" }));
    let api = Router::new().route("/api/v1/jobs", get(jobs)).route("/api/v1/auth/me", get(me));
    let path = format!("/console/export/jobs.{kind}?state=failed");
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = web_console::pages(api, None).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn csv_export_contains_every_row_and_escapes_formulas() {
    let csv = export("csv").await;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (ROWS + 1, "id,name"));
    assert_eq!(lines[ROWS], "1202,\"'=cmd1202()\"");
    assert!(lines.iter().all(|line| !line.contains(",=") && !line.contains(",\"=")));
}

#[tokio::test]
async fn json_export_contains_every_row() {
    let rows: Vec<Value> = serde_json::from_str(&export("json").await).unwrap();
    assert_eq!(rows.len(), ROWS);
    assert!(rows.iter().enumerate().all(|(index, row)| row["id"] == index));
}

#[tokio::test]
async fn every_export_that_a_page_links_to_exists() {
    let console = Console::with_short_items(1);
    let mut links = std::collections::BTreeSet::new();
    for path in console.paths() {
        let answer = console.get(&path.replace(['{', '}'], "")).await;
        let hrefs = answer.body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        links.extend(hrefs.filter(|href| href.starts_with("/console/export/")).map(str::to_owned));
    }
    assert!(links.len() > 80, "{links:?}");
    for link in links {
        let answer = console.get(&link.replace("&#38;", "&")).await;
        assert_eq!(answer.status, 200, "{link}: {}", answer.body);
    }
}

#[tokio::test]
async fn requests_of_the_proxy_are_exported_with_their_filters() {
    let recent = async |RawQuery(query): RawQuery| {
        assert_eq!(query.unwrap(), "limit=1000&host=a.example", "all that the proxy keeps");
        axum::Json(json!({ "items": [{ "id": "7", "host": "a.example" }] }))
    };
    let har = async |RawQuery(query): RawQuery| {
        assert_eq!(query.unwrap(), "limit=1000&host=a.example&denied=true");
        axum::Json(json!({ "log": { "version": "1.2", "entries": [] } }))
    };
    let me = async || axum::Json(json!({ "csrf_token": "t" }));
    let api = Router::new()
        .route("/api/v1/proxy/requests", get(recent))
        .route("/api/v1/proxy/requests.har", get(har))
        .route("/api/v1/auth/me", get(me));
    let pages = web_console::pages(api, None);
    let download = async |path: &str| {
        let response = pages.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let name = response.headers()["content-disposition"].to_str().unwrap().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (name, String::from_utf8(body.to_vec()).unwrap())
    };
    let (_, csv) = download("/console/export/requests.csv?host=a.example").await;
    assert_eq!(csv, "host,id\r\na.example,7\r\n");
    let (name, har) = download("/console/proxy/requests.har?host=a.example&denied=true&paused=true").await;
    assert_eq!(name, "attachment; filename=\"requests.har\"");
    assert_eq!(serde_json::from_str::<Value>(&har).unwrap()["log"]["version"], "1.2");
}

#[tokio::test]
async fn pages_without_rows_are_skipped() {
    /// Differences of two scans: the first two pages compare endpoints that are the same.
    async fn differences(RawQuery(query): RawQuery) -> Response {
        let cursor = query.unwrap().split_once("cursor=").map(|(_, cursor)| cursor.to_owned());
        axum::Json(match cursor.as_deref() {
            None => json!({ "items": [], "next": "2" }),
            Some("2") => json!({ "items": [], "next": "3" }),
            Some("3") => json!({ "items": [{ "change": "new" }], "next": "4" }),
            Some(_) => json!({ "items": [], "next": null }),
        })
        .into_response()
    }
    let me = async || axum::Json(json!({ "csrf_token": "t" }));
    let api =
        Router::new().route("/api/v1/inventory/diff", get(differences)).route("/api/v1/auth/me", get(me));
    let request = Request::get("/console/export/differences.csv").body(Body::empty()).unwrap();
    let response = web_console::pages(api, None).oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(String::from_utf8_lossy(&body).replace("\r\n", "\n"), "change\nnew\n");
}
