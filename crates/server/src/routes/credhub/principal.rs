//! The principal of a request: authenticated by a token of the embedded issuer, an API token, a client certificate, or (for pages of
//! this process alone) a browser's session.

use authority::VerifiedClient;
use axum::extract::FromRequestParts;
use credentials::{Asker, TokenError};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, StatusCode};
use x509::build::Attribute;

use super::context::Context;
use crate::access::{Caller, CallerKind, Permission, SESSION_COOKIE, TOKEN_PREFIX, cookie, token_hash};
use crate::credhub::Refused;
use crate::peer::address;
use crate::problem::Problem;

/// Bytes of an `Authorization` header that are looked at.
const HEADER_MAX: usize = 8_192;

/// What a client certificate of a Cloud Foundry application has in its subject's organizational unit.
const APPLICATION: &str = "app:";

const BAD_IDENTITY: &str = "The provided authentication mechanism does not provide a valid identity. Please contact \
                            your system administrator.";

/// The authenticated principal of a request that reveals no value. A change by a session needs a recent proof.
pub(super) struct Principal(pub(super) Asker);

impl FromRequestParts<Context> for Principal {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        Ok(Self(slowed(parts, context, identified(parts, context).await)?.changes(parts)?))
    }
}

/// The authenticated principal of a `GET` request that can reveal a value. A session needs a recent proof for that.
pub(super) struct Reader(Identified);

impl Reader {
    /// The principal of a request that reveals no value.
    pub(super) fn finds(self) -> Asker {
        self.0.asker
    }

    /// The principal of a request that reveals a value.
    ///
    /// # Errors
    /// 403 `reauthentication-required` for a session without a recent proof.
    pub(super) fn reveals(self) -> Result<Asker, Refused> {
        self.0.proved()
    }
}

impl FromRequestParts<Context> for Reader {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        Ok(Self(slowed(parts, context, identified(parts, context).await)?))
    }
}

/// A principal, and whether a session of it lacks a recent proof of who its person is.
struct Identified {
    asker: Asker,
    unproved: Option<Problem>,
}

impl Identified {
    /// Every change by a session needs a recent proof: a change replaces a value in use, answers with one, or lets others read one.
    fn changes(self, parts: &Parts) -> Result<Asker, Refused> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        if reads { Ok(self.asker) } else { self.proved() }
    }

    fn proved(self) -> Result<Asker, Refused> {
        match self.unproved {
            Some(problem) => Err(Refused::with_document(problem)),
            None => Ok(self.asker),
        }
    }
}

impl From<Asker> for Identified {
    fn from(asker: Asker) -> Self {
        Self { asker, unproved: None }
    }
}

/// Slows down failed authentication. Known callers are exempt, as are callers that cannot be checked during an outage.
pub(crate) fn slowed<T>(parts: &Parts, context: &Context, asked: Result<T, Refused>) -> Result<T, Refused> {
    let failed = |refused: &Refused| {
        !refused.status().is_server_error() && refused.status() != StatusCode::TOO_MANY_REQUESTS
    };
    if asked.as_ref().is_err_and(failed) {
        context.server().limits().failure(address(parts), None).map_err(|problem| too_often(&problem))?;
    }
    asked
}

/// The principal of a request, as [`Principal`] is extracted, without a count of failures.
pub(crate) async fn authenticate(parts: &Parts, context: &Context) -> Result<Asker, Refused> {
    identified(parts, context).await?.changes(parts)
}

/// By the `Authorization` header, else by the session where the context accepts one, else by the client's certificate.
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

/// The token of the `Authorization` header.
pub(crate) fn bearer(parts: &Parts) -> Option<&str> {
    let (scheme, token) = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let fits = scheme.eq_ignore_ascii_case("bearer") && token.len() <= HEADER_MAX;
    fits.then(|| token.trim())
}

pub(crate) async fn by_token(context: &Context, token: &str) -> Result<Asker, Refused> {
    if token.starts_with(TOKEN_PREFIX) {
        let caller =
            context.server().access().token(token_hash(token)).await.map_err(|problem| refused(&problem))?;
        return paced(context, Some(&caller), asker_of(&caller, actor_of(&caller)));
    }
    let hub = context.hub();
    let (grant, _) = match (hub.credentials().access_token(token).await, hub.uaa()) {
        (Ok(own), _) => own,
        // Not of our own issuer: then of the other.
        (Err(TokenError::Invalid), Some(uaa)) => {
            let actor = uaa.actor(token, context.server().clock().now_seconds()).await?;
            return paced(context, None, Asker::actor(&actor));
        }
        (Err(error), _) => return Err(bad_token(error)),
    };
    let caller = context.server().access().token(grant.key).await.map_err(|problem| refused(&problem))?;
    paced(context, Some(&caller), asker_of(&caller, grant.actor))
}

