//! Logins of clients at an agent on TCP. Clients use the agent's own token, which the agent checks itself.

use std::sync::Arc;

use api::credhub::{AppView, AuthServerView, ErrorView, InfoView, LinksView, TokenRequest};
use aws_lc_rs::{digest, hmac};
use axum::extract::{Form, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderMap, WWW_AUTHENTICATE};
use http::{StatusCode, Uri};
use keys::Secret;
use percent_encoding::percent_decode_str;
use serde_json::json;

/// The supported version of CredHub, as in the store.
const VERSION: &str = "2.15.20";
/// Lifetime of a login in seconds. A new login returns the same token.
const EXPIRES_IN: u64 = 3_600;
/// Label for deriving the clients' access token, which is valid for an hour, from the agent's token.
const LABEL: &[u8] = b"bulla credential agent: access token";
/// Paths that need no login.
const OPEN: [&str; 3] = ["/health", "/info", "/oauth/token"];

/// The secrets that clients may present.
#[derive(Clone)]
pub(super) struct AcceptedSecrets {
    own: Arc<Secret>,
    access: Arc<Secret>,
}

impl AcceptedSecrets {
    pub(super) fn new(own: Arc<Secret>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, own.expose().as_bytes());
        let tag = hmac::sign(&key, LABEL);
        let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { own, access: Arc::new(Secret::new(format!("agent-{hex}"))) }
    }

    fn is_own(&self, given: &str) -> bool {
        same(given, self.own.expose())
    }

    fn is_known(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
        let Some((scheme, token)) = given else { return false };
        let token = token.trim();
        scheme.eq_ignore_ascii_case("bearer") && (same(token, self.access.expose()) || self.is_own(token))
    }
}

/// Compares hashes, so that the time of the comparison reveals nothing about the secret.
fn same(given: &str, secret: &str) -> bool {
    let hash = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    hash(given).as_ref() == hash(secret).as_ref()
}

/// Adds authentication to these routes, and the routes for login.
pub(super) fn with_authentication(answers: Router, callers: AcceptedSecrets) -> Router {
    Router::new()
        .route("/info", get(info))
        .route("/version", get(version))
        .route("/oauth/token", post(token))
        .route("/oauth/token/revoke/{id}", any(|| async { StatusCode::OK }))
        .with_state(callers.clone())
        .merge(answers)
        .layer(from_fn_with_state(callers, require_login))
}

fn refused(error: &str, text: &str) -> Response {
    let body = ErrorView { error: error.to_owned(), error_description: Some(text.to_owned()) };
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], Json(body)).into_response()
}

async fn require_login(State(callers): State<AcceptedSecrets>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if OPEN.contains(&path.trim_end_matches('/')) || callers.is_known(request.headers()) {
        return next.run(request).await;
    }
    if request.headers().contains_key(AUTHORIZATION) {
        // Only this error makes clients log in again.
        return refused("access_token_expired", "Access token expired");
    }
    refused("access_denied", "Full authentication is required to access this resource")
}

async fn info(uri: Uri, headers: HeaderMap) -> Json<InfoView> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(|authority| authority.as_str())).unwrap_or("localhost");
    let url = format!("https://{host}");
    Json(InfoView {
        auth_server: AuthServerView { url: url.clone() },
        app: AppView { name: "CredHub".to_owned(), version: VERSION.to_owned() },
        links: LinksView { login: url },
        prompts: std::iter::empty().collect(),
    })
}

async fn version() -> Response {
    Json(json!({ "version": VERSION })).into_response()
}

/// Issues a token. The client secret must be the agent's own token; any client name is accepted.
async fn token(
    State(callers): State<AcceptedSecrets>,
    headers: HeaderMap,
    request: Result<Form<TokenRequest<Secret>>, axum::extract::rejection::FormRejection>,
) -> Response {
    let Ok(Form(request)) = request else {
        return refused("unauthorized", "The request cannot be read");
    };
    let basic = basic_secret(&headers);
    let secrets = [request.client_secret.as_ref(), request.password.as_ref(), basic.as_ref()];
    if secrets.into_iter().flatten().any(|secret| callers.is_own(secret.expose())) {
        let body = json!({
            "access_token": callers.access.expose(), "token_type": "bearer", "expires_in": EXPIRES_IN,
            "scope": "credhub.read credhub.write",
        });
        return Json(body).into_response();
    }
    refused("unauthorized", "Bad credentials. This agent takes its own token as the client's secret.")
}

/// Returns the secret of `Authorization: Basic` (RFC 6749 section 2.3.1).
fn basic_secret(headers: &HeaderMap) -> Option<Secret> {
    let (scheme, text) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(text.trim()).ok())??;
    let (_, secret) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(Secret::new(percent_decode_str(secret).decode_utf8().ok()?))
}
