//! Values read once: a token that opens one value one time, anyone who holds it. A second try is told of the first.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use keys::Secret;
use parking_lot::Mutex;
use serde_json::json;
use store::StoreError;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::tables;
use crate::tables::{
    CredentialAsker, NewWrap, SEALED_WRAPS, Unwrapped, WRAPS_OF_ONE_MAX, insert_wrap, unwrap,
};
use crate::version::{open_in, seal_in};
use crate::{CredentialError, Credentials, Kind, Name, Value};

/// Shortest time a token is good, s.
pub const WRAP_MIN_S: u32 = 1;
/// Longest time a token is good, s: a day.
pub const WRAP_MAX_S: u32 = 86_400;

/// What every such token begins with, so that scanners for leaked secrets know it.
const PREFIX: &str = "bullawrap_";
/// Bytes of a token that are looked at.
const TOKEN_MAX: usize = 128;
/// How long it is known who read what, µs: thirty days.
const READ_KEPT_US: i64 = 30 * 86_400_000_000;

/// A value that waits to be read once.
#[derive(Clone, Debug)]
pub struct Wrapped {
    /// What reads it. Shown now and never again.
    pub token: Secret,
    /// Until when, µs.
    pub expires_at_us: i64,
    /// The credential's name.
    pub name: String,
    /// The version.
    pub version: Uuid,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct OneTime {
    /// The credential's name.
    pub name: String,
    /// The version; nil for one that is not stored yet.
    pub version: Uuid,
    /// The value.
    pub value: Value,
    /// Actor that granted it.
    pub by: String,
}

impl Credentials {
    /// Keeps what is current under a name for one reading within so many seconds.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a time that is not from [`WRAP_MIN_S`] to [`WRAP_MAX_S`], or more than 1,000 of one
    /// maker that wait; [`CredentialError::NotFound`].
    #[crate::boxed]
    pub async fn wrap(
        &self,
        asker: &CredentialAsker,
        name: &Name,
        seconds: u32,
    ) -> Result<Wrapped, CredentialError> {
        if !(WRAP_MIN_S..=WRAP_MAX_S).contains(&seconds) {
            return Err(CredentialError::bad(format!(
                "A token is good for {WRAP_MIN_S} to {WRAP_MAX_S} seconds, not {seconds}."
            )));
        }
        let versions = self.current(asker, name).await?;
        let version = versions.into_iter().next().ok_or(CredentialError::NotFound)?;
        let until_us = self.now_us().saturating_add(i64::from(seconds) * 1_000_000);
        // What is read no more is not read by a token either.
        let until_us = version.ends_at_us.map_or(until_us, |ends_at_us| ends_at_us.min(until_us));
        let what = (version.name.as_str(), version.id);
        let wrapped = self.wrap_value(&asker.actor, what, &version.value, until_us).await?;
        wrapped.ok_or_else(|| {
            CredentialError::bad(format!(
                "{WRAPS_OF_ONE_MAX} tokens of yours wait to be read. Let them be read or end first."
            ))
        })
    }

