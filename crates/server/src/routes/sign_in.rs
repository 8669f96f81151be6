//! Sign-in to the console: one-time links, passwords, security keys, sessions.

use std::net::IpAddr;
use std::time::Duration;

use api::access::{Me, NewSignInLink, SessionConfirmation, SessionView, SignIn, SignInLinkView, SignedOut};
use api::security_keys::{SecurityKeyAssertion, SecurityKeyCeremony};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HOST, SET_COOKIE};
use http::request::Parts;
use http::uri::Authority;
use secrecy::ExposeSecret;
use store::{CeremonyPurpose, Identity, SignInMethod};
use zeroize::Zeroizing;

use crate::access::admin::NAME_MAX;
use crate::access::password::PASSWORD_BYTES_MAX;
use crate::access::security_key::{self, AssertionStart};
use crate::access::session::{PreparedSession, Proof, SessionStart};
use crate::access::site::Site;
use crate::access::{
    AccessControl, Caller, CallerKind, SESSION_COOKIE, SIGN_IN_PAGE, check_own_page, cookie, link, password,
    session,
};
use crate::extract::Json;
use crate::idempotency::HoldsSecret;
use crate::paging::Listing;
use crate::peer::address;
use crate::problem::Problem;
use crate::routes::identity::{me_view, replaced_session, session_cookie, session_view, set_cookie};
use crate::routing::{Access, Api, routes};
use crate::state::State;
use crate::time::shown;

/// Maximum bytes of a sign-in request. The response of a security key is the largest one.
const BODY_MAX: usize = 16 << 10;

/// Maximum length of a code, in bytes.
const CODE_MAX: usize = 128;

pub(crate) fn routes() -> Api {
    Api::area("auth")
        .route(Access::known().body_max(BODY_MAX), routes!(create_link))
        .route(Access::open().body_max(BODY_MAX), routes!(sign_in))
        .route(Access::known(), routes!(own_sessions))
        .route(Access::known(), routes!(sign_out))
        .route(Access::known().body_max(BODY_MAX), routes!(confirm))
        .route(Access::open(), routes!(begin_passkey))
        .route(Access::known(), routes!(begin_confirmation))
}

/// Creates a one-time sign-in link for the caller.
///
/// The session that the link starts has the permissions of the caller, and ends when the caller is disabled, deleted or expires. A
/// link can be used once. A caller has at most eight unused links: a further link invalidates the oldest one.
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
    let url = format!("{}{SIGN_IN_PAGE}{code}", server_url(&parts));
    let view = SignInLinkView { code, url, expires_at: shown(made.expires_at_us) };
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Returns the server's URL as the caller reached it. Empty if the request names no host: the link is then only a path.
fn server_url(parts: &Parts) -> String {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(Authority::as_str));
    let host =
        host.filter(|host| host.parse::<Authority>().is_ok_and(|parsed| !parsed.as_str().contains('@')));
    host.map(|host| format!("https://{host}")).unwrap_or_default()
}

/// Starts a browser session, with the code of a one-time link, with a user's name and password, or with a security key.
///
/// The response sets the cookie `__Host-bulla` and contains the user's identity. An earlier session of the browser ends. A user
/// with security keys also needs one of them after the password: the response has status 202 and begins a ceremony. Send the
/// response of the security key as `security_key` in a second request.
#[utoipa::path(post, path = "/api/v1/auth/sessions", operation_id = "signIn", request_body = SignIn,
    responses((status = 201, body = Me), (status = 202, body = SecurityKeyCeremony)))]
