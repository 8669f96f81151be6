//! CA keys in this process.

use std::fmt;

use futures_util::future::{BoxFuture, FutureExt};
use keys::{Deadline, SignError};

use super::order::{CaKey, CaKeyLocation, CaKeys, NewCaKey, SigningOrder};
use crate::keystore::{KeyStore, KeyStoreError, NewKey};

/// CA keys that this process uses directly. Documents are not checked against the purpose of the signature, because the same
/// process has built them.
#[derive(Clone)]
pub struct LocalCaKeys {
    keystore: KeyStore,
}

impl LocalCaKeys {
    /// Creates access to the keys in `keystore`.
    #[must_use]
    pub fn new(keystore: KeyStore) -> Self {
        Self { keystore }
    }
}

impl CaKeys for LocalCaKeys {
    fn make<'a>(&'a self, wanted: NewCaKey<'a>) -> BoxFuture<'a, Result<NewKey, KeyStoreError>> {
        match wanted.provider {
            Some(provider) => self.keystore.prepare_in_provider(provider, wanted.kind, wanted.label).boxed(),
            None => self.keystore.prepare(wanted.kind, wanted.label).boxed(),
        }
    }

    fn sign<'a>(
        &'a self,
        order: SigningOrder<'a>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        match order.key {
            CaKey::Of(ca) => ca.signer.sign(order.tbs, deadline),
            CaKey::New(new) => new.signer.sign(order.tbs, deadline),
        }
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SignError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn custody(&self) -> CaKeyLocation {
        CaKeyLocation::InProcess
    }
}

impl fmt::Debug for LocalCaKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalCaKeys")
    }
}
