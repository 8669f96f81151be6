//! Single-use values: anyone with the token can read its value once. A second use fails with an error that contains time and
//! actor of the first use.

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
use crate::tables::{NewWrap, Requester, SEALED_WRAPS, Unwrapped, WRAPS_OF_ONE_MAX, insert_wrap, unwrap};
use crate::version::{open_in, seal_in_column};
use crate::{CredentialError, Credentials, Kind, Name, Value};

/// Minimum lifetime of a token, s.
pub const WRAP_MIN_S: u32 = 1;
/// Maximum lifetime of a token, s: a day.
pub const WRAP_MAX_S: u32 = 86_400;

/// Prefix of every single-use token, so that scanners for leaked secrets recognize it.
const PREFIX: &str = "bullawrap_";
/// Maximum bytes of a token. Longer tokens are rejected.
const TOKEN_MAX: usize = 128;
/// Time for which records of reads are kept, µs: thirty days.
const READ_RETAINED_US: i64 = 30 * 86_400_000_000;

/// A new single-use token, and the credential version that it gives access to.
#[derive(Clone, Debug)]
pub struct Wrapped {
    /// The token. Returned only once: the server stores only its hash.
    pub token: Secret,
    /// Expiry of the token, µs since 1970-01-01 UTC.
    pub expires_at_us: i64,
    /// Name of the credential.
    pub name: String,
    /// Id of the version.
    pub version: Uuid,
}

/// A value that was read with a single-use token.
#[derive(Clone, Debug, PartialEq)]
pub struct UnwrappedValue {
    /// Name of the credential.
    pub name: String,
    /// Id of the version; nil if the value is not stored as a version yet.
    pub version: Uuid,
    /// Value of the credential.
    pub value: Value,
    /// Actor that created the token.
    pub by: String,
}

impl Credentials {
    /// Creates a single-use token for the current value of a name, with a lifetime in seconds.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a lifetime outside [`WRAP_MIN_S`] to [`WRAP_MAX_S`], or when the caller has 1,000 unread
    /// values; [`CredentialError::NotFound`].
    #[crate::boxed]
    pub async fn wrap(
        &self,
        requester: &Requester,
        name: &Name,
        seconds: u32,
    ) -> Result<Wrapped, CredentialError> {
        if !(WRAP_MIN_S..=WRAP_MAX_S).contains(&seconds) {
            return Err(CredentialError::bad(format!(
                "The lifetime of a token must be {WRAP_MIN_S} to {WRAP_MAX_S} seconds, not {seconds}."
            )));
        }
        let versions = self.current(requester, name).await?;
        let version = versions.into_iter().next().ok_or(CredentialError::NotFound)?;
        let until_us = self.now_us().saturating_add(i64::from(seconds) * 1_000_000);
        // A token never outlives its version.
        let until_us = version.ends_at_us.map_or(until_us, |ends_at_us| ends_at_us.min(until_us));
        let what = (version.name.as_str(), version.id);
        let wrapped = self.wrap_value(&requester.actor, what, &version.value, until_us).await?;
        wrapped.ok_or_else(|| {
            CredentialError::bad(format!(
                "You already have {WRAPS_OF_ONE_MAX} unread tokens. Wait until they are read or expire."
            ))
        })
    }

