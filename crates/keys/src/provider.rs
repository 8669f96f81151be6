//! What holds keys elsewhere than in this process.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::{KeyRef, KeyType, SignError};

/// Holds private keys that never leave it: a security module, a key service.
pub trait KeyProvider: Send + Sync + fmt::Debug {
    /// What key rows name it by: a word without spaces, `pkcs11`.
    fn name(&self) -> &str;

    /// A new key; it is found again by the locator.
    ///
    /// # Errors
    /// [`SignError`]; [`SignError::Failed`] when it makes no keys of this kind.
    fn generate<'a>(&'a self, kind: KeyType, label: &'a str)
    -> BoxFuture<'a, Result<ProvidedKey, SignError>>;

    /// The key at this locator.
    ///
    /// # Errors
    /// [`SignError`]; [`SignError::Failed`] when there is none.
    fn open<'a>(&'a self, locator: &'a str) -> BoxFuture<'a, Result<KeyRef, SignError>>;
}

/// A key that a provider holds.
#[derive(Clone, Debug)]
pub struct ProvidedKey {
    /// The locator by which the provider finds the key.
    pub locator: String,
    /// The signer for this key.
    pub signer: KeyRef,
}
