//! Nodes of the key service: the list, one node, and its retirement.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::attributes;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

pub(crate) const PAGE: &str = "/console/key-nodes";

const COLUMNS: &[&str] = &["Name", "Site", "State", "Attributes", "Address", "Certificate expires"];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/key-nodes/{node}", get(one))
        .route("/console/key-nodes/{node}/retire", get(confirm_retire))
        .route("/console/key-nodes/{node}/retirement", post(retire))
}

#[derive(Template)]
#[template(path = "key_nodes.html")]
struct Nodes {
    table: Table,
    site: String,
    retired: bool,
    may_enroll: bool,
}

#[derive(Template)]
#[template(path = "key_node.html")]
struct NodePage {
    facts: Facts,
    neighbours: Table,
    path: String,
    may_retire: bool,
}

fn path_of(node: &str) -> String {
    item("/api/v1/key-nodes", node)
}

fn href(node: &str) -> String {
    item(PAGE, node)
}

fn site_href(site: &str) -> String {
    item("/console/key-sites", site)
}

pub(crate) fn table(session: &Session, listing: &Value) -> Table {
    Table::of("Nodes of the key service", COLUMNS, listing, |node| row(session, node)).empty(
        "No node yet. Create a node token, and start `bulla key serve --join` with it on a host of the site.",
    )
}

fn row(session: &Session, node: &Value) -> Vec<Cell> {
    let (name, site) = (json::text(node, "/name"), json::text(node, "/site"));
    vec![
        Cell::link(href(name), name),
        Cell::link(site_href(site), site),
        state(node),
        Cell::text(attributes::shown(node, "/attributes")),
        Cell::code(json::text(node, "/address")),
        Cell::time(json::text(node, "/certificate_expires_at"), session.now),
    ]
}

/// Returns whether a node is online, overdue, or retired.
fn state(node: &Value) -> Cell {
    let retired = !json::text(node, "/retired_at").is_empty();
    match (retired, json::flag(node, "/hostile"), json::flag(node, "/present")) {
        (true, true, _) => Cell::badge(Tone::Bad, "retired, not trusted"),
        (true, false, _) => Cell::badge(Tone::Calm, "retired"),
        (false, _, true) => Cell::badge(Tone::Good, "present"),
        (false, _, false) => Cell::badge(Tone::Bad, "lost contact"),
    }
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, "/api/v1/key-nodes", query).await?;
    let table = listing
        .table("Nodes of the key service", COLUMNS, |node| row(&session, node))
        .empty("No node matches. Remove a filter, or create a node token and start `bulla key serve --join` with it.")
        .exported("nodes");
    let body = Nodes {
        table,
        site: parameter(query, "site"),
        retired: parameter::<String>(query, "retired") == "true",
        may_enroll: session.may("node.enroll"),
    };
    Page::new(&session, "Nodes of the key service")
        .command("bulla key node list")
        .reads(listing.path())
        .show(&body)
}

async fn one(session: Session, Path(node): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&node)).await?;
    // Needed for the names, because measured latencies refer to nodes by ID.
    let others = session.api.get("/api/v1/key-nodes?limit=500&retired=true").await?;
    let name = json::text(&found, "/name").to_owned();
    let is_retired = !json::text(&found, "/retired_at").is_empty();
    let body = NodePage {
        facts: facts(&session, &found),
        neighbours: neighbours(&found, &others),
        path: href(&name),
        may_retire: session.may("node.manage") && !is_retired,
    };
    Page::new(&session, format!("Node {name}"))
        .command(format!("bulla key node show {name}"))
        .reads(path_of(&name))
        .show(&body)
}

fn facts(session: &Session, node: &Value) -> Facts {
    let site = json::text(node, "/site");
    Facts::default()
        .with("State", state(node))
        .with("Site", Cell::link(site_href(site), site))
        .with("Address for other nodes", Cell::code(json::text(node, "/address")))
        .with("Attributes", Cell::code(attributes::shown(node, "/attributes")))
        .with("Own attributes", Cell::code(attributes::shown(node, "/own_attributes")))
        .with("Lease until", Cell::time(json::text(node, "/lease_until"), session.now))
        .with("Enrolled", Cell::time(json::text(node, "/enrolled_at"), session.now))
        .with("Certificate expires", Cell::time(json::text(node, "/certificate_expires_at"), session.now))
        .with("Retired", Cell::time(json::text(node, "/retired_at"), session.now))
        .with("Identity", Cell::code(json::text(node, "/id")))
}

/// Returns the nodes whose latency a node has measured, the nearest first.
fn neighbours(node: &Value, others: &Value) -> Table {
    let measured = node.pointer("/measured").and_then(Value::as_object);
    let times = measured.into_iter().flatten();
    let mut times: Vec<(i64, &String)> =
        times.filter_map(|(id, milliseconds)| Some((milliseconds.as_i64()?, id))).collect();
    times.sort_unstable();
    let rows = times.into_iter().map(|(milliseconds, id)| {
        let other = json::items(others).iter().find(|other| json::text(other, "/id") == id);
        let name = other.map_or(id.as_str(), |other| json::text(other, "/name"));
        let site = other.map_or("", |other| json::text(other, "/site"));
        vec![Cell::link(href(name), name), Cell::text(site), Cell::number(milliseconds)]
    });
    Table::new("Round trips to other nodes", &["Node", "Site", "Milliseconds"], rows)
        .empty("This node has not measured any other node.")
}

/// Options on whether the host of a retired node is still trusted.
const RETIREMENT: &[(&str, &str)] = &[
    ("trusted", "Yes: it is retired from service"),
    ("hostile", "No: rotate every policy whose keys it could open"),
];

async fn confirm_retire(session: Session, Path(node): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&node)).await?;
    let name = json::text(&found, "/name").to_owned();
    let body = Confirmation::new(&session, format!("{}/retirement", href(&name)), href(&name), "Retire the node").danger()
        .says("The node is rejected from now on, and the other nodes are notified. It can rejoin only with a new node token.")
        .says("Keys that no other available node may open cannot sign until such a node joins.")
        .says("If the host is not trusted any more, every policy whose keys it could open is rotated.")
        .facts(facts(&session, &found))
        .field(Field::required_choice("trust", "Is the host still trusted?", RETIREMENT.iter().copied()));
    Page::new(&session, format!("Retire node {name}"))
        .command(format!("bulla key node retire {name}"))
        .reads(path_of(&name))
        .show(&body)
}

async fn retire(session: Session, Path(node): Path<String>, form: FormData) -> Result<Response, Failure> {
    let body = json!({ "hostile": form.field("trust") == Some("hostile") });
    let path = format!("{}/retire", path_of(&node));
    let answer = session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_are_shown_by_name_and_sorted_by_latency() {
        let node = json!({ "measured": { "a": 30, "b": 2 } });
        let others = json!({ "items": [{ "id": "b", "name": "paris-1", "site": "paris" }] });
        let table = neighbours(&node, &others);
        let html = table.to_string();
        let (near, far) = (html.find("paris-1"), html.find(">a</a>"));
        assert!(near.is_some() && near < far, "{html}");
    }

    #[test]
    fn key_node_state_is_present_lost_contact_or_not_trusted() {
        let text = |node: Value| format!("{:?}", state(&node));
        assert!(text(json!({ "present": false })).contains("lost contact"));
        assert!(text(json!({ "present": true })).contains("present"));
        let retired = json!({ "present": false, "retired_at": "2026-11-29T00:00:00Z", "hostile": true });
        assert!(text(retired).contains("not trusted"));
    }
}
