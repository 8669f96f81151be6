//! Tokens, issued at login with an API token. The holder of a token can look up and revoke the token.

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use credentials::TokenError;
use http::StatusCode;
use keys::Secret;
use serde_json::{Map, Value as Json, json};

use super::super::credhub::context::{Context, host};
use super::super::credhub::login;
use super::answer::{Answer, Body, Refused, auth, data, time};
use super::principal::Principal;
use crate::peer::address;

/// Logs in by AppRole: the role ID is the name of an API token, and the secret ID is the value of the token.
pub(super) async fn login(context: Context, request: Request) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let Body::<Map<String, Json>>(fields) =
        Body::from_request(Request::from_parts(parts.clone(), body), &context).await?;
    let text = |field: &str| fields.get(field).and_then(Json::as_str).unwrap_or_default();
    let secret = Secret::new(text("secret_id"));
    let grant = match login::identified(&context, text("role_id"), &secret, "client_credentials").await {
        Ok(grant) => grant,
        Err(refused) if refused.status().is_server_error() => return Err(refused.into()),
        Err(_) => {
            let failed = context.server().limits().failure(address(&parts), Some(text("role_id")));
            failed.map_err(|problem| {
                Refused::new(problem.status(), "too many failed logins from this address or to this role")
            })?;
            return Err(Refused::bad(
                "invalid role or secret ID. hint: role_id is the name of an API token, secret_id the token itself",
            ));
        }
    };
    let hub = context.hub();
    let tokens = hub.credentials().issue_tokens(&grant, &hub.url(host(&parts.headers, &parts.uri)));
    Ok(auth(json!({
        "client_token": tokens.access.expose(),
        "accessor": tokens.id,
        "policies": ["default"],
        "token_policies": ["default"],
        "metadata": { "role_name": grant.name },
        "lease_duration": tokens.expires_in,
        // A client with the secret can log in again instead of renewing.
        "renewable": false,
        "entity_id": "",
        "token_type": "service",
        "orphan": true,
        "mfa_requirement": null,
        "num_uses": 0,
    }))
    .into_response())
}

pub(super) async fn lookup(
    context: Context,
    Principal { requester, token }: Principal,
) -> Result<Answer, Refused> {
    let text = token.as_ref().map(Secret::expose).unwrap_or_default();
    let ends = context.hub().credentials().access_token_expiry(text);
    let ttl = ends.map_or(0, |ends| (ends - context.server().clock().now_seconds()).max(0));
    Ok(data(json!({
        "accessor": "",
        "creation_time": 0,
        "creation_ttl": 0,
        "display_name": requester.actor,
        "entity_id": "",
        "expire_time": ends.map(|ends| time(ends.saturating_mul(1_000_000))),
        "explicit_max_ttl": 0,
        "id": text,
        "meta": null,
        "num_uses": 0,
        "orphan": true,
        "path": if ends.is_some() { "auth/approle/login" } else { "auth/token/create" },
        "policies": ["default"],
        "renewable": false,
        "ttl": ttl,
        "type": "service",
    })))
}

/// Rejects a renewal, because the lifetime of a token cannot be extended.
pub(super) async fn renew(_: Principal) -> Refused {
    Refused::bad("lease is not renewable. hint: log in again")
}

/// Revokes a token that a login issued.
pub(super) async fn revoke(
    context: Context,
    Principal { token, .. }: Principal,
) -> Result<StatusCode, Refused> {
    let token = token.unwrap_or_default();
    let store = context.hub().credentials();
    match store.access_token(token.expose()).await {
        Ok((_, id)) => {
            store.end_token(id).await?;
            Ok(StatusCode::NO_CONTENT)
        }
        Err(TokenError::Unavailable) => {
            Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer. Try again"))
        }
        Err(_) => Err(Refused::bad(
            "only tokens from a login can be revoked here. hint: `bulla token delete` deletes an API token",
        )),
    }
}
