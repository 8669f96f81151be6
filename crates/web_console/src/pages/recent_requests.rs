//! Recent requests of the proxy in this process.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::Method;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::Value;

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::{Failure, if_allowed};
use crate::form_data::{FormData, redirect};
use crate::format;
use crate::json;
use crate::query::{parameter, with_query};
use crate::sections::{Note, Sections};
use crate::session::Session;
use crate::shell::{Page, quoted};
use crate::table::Table;

/// Console path of the list of recent requests.
pub(super) const PAGE: &str = "/console/proxy/requests";
/// API path of the list of recent requests.
const LIST: &str = "/api/v1/proxy/requests";
/// API path of the list of recent requests in HAR format.
const HAR: &str = "/api/v1/proxy/requests.har";
/// Permission to replay a request.
const REPLAY: &str = "proxy.decide";
/// Maximum requests in an export: all that the API keeps.
const EXPORTED: u32 = 1_000;
/// Number of requests that a page shows.
const SHOWN: u32 = 200;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/proxy/requests.har", get(har))
        .route("/console/proxy/requests/{id}", get(one))
        .route("/console/proxy/requests/{id}/replay", get(confirm_replay).post(replay))
}

#[derive(Template)]
#[template(path = "recent_requests.html")]
struct Recent {
    identity: String,
    host: String,
    denied: bool,
    paused: bool,
    /// URL of this page with the same filters: paused if this page is live, otherwise live.
    other: String,
    /// URL of the HAR export with the same filters.
    har: String,
    /// `None` if no proxy runs in this process.
    table: Option<Table>,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let of = |name| parameter::<String>(query, name);
    let paused = of("paused") == "true";
    let filters = filters(query);
    let path = with_query(&limited(LIST, SHOWN), &filters.join("&"));
    // 403 is an error of the page; 503 means that this process has no proxy.
    let listing = match session.api.get(&path).await {
        Err(Failure::Refused(problem)) if problem.status == 403 => return Err(Failure::Refused(problem)),
        other => if_allowed(other)?,
    };
    let filtered = filters.join("&");
    let toggled: Vec<_> = filters.into_iter().chain((!paused).then(|| "paused=true".to_owned())).collect();
    let body = Recent {
        identity: of("identity"),
        host: of("host"),
        denied: of("denied") == "true",
        paused,
        har: with_query("/console/proxy/requests.har", &filtered),
        other: with_query(PAGE, &toggled.join("&")),
        table: listing
            .as_ref()
            .map(|listing| table(&session, listing).filtered(&filtered).exported("requests")),
    };
    Page::new(&session, "Proxy requests")
        .command("bulla proxy top")
        .reads(path)
        .reads(with_query(&limited(HAR, EXPORTED), &filtered))
        .show(&body)
}

/// Returns the filters of a query, as parameters of the API.
fn filters(query: Option<&str>) -> Vec<String> {
    let named = ["identity", "host"].map(|name| (name, parameter::<String>(query, name)));
    let named = named.into_iter().filter(|(_, value)| !value.is_empty());
    let named = named.map(|(name, value)| format!("{name}={}", api::path::segment(&value)));
    let denied = parameter::<String>(query, "denied") == "true";
    named.chain(denied.then(|| "denied=true".to_owned())).collect()
}

fn limited(path: &str, most: u32) -> String {
    format!("{path}?limit={most}")
}

/// Downloads the requests that match the filters of the page as HAR.
async fn har(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let path = with_query(&limited(HAR, EXPORTED), &filters(query.as_deref()).join("&"));
    let log = session.api.get(&path).await?;
    let headers =
        [(CONTENT_TYPE, "application/json"), (CONTENT_DISPOSITION, "attachment; filename=\"requests.har\"")];
    Ok((headers, log.to_string()).into_response())
}

