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
use crate::json;
use crate::security_key::{KeyForm, response};
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
    /// Whether the caller is a user. Only users can have security keys.
    is_user: bool,
}

async fn page(session: Session) -> Result<Response, Failure> {
    show(&session, None)
}

fn show(session: &Session, problem: Option<String>) -> Result<Response, Failure> {
    Page::new(session, "Confirm your identity").show(&Confirm {
        csrf: session.csrf(),
        problem,
        is_user: json::text(session.me(), "/kind") == "user",
    })
}

async fn confirm(session: Session, form: FormData) -> Result<Response, Failure> {
    let mut path = "/api/v1/auth/sessions/confirm";
    let proof = match (form.field("code"), form.exact("password")) {
        _ if form.is_checked("key") => {
            path = "/api/v1/auth/sessions/confirm/challenge";
            json!({})
        }
        _ if form.is_checked("ceremony") => json!({ "security_key": response(&form)? }),
        (Some(code), _) => json!({ "code": code }),
        (None, Some(password)) => json!({ "password": password }),
        (None, None) => return show(&session, Some("Give a code or your password.".to_owned())),
    };
    let outcome = session.api.change(Method::POST, path, form.csrf(), Some(&proof)).await;
    if let Some(key) = outcome.as_ref().ok().and_then(|ceremony| KeyForm::of(ceremony, PAGE, PAGE)) {
        return Page::new(&session, "Confirm your identity").show(&key.csrf(session.csrf()));
    }
    match outcome {
        Ok(answer) => Ok(redirect(PAGE, "confirmed", &answer)),
        Err(Failure::Refused(problem)) if matches!(problem.status, 400 | 401 | 409 | 422 | 429) => {
            show(&session, Some(problem.detail.unwrap_or(problem.title)))
        }
        Err(other) => Err(other),
    }
}