async fn sign_in(
    With(state): With<State>,
    parts: Parts,
    Json(given): Json<SignIn>,
) -> Result<Response, Problem> {
    check_own_page(&parts)?;
    let access = state.access();
    let from = address(&parts);
    let replaces = replaced_session(&parts.headers);
    let begun = match given {
        SignIn { code: Some(code), name: None, password: None, security_key: None } => {
            check_code(&code)?;
            link::redeem(access, &code, &from.to_string(), replaces).await
        }
        SignIn { code: None, name: Some(name), password: Some(password), security_key: None } => {
            let user = authenticate_by_password(&state, &name, Zeroizing::new(password), from).await;
            let user = user.map_err(|problem| counted(&state, from, problem))?;
            if let Some(ceremony) =
                second_factor(access, &parts, &user, CeremonyPurpose::SignIn, None).await?
            {
                return Ok(security_key_required(ceremony));
            }
            by_password(&state, &user, from, replaces).await
        }
        SignIn { code: None, name: None, password: None, security_key: Some(given) } => {
            by_security_key(&state, &given, from, replaces).await
        }
        _ => return Err(Problem::unprocessable("give `code`, or `name` and `password`, or `security_key`")),
    };
    let secret = begun.map_err(|problem| counted(&state, from, problem))?;
    let caller = state.authentication().session(&secret, from).await?;
    let me = me_view(&caller, Some(&secret), state.clock().now_us());
    Ok((StatusCode::CREATED, [(SET_COOKIE, session_cookie(&secret)?)], Json(me)).into_response())
}

async fn by_password(
    state: &State,
    user: &Identity,
    from: IpAddr,
    replaces: Option<[u8; 32]>,
) -> Result<Zeroizing<String>, Problem> {
    let access = state.access();
    let start = session_start(access, user, SignInMethod::Password, replaces);
    let start = SessionStart { address: &from.to_string(), ..start };
    let begun = PreparedSession::new(access, start)?.begin(access).await?;
    state.limits().sign_in().succeeded(&user.name, from);
    Ok(begun)
}

async fn by_security_key(
    state: &State,
    given: &SecurityKeyAssertion,
    from: IpAddr,
    replaces: Option<[u8; 32]>,
) -> Result<Zeroizing<String>, Problem> {
    let (access, address) = (state.access(), from.to_string());
    let (ceremony, proved) = security_key::prove(access, CeremonyPurpose::SignIn, given, &address).await?;
    let method = if ceremony.after_password { SignInMethod::PasswordAndKey } else { SignInMethod::Passkey };
    let user = proved.user.clone();
    let start = session_start(access, &user, method, replaces);
    let start = SessionStart { address: &address, security_key: Some(proved.key.id), ..start };
    let begun = PreparedSession::new(access, start)?.begin_with(access, proved).await?;
    let begun = begun.ok_or_else(security_key::refused)?;
    state.limits().sign_in().succeeded(&user.name, from);
    Ok(begun)
}

/// Returns the parameters of a session of a user who has just authenticated.
fn session_start<'a>(
    access: &AccessControl,
    user: &'a Identity,
    method: SignInMethod,
    replaces: Option<[u8; 32]>,
) -> SessionStart<'a> {
    SessionStart {
        identity: user,
        method,
        grants: "[]".to_owned(),
        proved_at_us: Some(access.clock().now_us()),
        end_us: None,
        chain: None,
        security_key: None,
        address: "",
        replaces,
    }
}

/// Begins the ceremony of the second factor after the right password; `None` for a user without security keys.
async fn second_factor(
    access: &AccessControl,
    parts: &Parts,
    user: &Identity,
    purpose: CeremonyPurpose,
    session: Option<[u8; 32]>,
) -> Result<Option<SecurityKeyCeremony>, Problem> {
    if store::Access::of(access.store()).security_keys(user.id).await?.is_empty() {
        return Ok(None);
    }
    let begun = match Site::of(parts) {
        Ok(site) => {
            let user = Some(user.id);
            let start =
                AssertionStart { site: &site, purpose, user, session, after_password: true, plan: None };
            security_key::begin_assertion(access, start).await
        }
        Err(problem) => Err(problem),
    };
    let from = address(parts).to_string();
    security_key::audit_challenge(access, user, purpose, &from, begun.is_ok()).await?;
    begun.map(Some)
}

/// Returns the 202 response that asks for a security key.
fn security_key_required(ceremony: SecurityKeyCeremony) -> Response {
    holding_secret((StatusCode::ACCEPTED, Json(ceremony)).into_response())
}

fn holding_secret(mut response: Response) -> Response {
    response.extensions_mut().insert(HoldsSecret);
    response
}

