//! Providers of keys outside this process.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::{KeyRef, KeyType, SignError};

/// A store of private keys that never leave the store: a hardware security module, or a key service.
pub trait KeyProvider: Send + Sync + fmt::Debug {
    /// Returns the name of the provider in the database: a word without spaces, such as `pkcs11`.
    fn name(&self) -> &str;

    /// Generates a key. [`Self::open`] finds the key by its locator.
    ///
    /// # Errors
    /// [`SignError`]; [`SignError::Failed`] if the provider does not generate keys of this type.
    fn generate<'a>(&'a self, kind: KeyType, label: &'a str)
    -> BoxFuture<'a, Result<ProvidedKey, SignError>>;

    /// Opens the key with this locator.
    ///
    /// # Errors
    /// [`SignError`]; [`SignError::Failed`] if there is no such key.
    fn open<'a>(&'a self, locator: &'a str) -> BoxFuture<'a, Result<KeyRef, SignError>>;
}

/// A key that a provider stores.
#[derive(Clone, Debug)]
pub struct ProvidedKey {
    /// Locator by which the provider finds the key.
    pub locator: String,
    /// Signer that calls the provider for each signature.
    pub signer: KeyRef,
}
