//! Node tokens: each enrols one host as a node of the key service. A token is shown only once.

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
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/key-node-tokens";

const TOKENS: &str = "/api/v1/key-node-tokens";

/// Possible lifetimes of a token: seconds, and the text of the option.
const LIFETIMES: &[(&str, &str)] =
    &[("3600", "1 hour"), ("86400", "1 day"), ("604800", "7 days"), ("2592000", "30 days")];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/key-node-tokens/{id}/revoke", get(confirm_revoke))
        .route("/console/key-node-tokens/{id}/revocation", post(revoke))
}

#[derive(Template)]
#[template(path = "key_node_tokens.html")]
struct Tokens {
    table: Table,
    sites: Vec<String>,
    site: String,
    lifetimes: &'static [(&'static str, &'static str)],
    csrf: String,
}

#[derive(Template)]
#[template(path = "key_node_token.html")]
struct Created {
    token: String,
    site: String,
    expires: Cell,
    server: String,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, TOKENS, None).await?;
    let sites = session.api.get_if_allowed("/api/v1/key-sites?limit=500").await?.unwrap_or_default();
    let columns = ["Site", "State", "Attributes", "Created", "Created by", "Expires", "Action"];
    let table = listing
        .table("Node tokens", &columns, |token| row(&session, token))
        .empty("No token yet. Create one for a site, and start the key service with it on a host there.")
        .exported("node-tokens");
    let body = Tokens {
        table,
        sites: json::items(&sites).iter().map(|site| json::text(site, "/name").to_owned()).collect(),
        site: parameter(query.as_deref(), "site"),
        lifetimes: LIFETIMES,
        csrf: session.csrf().to_owned(),
    };
    Page::new(&session, "Node tokens")
        .command("bulla key node tokens")
        .command("bulla key node token --site SITE")
        .reads(listing.path())
        .show(&body)
}

fn state(token: &Value, now: jiff::Timestamp) -> (Tone, &'static str) {
    if !json::text(token, "/used_at").is_empty() {
        return (Tone::Calm, "used");
    }
    let ends = json::text(token, "/expires_at").parse::<jiff::Timestamp>();
    if ends.is_ok_and(|ends| ends <= now) { (Tone::Calm, "expired") } else { (Tone::Warn, "can be used") }
}

fn row(session: &Session, token: &Value) -> Vec<Cell> {
    let (tone, state) = state(token, session.now);
    let id = json::text(token, "/id");
    vec![
        Cell::text(json::text(token, "/site")),
        Cell::badge(tone, state),
        Cell::text(attributes::shown(token, "/attributes")),
        Cell::time(json::text(token, "/created_at"), session.now),
        Cell::text(json::text(token, "/created_by")),
        Cell::time(json::text(token, "/expires_at"), session.now),
        Cell::link(format!("{}/revoke", item(PAGE, id)), "Revoke"),
    ]
}

async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "site": form.text("site"),
        "attributes": attributes::read(form.text("attributes"))?,
        "seconds": form.field("seconds").and_then(|seconds| seconds.parse::<i64>().ok()),
    });
    let created = session.api.change(Method::POST, TOKENS, form.csrf(), Some(&body)).await?;
    let body = Created {
        token: json::text(&created, "/token").to_owned(),
        site: json::text(&created, "/site").to_owned(),
        expires: Cell::time(json::text(&created, "/expires_at"), session.now),
        server: session.api.server(),
    };
    Page::new(&session, "A node token")
        .command(format!("bulla key node token --site {}", json::text(&created, "/site")))
        .show(&body)
}

async fn confirm_revoke(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let action = format!("{PAGE}/{}/revocation", api::path::segment(&id));
    let body = Confirmation::new(&session, action, PAGE, "Revoke the token")
        .danger()
        .says("No host can become a node with this token any more.")
        .says("A node that enrolled with it stays enrolled; retire the node to remove it.");
    Page::new(&session, "Revoke a node token")
        .command(format!("bulla key node revoke-token {id}"))
        .show(&body)
}

async fn revoke(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = item(TOKENS, &id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_node_token_state_is_usable_used_or_expired() {
        let now = "2026-11-29T02:00:00Z".parse().unwrap();
        let of =
            |used: Option<&str>, ends: &str| state(&json!({ "used_at": used, "expires_at": ends }), now).1;
        assert_eq!(of(None, "2026-11-29T03:00:00Z"), "can be used");
        assert_eq!(of(None, "2026-11-29T02:00:00Z"), "expired");
        assert_eq!(of(Some("2026-11-29T01:00:00Z"), "2026-11-29T03:00:00Z"), "used");
    }
}