/// Begins a sign-in with a passkey: a security key that verifies its user by PIN or biometrics, without a password.
///
/// The response of the security key is then sent as `security_key` to `POST /api/v1/auth/sessions`.
#[utoipa::path(post, path = "/api/v1/auth/sessions/challenge", operation_id = "beginPasskeySignIn",
    responses((status = 201, body = SecurityKeyCeremony)))]
async fn begin_passkey(With(state): With<State>, parts: Parts) -> Result<Response, Problem> {
    check_own_page(&parts)?;
    state.limits().sign_in().challenge(address(&parts))?;
    let site = Site::of(&parts)?;
    let start = AssertionStart {
        site: &site,
        purpose: CeremonyPurpose::SignIn,
        user: None,
        session: None,
        after_password: false,
        plan: None,
    };
    let ceremony = security_key::begin_assertion(state.access(), start).await?;
    Ok(holding_secret((StatusCode::CREATED, Json(ceremony)).into_response()))
}

/// Begins a confirmation of the session with a security key that verifies its user by PIN or biometrics.
///
/// The response of the security key is then sent as `security_key` to `POST /api/v1/auth/sessions/confirm`.
#[utoipa::path(post, path = "/api/v1/auth/sessions/confirm/challenge", operation_id = "beginSessionConfirmation",
    responses((status = 201, body = SecurityKeyCeremony)))]
async fn begin_confirmation(
    With(access): With<AccessControl>,
    caller: Caller,
    parts: Parts,
) -> Result<Response, Problem> {
    let (user, session) = security_key::own_session(&caller)?;
    let site = Site::of(&parts)?;
    let start = AssertionStart {
        site: &site,
        purpose: CeremonyPurpose::Confirm,
        user: Some(user),
        session: Some(session),
        after_password: false,
        plan: None,
    };
    let ceremony = security_key::begin_assertion(&access, start).await?;
    Ok(holding_secret((StatusCode::CREATED, Json(ceremony)).into_response()))
}

/// Returns the user with this name and password, subject to the rate limits. The caller of this function must still check the
/// second factor.
async fn authenticate_by_password(
    state: &State,
    name: &str,
    password: Zeroizing<String>,
    from: IpAddr,
) -> Result<Identity, Problem> {
    if name.is_empty() || name.len() > NAME_MAX || password.len() > PASSWORD_BYTES_MAX {
        return Err(Problem::unprocessable(format_args!(
            "name must have 1 to {NAME_MAX} bytes; password at most {PASSWORD_BYTES_MAX} bytes"
        )));
    }
    state.limits().sign_in().attempt(name, from)?;
    password::user(state.access(), name, password, &from.to_string()).await
}

fn check_code(code: &str) -> Result<(), Problem> {
    if code.is_empty() || code.len() > CODE_MAX {
        return Err(Problem::unprocessable(format_args!("code must have 1 to {CODE_MAX} bytes")));
    }
    Ok(())
}

/// Counts a failed login of the address; 429 when the address has reached its limit.
fn counted(state: &State, from: IpAddr, problem: Problem) -> Problem {
    state.metrics().refused("sign-in");
    if problem.status() != StatusCode::UNAUTHORIZED {
        return problem;
    }
    state.limits().failure(from, None).err().unwrap_or(problem)
}

/// Lists the caller's own sessions, newest first.
#[utoipa::path(get, path = "/api/v1/auth/sessions", operation_id = "listOwnSessions",
    responses((status = 200, body = Listing<SessionView>)))]
async fn own_sessions(
    With(access): With<AccessControl>,
    caller: Caller,
) -> Result<Json<Listing<SessionView>>, Problem> {
    let sessions = store::Access::of(access.store()).sessions_of(caller.id()).await?.into_iter();
    Ok(Json(Listing::whole(sessions.map(|row| session_view(row, &caller)).collect::<Result<_, _>>()?)))
}

/// Ends every session of the caller, in every browser, and invalidates its unused one-time links.
#[utoipa::path(delete, path = "/api/v1/auth/sessions", operation_id = "signOutEverywhere",
    responses((status = 200, body = SignedOut)))]
async fn sign_out(With(access): With<AccessControl>, caller: Caller) -> Result<Response, Problem> {
    let ended = session::sign_out_everywhere(&access, &caller).await?;
    let mut response = Json(SignedOut { ended }).into_response();
    if caller.session().is_some() {
        response.headers_mut().append(SET_COOKIE, set_cookie(SESSION_COOKIE, "", Some(0))?);
    }
    Ok(response)
}