    /// Stores a value that can be read once, until the given time (µs since 1970-01-01 UTC). Returns `None` when its creator
    /// already has [`WRAPS_OF_ONE_MAX`] unread values.
    pub(crate) async fn wrap_value(
        &self,
        by: &str,
        (name, version): (&str, Uuid),
        value: &Value,
        expires_at_us: i64,
    ) -> Result<Option<Wrapped>, CredentialError> {
        let (id, token, at_us) = (Uuid::now_v7(), new_token()?, self.now_us());
        let bytes = value.serialize_for_sealing()?;
        let wrap = NewWrap {
            token_hash: hash(token.expose()),
            id,
            name: name.to_owned(),
            kind: value.kind(),
            version,
            sealed: seal_in_column(&SEALED_WRAPS, self.keyring(), &name.to_ascii_lowercase(), id, &bytes),
            at_us,
            by: by.to_owned(),
            expires_at_us,
        };
        let requester = Requester::actor(by);
        let seconds = expires_at_us.saturating_sub(at_us) / 1_000_000;
        let details = json!({ "version": version, "wrap": id, "seconds": seconds });
        let event = self.event(&requester, "credential.wrap", name, details);
        let inserted = self.store().write("credential_wrap", move |tx| {
            async move {
                let inserted = insert_wrap(tx, &wrap).await?;
                if inserted {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(inserted)
            }
            .boxed()
        });
        let wrapped = Wrapped { token, expires_at_us, name: name.to_owned(), version };
        Ok(inserted.await?.then_some(wrapped))
    }

    /// Deletes an unread single-use value.
    pub(crate) async fn delete_wrapped(&self, wrapped: &Wrapped) -> Result<(), CredentialError> {
        Ok(tables::Credentials::of(self.store()).delete_wrap(hash(wrapped.token.expose())).await?)
    }

    /// Reads the value of a token, once. The token alone gives access; `by` is only for the log.
    ///
    /// # Errors
    /// [`CredentialError::AlreadyRead`] for a second use; [`CredentialError::NoToken`]; [`CredentialError::Sealed`], in which case
    /// the value stays readable.
    #[crate::boxed]
    pub async fn unwrap(&self, by: &str, token: &str) -> Result<UnwrappedValue, CredentialError> {
        if token.len() > TOKEN_MAX || !token.starts_with(PREFIX) {
            return Err(CredentialError::NoToken);
        }
        let (hash, at_us, reader) = (hash(token), self.now_us(), by.to_owned());
        let (own, sealed) = (self.clone(), Arc::new(Mutex::new(None)));
        let unopened = Arc::clone(&sealed);
        let outcome = self.store().write("credential_unwrap", move |tx| {
            async move {
                let outcome = unwrap(tx, hash, at_us, &reader).await?;
                let event = |action, name: &str, details| store::AuditEvent {
                    at_us,
                    actor: reader.clone(),
                    action,
                    resource: format!("credential{name}"),
                    details,
                };
                match outcome {
                    Unwrapped::First { id, name, kind, version, sealed, by } => {
                        let value = own.unwrapped((&name, id), kind, &sealed).map_err(|error| {
                            // A value that cannot be decrypted is kept, in case the key is configured later.
                            let undone = StoreError::Stale(error.to_string());
                            *unopened.lock() = Some(error);
                            undone
                        })?;
                        let details = json!({ "version": version, "wrap": id, "from": by });
                        store::audit(tx, vec![event("credential.unwrap", &name, details)]).await?;
                        Ok(Ok(UnwrappedValue { name, version, value, by }))
                    }
                    Unwrapped::Read { name, at_us, by, first_reuse } => {
                        // Only the first repeated use is logged, so that a client cannot fill the log with a used token.
                        if first_reuse {
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
        let outcome = outcome.await;
        match sealed.lock().take() {
            Some(error) => Err(error),
            None => outcome?,
        }
    }

    /// Decrypts a stored single-use value.
    fn unwrapped(
        &self,
        (name, id): (&str, Uuid),
        kind: Kind,
        sealed: &[u8],
    ) -> Result<Value, CredentialError> {
        let failed = |why: String| CredentialError::Sealed { name: name.to_owned(), why };
        let key = name.to_ascii_lowercase();
        let bytes = open_in(&SEALED_WRAPS, self.keyring(), &key, id, sealed).map_err(failed)?;
        Value::decrypted(kind, &bytes).map_err(|_| failed("the decrypted value cannot be parsed".to_owned()))
    }

    /// Deletes expired unread values, and records of reads older than thirty days.
    pub(crate) async fn tidy_wraps(&self) -> Result<u64, CredentialError> {
        let now_us = self.now_us();
        Ok(tables::Credentials::of(self.store())
            .tidy_wraps(now_us, now_us.saturating_sub(READ_RETAINED_US))
            .await?)
    }
}

/// Returns 256 random bits in base64url.
fn new_token() -> Result<Secret, CredentialError> {
    let mut bits = Zeroizing::new([0_u8; 32]);
    rand::fill(bits.as_mut_slice()).map_err(|_| {
        CredentialError::Internal("the system's random number generator is not available".to_owned())
    })?;
    let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(bits.as_slice()));
    Ok(Secret::from(Zeroizing::new(format!("{PREFIX}{}", text.as_str()))))
}

/// Returns the stored hash of a token.
fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}
