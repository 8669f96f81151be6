//! Browser sessions: start, confirmation and end.

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Identity, Session, SignInMethod, StoreError, Tx};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::access::control::micros;
use crate::access::security_key::ProvedKey;
use crate::access::{AccessControl, Caller, CallerKind};
use crate::access::{admin, secret};
use crate::problem::Problem;

pub(crate) struct SessionStart<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) method: SignInMethod,
    /// Grants that the user has through groups at the OIDC issuer, as JSON.
    pub(crate) grants: String,
    pub(crate) proved_at_us: Option<i64>,
    /// Expiry of the session, if it must be earlier than usual, µs since 1970-01-01 UTC.
    pub(crate) end_us: Option<i64>,
    pub(crate) chain: Option<Vec<u8>>,
    /// The security key with which the user signed in.
    pub(crate) security_key: Option<Uuid>,
    /// IP address of the browser, for the list of sessions and the audit log.
    pub(crate) address: &'a str,
    /// Hash of the cookie of the browser's previous session. The start of the new session ends the previous session.
    pub(crate) replaces: Option<[u8; 32]>,
}

/// A session that is not stored yet.
pub(crate) struct PreparedSession {
    cookie: Zeroizing<String>,
    session: Session,
    event: AuditEvent,
    replaces: Option<[u8; 32]>,
}

/// The rows of a session, without its secret.
pub(crate) struct SessionRows {
    session: Session,
    event: AuditEvent,
    replaces: Option<[u8; 32]>,
}

impl PreparedSession {
    /// Prepares a session with a new secret: it never reuses the secret of a previous session.
    pub(crate) fn new(access: &AccessControl, start: SessionStart<'_>) -> Result<Self, Problem> {
        let cookie = secret::random_text()?;
        let now = access.clock().now_us();
        let absolute = now + micros(access.session_options().absolute);
        let mut details =
            json!({ "address": start.address, "method": start.method, "grants": grants(&start.grants)? });
        if let Some(key) = start.security_key {
            details["security_key"] = key.to_string().into();
        }
        let event = AuditEvent {
            at_us: now,
            actor: format!("{}:{}", start.identity.kind, start.identity.name),
            action: "session.begin",
            resource: admin::resource(start.identity.kind, start.identity.id),
            details,
        };
        let session = Session {
            token_hash: secret::session_hash(&cookie),
            identity: start.identity.id,
            grants: start.grants,
            address: start.address.to_owned(),
            created_at_us: now,
            last_seen_at_us: now,
            expires_at_us: start.end_us.map_or(absolute, |end| end.min(absolute)),
            method: Some(start.method),
            proved_at_us: start.proved_at_us.map(|at| at.min(now)),
            chain: start.chain,
        };
        Ok(Self { cookie, session, event, replaces: start.replaces })
    }

    /// Returns the secret for the cookie, and the rows to store.
    pub(crate) fn split(self) -> (Zeroizing<String>, SessionRows) {
        (self.cookie, SessionRows { session: self.session, event: self.event, replaces: self.replaces })
    }

    /// Stores the session and the use of its security key in one transaction, and returns the secret for the cookie. `None` if
    /// another use of the key was stored meanwhile.
    pub(crate) async fn begin_with(
        self,
        access: &AccessControl,
        key: ProvedKey,
    ) -> Result<Option<Zeroizing<String>>, Problem> {
        let (cookie, rows) = self.split();
        let work = access.store().write("session_begin", move |tx| {
            async move {
                let used = key.store(tx).await?;
                if used {
                    rows.store(tx).await?;
                }
                Ok(used)
            }
            .boxed()
        });
        let used = work.await?;
        access.forget();
        Ok(used.then_some(cookie))
    }

    /// Stores the session in its own transaction; returns the secret for the cookie.
    pub(crate) async fn begin(self, access: &AccessControl) -> Result<Zeroizing<String>, Problem> {
        let (cookie, rows) = self.split();
        access.store().write("session_begin", move |tx| async move { rows.store(tx).await }.boxed()).await?;
        access.forget();
        Ok(cookie)
    }
}

impl SessionRows {
    /// Stores the session and its audit event, and ends the session that it replaces.
    pub(crate) async fn store(self, tx: &mut Tx) -> Result<(), StoreError> {
        if let Some(before) = self.replaces {
            store::delete_session(tx, before).await?;
        }
        store::insert_session(tx, &self.session).await?;
        store::audit(tx, vec![self.event]).await.map(drop)
    }
}

