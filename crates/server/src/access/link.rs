//! One-time sign-in links: an authenticated caller requests a link, and starts a browser session with it.

use std::time::Duration;

use futures_util::FutureExt;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::{AuditEvent, Clock, Identity, IdentityKind, SignInLink, SignInMethod, Store};
use zeroize::Zeroizing;

use crate::access::bootstrap::BootstrapError;
use crate::access::control::micros;
use crate::access::proof::PROOF_LIFETIME_US;
use crate::access::session::{self, PreparedSession, Proof, SessionStart, pack_chain};
use crate::access::{AccessControl, Caller, CallerKind};
use crate::access::{admin, secret};
use crate::problem::Problem;

/// Lifetime of a link, unless a shorter one is requested.
pub const LINK_LIFETIME: Duration = Duration::from_secs(600);

/// Minimum lifetime of a link that a caller can request.
pub(crate) const LINK_LIFETIME_MIN: Duration = Duration::from_secs(10);

/// The console page that accepts a code in the URL's fragment, which browsers do not send to servers.
pub const SIGN_IN_PAGE: &str = "/console/sign-in#code=";

/// A newly created one-time sign-in link: its code and its expiry.
pub struct NewLink {
    /// The code. It cannot be retrieved later.
    pub code: SecretString,
    /// Expiry of the link, µs since 1970-01-01 UTC.
    pub expires_at_us: i64,
}

/// Creates a sign-in link for the caller.
pub(crate) async fn create(
    access: &AccessControl,
    caller: &Caller,
    lifetime: Option<Duration>,
) -> Result<NewLink, Problem> {
    let lifetime = lifetime.unwrap_or(LINK_LIFETIME);
    if !(LINK_LIFETIME_MIN..=LINK_LIFETIME).contains(&lifetime) {
        return Err(Problem::unprocessable(format_args!(
            "lifetime_s: the lifetime of a sign-in link must be {} to {} seconds",
            LINK_LIFETIME_MIN.as_secs(),
            LINK_LIFETIME.as_secs()
        )));
    }
    let kind = match caller.kind() {
        CallerKind::Token => IdentityKind::Token,
        CallerKind::User => IdentityKind::User,
        CallerKind::Certificate => IdentityKind::Certificate,
        CallerKind::Agent => {
            return Err(Problem::forbidden("only a token, a user or a client certificate can sign in"));
        }
    };
    let identity = admin::find(access, kind, caller.id()).await?;
    let code = secret::random_text()?;
    let now = access.clock().now_us();
    let mut link = link_row(&identity, &code, now, now + micros(lifetime));
    match caller.session() {
        // A session that is created from a session gets the same permissions, expiry and time of proof.
        Some(session) => {
            let found = store::Access::of(access.store()).session(session.hash).await?;
            let (row, _) = found.ok_or_else(|| Problem::unauthenticated("this session has ended"))?;
            link.grants = row.grants;
            link.proved_at_us = Some(row.proved_at_us.unwrap_or(0));
            link.session_end_us = Some(row.expires_at_us);
            link.chain = row.chain;
        }
        None => link.chain = caller.client().map(|client| pack_chain(client.chain_ders())),
    }
    write(access.store(), link, caller.actor().to_owned()).await?;
    Ok(NewLink { code: SecretString::from(code.as_str()), expires_at_us: now + micros(lifetime) })
}

/// Creates a sign-in link for the holder of an API token, on the host of the database; `None` if the token does not exist, is
/// disabled or has expired.
///
/// # Errors
/// [`BootstrapError`].
pub async fn sign_in_link(
    store: &Store,
    clock: &Clock,
    token: &SecretString,
) -> Result<Option<NewLink>, BootstrapError> {
    let key = secret::token_hash(token.expose_secret());
    let found = store::Access::of(store).identities_by_keys(&[key]).await?.into_iter();
    let now = clock.now_us();
    let Some(identity) = found.into_iter().find(|one| one.kind == IdentityKind::Token && is_active(one, now))
    else {
        return Ok(None);
    };
    let code = secret::random_text().map_err(|problem| BootstrapError::Random(problem.to_string()))?;
    let link = link_row(&identity, &code, now, now + micros(LINK_LIFETIME));
    let expires_at_us = link.expires_at_us;
    write(store, link, format!("{}:{}", identity.kind, identity.name)).await?;
    Ok(Some(NewLink { code: SecretString::from(code.as_str()), expires_at_us }))
}