/// Confirms the session: the user proves their identity again, for operations that need a recent proof.
///
/// Requires the user's password, a security key, or the code of a new one-time link that the same identity requested. The cookie and
/// the CSRF token stay the same. For a user with security keys, the password begins a ceremony (status 202), as at sign-in.
#[utoipa::path(post, path = "/api/v1/auth/sessions/confirm", operation_id = "confirmSession",
    request_body = SessionConfirmation,
    responses((status = 200, body = Me), (status = 202, body = SecurityKeyCeremony)))]
async fn confirm(
    With(state): With<State>,
    caller: Caller,
    parts: Parts,
    Json(given): Json<SessionConfirmation>,
) -> Result<Response, Problem> {
    let secret =
        cookie(&parts.headers, SESSION_COOKIE).filter(|_| caller.session().is_some()).ok_or_else(|| {
            Problem::conflict(
                "only a session can be confirmed; tokens and client certificates authenticate each request",
            )
        })?;
    let from = address(&parts);
    let confirmed = match given {
        SessionConfirmation { code: Some(code), password: None, security_key: None } => {
            check_code(&code)?;
            link::confirm(state.access(), &caller, &code).await
        }
        SessionConfirmation { code: None, password: Some(password), security_key: None } => {
            match confirm_by_password(&state, &caller, &parts, Zeroizing::new(password), from).await {
                Ok(Some(ceremony)) => return Ok(security_key_required(ceremony)),
                confirmed => confirmed.map(drop),
            }
        }
        SessionConfirmation { code: None, password: None, security_key: Some(given) } => {
            confirm_by_key(&state, &caller, &given, from).await
        }
        _ => return Err(Problem::unprocessable("give `code`, `password` or `security_key`")),
    };
    confirmed.map_err(|problem| counted(&state, from, problem))?;
    let caller = state.authentication().session(secret, from).await?;
    let mut response = Json(me_view(&caller, Some(secret), state.clock().now_us())).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Confirms the session by the password. Returns a ceremony instead if the user has security keys.
async fn confirm_by_password(
    state: &State,
    caller: &Caller,
    parts: &Parts,
    password: Zeroizing<String>,
    from: IpAddr,
) -> Result<Option<SecurityKeyCeremony>, Problem> {
    let name = caller.actor().strip_prefix("user:").filter(|_| caller.kind() == CallerKind::User);
    let name = name.ok_or_else(|| {
        Problem::conflict("only a user has a password")
            .hint("confirm with the code of a one-time link: `bulla console`")
    })?;
    let user = authenticate_by_password(state, name, password, from).await?;
    if user.id != caller.id() {
        return Err(link::refused());
    }
    let session = caller.session().map(|session| session.hash);
    let ceremony = second_factor(state.access(), parts, &user, CeremonyPurpose::Confirm, session).await?;
    if ceremony.is_some() {
        return Ok(ceremony);
    }
    let now = state.clock().now_us();
    let confirmed = session::confirm(state.access(), caller, Proof::Password, now).await?;
    confirmed.ok_or_else(|| Problem::unauthenticated("this session has ended"))?;
    state.limits().sign_in().succeeded(name, from);
    Ok(None)
}

async fn confirm_by_key(
    state: &State,
    caller: &Caller,
    given: &SecurityKeyAssertion,
    from: IpAddr,
) -> Result<(), Problem> {
    let (user, session) = security_key::own_session(caller)?;
    let access = state.access();
    let (ceremony, key) =
        security_key::prove(access, CeremonyPurpose::Confirm, given, &from.to_string()).await?;
    if (ceremony.identity, ceremony.session) != (user, Some(session)) {
        return Err(security_key::refused());
    }
    let name = key.user.name.clone();
    let proof = Proof::Key { key: Box::new(key), after_password: ceremony.after_password };
    let confirmed = session::confirm(access, caller, proof, state.clock().now_us()).await?;
    confirmed.ok_or_else(security_key::refused)?;
    state.limits().sign_in().succeeded(&name, from);
    Ok(())
}
