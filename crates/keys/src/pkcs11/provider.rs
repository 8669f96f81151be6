//! Generates and finds keys of a token.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::TokenError;
use super::key::Pkcs11Key;
use super::objects::{self, Search, SearchOutcome};
use super::token::{SessionMode, Token};
use crate::{KeyProvider, KeyRef, KeyType, ProvidedKey, SignError};

/// Timeout for generating or finding a key. A smart card takes half a minute to generate RSA of 4,096 bits.
const SLOW_CALL: Duration = Duration::from_secs(120);

impl Token {
    /// Generates a key pair that cannot leave the token, with a random CKA_ID.
    ///
    /// # Errors
    /// [`TokenError`]; [`TokenError::Kind`] for ML-DSA.
    pub async fn generate(&self, kind: KeyType, label: &str) -> Result<Pkcs11Key, TokenError> {
        let label = label.to_owned();
        if matches!(kind, KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87) {
            return Err(TokenError::Kind(kind));
        }
        let made = self.call(Instant::now() + SLOW_CALL, SessionMode::ReadWrite, move |session| {
            objects::generate(session, kind, &label)
        });
        self.key_of(made.await?)
    }

    /// Finds the private key with this CKA_LABEL.
    ///
    /// # Errors
    /// [`TokenError::NoKey`], [`TokenError::SeveralKeys`], and other errors of [`TokenError`].
    pub async fn key_by_label(&self, label: &str) -> Result<Pkcs11Key, TokenError> {
        self.find(Search::Label(label.to_owned())).await
    }

    /// Finds the private key with this CKA_ID.
    ///
    /// # Errors
    /// As [`Self::key_by_label`].
    pub async fn key_by_id(&self, id: &[u8]) -> Result<Pkcs11Key, TokenError> {
        self.find(Search::Id(id.to_vec())).await
    }

    async fn find(&self, search: Search) -> Result<Pkcs11Key, TokenError> {
        let found = self.call(Instant::now() + SLOW_CALL, SessionMode::ReadOnly, move |session| {
            objects::find(session, &search)
        });
        self.key_of(found.await?)
    }

    fn key_of(&self, outcome: SearchOutcome) -> Result<Pkcs11Key, TokenError> {
        match outcome {
            SearchOutcome::Found(found) => Ok(Pkcs11Key::new(self.clone(), *found)),
            SearchOutcome::None(which) => Err(TokenError::NoKey(which)),
            SearchOutcome::Several(which) => Err(TokenError::SeveralKeys(which)),
            SearchOutcome::Unusable(why) => Err(TokenError::Unusable(why)),
        }
    }
}

impl KeyProvider for Token {
    fn name(&self) -> &str {
        self.name_in_database()
    }

    fn generate<'a>(
        &'a self,
        kind: KeyType,
        label: &'a str,
    ) -> BoxFuture<'a, Result<ProvidedKey, SignError>> {
        Box::pin(async move {
            let key = Self::generate(self, kind, label).await?;
            Ok(ProvidedKey { locator: key.locator(), signer: Arc::new(key) })
        })
    }

    fn open<'a>(&'a self, locator: &'a str) -> BoxFuture<'a, Result<KeyRef, SignError>> {
        Box::pin(async move {
            let id = objects::id_of_locator(locator);
            let id = id
                .ok_or_else(|| SignError::Failed(format!("{locator:?} is not a locator of a PKCS#11 key")))?;
            let key: KeyRef = Arc::new(self.key_by_id(&id).await?);
            Ok(key)
        })
    }
}
