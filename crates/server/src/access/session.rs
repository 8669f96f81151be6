//! Sessions of browsers: how one begins, and how long its person's proof of who they are counts.

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Identity, Session, SignInMethod, StoreError, Tx};
use zeroize::Zeroizing;

use crate::access::AccessControl;
use crate::access::control::micros;
use crate::access::{admin, secret};
use crate::problem::Problem;

/// How long after its person proved who they are a session may do what is marked as dangerous.
pub const PROOF_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The session that a request came with.
#[derive(Clone)]
pub(crate) struct CallerSession {
    /// SHA-256 of its cookie's secret.
    pub(crate) hash: [u8; 32],
    /// How its person signed in.
    pub(crate) method: Option<SignInMethod>,
    /// When its person last proved who they are, µs; `None` where that is not known.
    pub(crate) proved_at_us: Option<i64>,
    /// When it ends whatever happens, µs.
    pub(crate) expires_at_us: i64,
    /// The client certificates with which it was asked for.
    pub(crate) chain: Option<Vec<u8>>,
}

impl CallerSession {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            hash: session.token_hash,
            method: session.method,
            proved_at_us: session.proved_at_us,
            expires_at_us: session.expires_at_us,
            chain: session.chain.clone(),
        }
    }

    /// Until when the session may do what is marked as dangerous, µs; `None` when it may not.
    pub(crate) fn proved_until(&self, now_us: i64) -> Option<i64> {
        let until = self.proved_at_us?.saturating_add(micros(PROOF_LIFETIME));
        (now_us < until).then_some(until)
    }
}

/// A session to begin.
pub(crate) struct SessionStart<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) method: SignInMethod,
    /// What the login's groups gave, JSON.
    pub(crate) grants: String,
    pub(crate) proved_at_us: Option<i64>,
    /// An end before that of every session, µs.
    pub(crate) end_us: Option<i64>,
    pub(crate) chain: Option<Vec<u8>>,
    /// Where the browser is.
    pub(crate) address: &'a str,
    /// The session that the browser had until now (its cookie's hash). It ends.
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
    /// With a new secret: no session goes on from one that the browser had before.
    pub(crate) fn new(access: &AccessControl, start: SessionStart<'_>) -> Result<Self, Problem> {
        let cookie = secret::random_text()?;
        let now = access.clock().now_us();
        let absolute = now + micros(access.session_options().absolute);
        let event = AuditEvent {
            at_us: now,
            actor: format!("{}:{}", start.identity.kind, start.identity.name),
            action: "session.begin",
            resource: admin::resource(start.identity.kind, start.identity.id),
            details: json!({ "address": start.address, "method": start.method, "grants": grants(&start.grants)? }),
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

    /// The secret for the cookie, and the rows to store.
    pub(crate) fn split(self) -> (Zeroizing<String>, SessionRows) {
        (self.cookie, SessionRows { session: self.session, event: self.event, replaces: self.replaces })
    }

    /// Stores the session in a transaction of its own; returns the secret for the cookie.
    pub(crate) async fn begin(self, access: &AccessControl) -> Result<Zeroizing<String>, Problem> {
        let (cookie, rows) = self.split();
        access.store().write("session_begin", move |tx| async move { rows.store(tx).await }.boxed()).await?;
        access.forget();
        Ok(cookie)
    }
}

impl SessionRows {
    /// Stores the session and its audit event, and ends the one that it replaces.
    pub(crate) async fn store(self, tx: &mut Tx) -> Result<(), StoreError> {
        if let Some(before) = self.replaces {
            store::delete_session(tx, before).await?;
        }
        store::insert_session(tx, &self.session).await?;
        store::audit(tx, vec![self.event]).await.map(drop)
    }
}

fn grants(text: &str) -> Result<serde_json::Value, Problem> {
    serde_json::from_str(text).map_err(Problem::internal)
}

/// The client certificates of a session as one text of bytes, each with its length before it.
pub(crate) fn pack_chain<'a>(ders: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut packed = Vec::new();
    for der in ders {
        packed.extend(u32::try_from(der.len()).unwrap_or(u32::MAX).to_be_bytes());
        packed.extend(der);
    }
    packed
}

/// The certificates that [`pack_chain`] packed; `None` for anything else.
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
    fn a_chain_is_unpacked_as_it_was_packed() {
        let chain: [&[u8]; 3] = [b"leaf", b"", b"issuer"];
        let packed = pack_chain(chain.into_iter());
        assert_eq!(unpack_chain(&packed).unwrap(), chain);
        assert_eq!(unpack_chain(&[]).unwrap(), Vec::<&[u8]>::new());
        assert!(unpack_chain(&packed[..packed.len() - 1]).is_none());
        assert!(unpack_chain(b"abc").is_none());
    }
}
