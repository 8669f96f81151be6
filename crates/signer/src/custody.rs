//! CA keys sealed under the signer's own master key.

use std::fmt;
use std::sync::Arc;

use authority::signer_checks::SIGNER_PROVIDER;
use data_encoding::BASE64;
use futures_util::future::{BoxFuture, FutureExt};
use keys::{Context, KeyProvider, KeyRef, KeyType, Keyring, PrivateKey, ProvidedKey, SignError, Signer};
use uuid::Uuid;

/// Table name in the encryption context of a sealed key.
const TABLE: &str = "keys";
const COLUMN: &str = "locator";

/// Keys sealed under the signer's master key. The locator of a key is its sealed form, `ID:BASE64`.
pub struct SealedKeys {
    ring: Arc<Keyring>,
}

impl SealedKeys {
    /// Creates a provider that seals keys under the current master key of `ring`.
    #[must_use]
    pub fn new(ring: Arc<Keyring>) -> Self {
        Self { ring }
    }

    /// Encrypts a key under the current master key. The locator of the result contains the encrypted key.
    #[must_use]
    pub fn seal(&self, key: &PrivateKey) -> ProvidedKey {
        let id = Uuid::new_v4();
        let sealed = self.ring.seal(&context(&id), &key.to_pkcs8_der());
        let locator = format!("{id}:{}", BASE64.encode(&sealed));
        ProvidedKey { locator, signer: Arc::new(key.clone()) }
    }

    fn open_sealed(&self, locator: &str) -> Result<KeyRef, SignError> {
        let malformed = || SignError::Failed("the locator is not a sealed key".to_owned());
        let (id, sealed) = locator.split_once(':').ok_or_else(malformed)?;
        let id = Uuid::parse_str(id).map_err(|_| malformed())?;
        let sealed = BASE64.decode(sealed.as_bytes()).map_err(|_| malformed())?;
        let der = self.ring.open_sealed(&context(&id), &sealed);
        let der = der.map_err(|error| SignError::Failed(error.to_string()))?;
        let key = PrivateKey::from_pkcs8_der(&der).map_err(|error| SignError::Failed(error.to_string()))?;
        Ok(Arc::new(key))
    }
}

impl KeyProvider for SealedKeys {
    fn name(&self) -> &str {
        SIGNER_PROVIDER
    }

    fn generate<'a>(&'a self, kind: KeyType, _: &'a str) -> BoxFuture<'a, Result<ProvidedKey, SignError>> {
        async move {
            let key = PrivateKey::generate_in_background(kind).await;
            key.map(|key| self.seal(&key)).map_err(|error| SignError::Failed(error.to_string()))
        }
        .boxed()
    }

    fn open<'a>(&'a self, locator: &'a str) -> BoxFuture<'a, Result<KeyRef, SignError>> {
        async move { self.open_sealed(locator) }.boxed()
    }
}

impl fmt::Debug for SealedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedKeys").field("ring", &self.ring).finish()
    }
}

/// A key whose private half is not in this process.
#[derive(Debug)]
pub(crate) struct PublicOnlyKey {
    pub(crate) kind: KeyType,
    pub(crate) spki: Vec<u8>,
}

impl Signer for PublicOnlyKey {
    fn key_type(&self) -> KeyType {
        self.kind
    }

    fn spki(&self) -> &[u8] {
        &self.spki
    }
}

fn context(id: &Uuid) -> Context<'_> {
    Context { table: TABLE, row: id.as_bytes(), column: COLUMN }
}