    /// Keeps a value for one reading until a time, µs; `None` when its maker has [`WRAPS_OF_ONE_MAX`] waiting.
    pub(crate) async fn wrap_value(
        &self,
        by: &str,
        (name, version): (&str, Uuid),
        value: &Value,
        expires_at_us: i64,
    ) -> Result<Option<Wrapped>, CredentialError> {
        let (id, token, at_us) = (Uuid::now_v7(), new_token()?, self.now_us());
        let octets = value.sealed_form()?;
        let wrap = NewWrap {
            token_hash: hash(token.expose()),
            id,
            name: name.to_owned(),
            kind: value.kind(),
            version,
            sealed: seal_in(&SEALED_WRAPS, self.keyring(), &name.to_ascii_lowercase(), id, &octets),
            at_us,
            by: by.to_owned(),
            expires_at_us,
        };
        let asker = CredentialAsker::actor(by);
        let seconds = expires_at_us.saturating_sub(at_us) / 1_000_000;
        let details = json!({ "version": version, "wrap": id, "seconds": seconds });
        let event = self.event(&asker, "credential.wrap", name, details);
        let kept = self.store().write("credential_wrap", move |tx| {
            async move {
                let kept = insert_wrap(tx, &wrap).await?;
                if kept {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(kept)
            }
            .boxed()
        });
        let wrapped = Wrapped { token, expires_at_us, name: name.to_owned(), version };
        Ok(kept.await?.then_some(wrapped))
    }

    /// Forgets a value that nobody is to read any more.
    pub(crate) async fn forget_wrapped(&self, wrapped: &Wrapped) -> Result<(), CredentialError> {
        Ok(tables::Credentials::of(self.store()).forget_wrap(hash(wrapped.token.expose())).await?)
    }

    /// Reads the value of a token, once; `by` is for the log, for the token itself is what counts.
    ///
    /// # Errors
    /// [`CredentialError::AlreadyRead`] for anyone who comes second; [`CredentialError::NoToken`];
    /// [`CredentialError::Sealed`], and then it stays to be read.
    #[crate::boxed]
    pub async fn unwrap(&self, by: &str, token: &str) -> Result<OneTime, CredentialError> {
        if token.len() > TOKEN_MAX || !token.starts_with(PREFIX) {
            return Err(CredentialError::NoToken);
        }
        let (hash, at_us, reader) = (hash(token), self.now_us(), by.to_owned());
        let (own, sealed) = (self.clone(), Arc::new(Mutex::new(None)));
        let unopened = Arc::clone(&sealed);
        let taken = self.store().write("credential_unwrap", move |tx| {
            async move {
                let taken = unwrap(tx, hash, at_us, &reader).await?;
                let event = |action, name: &str, details| store::AuditEvent {
                    at_us,
                    actor: reader.clone(),
                    action,
                    resource: format!("credential{name}"),
                    details,
                };
                match taken {
                    Unwrapped::First { id, name, kind, version, sealed, by } => {
                        let value = own.unwrapped((&name, id), kind, &sealed).map_err(|error| {
                            // What does not open stays, for when it does.
                            let undone = StoreError::Stale(error.to_string());
                            *unopened.lock() = Some(error);
                            undone
                        })?;
                        let details = json!({ "version": version, "wrap": id, "from": by });
                        store::audit(tx, vec![event("credential.unwrap", &name, details)]).await?;
                        Ok(Ok(OneTime { name, version, value, by }))
                    }
                    Unwrapped::Read { name, at_us, by, first_again } => {
                        // Anyone who has a token that was read could fill the log by it.
                        if first_again {
                            let details = json!({ "read_at_us": at_us, "read_by": by });
                            store::audit(tx, vec![event("credential.unwrap_again", &name, details)]).await?;
                        }
                        let at = jiff::Timestamp::from_microsecond(at_us).unwrap_or_default().to_string();
                        Ok(Err(CredentialError::AlreadyRead { name, at, by }))
                    }
                    Unwrapped::Unknown => Ok(Err(CredentialError::NoToken)),
                }
            }
            .boxed()
        });
        let taken = taken.await;
        match sealed.lock().take() {
            Some(error) => Err(error),
            None => taken?,
        }
    }

    /// A value that was kept for one reading, opened.
    fn unwrapped(
        &self,
        (name, id): (&str, Uuid),
        kind: Kind,
        sealed: &[u8],
    ) -> Result<Value, CredentialError> {
        let failed = |why: String| CredentialError::Sealed { name: name.to_owned(), why };
        let key = name.to_ascii_lowercase();
        let octets = open_in(&SEALED_WRAPS, self.keyring(), &key, id, sealed).map_err(failed)?;
        Value::opened(kind, &octets).map_err(|_| failed("it is no value".to_owned()))
    }

    /// Forgets what nobody read in time, and readings of a month ago.
    pub(crate) async fn tidy_wraps(&self) -> Result<u64, CredentialError> {
        let now_us = self.now_us();
        Ok(tables::Credentials::of(self.store())
            .tidy_wraps(now_us, now_us.saturating_sub(READ_KEPT_US))
            .await?)
    }
}

/// 256 random bits in base64url.
fn new_token() -> Result<Secret, CredentialError> {
    let mut bits = Zeroizing::new([0_u8; 32]);
    rand::fill(bits.as_mut_slice())
        .map_err(|_| CredentialError::Internal("the system's random numbers are not available".to_owned()))?;
    let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(bits.as_slice()));
    Ok(Secret::from(Zeroizing::new(format!("{PREFIX}{}", text.as_str()))))
}

/// The stored hash of a token.
fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}