/// Returns the database row of a link that the holder of a token requests.
fn link_row(identity: &Identity, code: &str, now_us: i64, expires_at_us: i64) -> SignInLink {
    SignInLink {
        code_hash: secret::code_hash(code),
        identity: identity.id,
        grants: "[]".to_owned(),
        proved_at_us: None,
        session_end_us: None,
        chain: None,
        created_at_us: now_us,
        expires_at_us,
    }
}

fn is_active(identity: &Identity, now_us: i64) -> bool {
    identity.enabled && identity.expires_at_us.is_none_or(|end| now_us < end)
}

async fn write(store: &Store, link: SignInLink, actor: String) -> Result<(), store::StoreError> {
    let kind = actor.split(':').next().unwrap_or_default().to_owned();
    let event = AuditEvent {
        at_us: link.created_at_us,
        resource: match kind.as_str() {
            "certificate" => format!("client-certificate/{}", link.identity),
            kind => format!("{kind}/{}", link.identity),
        },
        actor,
        action: "session.link",
        details: json!({ "expires_at": crate::time::shown(link.expires_at_us) }),
    };
    let work = store.write("sign_in_link", move |tx| {
        async move {
            store::insert_sign_in_link(tx, &link).await?;
            store::audit(tx, vec![event]).await.map(drop)
        }
        .boxed()
    });
    work.await
}

/// Returns the link with this code and its identity, if the link can be used.
pub(crate) async fn usable(
    access: &AccessControl,
    code: &str,
) -> Result<Option<(SignInLink, Identity)>, Problem> {
    let found = store::Access::of(access.store()).sign_in_link(secret::code_hash(code)).await?;
    let now = access.clock().now_us();
    Ok(found.filter(|(link, identity)| now < link.expires_at_us && is_active(identity, now)))
}

/// Consumes a link and starts its session; returns the secret for the cookie.
pub(crate) async fn redeem(
    access: &AccessControl,
    code: &str,
    address: &str,
    replaces: Option<[u8; 32]>,
) -> Result<Zeroizing<String>, Problem> {
    let (link, identity) = usable(access, code).await?.ok_or_else(refused)?;
    let prepared = PreparedSession::new(
        access,
        SessionStart {
            identity: &identity,
            method: SignInMethod::Link,
            grants: link.grants,
            proved_at_us: link.proved_at_us.or(Some(access.clock().now_us())),
            end_us: link.session_end_us,
            chain: link.chain,
            security_key: None,
            address,
            replaces,
        },
    )?;
    let (cookie, rows) = prepared.split();
    let code_hash = link.code_hash;
    let work = access.store().write("session_begin", move |tx| {
        async move {
            let first = store::use_sign_in_link(tx, code_hash).await?;
            if first {
                rows.store(tx).await?;
            }
            Ok(first)
        }
        .boxed()
    });
    if !work.await? {
        return Err(refused());
    }
    access.forget();
    Ok(cookie)
}

/// Consumes a link of the caller to confirm its session. A link that was created in a session has only that session's proof of
/// identity, and is rejected if this proof is too old.
pub(crate) async fn confirm(access: &AccessControl, caller: &Caller, code: &str) -> Result<(), Problem> {
    let (link, _) =
        usable(access, code).await?.filter(|(link, _)| link.identity == caller.id()).ok_or_else(refused)?;
    let now = access.clock().now_us();
    let proved_at_us = link.proved_at_us.unwrap_or(now);
    if proved_at_us.saturating_add(PROOF_LIFETIME_US) <= now {
        return Err(Problem::conflict("this link was created in a session that needs confirmation itself")
            .hint("create the link with an API token (`bulla console`), or give the password"));
    }
    session::confirm(access, caller, Proof::Link(link.code_hash), proved_at_us).await?.ok_or_else(refused)
}

/// Returns the error for a code that cannot be used. The error is the same for unknown, used and expired codes, and for disabled
/// identities, so that it reveals nothing.
pub(crate) fn refused() -> Problem {
    Problem::unauthenticated("this code is unknown, was used before, or has expired")
        .hint("`bulla console` creates a new code")
}
