//! Sign-in with a link, with a name and a password, or with a security key; and sign-out.

use askama::Template;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::json;

use crate::api::{Api, json_of};
use crate::failure::Failure;
use crate::form_data::{FormData, SignInForm};
use crate::query::parameter;
use crate::security_key::{KeyForm, response};
use crate::session::Session;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/console/sign-in", get(page).post(sign_in))
        .route("/console/sign-out", post(sign_out))
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    to: String,
    login: String,
    problem: Option<String>,
}

#[derive(Template)]
#[template(path = "sign_in_key.html")]
struct SignInKey {
    form: KeyForm,
}

async fn page(RawQuery(query): RawQuery) -> Result<Response, Failure> {
    show(&parameter::<String>(query.as_deref(), "to"), None)
}

fn show(to: &str, problem: Option<String>) -> Result<Response, Failure> {
    let to = safe_return_path(to);
    let login = format!("/api/v1/auth/login?return_to={}", api::path::segment(&to));
    Ok(Html(SignIn { to, login, problem }.render()?).into_response())
}

/// Returns the page to show after signing in: `to` if it is a page of this console, otherwise the overview.
fn safe_return_path(to: &str) -> String {
    let path = to.split(['?', '#']).next().unwrap_or_default();
    let is_plain = to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_inside = path == "/console" || path.starts_with("/console/");
    let has_step = path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."));
    if is_plain && is_inside && !has_step { to.to_owned() } else { "/console".to_owned() }
}

/// Signs in with the code of a link, a name and a password, or a security key.
async fn sign_in(
    State(api): State<Api>,
    parts: Parts,
    SignInForm(form): SignInForm,
) -> Result<Response, Failure> {
    let to = safe_return_path(form.text("to"));
    let passkey = form.is_checked("passkey");
    let mut path = "/api/v1/auth/sessions";
    let proof = match (form.field("code"), form.field("name"), form.exact("password")) {
        _ if passkey => {
            path = "/api/v1/auth/sessions/challenge";
            json!({})
        }
        _ if form.is_checked("ceremony") => json!({ "security_key": response(&form)? }),
        (Some(code), ..) => json!({ "code": code }),
        (None, Some(name), Some(password)) => json!({ "name": name, "password": password }),
        _ => return show(&to, Some("Give a code, or a name and a password.".to_owned())),
    };
    match api.client(&parts).send(Method::POST, path, None, Some(&proof)).await {
        // The ceremony of a security key has begun.
        Ok(answer) if passkey || answer.status() == StatusCode::ACCEPTED => {
            let ceremony = json_of(answer).await?;
            let form = KeyForm::of(
                &ceremony,
                "/console/sign-in",
                format!("/console/sign-in?to={}", ::api::path::segment(&to)),
            );
            let form = form.ok_or_else(|| Failure::unreadable("neither a session nor a ceremony"))?;
            Ok(Html(SignInKey { form: form.field("to", &to) }.render()?).into_response())
        }
        Ok(answer) => {
            let mut response = Redirect::to(&to).into_response();
            for cookie in answer.headers().get_all(SET_COOKIE) {
                response.headers_mut().append(SET_COOKIE, cookie.clone());
            }
            Ok(response)
        }
        Err(Failure::Refused(problem)) if matches!(problem.status, 401 | 404 | 409 | 422 | 429) => {
            show(&to, Some(problem.detail.unwrap_or(problem.title)))
        }
        Err(other) => Err(other),
    }
}

async fn sign_out(session: Session, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.send(Method::POST, "/api/v1/auth/logout", Some(form.csrf()), None).await?;
    let mut response = Redirect::to("/console/sign-in").into_response();
    for cookie in answer.headers().get_all(SET_COOKIE) {
        response.headers_mut().append(SET_COOKIE, cookie.clone());
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_redirects_only_to_console_paths() {
        for own in ["/console", "/console/certificates?status=failed", "/console?x=1"] {
            assert_eq!(safe_return_path(own), own);
        }
        for bad in [
            "",
            "//evil.example",
            "https://evil.example",
            "/console\\evil",
            "/consolex",
            "/api/v1/x",
            "/console/\r\nx",
            "/console/../api/v1/x",
            "/console//evil.example",
        ] {
            assert_eq!(safe_return_path(bad), "/console", "{bad:?}");
        }
    }
}
