//! Keys of leaf certificates.

use std::fmt;
use std::sync::Arc;

use keys::{KeyError, KeyType, PrivateKey, Signer};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;
use x509::Fingerprint;
use zeroize::Zeroizing;

/// Key types of leaf certificates.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LeafKeyKind {
    /// P-256, for clients that verify ECDSA signatures: all clients of the last fifteen years.
    P256,
    /// RSA 2048, for clients without support of ECDSA.
    Rsa2048,
}

impl LeafKeyKind {
    pub(super) const fn key_type(self) -> KeyType {
        match self {
            Self::P256 => KeyType::P256,
            Self::Rsa2048 => KeyType::Rsa2048,
        }
    }
}

/// Private key of one or more leaf certificates.
#[derive(Clone)]
pub struct LeafKey {
    kind: LeafKeyKind,
    /// The private key, for encrypted storage.
    private: PrivateKey,
    spki: Arc<[u8]>,
    id: [u8; 20],
    signing: Arc<dyn SigningKey>,
    /// Whether the key was generated for another process.
    pub(super) is_exportable: bool,
    of: LeafKeyScope,
}

/// The leaves that use a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LeafKeyScope {
    /// All leaves without a more specific key.
    Process,
    /// The leaves of one user or consumer.
    Owner,
    /// One leaf; no other leaf uses this key.
    Leaf,
}

impl fmt::Debug for LeafKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafKey").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl LeafKey {
    /// Wraps a key that was read from storage.
    pub(crate) fn read(key: PrivateKey) -> Result<Self, KeyError> {
        let kind = match key.key_type() {
            KeyType::P256 => LeafKeyKind::P256,
            KeyType::Rsa2048 => LeafKeyKind::Rsa2048,
            other => {
                return Err(KeyError::Unsound(format!("leaf certificates cannot have keys of type {other}")));
            }
        };
        Self::of(kind, &key)
    }

    pub(super) fn of(kind: LeafKeyKind, key: &PrivateKey) -> Result<Self, KeyError> {
        let pkcs8 = key.to_pkcs8_der();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.as_slice()));
        let signing = any_supported_type(&der).map_err(|error| KeyError::Unsound(error.to_string()))?;
        let spki: Arc<[u8]> = key.spki().into();
        Ok(Self {
            kind,
            private: key.clone(),
            id: x509::build::key_id(&spki),
            spki,
            signing,
            is_exportable: false,
            of: LeafKeyScope::Process,
        })
    }

    /// Returns the key as PKCS#8 PEM, if it was generated for another process
    /// ([`KeysByOwner::for_consumers`](super::KeysByOwner::for_consumers)).
    #[must_use]
    pub fn to_pkcs8_pem(&self) -> Option<Zeroizing<String>> {
        self.is_exportable.then(|| self.private.to_pkcs8_pem())
    }

    /// Returns whether only one leaf uses the key ([`LeafKeySharing::ByHost`](super::LeafKeySharing::ByHost)).
    #[must_use]
    pub fn is_single_leaf_key(&self) -> bool {
        self.of == LeafKeyScope::Leaf
    }

    /// Returns whether the key is deleted together with its leaves. This applies to keys of a user, a consumer or a single leaf,
    /// because there are many such keys.
    #[must_use]
    pub fn expires_with_leaves(&self) -> bool {
        self.of != LeafKeyScope::Process
    }

    /// Returns the same key, with or without the permission to send it to another process.
    pub(crate) fn with_export_permission(self, is_exportable: bool) -> Self {
        Self { is_exportable, ..self }
    }

    /// Returns the same key, marked as used by the leaves of `owner`.
    pub(super) fn with_owner(self, owner: LeafKeyScope) -> Self {
        Self { of: owner, ..self }
    }

    /// Returns SHA-256 of the public key (DER SubjectPublicKeyInfo).
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.spki)
    }

    /// Returns the type of the key: P-256 or RSA 2048.
    #[must_use]
    pub fn kind(&self) -> LeafKeyKind {
        self.kind
    }

    pub(crate) fn private(&self) -> &PrivateKey {
        &self.private
    }

    pub(crate) fn spki(&self) -> &[u8] {
        &self.spki
    }

    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }

    pub(super) fn signing(&self) -> Arc<dyn SigningKey> {
        Arc::clone(&self.signing)
    }
}
