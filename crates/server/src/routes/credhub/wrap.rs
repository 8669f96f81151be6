//! Single-use tokens for values: anyone with such a token can read its value once. An extension to CredHub.

use api::credhub::{UnwrapRequest, UnwrapView, WrapRequest, WrapView};
use axum::Json;
use axum::extract::FromRequestParts;
use credentials::{CredentialError, Name};
use http::header::AUTHORIZATION;
use http::request::Parts;
use keys::SecretJson;

use super::answer::time;
use super::body::{self, Body};
use super::context::Context;
use super::principal::{Principal, too_many_requests};
use crate::credhub::Refused;
use crate::peer::address;
use crate::routing::{NonApiAccess, OperationTable, PathOperations};

/// Default lifetime of a token, s.
const SECONDS: u32 = 300;

pub(super) fn routes() -> OperationTable<Context> {
    let on = PathOperations::new;
    OperationTable::new()
        .route("/api/v1/wrap", on().post(NonApiAccess::AtPath, wrap))
        .route("/api/v1/unwrap", on().post(NonApiAccess::OwnCredential, unwrap))
}

/// Creates a single-use token for the current value: `{"name": …, "ttl_seconds": …}`.
async fn wrap(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<WrapView>, Refused> {
    let request: WrapRequest = body::read(&body)?;
    let name = Name::parse(&request.name)?;
    let seconds = request.ttl_seconds.unwrap_or(SECONDS);
    let wrapped = context.hub().credentials().wrap(&requester, &name, seconds).await?;
    Ok(Json(WrapView {
        token: wrapped.token.expose().to_owned(),
        expires_at: time(wrapped.expires_at_us),
        name: wrapped.name,
        version: wrapped.version,
    }))
}

/// The reader of a single-use value: a name for the log, and the address. The name is the authenticated caller, otherwise the
/// address. Access depends on the token alone.
struct Reader(String, std::net::IpAddr);

impl FromRequestParts<Context> for Reader {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        let address = address(parts);
        if parts.headers.contains_key(AUTHORIZATION) {
            let Principal(requester) = Principal::from_request_parts(parts, context).await?;
            return Ok(Self(requester.actor, address));
        }
        Ok(Self(format!("address:{address}"), address))
    }
}

/// Returns the value of a token, once: `{"token": …}`.
async fn unwrap(
    context: Context,
    Reader(reader, address): Reader,
    Body(body): Body,
) -> Result<Json<UnwrapView<SecretJson>>, Refused> {
    let UnwrapRequest { token } = body::read(&body)?;
    let store = context.hub().credentials();
    let read = match store.unwrap(&reader, &token).await {
        Err(error @ (CredentialError::NoToken | CredentialError::AlreadyRead { .. })) => {
            // Limits the rate of guesses.
            context
                .server()
                .limits()
                .failure(address, None)
                .map_err(|problem| too_many_requests(&problem))?;
            return Err(error.into());
        }
        other => other?,
    };
    Ok(Json(UnwrapView {
        name: read.name,
        kind: read.value.kind().name().to_owned(),
        version: (!read.version.is_nil()).then_some(read.version),
        wrapped_by: read.by,
        value: read.value.response(store.options().ca_versions),
    }))
}
