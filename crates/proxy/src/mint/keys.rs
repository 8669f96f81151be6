//! Generation, sharing and rotation of leaf keys.

use std::time::Duration;

use keys::{KeyError, KeyType, PrivateKey, RsaStock};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::error::MintError;
use super::key::{LeafKey, LeafKeyKind, LeafKeyScope};

/// Default time for which new leaves use the same key.
pub const LEAF_KEY_LIFE: Duration = Duration::from_secs(3_600);
/// Maximum time for which new leaves use the same key. The storage time of keys depends on this maximum.
pub const LEAF_KEY_LIFE_MAX: Duration = Duration::from_secs(86_400);

/// Scope in which leaf certificates share a key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum LeafKeySharing {
    /// All leaves that are minted during a key's life share the key. Minting needs only one signature.
    #[default]
    Shared,
    /// Each leaf has its own P-256 key, and each renewal a new key. RSA leaves still share a key, because the generation of an RSA
    /// key takes too long for a request.
    ByHost,
    /// The leaves of one user or consumer share a key within its life ([`KeysByOwner`](super::KeysByOwner)). Leaves for clients
    /// without a user use the process's key.
    ByUser,
}

/// The current key of each type. The P-256 key is generated at creation, the RSA key by the first request for an RSA leaf.
#[derive(Debug)]
pub struct LeafKeys {
    p256: RwLock<LeafKey>,
    rsa: RwLock<Option<LeafKey>>,
    of_leaves: LeafKeySharing,
    /// Source of the RSA key; without a stock, the first request generates it.
    stock: Option<RsaStock>,
    /// Locked while the first RSA key is generated.
    generating: Mutex<()>,
}

impl LeafKeys {
    /// Generates a P-256 key. [`Self::keep`] replaces the keys.
    ///
    /// # Errors
    /// [`KeyError`] if the library fails.
    pub fn new() -> Result<Self, KeyError> {
        let first = LeafKey::of(LeafKeyKind::P256, &PrivateKey::generate(KeyType::P256)?)?;
        Ok(Self {
            p256: RwLock::new(first),
            rsa: RwLock::default(),
            of_leaves: LeafKeySharing::Shared,
            stock: None,
            generating: Mutex::default(),
        })
    }

    /// Sets which leaves share a key.
    #[must_use]
    pub fn of_leaves(self, of_leaves: LeafKeySharing) -> Self {
        Self { of_leaves, ..self }
    }

    /// Returns which leaves share a key.
    pub(super) fn sharing(&self) -> LeafKeySharing {
        self.of_leaves
    }

    /// Generates keys for one user, separate from keys of the process and of other users, in about 30 µs. An RSA key is taken from
    /// `stock` when needed.
    ///
    /// # Errors
    /// [`KeyError`] if the library fails.
    pub(super) fn of_user(stock: &RsaStock) -> Result<Self, KeyError> {
        let key = LeafKey::of(LeafKeyKind::P256, &PrivateKey::generate(KeyType::P256)?)?;
        Ok(Self {
            p256: RwLock::new(key.with_owner(LeafKeyScope::Owner)),
            rsa: RwLock::default(),
            of_leaves: LeafKeySharing::ByUser,
            stock: Some(stock.clone()),
            generating: Mutex::default(),
        })
    }

    /// Like [`Self::of_user`], with keys that may be sent to the consumer that owns them.
    ///
    /// # Errors
    /// [`KeyError`] if the library fails.
    pub(super) fn of_consumer(stock: &RsaStock) -> Result<Self, KeyError> {
        let own = Self::of_user(stock)?;
        let key = own.p256.read().clone().with_export_permission(true);
        Ok(Self { p256: RwLock::new(key), ..own })
    }

    /// Generates a key for one leaf: about 30 µs, a third of the time of its signature.
    fn generate_for_leaf() -> Result<LeafKey, MintError> {
        let made = PrivateKey::generate(KeyType::P256).and_then(|key| LeafKey::of(LeafKeyKind::P256, &key));
        let key = made.map_err(|error| MintError::NoKey(error.to_string()))?;
        Ok(key.with_owner(LeafKeyScope::Leaf))
    }

    /// Returns the key for a new leaf. The first request for the RSA key of this process generates it, in about 100 ms.
    ///
    /// # Errors
    /// [`MintError::NoRsaKey`], [`MintError::NoKey`]
    #[crate::boxed]
    pub async fn current(&self, kind: LeafKeyKind) -> Result<LeafKey, MintError> {
        match kind {
            LeafKeyKind::P256 if self.of_leaves == LeafKeySharing::ByHost => Self::generate_for_leaf(),
            LeafKeyKind::P256 => Ok(self.p256.read().clone()),
            LeafKeyKind::Rsa2048 => self.rsa().await,
        }
    }

    async fn rsa(&self) -> Result<LeafKey, MintError> {
        if let Some(ready) = self.rsa.read().clone() {
            return Ok(ready);
        }
        if let Some(stock) = &self.stock {
            return self.rsa_from(stock).ok_or(MintError::NoRsaKey);
        }
        let _one_at_a_time = self.generating.lock().await;
        if let Some(ready) = self.rsa.read().clone() {
            return Ok(ready);
        }
        let made = generated(LeafKeyKind::Rsa2048).await;
        let key = made.map_err(|error| MintError::NoKey(error.to_string()))?;
        *self.rsa.write() = Some(key.clone());
        Ok(key)
    }

    fn rsa_from(&self, stock: &RsaStock) -> Option<LeafKey> {
        let mut rsa = self.rsa.write();
        if rsa.is_none() {
            let taken =
                LeafKey::of(LeafKeyKind::Rsa2048, &stock.take()?).ok()?.with_owner(LeafKeyScope::Owner);
            *rsa = Some(taken.with_export_permission(self.p256.read().is_exportable));
        }
        rsa.clone()
    }

    /// Generates a new key of each type in use after each `life`, until `stop`.
    #[crate::boxed]
    pub async fn keep(&self, life: Duration, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(life) => {}
            }
            self.change(LeafKeyKind::P256).await;
            if self.rsa.read().is_some() {
                self.change(LeafKeyKind::Rsa2048).await;
            }
        }
    }

    async fn change(&self, kind: LeafKeyKind) {
        match generated(kind).await {
            Ok(key) => match kind {
                LeafKeyKind::P256 => *self.p256.write() = key,
                LeafKeyKind::Rsa2048 => *self.rsa.write() = Some(key),
            },
            // The previous key stays in use.
            Err(error) => tracing::warn!(%error, ?kind, "cannot generate a new key for leaf certificates"),
        }
    }
}

async fn generated(kind: LeafKeyKind) -> Result<LeafKey, KeyError> {
    LeafKey::of(kind, &PrivateKey::generate_in_background(kind.key_type()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn first_rsa_requests_share_one_key() {
        let keys = LeafKeys::new().unwrap();
        let rsa = async || keys.current(LeafKeyKind::Rsa2048).await.unwrap().spki().to_vec();
        let (one, two) = tokio::join!(rsa(), rsa());
        assert_eq!(one, two);
        assert_eq!(rsa().await, one);
    }
}