/// A proof of identity that confirms a session. A link, or a response of a security key, can be used only once.
pub(crate) enum Proof {
    /// The user entered the password.
    Password,
    /// A one-time link, by the hash of its code.
    Link([u8; 32]),
    /// A security key, alone or after the password.
    Key { key: Box<ProvedKey>, after_password: bool },
}

impl Proof {
    fn method(&self) -> SignInMethod {
        match self {
            Self::Password => SignInMethod::Password,
            Self::Link(_) => SignInMethod::Link,
            Self::Key { after_password: true, .. } => SignInMethod::PasswordAndKey,
            Self::Key { after_password: false, .. } => SignInMethod::Passkey,
        }
    }

    /// Marks the proof as used. Returns false if it was used before.
    async fn store(&self, tx: &mut Tx) -> Result<bool, StoreError> {
        match self {
            Self::Password => Ok(true),
            Self::Link(code_hash) => store::use_sign_in_link(tx, *code_hash).await,
            Self::Key { key, .. } => key.store(tx).await,
        }
    }
}

/// Records that the user of the caller's session proved their identity, and marks the proof as used. `None` when the session has
/// ended or the proof can no longer be used.
pub(crate) async fn confirm(
    access: &AccessControl,
    caller: &Caller,
    proof: Proof,
    proved_at_us: i64,
) -> Result<Option<()>, Problem> {
    let Some(hash) = caller.session().map(|session| session.hash) else { return Ok(None) };
    let mut details = json!({ "method": proof.method() });
    if let Proof::Key { key, .. } = &proof {
        details["security_key"] = key.key.id.to_string().into();
    }
    let event = AuditEvent {
        at_us: access.clock().now_us(),
        actor: caller.actor().to_owned(),
        action: "session.confirm",
        resource: resource_of(caller),
        details,
    };
    let work = access.store().write("session_confirm", move |tx| {
        async move {
            if !proof.store(tx).await? || !store::prove_session(tx, hash, proved_at_us).await? {
                return Ok(None);
            }
            store::audit(tx, vec![event]).await?;
            Ok(Some(()))
        }
        .boxed()
    });
    let confirmed = work.await?;
    access.forget();
    Ok(confirmed)
}

/// Ends every session of the caller's identity, and its unused links; returns the number of sessions.
pub(crate) async fn sign_out_everywhere(access: &AccessControl, caller: &Caller) -> Result<u64, Problem> {
    let id = caller.id();
    let (at_us, actor, resource) = (access.clock().now_us(), caller.actor().to_owned(), resource_of(caller));
    let work = access.store().write("sign_out", move |tx| {
        let (actor, resource) = (actor.clone(), resource.clone());
        async move {
            let ended = store::sign_out(tx, id).await?;
            let details = json!({ "everywhere": true, "ended": ended });
            store::audit(tx, vec![AuditEvent { at_us, actor, action: "session.end", resource, details }])
                .await?;
            Ok(ended)
        }
        .boxed()
    });
    let ended = work.await?;
    access.forget();
    Ok(ended)
}

/// Returns the caller as the resource of an audit event.
pub(crate) fn resource_of(caller: &Caller) -> String {
    match caller.kind() {
        CallerKind::Certificate => format!("client-certificate/{}", caller.id()),
        other => format!("{other}/{}", caller.id()),
    }
}

fn grants(text: &str) -> Result<serde_json::Value, Problem> {
    serde_json::from_str(text).map_err(Problem::internal)
}

/// Concatenates the client certificates of a session, each preceded by its length.
pub(crate) fn pack_chain<'a>(ders: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut packed = Vec::new();
    for der in ders {
        packed.extend(u32::try_from(der.len()).unwrap_or(u32::MAX).to_be_bytes());
        packed.extend(der);
    }
    packed
}

/// Splits the output of [`pack_chain`]; `None` for any other input.
pub(crate) fn unpack_chain(mut packed: &[u8]) -> Option<Vec<&[u8]>> {
    let mut ders = Vec::new();
    while !packed.is_empty() {
        let (length, rest) = packed.split_first_chunk::<4>()?;
        let (der, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        ders.push(der);
        packed = rest;
    }
    Some(ders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_chains_roundtrip_and_truncated_ones_are_rejected() {
        let chain: [&[u8]; 3] = [b"leaf", b"", b"issuer"];
        let packed = pack_chain(chain.into_iter());
        assert_eq!(unpack_chain(&packed).unwrap(), chain);
        assert_eq!(unpack_chain(&[]).unwrap(), Vec::<&[u8]>::new());
        assert!(unpack_chain(&packed[..packed.len() - 1]).is_none());
        assert!(unpack_chain(b"abc").is_none());
    }
}
