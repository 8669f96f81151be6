//! Views and changes that tokens, users, client certificates and their sessions have in common.

use api::access::{IdentityPatch, IdentityView, Me, MyGrant, MySession, SessionView};
use axum::response::{IntoResponse, Response};
use http::header::{HeaderValue, LOCATION};
use http::{HeaderMap, StatusCode};
use store::{Identity, Session};

use crate::access::admin::{self, IdentityUpdate};
use crate::access::{
    AccessControl, Caller, SESSION_COOKIE, cookie, csrf_of, grants_of, grants_of_session, session_hash,
};
use crate::conditional::Revision;
use crate::gates::WriteResult;
use crate::problem::Problem;
use crate::time::{maybe_shown, shown};

pub(crate) fn identity_view(row: Identity) -> Result<IdentityView, Problem> {
    let grants = grants_of(&row)?;
    Ok(IdentityView {
        id: row.id,
        name: row.name,
        label: row.label,
        email: row.email,
        grants,
        enabled: row.enabled,
        created_at: shown(row.created_at_us),
        created_by: row.created_by,
        expires_at: maybe_shown(row.expires_at_us),
        last_used_at: maybe_shown(row.last_used_at_us),
    })
}

/// Returns the response to the creation of a user or a client certificate below `path`.
pub(crate) fn created(path: &str, written: WriteResult<Identity>) -> Result<Response, Problem> {
    let made = match written {
        WriteResult::Done(made) => made,
        waits @ WriteResult::Waits(_) => return Ok(waits.map(|_| StatusCode::CREATED).into_response()),
    };
    let location = HeaderValue::from_str(&format!("{path}/{}", made.id)).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, location)], revised(made)?).into_response())
}

/// Returns the view of an identity, with its revision.
pub(crate) fn revised(row: Identity) -> Result<Revision<IdentityView>, Problem> {
    Ok(Revision(row.revision, identity_view(row)?))
}

pub(crate) fn identity_change(
    body: IdentityPatch,
    access: &AccessControl,
) -> Result<IdentityUpdate, Problem> {
    let expires_at_us = match body.expires_at {
        Some(end) => Some(admin::end(access, end.as_deref())?),
        None => None,
    };
    Ok(IdentityUpdate {
        name: body.name,
        email: body.email,
        grants: body.grants,
        enabled: body.enabled,
        expires_at_us,
    })
}

/// Returns the view of a session. `current` is true if `caller` uses this session.
pub(crate) fn session_view(row: Session, caller: &Caller) -> Result<SessionView, Problem> {
    let grants = grants_of_session(&row)?;
    Ok(SessionView {
        current: caller.session().is_some_and(|session| session.hash == row.token_hash),
        address: row.address,
        created_at: shown(row.created_at_us),
        last_seen_at: shown(row.last_seen_at_us),
        expires_at: shown(row.expires_at_us),
        grants,
        method: row.method.map(|method| method.name().to_owned()),
        confirmed_at: maybe_shown(row.proved_at_us),
    })
}

/// Returns the view of the caller; with the cookie of its session, includes the CSRF token.
pub(crate) fn me_view(caller: &Caller, cookie: Option<&str>, now_us: i64) -> Me {
    let granted = caller.granted().iter().map(|granted| MyGrant {
        scope: granted.scope.clone(),
        permissions: granted.permissions.iter().map(|permission| permission.name().to_owned()).collect(),
    });
    let session = caller.session();
    Me {
        actor: caller.actor().to_owned(),
        kind: caller.kind().name().to_owned(),
        id: caller.id(),
        granted: granted.collect(),
        csrf_token: session.and(cookie).map(csrf_of),
        session: session.map(|session| MySession {
            method: session.method.map(|method| method.name().to_owned()),
            expires_at: shown(session.expires_at_us),
            confirmed_at: maybe_shown(session.proved_at_us),
            confirmed_until: maybe_shown(session.proved_until(now_us)),
        }),
    }
}

/// Returns a cookie that is bound to this host and not readable by scripts.
pub(crate) fn set_cookie(name: &str, value: &str, max_age: Option<u32>) -> Result<HeaderValue, Problem> {
    let age = max_age.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
    let text = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax{age}");
    HeaderValue::from_str(&text).map_err(Problem::internal)
}

/// Returns the session cookie. It has no expiry: the browser deletes the cookie when the browser closes, and the server ends the
/// session.
pub(crate) fn session_cookie(secret: &str) -> Result<HeaderValue, Problem> {
    set_cookie(SESSION_COOKIE, secret, None)
}

/// Returns the browser's current session, by its cookie. A new sign-in replaces this session.
pub(crate) fn replaced_session(headers: &HeaderMap) -> Option<[u8; 32]> {
    cookie(headers, SESSION_COOKIE).map(session_hash)
}
