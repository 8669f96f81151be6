//! Private keys that are encrypted under policies: the list, one key, and its withdrawal.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::Value;

use crate::api::Api;
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/sealed-keys";

const COLUMNS: &[&str] = &["Name", "Kind", "Sealed to policy", "Key pair", "Sealed", "Public key (SHA-256)"];

const EMPTY: &str = "No key is sealed yet. `bulla key seal --policy NAME --key FILE` seals one on your machine; the server never sees it.";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/sealed-keys/{key}", get(one))
        .route("/console/sealed-keys/{key}/withdraw", get(confirm_withdraw))
        .route("/console/sealed-keys/{key}/withdrawal", post(withdraw))
}

#[derive(Template)]
#[template(path = "sealed_keys.html")]
struct SealedKeys {
    table: Table,
}

#[derive(Template)]
#[template(path = "sealed_key.html")]
struct SealedKeyPage {
    facts: Facts,
    path: String,
    policy: String,
    may_withdraw: bool,
}

fn path_of(key: &str) -> String {
    item("/api/v1/sealed-keys", key)
}

fn policy_cell(key: &Value) -> Cell {
    let policy = json::text(key, "/policy_name");
    Cell::link(item("/console/key-policies", policy), policy)
}

fn row(session: &Session, key: &Value) -> Vec<Cell> {
    let hash = json::text(key, "/spki_sha256");
    vec![
        Cell::link(item(PAGE, hash), json::text(key, "/name")),
        Cell::text(json::text(key, "/kind")),
        policy_cell(key),
        Cell::number(json::number(key, "/generation")),
        Cell::time(json::text(key, "/updated_at"), session.now),
        Cell::code(hash),
    ]
}

/// Returns a listing of encrypted keys as a table.
pub(crate) fn table(session: &Session, listing: &Value) -> Table {
    Table::of("Sealed keys", COLUMNS, listing, |key| row(session, key)).empty(EMPTY)
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/sealed-keys", query.as_deref()).await?;
    let table =
        listing.table("Sealed keys", COLUMNS, |key| row(&session, key)).empty(EMPTY).exported("sealed-keys");
    let body = SealedKeys { table };
    Page::new(&session, "Sealed keys").command("bulla key list").reads(listing.path()).show(&body)
}

fn facts(session: &Session, key: &Value) -> Facts {
    Facts::default()
        .with("Policy", policy_cell(key))
        .with("Key pair of the policy", Cell::number(json::number(key, "/generation")))
        .with("Kind", Cell::text(json::text(key, "/kind")))
        .with("First sealed", Cell::time(json::text(key, "/created_at"), session.now))
        .with("Last sealed", Cell::time(json::text(key, "/updated_at"), session.now))
        .with("Sealed by", Cell::text(json::text(key, "/created_by")))
        .with("Public key (SHA-256)", Cell::code(json::text(key, "/spki_sha256")))
}

async fn one(session: Session, Path(key): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&key)).await?;
    let hash = json::text(&found, "/spki_sha256");
    let policy = json::text(&found, "/policy_name");
    let body = SealedKeyPage {
        facts: facts(&session, &found),
        path: item(PAGE, hash),
        policy: policy.to_owned(),
        may_withdraw: session.may("key.seal"),
    };
    Page::new(&session, format!("Sealed key {}", json::text(&found, "/name")))
        .command("bulla key list")
        .reads(path_of(hash))
        .show(&body)
}

async fn confirm_withdraw(session: Session, Path(key): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&key)).await?;
    let hash = json::text(&found, "/spki_sha256");
    let page = item(PAGE, hash);
    let body = Confirmation::new(&session, format!("{page}/withdrawal"), page.as_str(), "Withdraw the key")
        .danger()
        .says("The sealed key is removed from this server and from every node. Nodes cannot sign with it any more.")
        .says("Servers whose certificates use this key cannot complete handshakes from then on.")
        .says("It can be used again only after it is sealed again from the private key.")
        .facts(facts(&session, &found));
    Page::new(&session, format!("Withdraw sealed key {}", json::text(&found, "/name")))
        .command(format!("bulla key withdraw {hash}"))
        .reads(path_of(hash))
        .show(&body)
}

async fn withdraw(session: Session, Path(key): Path<String>, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &path_of(&key), form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}
