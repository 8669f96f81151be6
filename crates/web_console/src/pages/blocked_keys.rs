//! Blocked public keys.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json};

const PAGE: &str = "/console/blocked-keys";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(block))
        .route("/console/blocked-keys/new", get(new_form))
        .route("/console/blocked-keys/{key}", get(one))
}

#[derive(Template)]
#[template(path = "blocked_keys.html")]
struct BlockedKeys {
    may_block: bool,
    table: Table,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/blocked-keys", query.as_deref()).await?;
    let row = |one: &Value| {
        let key = json::text(one, "/key");
        vec![
            Cell::link(item(PAGE, key), key),
            Cell::time(json::text(one, "/blocked_at"), session.now),
            Cell::text(json::text(one, "/actor")),
        ]
    };
    let table = listing
        .table("Blocked keys", &["SHA-256 of the public key", "Blocked", "Actor"], row)
        .empty("No key is blocked. Block a key that may be compromised.")
        .exported("blocked-keys");
    let body = BlockedKeys { may_block: session.may("key.block"), table };
    Page::new(&session, "Blocked keys").command("bulla cert blocked-keys").reads(listing.path()).show(&body)
}

async fn one(session: Session, Path(key): Path<String>) -> Result<Response, Failure> {
    let key = api::path::segment(&key);
    let path = format!("/api/v1/blocked-keys/{key}");
    let state = session.api.get(&path).await?;
    let used = format!("/api/v1/issued?key={key}&limit=50");
    let issued = session.api.get_if_allowed(&used).await?.unwrap_or_default();
    let blocked = match json::flag(&state, "/blocked") {
        true => Cell::badge(Tone::Bad, "blocked"),
        false => Cell::badge(Tone::Calm, "not blocked"),
    };
    let body = BlockedKey {
        facts: Facts::default()
            .with("SHA-256 of the public key", Cell::code(json::text(&state, "/key")))
            .with("State", blocked),
        issued: super::issued::table(&session, &issued).empty("No certificate was issued for this key."),
    };
    Page::new(&session, "Public key").command(format!("bulla api {path}")).reads(path).reads(used).show(&body)
}

#[derive(Template)]
#[template(path = "blocked_key.html")]
struct BlockedKey {
    facts: Facts,
    issued: Table,
}

async fn new_form(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let key: String = parameter(query.as_deref(), "key");
    let key = key.replace(':', "").trim().to_ascii_lowercase();
    if key.len() != 64 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("{key:?} is not the SHA-256 of a public key"),
            "give 64 hexadecimal digits, as on the page of an issued certificate",
        ));
    }
    let issued =
        session.api.get_if_allowed(&format!("/api/v1/issued?key={key}&limit=50")).await?.unwrap_or_default();
    let valid = json::items(&issued).iter().filter(|one| json::text(one, "/status") == "good").count();
    let count = format::counted(valid, !json::text(&issued, "/next").is_empty(), "valid certificate");
    let confirmation = Confirmation::new(&session, PAGE, PAGE, "Block the key")
        .danger()
        .says(format!("{count} issued for it are revoked for key compromise."))
        .says("No certificate is issued for this key any more: renewals that keep the key fail. This cannot be undone.")
        .facts(Facts::default().with("SHA-256 of the public key", Cell::code(key.clone())))
        .hidden("key", key);
    Page::new(&session, "Block a key")
        .command("bulla api -X POST /api/v1/blocked-keys --file key.json")
        .show(&confirmation)
}

async fn block(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({ "key": form.text("key") });
    let answer = session.api.change(Method::POST, "/api/v1/blocked-keys", form.csrf(), Some(&body)).await?;
    Ok(redirect(PAGE, "saved", &answer))
}
