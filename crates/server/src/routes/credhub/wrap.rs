//! Values read once, by whoever holds the token. Not in CredHub.

use axum::extract::FromRequestParts;
use axum::routing::{MethodRouter, post};
use credentials::{CredentialError, Name};
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde_json::{Value as Json, json};

use super::answer::time;
use super::asking::{Asking, too_often};
use super::body::{self, Body};
use super::context::Context;
use crate::api::endpoint;
use crate::credhub::Refused;
use crate::peer::address;

/// How long a token is good where nothing is said, s.
const SECONDS: u32 = 300;

/// The routes of this module.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Context>)> {
    vec![("/api/v1/wrap", post(endpoint(wrap))), ("/api/v1/unwrap", post(endpoint(unwrap)))]
}

/// `{"name": …, "ttl_seconds": …}`: a token that reads what is current there once.
async fn wrap(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["name", "ttl_seconds"])?;
    let name = Name::parse(&body::text(&body, "name")?.unwrap_or_default())?;
    let seconds = body::number(&body, "ttl_seconds")?.unwrap_or(SECONDS);
    let wrapped = context.hub().credentials().wrap(&asker, &name, seconds).await?;
    Ok(axum::Json(json!({
        "token": wrapped.token.expose(),
        "expires_at": time(wrapped.expires_at_us),
        "name": wrapped.name,
        "version": wrapped.version,
    })))
}

/// Who reads, for the log: whoever is logged in, else an address. The token is what counts.
struct Reader(String, std::net::IpAddr);

impl FromRequestParts<Context> for Reader {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        let address = address(parts);
        if parts.headers.contains_key(AUTHORIZATION) {
            let Asking(asker) = Asking::from_request_parts(parts, context).await?;
            return Ok(Self(asker.actor, address));
        }
        Ok(Self(format!("address:{address}"), address))
    }
}

/// `{"token": …}`: the value, for the first who asks.
async fn unwrap(
    context: Context,
    Reader(reader, address): Reader,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["token"])?;
    let token = body::text(&body, "token")?.unwrap_or_default();
    let store = context.hub().credentials();
    let read = match store.unwrap(&reader, &token).await {
        Err(error @ (CredentialError::NoToken | CredentialError::AlreadyRead { .. })) => {
            // Guesses are slowed down.
            context.server().limits().failure(address).map_err(|problem| too_often(&problem))?;
            return Err(error.into());
        }
        other => other?,
    };
    Ok(axum::Json(json!({
        "name": read.name,
        "type": read.value.kind().name(),
        "version": (!read.version.is_nil()).then_some(read.version),
        "wrapped_by": read.by,
        "value": read.value.shown(store.options().concatenate_cas),
    })))
}