/// The identity of a browser's session, with what that identity may and no more. Unsafe requests carry the session's CSRF token.
async fn by_session(context: &Context, parts: &Parts) -> Result<Identified, Refused> {
    let caller = context.server().authentication().caller(parts).await.map_err(|problem| {
        if problem.status().is_server_error() {
            return bad_token(TokenError::Unavailable);
        }
        Refused::new(problem.status(), problem.text())
    })?;
    let unproved = caller.proved_recently(context.server().clock().now_us()).err();
    let asker = paced(context, Some(&caller), asker_of(&caller, actor_of(&caller)))?;
    Ok(Identified { asker, unproved })
}

/// Within the actor's rate.
fn paced(context: &Context, caller: Option<&Caller>, asker: Asker) -> Result<Asker, Refused> {
    let limits = context.server().limits();
    let within = limits
        .credential_caller(caller, &asker.actor)
        .and_then(|()| caller.map_or(Ok(()), |caller| limits.teams(caller)));
    within
        .map_err(|problem| Refused::new(problem.status(), "Too many requests were made by this client."))?;
    Ok(asker)
}

/// The identity of a client certificate that is not revoked.
async fn by_certificate(context: &Context, client: VerifiedClient) -> Result<Asker, Refused> {
    let units = client.certificate().subject.attributes();
    let unit = units.iter().find(|(attribute, _)| *attribute == Attribute::OrganizationalUnit);
    if let Some(id) = unit.and_then(|(_, unit)| unit.strip_prefix(APPLICATION)) {
        if !client.is_below(context.hub().application_cas()) {
            tracing::warn!(
                subject = client.certificate().subject.text,
                issuer = client.certificate().issuer.text,
                "an application's certificate is refused: its CA is not among credentials.app_ca_files"
            );
            return Err(Refused::new(StatusCode::UNAUTHORIZED, BAD_IDENTITY));
        }
        let id =
            uuid::Uuid::parse_str(id).map_err(|_| Refused::new(StatusCode::UNAUTHORIZED, BAD_IDENTITY))?;
        return paced(context, None, Asker::actor(&format!("mtls-app:{id}")));
    }
    let caller = context.server().authentication().by_certificate(client).await;
    let caller = caller.map_err(|problem| bad_identity(&problem))?;
    paced(context, Some(&caller), asker_of(&caller, actor_of(&caller)))
}

/// A certificate that does not count, or a database that does not answer.
fn bad_identity(problem: &Problem) -> Refused {
    if problem.status().is_server_error() {
        return bad_token(TokenError::Unavailable);
    }
    Refused::new(StatusCode::UNAUTHORIZED, BAD_IDENTITY)
}

/// A caller of the API as the credential store knows it.
pub(crate) fn asker(caller: &Caller) -> Asker {
    asker_of(caller, actor_of(caller))
}

/// What a caller may do here.
pub(super) fn asker_of(caller: &Caller, actor: String) -> Asker {
    if caller.holds_everywhere(Permission::CredentialManage) {
        return Asker::manager(&actor);
    }
    Asker::actor(&actor).within(caller.bounds())
}

/// A caller as permissions name it: an API token is a client, a person a user.
pub(super) fn actor_of(caller: &Caller) -> String {
    let name = caller.actor().split_once(':').map_or(caller.actor(), |(_, name)| name);
    match caller.kind() {
        CallerKind::Token => format!("uaa-client:{name}"),
        CallerKind::User => format!("uaa-user:{name}"),
        CallerKind::Certificate | CallerKind::Agent => caller.actor().to_owned(),
    }
}

/// What clients compare word for word.
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
        // Clients log in again when they read this, and at nothing else.
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

/// A token that is not (or no longer) good, or a database that does not answer.
pub(super) fn refused(problem: &Problem) -> Refused {
    if problem.status().is_server_error() {
        return bad_token(TokenError::Unavailable);
    }
    bad_token(TokenError::Expired)
}

pub(super) fn too_often(problem: &Problem) -> Refused {
    Refused::new(problem.status(), "Too many requests without a valid token came from this address.")
}
