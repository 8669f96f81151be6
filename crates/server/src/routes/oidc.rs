//! Login and logout, and the identity of the caller.

use api::access::{LoggedOut, Me};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{HeaderValue, LOCATION, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;
use store::{AuditEvent, Clock};
use utoipa::IntoParams;

use crate::access::oidc::{CallbackParams, LOGIN_COOKIE, Login, Oidc};
use crate::access::{AccessControl, Caller, SESSION_COOKIE, cookie, session};
use crate::extract::{Json, Query};
use crate::metrics::Metrics;
use crate::peer::address;
use crate::problem::Problem;
use crate::routes::identity::{me_view, replaced_session, session_cookie, set_cookie};
use crate::routing::{Access, Api, routes};

/// Lifetime of the login cookie in the browser, in seconds.
const LOGIN_SECONDS: u32 = 600;

pub(crate) fn routes() -> Api {
    Api::area("auth")
        .route(Access::known(), routes!(me))
        .route(Access::open(), routes!(login))
        .route(Access::open().foreign_query(), routes!(callback))
        .route(Access::known(), routes!(logout))
}

/// Returns the caller's identity and permissions.
#[utoipa::path(get, path = "/api/v1/auth/me", operation_id = "whoAmI", responses((status = 200, body = Me)))]
async fn me(With(clock): With<Clock>, caller: Caller, headers: HeaderMap) -> Json<Me> {
    Json(me_view(&caller, cookie(&headers, SESSION_COOKIE), clock.now_us()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LoginParams {
    /// The path on this server to return to after the login.
    return_to: Option<String>,
    /// Whether the issuer must authenticate the user again, for operations that need a recent proof.
    #[serde(default)]
    confirm: bool,
}

/// Redirects the browser to the issuer to log in.
#[utoipa::path(get, path = "/api/v1/auth/login", operation_id = "login", params(LoginParams),
    responses((status = 303, description = "Redirects to the issuer")))]
async fn login(
    With(oidc): With<Option<Oidc>>,
    With(clock): With<Clock>,
    Query(params): Query<LoginParams>,
) -> Result<Response, Problem> {
    let oidc = configured(oidc.as_ref())?;
    let login = Login::begin(params.return_to.as_deref(), params.confirm, clock.now_us())?;
    let location = login.redirect(oidc).await?;
    let login_cookie = set_cookie(LOGIN_COOKIE, &login.to_cookie()?, Some(LOGIN_SECONDS))?;
    see_other(&location, [login_cookie])
}

/// Processes the issuer's response and starts a session.
#[utoipa::path(get, path = "/api/v1/auth/callback", operation_id = "loginCallback", params(CallbackParams),
    responses((status = 303, description = "Redirects to the requested page, with a session cookie")))]
async fn callback(
    With(oidc): With<Option<Oidc>>,
    With(access): With<AccessControl>,
    With(metrics): With<Metrics>,
    Query(answer): Query<CallbackParams>,
    parts: Parts,
) -> Result<Response, Problem> {
    let outcome = finish(oidc.as_ref(), &access, &answer, &parts).await;
    let cleared = set_cookie(LOGIN_COOKIE, "", Some(0))?;
    match outcome {
        Ok((cookie, location)) => see_other(&location, [cleared, cookie]),
        Err(problem) => {
            metrics.refused("login");
            Ok(([(SET_COOKIE, cleared)], problem).into_response())
        }
    }
}

async fn finish(
    oidc: Option<&Oidc>,
    access: &AccessControl,
    answer: &CallbackParams,
    parts: &Parts,
) -> Result<(HeaderValue, String), Problem> {
    let oidc = configured(oidc)?;
    let login = cookie(&parts.headers, LOGIN_COOKIE).and_then(Login::from_cookie).ok_or_else(|| {
        Problem::bad_request("this browser did not start a login, or started it too long ago")
            .hint("start again at /api/v1/auth/login, with cookies allowed")
    })?;
    let replaces = replaced_session(&parts.headers);
    let done = login.finish(access, oidc, answer, &address(parts).to_string(), replaces).await?;
    Ok((session_cookie(&done.cookie)?, done.return_to))
}

/// Ends the caller's session.
#[utoipa::path(post, path = "/api/v1/auth/logout", operation_id = "logout",
    responses((status = 200, body = LoggedOut)))]
async fn logout(
    With(oidc): With<Option<Oidc>>,
    With(access): With<AccessControl>,
    caller: Caller,
) -> Result<Response, Problem> {
    let hash = caller
        .session()
        .map(|session| session.hash)
        .ok_or_else(|| Problem::conflict("only a session can be logged out; delete a token instead"))?;
    let event = AuditEvent {
        at_us: access.clock().now_us(),
        actor: caller.actor().to_owned(),
        action: "session.end",
        resource: session::resource_of(&caller),
        details: json!({}),
    };
    let work = access.store().write("session_end", move |tx| {
        async move {
            if store::delete_session(tx, hash).await? {
                store::audit(tx, vec![event]).await?;
            }
            Ok(())
        }
        .boxed()
    });
    work.await?;
    access.forget();
    let end_session_url = match oidc {
        // The logout is complete, whether or not the issuer responds.
        Some(oidc) => oidc.end_session_url().await,
        None => None,
    };
    let cleared = set_cookie(SESSION_COOKIE, "", Some(0))?;
    Ok(([(SET_COOKIE, cleared)], Json(LoggedOut { end_session_url })).into_response())
}

fn configured(oidc: Option<&Oidc>) -> Result<&Oidc, Problem> {
    oidc.ok_or_else(|| {
        Problem::of_status(StatusCode::NOT_FOUND, Some("OIDC login is not configured".to_owned()))
            .hint("use an API token, or configure an OIDC issuer")
    })
}

fn see_other<const N: usize>(location: &str, cookies: [HeaderValue; N]) -> Result<Response, Problem> {
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, HeaderValue::from_str(location).map_err(Problem::internal)?);
    for cookie in cookies {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}
