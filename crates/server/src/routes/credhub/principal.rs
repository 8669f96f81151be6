//! The principal of a request: authenticated by a token of the embedded or the external issuer, an API token, a client certificate,
//! or (only for pages of this process) a browser session.

use authority::VerifiedClient;
use axum::extract::FromRequestParts;
use credentials::{Grant, Requester, TokenError};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, StatusCode};
use x509::build::Attribute;

use super::context::Context;
use crate::access::{Caller, CallerKind, Permission, SESSION_COOKIE, TOKEN_PREFIX, cookie, token_hash};
use crate::credhub::{CredHub, Refused};
use crate::peer::address;
use crate::problem::Problem;

/// Maximum bytes of an `Authorization` header.
const HEADER_MAX: usize = 8_192;

/// Prefix in the subject's organizational unit of a Cloud Foundry application's client certificate.
const APPLICATION: &str = "app:";

const BAD_IDENTITY: &str = "The provided authentication mechanism does not provide a valid identity. Please contact \
                            your system administrator.";

/// The authenticated principal of a request that reveals no value. A change through a browser session needs a recent proof of the
/// user's identity.
pub(super) struct Principal(pub(super) Requester);

impl FromRequestParts<Context> for Principal {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        Ok(Self(count_failure(parts, context, identified(parts, context).await)?.for_change(parts)?))
    }
}

/// The authenticated principal of a `GET` request that can reveal a value. To reveal a value, a browser session needs a recent
/// proof of the user's identity.
pub(super) struct Reader(Identified);

impl Reader {
    /// Returns the principal for a request that reveals no value.
    pub(super) fn for_search(self) -> Requester {
        self.0.requester
    }

    /// Returns the principal for a request that reveals a value, if the principal has proved its identity recently.
    ///
    /// # Errors
    /// 403 `reauthentication-required` for a session without a recent proof.
    pub(super) fn for_reveal(self) -> Result<Requester, Refused> {
        self.0.proved()
    }
}

impl FromRequestParts<Context> for Reader {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        Ok(Self(count_failure(parts, context, identified(parts, context).await)?))
    }
}

/// A principal, and whether its session lacks a recent proof of the user's identity.
struct Identified {
    requester: Requester,
    unproved: Option<Problem>,
}

impl Identified {
    /// Returns the principal of a change. A session needs a recent proof of identity for every change, because a change may
    /// replace a value in use, return a value, or let other actors read a value.
    fn for_change(self, parts: &Parts) -> Result<Requester, Refused> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        if reads { Ok(self.requester) } else { self.proved() }
    }

    fn proved(self) -> Result<Requester, Refused> {
        match self.unproved {
            Some(problem) => Err(Refused::with_document(problem)),
            None => Ok(self.requester),
        }
    }
}

impl From<Requester> for Identified {
    fn from(requester: Requester) -> Self {
        Self { requester, unproved: None }
    }
}

/// Counts failed authentication towards the rate limit. Authenticated callers are exempt, as are callers that cannot be checked
/// during an outage.
pub(crate) fn count_failure<T>(
    parts: &Parts,
    context: &Context,
    result: Result<T, Refused>,
) -> Result<T, Refused> {
    let failed = |refused: &Refused| {
        !refused.status().is_server_error() && refused.status() != StatusCode::TOO_MANY_REQUESTS
    };
    if result.as_ref().is_err_and(failed) {
        context
            .server()
            .limits()
            .failure(address(parts), None)
            .map_err(|problem| too_many_requests(&problem))?;
    }
    result
}

/// Returns the principal of a request. Unlike the extractor [`Principal`], does not count failed authentication towards the rate
/// limit.
pub(crate) async fn authenticate(parts: &Parts, context: &Context) -> Result<Requester, Refused> {
    identified(parts, context).await?.for_change(parts)
}

