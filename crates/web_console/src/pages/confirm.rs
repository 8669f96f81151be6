//! Confirmation of the user's identity, before a dangerous action.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::Method;
use serde_json::json;

use crate::api::Api;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::session::Session;
use crate::shell::Page;

const PAGE: &str = "/console/confirm";

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(page).post(confirm))
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct Confirm<'a> {
    csrf: &'a str,
    problem: Option<String>,
}

async fn page(session: Session) -> Result<Response, Failure> {
    show(&session, None)
}

fn show(session: &Session, problem: Option<String>) -> Result<Response, Failure> {
    Page::new(session, "Confirm your identity").show(&Confirm { csrf: session.csrf(), problem })
}

async fn confirm(session: Session, form: FormData) -> Result<Response, Failure> {
    let proof = match (form.field("code"), form.field("password")) {
        (Some(code), _) => json!({ "code": code }),
        (None, Some(password)) => json!({ "password": password }),
        (None, None) => return show(&session, Some("Give a code or your password.".to_owned())),
    };
    let asked =
        session.api.change(Method::POST, "/api/v1/auth/sessions/confirm", form.csrf(), Some(&proof)).await;
    match asked {
        Ok(answer) => Ok(redirect(PAGE, "confirmed", &answer)),
        Err(Failure::Refused(problem)) if matches!(problem.status, 400 | 401 | 422 | 429) => {
            show(&session, Some(problem.detail.unwrap_or(problem.title)))
        }
        Err(other) => Err(other),
    }
}
