//! The console's pages and actions of the credential store, with the callers of the credential store's table.

use http::Method;
use serde_json::{Value, json};

use super::console::{CREDENTIAL_PAGES, Row, routes};
use super::credentials::{COLUMNS, FOLDERS, Server, callers};
use crate::world::{TestResponse, send};

/// A request for a page: its query, or the fields of its form. `shows` is text that the page has if it shows the credential.
struct Sample {
    query: String,
    fields: Vec<(&'static str, String)>,
    shows: Option<String>,
}

impl Sample {
    fn page(fields: &[(&'static str, &str)]) -> Self {
        let query =
            encoded(&fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>());
        Self { query: format!("?{query}"), fields: Vec::new(), shows: None }
    }

    fn form(fields: &[(&'static str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { query: String::new(), fields, shows: None }
    }

    fn showing(self, text: &str) -> Self {
        Self { shows: Some(text.to_owned()), ..self }
    }
}

fn encoded(fields: &[(&'static str, String)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", ::api::path::segment(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Panics for an unknown page: add how to ask it for a credential.
fn sample(row: &Row, folder: &str, number: usize) -> Sample {
    let name = format!("/{folder}/x");
    let (made, deleted, path) =
        (format!("/{folder}/made"), format!("/{folder}/gone"), format!("/{folder}/*"));
    let actor = actor(row, number);
    let permission = [("path", &*path), ("actor", &actor), ("operation", "read"), ("name", &name)];
    match (row.method, row.path.trim_start_matches("/console/")) {
        ("GET", "credentials") => {
            Sample::page(&[("path", &format!("/{folder}"))]).showing(&format!(">{name}<"))
        }
        ("GET", "export/credentials.csv") => Sample::page(&[("path", &format!("/{folder}"))]).showing(&name),
        ("GET", "data" | "credentials/one" | "credentials/delete") => Sample::page(&[("name", &name)]),
        ("GET", "credentials/regenerate") => Sample::page(&[("name", &made)]),
        ("GET", "credentials/undelete") => Sample::page(&[("name", &deleted)]),
        ("GET", "credentials/set" | "credentials/generate") => {
            Sample::page(&[("name", &name), ("type", "value")])
        }
        ("GET", "credentials/deleted") => Sample::page(&[]).showing(&deleted),
        ("GET", "credentials/permission/remove") => Sample::page(&permission),
        ("POST", "credentials/value") => {
            Sample::form(&[("name", &name)]).showing(&format!("secret-{folder}"))
        }
        ("POST", "credentials/set") => {
            let value = format!("secret-{folder}");
            Sample::form(&[("name", &name), ("type", "value"), ("value", &value), ("known", "yes")])
        }
        ("POST", "credentials/generate") => Sample::form(&[("name", &made), ("type", "password")]),
        ("POST", "credentials/regeneration") => Sample::form(&[("name", &made)]),
        ("POST", "credentials/deletion") => Sample::form(&[("name", &name)]),
        ("POST", "credentials/undelete") => Sample::form(&[("name", &deleted)]),
        ("POST", "credentials/permissions" | "credentials/permission/removal") => Sample::form(&permission),
        (method, path) => panic!("the matrix has no row for {method} /console/{path}: add how it is asked"),
    }
}

/// Returns an actor without permissions, for a request with this number.
fn actor(row: &Row, number: usize) -> String {
    format!("uaa-client:{}{number}", row.path.replace('/', "-"))
}

/// Makes the credentials of a place, as they are before each request: `x`, the generated `made`, and the deleted `deleted`.
async fn prepare(server: &Server, row: &Row, folder: &str, number: usize) {
    let admin = Some(server.world.admin.as_str());
    for (name, value) in [("x", json!(format!("secret-{folder}"))), ("gone", json!("gone"))] {
        let body = json!({ "name": format!("/{folder}/{name}"), "type": "value", "value": value });
        server.send_request(admin, "PUT", "/api/v1/data", &body).await.expect(200);
    }
    let body = json!({ "name": format!("/{folder}/made"), "type": "password" });
    server.send_request(admin, "POST", "/api/v1/data", &body).await.expect(200);
    server.send_request(admin, "DELETE", &format!("/api/v1/data?name=/{folder}/gone"), &Value::Null).await;
    let permission =
        json!({ "path": format!("/{folder}/*"), "actor": actor(row, number), "operations": ["read"] });
    if row.path.contains("/permission/") {
        server.send_request(admin, "POST", "/api/v2/permissions", &permission).await;
    }
}

async fn send_request(server: &Server, token: Option<&str>, row: &Row, sample: &Sample) -> TestResponse {
    let method = Method::from_bytes(row.method.as_bytes()).unwrap();
    let mut request = server.world.bare(method, &format!("{}{}", row.path, sample.query));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if row.method == "POST" {
        let form = request.header("content-type", "application/x-www-form-urlencoded");
        request = form.header("sec-fetch-site", "same-origin").body(encoded(&sample.fields));
    }
    send(request).await
}

fn signs_in(answer: &TestResponse) -> bool {
    answer.status == 303 && answer.header("location").starts_with("/console/sign-in")
}

/// Asserts the rules for the credential pages, and returns their table.
pub(super) async fn table() -> String {
    let server = Server::start().await;
    let tokens = callers(&server).await;
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    let pages = routes().await.into_iter();
    let export = Row { path: "/console/export/credentials.csv".to_owned(), method: "GET" };
    let pages = pages.filter(|row| CREDENTIAL_PAGES.iter().any(|begin| row.path.starts_with(begin)));
    for row in pages.chain([export]) {
        let what = format!("{} {}", row.method, row.path);
        let answer = send_request(&server, None, &row, &sample(&row, "own", 0)).await;
        // This page is a redirect without data.
        if !signs_in(&answer) && row.path != "/console/data" {
            faults.push(format!("{what} by nobody: {answer:?}"));
        }
        let mut cells = vec![format!("`{what}`")];
        for (number, token) in tokens.iter().enumerate() {
            for folder in FOLDERS {
                prepare(&server, &row, folder, cells.len()).await;
                let sample = sample(&row, folder, cells.len());
                let answer = send_request(&server, Some(token), &row, &sample).await;
                let shown = sample.shows.as_ref().is_none_or(|text| answer.text.contains(text));
                let done = matches!(answer.status.as_u16(), 200 | 303);
                if number == 0 && !(done && shown) {
                    faults.push(format!(
                        "{what} by an administrator: ask it so that it is understood: {answer:?}"
                    ));
                }
                let secret = format!("secret-{folder}");
                if answer.text.contains(&secret) && row.path != "/console/credentials/value" {
                    faults.push(format!("{what} shows a value: {answer:?}"));
                }
                if !matches!(answer.status.as_u16(), 200 | 303 | 403 | 404) {
                    faults.push(format!("{what} by caller {number} at {folder}: {answer:?}"));
                }
                cells.push(if done && shown { "yes" } else { "–" }.to_owned());
            }
        }
        rows.push(cells);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let columns = [&["page or action"], &COLUMNS[..]].concat();
    super::table("The console's pages of the credential store", &columns, &rows)
}