/// Authenticates by the `Authorization` header, else by the session if the context accepts one, else by the client certificate.
async fn identified(parts: &Parts, context: &Context) -> Result<Identified, Refused> {
    if parts.headers.contains_key(AUTHORIZATION) {
        return Ok(by_token(context, bearer(parts).ok_or_else(denied)?).await?.into());
    }
    if context.accepts_sessions() && cookie(&parts.headers, SESSION_COOKIE).is_some() {
        return by_session(context, parts).await;
    }
    match context.server().authentication().client(parts).await {
        Ok(Some(client)) => Ok(by_certificate(context, client).await?.into()),
        Ok(None) => Err(denied()),
        Err(problem) => Err(bad_identity(&problem)),
    }
}

/// Returns the token in the `Authorization` header.
pub(crate) fn bearer(parts: &Parts) -> Option<&str> {
    let (scheme, token) = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let fits = scheme.eq_ignore_ascii_case("bearer") && token.len() <= HEADER_MAX;
    fits.then(|| token.trim())
}

pub(crate) async fn by_token(context: &Context, token: &str) -> Result<Requester, Refused> {
    if token.starts_with(TOKEN_PREFIX) {
        let caller =
            context.server().access().token(token_hash(token)).await.map_err(|problem| refused(&problem))?;
        return rate_limited(
            context,
            Some(&caller),
            caller_requester(&caller, actor_of(context.hub(), &caller)),
        );
    }
    let hub = context.hub();
    let (grant, login) = match (hub.credentials().access_token(token).await, hub.uaa()) {
        (Ok(own), _) => own,
        // The embedded issuer did not issue the token; the external issuer may have.
        (Err(TokenError::Invalid), Some(uaa)) => {
            let actor = uaa.actor(token, context.server().clock().now_seconds()).await?;
            return rate_limited(context, None, Requester::actor(&actor));
        }
        (Err(error), _) => return Err(bad_token(error)),
    };
    let caller = token_of(context, &grant).await?;
    // The actor is derived from the current configuration, not from the configuration at the login.
    let requester = caller_requester(&caller, hub.token_actor(&grant.name, &grant.grant_type));
    rate_limited(context, Some(&caller), Requester { login: Some(login), ..requester })
}

/// Returns the API token for which a token of the embedded issuer was issued. Renaming an API token creates another actor, and
/// invalidates the tokens issued under the former name.
pub(super) async fn token_of(context: &Context, grant: &Grant) -> Result<Caller, Refused> {
    let caller = context.server().access().token(grant.key).await.map_err(|problem| refused(&problem))?;
    let name = caller.actor().split_once(':').map_or(caller.actor(), |(_, name)| name);
    if name == grant.name { Ok(caller) } else { Err(bad_token(TokenError::Ended)) }
}

/// Returns the identity of a browser session, with exactly its permissions. Unsafe requests need the session's CSRF token.
async fn by_session(context: &Context, parts: &Parts) -> Result<Identified, Refused> {
    let caller = context.server().authentication().caller(parts).await.map_err(|problem| {
        if problem.status().is_server_error() {
            return bad_token(TokenError::Unavailable);
        }
        Refused::new(problem.status(), problem.text())
    })?;
    let unproved = caller.require_recent_proof(context.server().clock().now_us()).err();
    let requester =
        rate_limited(context, Some(&caller), caller_requester(&caller, actor_of(context.hub(), &caller)))?;
    Ok(Identified { requester, unproved })
}

/// Applies the actor's rate limit.
fn rate_limited(
    context: &Context,
    caller: Option<&Caller>,
    requester: Requester,
) -> Result<Requester, Refused> {
    let limits = context.server().limits();
    let within = limits
        .credential_caller(caller, &requester.actor)
        .and_then(|()| caller.map_or(Ok(()), |caller| limits.teams(caller)));
    within
        .map_err(|problem| Refused::new(problem.status(), "Too many requests were made by this client."))?;
    Ok(requester)
}

