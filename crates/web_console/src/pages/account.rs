//! The user's account page: identity, permissions and sessions.

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::Method;
use http::header::SET_COOKIE;
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::Cell;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::FormData;
use crate::json;
use crate::pages::security_keys;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/account";

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(page)).route("/console/account/sign-out-everywhere", post(sign_out))
}

async fn page(session: Session) -> Result<Response, Failure> {
    let sessions = session.api.get_if_allowed("/api/v1/auth/sessions").await?;
    let me = session.me();
    let is_user = json::text(me, "/kind") == "user";
    let id = json::text(me, "/id");
    let keys = if is_user { Some(session.api.get(&security_keys::path_of(id)).await?) } else { None };
    let facts = Facts::default()
        .with("Name in the audit log", Cell::text(json::text(me, "/actor")))
        .with("Signed in as", Cell::text(json::text(me, "/kind")))
        .with("Id", Cell::code(json::text(me, "/id")));
    let granted = json!({ "items": me.get("granted").cloned().unwrap_or_default() });
    let grants = Table::of("Your permissions", &["Scope", "Permissions"], &granted, |grant| {
        vec![Cell::text(json::text(grant, "/scope")), Cell::text(json::joined(grant, "/permissions"))]
    })
    .empty("You have no permissions yet: ask an administrator for a role.");
    let mut parts = Sections::default().plain(&facts)?.section("grants", "Your permissions", &grants)?;
    if let Some(keys) = &keys {
        parts = parts
            .section("security-keys", "Your security keys", &security_keys::table(&session, id, keys, true))?
            .plain(&security_keys::form(&session))?;
    }
    if let Some(sessions) = &sessions {
        let everywhere = Actions::default().button(
            format!("{PAGE}/sign-out-everywhere"),
            session.csrf(),
            "Sign out everywhere",
        );
        parts = parts
            .section("sessions", "Your sessions", &sessions_table(&session, sessions))?
            .plain(&everywhere)?;
    }
    let mut page =
        Page::new(&session, "Your account").command("bulla api /api/v1/auth/me").reads("/api/v1/auth/me");
    if is_user {
        page = page.reads(security_keys::path_of(id));
    }
    page.reads("/api/v1/auth/sessions").show(&parts)
}

pub(crate) fn sessions_table(session: &Session, sessions: &Value) -> Table {
    Table::of("Sessions of browsers", &["Address", "Signed in", "Last seen", "Expires"], sessions, |one| {
        vec![
            Cell::text(json::text(one, "/address")),
            Cell::time(json::text(one, "/created_at"), session.now),
            Cell::time(json::text(one, "/last_seen_at"), session.now),
            Cell::time(json::text(one, "/expires_at"), session.now),
        ]
    })
    .empty("No browser is signed in.")
}

async fn sign_out(session: Session, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.send(Method::DELETE, "/api/v1/auth/sessions", Some(form.csrf()), None).await?;
    let mut response = Redirect::to("/console/sign-in").into_response();
    for cookie in answer.headers().get_all(SET_COOKIE) {
        response.headers_mut().append(SET_COOKIE, cookie.clone());
    }
    Ok(response)
}