fn table(session: &Session, listing: &Value) -> Table {
    let row = |one: &Value| {
        vec![
            Cell::link(format!("{PAGE}/{}", api::path::segment(json::text(one, "/id"))), request_line(one)),
            Cell::time(json::text(one, "/time"), session.now),
            Cell::text(client_name(one)),
            decision(one),
            Cell::text(json::text(one, "/policy_rule")),
            status(one),
            Cell::Number(bytes(one)),
            Cell::Number(duration(one)),
        ]
    };
    let columns =
        &["Request", "Time", "Identity", "Decision", "Rule", "Status", "Bytes sent / received", "Duration"];
    Table::of("Recent requests of the proxy, newest first", columns, listing, row).empty(
        "No request matches. Requests appear here when the proxy answers them; a restart forgets them.",
    )
}

/// Returns method, host and path, shortened for the list.
fn request_line(one: &Value) -> String {
    const CHARS_MAX: usize = 120;
    let port = match json::number(one, "/port") {
        0 | 443 => String::new(),
        port => format!(":{port}"),
    };
    let text = format!(
        "{} {}{port}{}",
        json::text(one, "/method"),
        json::text(one, "/host"),
        json::text(one, "/path")
    );
    format::shortened(&text, CHARS_MAX)
}

/// Returns the identity of the client, else its user, else its address.
pub(super) fn client_name(one: &Value) -> &str {
    let names = ["/identity", "/user", "/client"].map(|pointer| json::text(one, pointer));
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
}

/// Returns whether the proxy refused a request.
pub(super) fn is_refused(one: &Value) -> bool {
    json::text(one, "/decision") == "deny" || !json::text(one, "/reason").is_empty()
}

fn decision(one: &Value) -> Cell {
    let refused = !json::text(one, "/reason").is_empty();
    match json::text(one, "/decision") {
        "allow" if !refused => Cell::badge(Tone::Good, "allow"),
        "" if refused => Cell::badge(Tone::Bad, "refused"),
        "" => Cell::Empty,
        "log" => Cell::badge(Tone::Warn, "log"),
        "hold" => Cell::badge(Tone::Warn, "hold"),
        other => Cell::badge(Tone::Bad, other),
    }
}

fn status(one: &Value) -> Cell {
    match json::number(one, "/status") {
        0 => Cell::Empty,
        status => Cell::Number(status.to_string()),
    }
}

fn bytes(one: &Value) -> String {
    let number = |pointer| format::number(json::number(one, pointer));
    format!("{} / {}", number("/bytes_from_client"), number("/bytes_to_client"))
}

fn duration(one: &Value) -> String {
    match one.pointer("/duration_ms").and_then(Value::as_i64) {
        Some(ms) => format!("{} ms", format::number(ms)),
        None => "running".to_owned(),
    }
}

#[derive(Template)]
#[template(path = "recent_request.html")]
struct One<'a> {
    actions: Actions,
    facts: Facts,
    /// A rule for the configuration file that allows such requests; empty without a policy, or if no rule can match the request.
    rule: &'a str,
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = format!("{LIST}/{}", api::path::segment(&id));
    let found = session.api.get(&path).await?;
    let text = |pointer| Cell::text(json::text(&found, pointer));
    let port = match json::number(&found, "/port") {
        0 => Cell::Empty,
        port => Cell::text(port.to_string()),
    };
    let facts = Facts::default()
        .with("Time", Cell::time(json::text(&found, "/time"), session.now))
        .with("Identity", text("/identity"))
        .with("User", text("/user"))
        .with("Address of the client", text("/client"))
        .with("Method", text("/method"))
        .with("Host", Cell::code(json::text(&found, "/host")))
        .with("Port", port)
        .with("Path", Cell::code(json::text(&found, "/path")))
        .with("Decision", decision(&found))
        .with("Rule of the policy", text("/policy_rule"))
        .with("Reason of the refusal", text("/reason"))
        .with("Rules on requests", Cell::text(json::joined(&found, "/rules")))
        .with("Credentials", Cell::text(json::joined(&found, "/credentials")))
        .with("Status", status(&found))
        .with("Bytes sent / received", Cell::text(bytes(&found)))
        .with("Duration", Cell::text(duration(&found)))
        .with("Replay of", replay_of(&found))
        .with("Replayed by", text("/replayed_by"));
    let actions =
        Actions::default().link(format!("{}/replay", page_of(&id)), "Replay").only_if(session.may(REPLAY));
    let body = One { actions, facts, rule: json::text(&found, "/allowing_rule") };
    Page::new(&session, "Proxy request").command("bulla proxy top").reads(path).show(&body)
}