/// Returns the identity of a client certificate that is not revoked.
async fn by_certificate(context: &Context, client: VerifiedClient) -> Result<Requester, Refused> {
    let units = client.certificate().subject.attributes();
    let unit = units.iter().find(|(attribute, _)| *attribute == Attribute::OrganizationalUnit);
    if let Some(id) = unit.and_then(|(_, unit)| unit.strip_prefix(APPLICATION)) {
        if !client.is_below(context.hub().application_cas()) {
            tracing::warn!(
                subject = client.certificate().subject.text,
                issuer = client.certificate().issuer.text,
                "an application's certificate was rejected: its CA is not in credentials.app_ca_files"
            );
            return Err(Refused::new(StatusCode::UNAUTHORIZED, BAD_IDENTITY));
        }
        let id =
            uuid::Uuid::parse_str(id).map_err(|_| Refused::new(StatusCode::UNAUTHORIZED, BAD_IDENTITY))?;
        return rate_limited(context, None, Requester::actor(&format!("mtls-app:{id}")));
    }
    let caller = context.server().authentication().by_certificate(client).await;
    let caller = caller.map_err(|problem| bad_identity(&problem))?;
    rate_limited(context, Some(&caller), caller_requester(&caller, actor_of(context.hub(), &caller)))
}

/// Returns the error for a rejected certificate, or for an unavailable database.
fn bad_identity(problem: &Problem) -> Refused {
    if problem.status().is_server_error() {
        return bad_token(TokenError::Unavailable);
    }
    Refused::new(StatusCode::UNAUTHORIZED, BAD_IDENTITY)
}

/// Converts a caller of the API to a caller of the credential store.
pub(crate) fn requester(hub: &CredHub, caller: &Caller) -> Requester {
    caller_requester(caller, actor_of(hub, caller))
}

/// Returns the caller of the credential store with this actor name.
pub(super) fn caller_requester(caller: &Caller, actor: String) -> Requester {
    let requester = match caller.has_permission_everywhere(Permission::CredentialManage) {
        true => Requester::manager(&actor),
        false => Requester::actor(&actor).within(caller.bounds()),
    };
    Requester {
        manages_databases: caller.has_permission_everywhere(Permission::DatabaseManage),
        // An agent has no identity of its own in the access tables.
        identity: (caller.kind() != CallerKind::Agent).then(|| caller.id()),
        ..requester
    }
}

/// Returns the actor name of a caller in permissions. An API token is a client of the embedded issuer. Every other kind of identity
/// has its own prefix, so that no issuer can issue a token with the same actor name.
pub(super) fn actor_of(hub: &CredHub, caller: &Caller) -> String {
    let name = caller.actor().split_once(':').map_or(caller.actor(), |(_, name)| name);
    match caller.kind() {
        CallerKind::Token => hub.token_actor(name, "client_credentials"),
        CallerKind::User | CallerKind::Certificate | CallerKind::Agent => caller.actor().to_owned(),
    }
}

/// Returns the error for denied access. Clients compare its text word for word.
fn denied() -> Refused {
    Refused::oauth(
        StatusCode::UNAUTHORIZED,
        "access_denied",
        "Full authentication is required to access this resource",
    )
}

pub(super) fn bad_token(error: TokenError) -> Refused {
    let unauthorized = |kind: &str, text: &str| Refused::oauth(StatusCode::UNAUTHORIZED, kind, text);
    match error {
        // Clients log in again only after this error.
        TokenError::Expired | TokenError::Ended => {
            unauthorized("access_token_expired", "Access token expired")
        }
        TokenError::Invalid => unauthorized(
            "invalid_token",
            "The request token signature could not be verified. Please validate that your request token was issued by \
             the UAA server authorized by CredHub.",
        ),
        TokenError::Unavailable => {
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, "The database does not answer. Please try again.")
        }
    }
}

/// Returns the error for an invalid or expired token, or for an unavailable database.
pub(super) fn refused(problem: &Problem) -> Refused {
    if problem.status().is_server_error() {
        return bad_token(TokenError::Unavailable);
    }
    bad_token(TokenError::Expired)
}

pub(super) fn too_many_requests(problem: &Problem) -> Refused {
    Refused::new(problem.status(), "Too many requests without a valid token came from this address.")
}
