//! Private keys sealed to policies. They are sealed before they reach the server, which opens them only to reseal them after a
//! rotation.

use ::keys::KeyType;
use ::keys::sealed::{OVERHEAD, check_sealed_key};
use futures_util::FutureExt;
use serde_json::json;
use store::{Cursor, Page};
use uuid::Uuid;
use x509::{PublicKey, SpkiHash};

use super::error::PolicyError;
use super::registry::{KeyPolicies, SEALED_KEYS_MAX};
use crate::tables;
use crate::tables::{SealedKeyRow, SealedPut};

/// Maximum bytes of a sealed key's name.
const NAME_MAX: usize = 128;

/// Returns the maximum bytes of a private key's PKCS#8: the size for its type, plus space for tools that write optional fields.
const fn pkcs8_len_max(kind: KeyType) -> usize {
    match kind {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => 2_400,
        KeyType::P256 | KeyType::P384 | KeyType::P521 | KeyType::Ed25519 => 256,
        // The seed and the expanded key: 4,896 bytes for ML-DSA-87.
        KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87 => 5_120,
    }
}

/// A sealed key to store.
#[derive(Clone, Debug)]
pub struct NewSealedKey {
    /// Display name. Several keys may share a name.
    pub name: String,
    /// SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
    /// Policy that the key is sealed to.
    pub policy: Uuid,
    /// Generation that the key is sealed to.
    pub generation: u32,
    /// The output of [`keys::sealed::seal_key`].
    pub blob: Vec<u8>,
}

enum PutOutcome {
    Full,
    Done(SealedPut),
}

impl KeyPolicies {
    /// Stores a sealed key, and replaces an earlier version of the key. Only nodes with the policy's private key can check whether
    /// the sealed key opens.
    ///
    /// # Errors
    /// [`PolicyError::SealedKey`], [`PolicyError::Behind`], [`PolicyError::Invalid`], [`PolicyError::NotFound`] and others.
    #[crate::boxed]
    pub async fn put_key(&self, new: NewSealedKey, actor: &str) -> Result<SealedKeyRow, PolicyError> {
        check_key_name(&new.name)?;
        check_sealed_key(&new.blob).map_err(PolicyError::SealedKey)?;
        let kind = kind_of(&new.spki)?;
        check_length(&new.blob, kind)?;
        let (at, hash) = (self.now_us(), SpkiHash::of(&new.spki));
        let key = SealedKeyRow {
            spki_sha256: *hash.as_bytes(),
            spki: new.spki,
            name: new.name,
            kind: kind.name().to_owned(),
            policy: new.policy,
            policy_name: String::new(),
            generation: new.generation,
            created_by: actor.to_owned(),
            created_at_us: at,
            updated_at_us: at,
        };
        let details = json!({"name": key.name, "policy": key.policy, "generation": key.generation});
        let event = self.event(actor, "sealed_key.put", format!("sealed-key/{hash}"), details);
        let blob = new.blob;
        let put = self
            .store()
            .write("sealed_key_put", move |tx| {
                async move {
                    // A key that is sealed again does not count against the limit.
                    if !tables::is_key_sealed(tx, &key.spki_sha256).await?
                        && tables::count_sealed_keys(tx).await? >= SEALED_KEYS_MAX
                    {
                        return Ok(PutOutcome::Full);
                    }
                    let put = tables::put_sealed_key(tx, &key, &blob).await?;
                    store::audit_if(tx, put == SealedPut::Stored, event).await?;
                    Ok(PutOutcome::Done(put))
                }
                .boxed()
            })
            .await?;
        match put {
            PutOutcome::Done(SealedPut::Stored) => self.key(&hash).await,
            PutOutcome::Done(SealedPut::NoPolicy) => Err(PolicyError::NotFound("key policy")),
            PutOutcome::Done(SealedPut::Behind(newest)) => {
                Err(PolicyError::Behind { given: new.generation, newest })
            }
            PutOutcome::Full => Err(PolicyError::Full { what: "sealed keys", max: SEALED_KEYS_MAX }),
        }
    }

    /// Returns a sealed key by the SHA-256 of its SubjectPublicKeyInfo, without the sealed bytes.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn key(&self, spki_sha256: &SpkiHash) -> Result<SealedKeyRow, PolicyError> {
        let found = tables::SiteTables::of(self.store()).sealed_key(spki_sha256.as_bytes()).await?;
        found.ok_or(PolicyError::NotFound("sealed key"))
    }

    /// Lists sealed keys, ordered by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn keys(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<SealedKeyRow>, PolicyError> {
        Ok(tables::SiteTables::of(self.store()).sealed_keys(after, limit).await?)
    }

    /// Withdraws a sealed key: the server deletes the sealed bytes, and nodes stop signing with the key.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn withdraw(&self, spki_sha256: &SpkiHash, actor: &str) -> Result<(), PolicyError> {
        let (at, hash) = (self.now_us(), *spki_sha256.as_bytes());
        let event = self.event(actor, "sealed_key.withdraw", format!("sealed-key/{spki_sha256}"), json!({}));
        let done = self
            .store()
            .write("sealed_key_withdraw", move |tx| {
                async move {
                    let done = tables::withdraw_sealed_key(tx, &hash, at).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done { Ok(()) } else { Err(PolicyError::NotFound("sealed key")) }
    }
}

fn kind_of(spki: &[u8]) -> Result<KeyType, PolicyError> {
    let public = PublicKey::parse(spki)
        .map_err(|error| PolicyError::Invalid(format!("the public key cannot be parsed: {error}")))?;
    KeyType::of(&public).ok_or_else(|| {
        PolicyError::Invalid(format!(
            "keys of {} with {} bits are not supported",
            public.algorithm, public.bits
        ))
    })
}

/// Checks that the sealed bytes are not longer than any key of this type, because all nodes store them.
fn check_length(blob: &[u8], kind: KeyType) -> Result<(), PolicyError> {
    let (length, max) = (blob.len(), OVERHEAD + pkcs8_len_max(kind));
    if length <= max {
        return Ok(());
    }
    Err(PolicyError::Invalid(format!(
        "a sealed key of kind {kind} has at most {max} bytes, but this one has {length}: seal only the PKCS#8 key"
    )))
}

fn check_key_name(name: &str) -> Result<(), PolicyError> {
    let fits = !name.is_empty() && name.len() <= NAME_MAX && name.trim() == name;
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(PolicyError::Invalid(format!(
        "the name {name:?} must have 1 to {NAME_MAX} bytes, and no space at its ends"
    )))
}
