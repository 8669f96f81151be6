//! The person's own page: who they are, what they may do, and their sessions.

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::Method;
use http::header::SET_COOKIE;
use serde_json::{Value, json};

use crate::api::Api;
use crate::ask::Actions;
use crate::cell::Cell;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::Form;
use crate::json;
use crate::parts::Parts;
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

const PAGE: &str = "/console/account";

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(page)).route("/console/account/sign-out-everywhere", post(sign_out))
}

async fn page(visit: Visit) -> Result<Response, Failure> {
    let sessions = visit.api.get_if_allowed("/api/v1/auth/sessions").await?;
    let me = visit.me();
    let facts = Facts::default()
        .with("Name in the audit log", Cell::text(json::text(me, "/actor")))
        .with("Signed in as", Cell::text(json::text(me, "/kind")))
        .with("Id", Cell::code(json::text(me, "/id")));
    let granted = json!({ "items": me.get("granted").cloned().unwrap_or_default() });
    let grants = Table::of("Granted to you", &["Scope", "Permissions"], &granted, |grant| {
        vec![Cell::text(json::text(grant, "/scope")), Cell::text(json::joined(grant, "/permissions"))]
    })
    .empty("You may do nothing yet: ask an administrator for a role.");
    let mut parts = Parts::default().plain(&facts)?.section("grants", "What you may do", &grants)?;
    if let Some(sessions) = &sessions {
        let everywhere = Actions::default().press(
            format!("{PAGE}/sign-out-everywhere"),
            visit.csrf(),
            "Sign out everywhere",
        );
        parts = parts
            .section("sessions", "Your sessions", &sessions_table(&visit, sessions))?
            .plain(&everywhere)?;
    }
    Page::new(&visit, "Your account")
        .command("bulla api GET /api/v1/auth/me")
        .reads("/api/v1/auth/me")
        .reads("/api/v1/auth/sessions")
        .show(&parts)
}

/// Sessions as a table.
pub(crate) fn sessions_table(visit: &Visit, sessions: &Value) -> Table {
    Table::of("Sessions of browsers", &["Address", "Signed in", "Last seen", "Ends"], sessions, |session| {
        vec![
            Cell::text(json::text(session, "/address")),
            Cell::time(json::text(session, "/created_at"), visit.now),
            Cell::time(json::text(session, "/last_seen_at"), visit.now),
            Cell::time(json::text(session, "/expires_at"), visit.now),
        ]
    })
    .empty("No browser is signed in.")
}

async fn sign_out(visit: Visit, form: Form) -> Result<Response, Failure> {
    let answer = visit.api.send(Method::DELETE, "/api/v1/auth/sessions", Some(form.csrf()), None).await?;
    let mut response = Redirect::to("/console/sign-in").into_response();
    for cookie in answer.headers().get_all(SET_COOKIE) {
        response.headers_mut().append(SET_COOKIE, cookie.clone());
    }
    Ok(response)
}
