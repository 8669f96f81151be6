//! The embedded issuer, in place of a UAA for CredHub clients.
//!
//! A client is an API token: the name of the token is the client ID, and its value is the client secret. A user logs in with the
//! same name and value, so that interactive users need no other account.

use api::credhub::{TokenRequest, TokenView};
use axum::Json;
use axum::extract::{Form, Path};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use credentials::{Grant, TokenError, Tokens};
use http::StatusCode;
use http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderMap};
use http::request::Parts;
use keys::Secret;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::context::{Context, host};
use super::principal::{bad_token, refused, token_of};
use crate::access::{CallerKind, TOKEN_PREFIX, token_hash};
use crate::credhub::Refused;
use crate::peer::address;

type TokenForm = TokenRequest<Secret>;

pub(super) async fn token(
    context: Context,
    request: http::Request<axum::body::Body>,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let form = axum::extract::Request::from_parts(parts.clone(), body);
    let form = <Form<TokenForm> as axum::extract::FromRequest<Context>>::from_request(form, &context).await;
    let Form(form) = form.map_err(|_| invalid_request())?;
    let named = form.username.clone().or_else(|| form.client_id.clone());
    let account = named.or_else(|| basic(&parts.headers).map(|(id, _)| id));
    match grant(&context, &parts, form).await {
        Ok((grant, with_refresh)) => {
            let issuer = context.hub().url(host(&parts.headers, &parts.uri));
            let tokens = context.hub().credentials().issue_tokens(&grant, &issuer);
            Ok(answer(&tokens, with_refresh))
        }
        Err(refused) if refused.status().is_server_error() => Err(refused),
        Err(refused) => {
            let failed = context.server().limits().failure(address(&parts), account.as_deref());
            failed.map_err(|problem| {
                Refused::new(problem.status(), "Too many failed logins from this address or to this account.")
            })?;
            Err(refused)
        }
    }
}

/// Returns the subject of the new token, and whether a refresh token is issued too.
async fn grant(context: &Context, parts: &Parts, form: TokenForm) -> Result<(Grant, bool), Refused> {
    match form.grant_type.as_deref() {
        Some("client_credentials") => {
            let (id, secret) = match (form.client_id, form.client_secret) {
                (Some(id), Some(secret)) => (id, secret),
                _ => basic(&parts.headers).ok_or_else(bad_credentials)?,
            };
            Ok((identified(context, &id, &secret, "client_credentials").await?, false))
        }
        Some("password") => {
            let (Some(name), Some(password)) = (form.username, form.password) else {
                return Err(bad_credentials());
            };
            Ok((identified(context, &name, &password, "password").await?, true))
        }
        Some("refresh_token") => {
            let token = form.refresh_token.unwrap_or_default();
            let grant = context.hub().credentials().refresh_token(token.expose()).await.map_err(|_| {
                Refused::oauth(StatusCode::UNAUTHORIZED, "invalid_token", "The refresh token is not valid")
            })?;
            // An API token that was removed or renamed meanwhile gets no new token.
            token_of(context, &grant).await?;
            Ok((grant, true))
        }
        Some(_) => Err(Refused::oauth(
            StatusCode::BAD_REQUEST,
            "unsupported_grant_type",
            "The supported grant types are client_credentials, password and refresh_token",
        )),
        None => Err(invalid_request()),
    }
}

/// Returns the grant for the API token with this name and value.
pub(crate) async fn identified(
    context: &Context,
    name: &str,
    secret: &Secret,
    grant_type: &str,
) -> Result<Grant, Refused> {
    if !secret.expose().starts_with(TOKEN_PREFIX) {
        return Err(bad_credentials());
    }
    let key = token_hash(secret.expose());
    let caller = match context.server().access().token(key).await {
        Ok(caller) => caller,
        Err(problem) if problem.status().is_server_error() => return Err(refused(&problem)),
        Err(_) => return Err(bad_credentials()),
    };
    let own = caller.actor().split_once(':').map_or(caller.actor(), |(_, own)| own);
    if caller.kind() != CallerKind::Token || own != name {
        return Err(bad_credentials());
    }
    let actor = context.hub().token_actor(name, grant_type);
    Ok(Grant { actor, name: name.to_owned(), grant_type: grant_type.to_owned(), key })
}

fn basic(headers: &HeaderMap) -> Option<(String, Secret)> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = Zeroizing::new(String::from_utf8(STANDARD.decode(text).ok()?).ok()?);
    pair.split_once(':').map(|(id, secret)| (id.to_owned(), Secret::new(secret)))
}

fn bad_credentials() -> Refused {
    Refused::oauth(StatusCode::UNAUTHORIZED, "unauthorized", "Bad credentials")
}

fn invalid_request() -> Refused {
    Refused::oauth(StatusCode::BAD_REQUEST, "invalid_request", "grant_type is missing")
}

fn answer(tokens: &Tokens, with_refresh: bool) -> Response {
    let body = TokenView {
        access_token: tokens.access.expose(),
        token_type: "bearer".to_owned(),
        expires_in: u64::try_from(tokens.expires_in).ok(),
        scope: "credhub.read credhub.write".to_owned(),
        jti: tokens.id.to_string(),
        refresh_token: with_refresh.then(|| tokens.refresh.expose()),
    };
    ([(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

/// Revokes a token, its refresh token, and the leases that were created with the token. Anyone with the token may revoke it, even
/// after its expiry.
pub(super) async fn revoke(
    context: Context,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<StatusCode, Refused> {
    let text = headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
    let token = text.and_then(|text| text.split_once(' ')).map_or("", |(_, token)| token.trim());
    let store = context.hub().credentials();
    let own = store.access_token_id(token).ok_or(TokenError::Invalid).map_err(bad_token)?;
    if Uuid::parse_str(&id) != Ok(own) {
        return Err(Refused::oauth(
            StatusCode::FORBIDDEN,
            "access_denied",
            "The ID is not that of the token in the \
         Authorization header",
        ));
    }
    store.end_token(own).await?;
    Ok(StatusCode::OK)
}