/// Returns a link to the original request of a replay; empty for other requests.
fn replay_of(one: &Value) -> Cell {
    match json::text(one, "/replay_of") {
        "" => Cell::Empty,
        id => Cell::link(page_of(id), format!("request {id}")),
    }
}

fn page_of(id: &str) -> String {
    format!("{PAGE}/{}", api::path::segment(id))
}

/// Shows the request that a replay would send, or why the API refuses the replay.
async fn confirm_replay(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = format!("{LIST}/{}/replay", api::path::segment(&id));
    let plan = session.api.get(&path).await?;
    let page = Page::new(&session, "Replay this request?")
        .command(format!("bulla proxy replay {}", quoted(&id)))
        .reads(path);
    let refused = json::text(&plan, "/refused");
    if !refused.is_empty() {
        let back = Actions::default().link(page_of(&id), "Back to the request");
        let body = Sections::default()
            .plain(&Note::hint(format!("The proxy cannot replay this request: {refused}.")))?
            .plain(&Note::faint("Only a request without query and body can be replayed, as the same client, and if the policy allows it."))?
            .plain(&back)?;
        return page.show(&body);
    }
    let body = Confirmation::new(&session, format!("{}/replay", page_of(&id)), page_of(&id), "Send it again")
        .danger()
        .facts(replay_facts(&plan))
        .says("The proxy sends a new request to the host. If the method changes something there, it changes it again.")
        .says("The proxy injects the credentials above with their current values. It uses no value of the first request.")
        .says("The new request has only the headers `Host`, `Accept` and `User-Agent`: the proxy keeps no headers. The body of the response is discarded.")
        .says("It counts for the budget of the identity. The audit log has your name.");
    page.show(&body)
}

fn replay_facts(plan: &Value) -> Facts {
    let text = |pointer| Cell::text(json::text(plan, pointer));
    let or_none = |text: &str| Cell::text(if text.is_empty() { "none" } else { text });
    Facts::default()
        .with("Identity", or_none(json::text(plan, "/identity")))
        .with("Method", text("/method"))
        .with("URL", Cell::code(json::text(plan, "/url")))
        .with("Decision", decision(plan))
        .with("Rule of the policy", text("/policy_rule"))
        .with("Credentials", or_none(&json::joined(plan, "/credentials")))
}

async fn replay(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{LIST}/{}/replay", api::path::segment(&id));
    let sent = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&page_of(json::text(&sent, "/id")), "replayed", &sent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refused_and_running_requests_are_marked() {
        let shown = |one: &Value| format!("{:?}", decision(one));
        assert!(shown(&json!({ "decision": "allow", "reason": "budget" })).contains("Bad"));
        assert!(shown(&json!({ "decision": "allow" })).contains("Good"));
        assert!(shown(&json!({ "reason": "host-mismatch" })).contains("refused"));
        assert_eq!(duration(&json!({ "duration_ms": null })), "running");
        assert_eq!(duration(&json!({ "duration_ms": 1200 })), "1,200 ms");
        let one = json!({ "method": "GET", "host": "a.example", "port": 8443, "path": "/x", "client": "192.0.2.1" });
        assert_eq!((request_line(&one).as_str(), client_name(&one)), ("GET a.example:8443/x", "192.0.2.1"));
    }
}
