//! Signing in to the console: one-time links, sessions.

use std::time::Duration;

use api::access::{Me, NewSignInLink, SignIn, SignInLinkView};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HOST, SET_COOKIE};
use http::request::Parts;
use http::uri::Authority;
use secrecy::ExposeSecret;

use crate::access::{AccessControl, Caller, SIGN_IN_PAGE, check_own_page, link};
use crate::extract::Json;
use crate::idempotency::HoldsSecret;
use crate::peer::address;
use crate::problem::Problem;
use crate::routes::identity::{me_view, replaced_session, session_cookie};
use crate::routing::{Access, Api, routes};
use crate::state::State;
use crate::time::shown;

/// Bytes of a body that signs somebody in.
const BODY_MAX: usize = 4 << 10;

/// Longest code, in bytes.
const CODE_MAX: usize = 128;

pub(crate) fn routes() -> Api {
    Api::area("auth")
        .route(Access::known().body_max(BODY_MAX), routes!(create_link))
        .route(Access::open().body_max(BODY_MAX), routes!(sign_in))
}

/// Makes a one-time sign-in link for the caller.
///
/// The session that it begins has what the caller has, and ends when the caller is disabled, removed or expires. A link is used once;
/// of more than eight unused links of one caller the oldest ones end.
#[utoipa::path(post, path = "/api/v1/auth/links", operation_id = "createSignInLink", request_body = NewSignInLink,
    responses((status = 201, body = SignInLinkView)))]
async fn create_link(
    With(access): With<AccessControl>,
    caller: Caller,
    parts: Parts,
    Json(new): Json<NewSignInLink>,
) -> Result<Response, Problem> {
    let made = link::create(&access, &caller, new.lifetime_s.map(Duration::from_secs)).await?;
    let code = made.code.expose_secret().to_owned();
    let url = format!("{}{SIGN_IN_PAGE}{code}", own_url(&parts));
    let view = SignInLinkView { code, url, expires_at: shown(made.expires_at_us) };
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// The server's URL as the caller reached it; empty where the request names no host, so that a path is left.
fn own_url(parts: &Parts) -> String {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(Authority::as_str));
    let host =
        host.filter(|host| host.parse::<Authority>().is_ok_and(|parsed| !parsed.as_str().contains('@')));
    host.map(|host| format!("https://{host}")).unwrap_or_default()
}

/// Begins a session of a browser, with the code of a one-time link.
///
/// The answer sets the cookie `__Host-bulla` and says who the person is. A session that the browser had before ends.
#[utoipa::path(post, path = "/api/v1/auth/sessions", operation_id = "signIn", request_body = SignIn,
    responses((status = 201, body = Me)))]
async fn sign_in(
    With(state): With<State>,
    parts: Parts,
    Json(given): Json<SignIn>,
) -> Result<Response, Problem> {
    check_own_page(&parts)?;
    let access = state.access();
    let from = address(&parts);
    if given.code.is_empty() || given.code.len() > CODE_MAX {
        return Err(Problem::unprocessable(format_args!("code: 1 to {CODE_MAX} bytes")));
    }
    let replaces = replaced_session(&parts.headers);
    let secret = match link::redeem(access, &given.code, &from.to_string(), replaces).await {
        Ok(secret) => secret,
        Err(problem) => {
            state.metrics().refused("sign-in");
            if !problem.status().is_server_error() {
                state.limits().failure(from, None)?;
            }
            return Err(problem);
        }
    };
    let caller = state.authentication().session(&secret, from).await?;
    let me = me_view(&caller, Some(&secret), state.clock().now_us());
    Ok((StatusCode::CREATED, [(SET_COOKIE, session_cookie(&secret)?)], Json(me)).into_response())
}
