//! Key material that batches use.

use super::{ed25519, p256, rsa};
use crate::KeyType;

/// Returns whether the numbers of a key are suitable for batches.
pub(crate) fn fits(kind: KeyType, pkcs8: &[u8]) -> bool {
    match kind {
        KeyType::Rsa2048 => rsa::fits(pkcs8),
        KeyType::P256 | KeyType::Ed25519 => true,
        _ => false,
    }
}

/// Key material that batches use.
pub(crate) enum Numbers {
    Rsa(Box<batch::Key>),
    P256(p256::Numbers),
    Ed25519(ed25519::Numbers),
}

impl Numbers {
    /// Extracts the key material of a key that [`fits`].
    pub(crate) fn of(kind: KeyType, pkcs8: &[u8], spki: &[u8]) -> Option<Self> {
        match kind {
            KeyType::Rsa2048 => rsa::numbers(pkcs8).map(Self::Rsa),
            KeyType::P256 => p256::Numbers::of(pkcs8).map(Self::P256),
            KeyType::Ed25519 => ed25519::Numbers::of(pkcs8, spki).map(Self::Ed25519),
            _ => None,
        }
    }

    pub(super) fn rsa(&self, _: &[u8]) -> Option<&batch::Key> {
        if let Self::Rsa(key) = self { Some(key) } else { None }
    }

    pub(super) fn p256(&self, _: &[u8]) -> Option<&p256::Numbers> {
        if let Self::P256(numbers) = self { Some(numbers) } else { None }
    }

    pub(super) fn ed25519(&self, input: &[u8]) -> Option<&ed25519::Numbers> {
        match self {
            Self::Ed25519(numbers) if ed25519::Numbers::fits(input) => Some(numbers),
            _ => None,
        }
    }
}
