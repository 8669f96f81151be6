//! The keys of leaves.

use std::time::Duration;

use keys::{KeyError, KeyType, PrivateKey, RsaStock};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::error::MintError;
use super::key::{KeyOf, LeafKey, LeafKeyKind};

/// How long a new leaf is made over the same key, unless said otherwise.
pub const LEAF_KEY_LIFE: Duration = Duration::from_secs(3_600);
/// The longest that may be said: anyone who keeps leaves keeps their keys by it.
pub const LEAF_KEY_LIFE_MAX: Duration = Duration::from_secs(86_400);

/// Which leaves share a key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum KeysOfLeaves {
    /// All that are made within the key's life: a leaf is one signature.
    #[default]
    Shared,
    /// None but one: a P-256 key is made from the system's randomness with each leaf, renewals included. Leaves over RSA stand over
    /// one all the same, as no request waits for such a key.
    ByHost,
    /// The leaves of one user or consumer, within the life of the key ([`KeysByOwner`](super::KeysByOwner)). Leaves for clients
    /// without a user share the process's key.
    ByUser,
}

/// The current key of each kind. No request waits for one to be made: P-256 is there from the start, RSA soon after it.
#[derive(Debug)]
pub struct LeafKeys {
    p256: RwLock<LeafKey>,
    rsa: RwLock<Option<LeafKey>>,
    of_leaves: KeysOfLeaves,
    /// Where an RSA key is taken from when one is first needed; [`Self::keep`] makes it where there is none.
    stock: Option<RsaStock>,
}

impl LeafKeys {
    /// With a P-256 key. [`Self::keep`] makes the RSA key and changes both.
    ///
    /// # Errors
    /// [`KeyError`] when the library fails.
    pub fn new() -> Result<Self, KeyError> {
        let first = LeafKey::of(LeafKeyKind::P256, &PrivateKey::generate(KeyType::P256)?)?;
        Ok(Self {
            p256: RwLock::new(first),
            rsa: RwLock::default(),
            of_leaves: KeysOfLeaves::Shared,
            stock: None,
        })
    }

    /// The same, with keys for leaves by `of_leaves`.
    #[must_use]
    pub fn of_leaves(self, of_leaves: KeysOfLeaves) -> Self {
        Self { of_leaves, ..self }
    }

    /// Which leaves share a key.
    pub(super) fn which(&self) -> KeysOfLeaves {
        self.of_leaves
    }

    /// For one user: never the process's own, nor another's. An RSA key is taken from `stock` when one is needed. Some 30 µs.
    ///
    /// # Errors
    /// [`KeyError`] when the library fails.
    pub(super) fn of_user(stock: &RsaStock) -> Result<Self, KeyError> {
        let key = LeafKey::of(LeafKeyKind::P256, &PrivateKey::generate(KeyType::P256)?)?;
        Ok(Self {
            p256: RwLock::new(key.owned_by(KeyOf::Owner)),
            rsa: RwLock::default(),
            of_leaves: KeysOfLeaves::ByUser,
            stock: Some(stock.clone()),
        })
    }

    /// As [`Self::of_user`], with keys that may be handed to the one process that they are made for.
    ///
    /// # Errors
    /// [`KeyError`] when the library fails.
    pub(super) fn of_consumer(stock: &RsaStock) -> Result<Self, KeyError> {
        let own = Self::of_user(stock)?;
        let key = own.p256.read().clone().for_another(true);
        Ok(Self { p256: RwLock::new(key), ..own })
    }

    /// For one leaf: some 30 µs, a third of what its signature takes.
    fn of_one_leaf() -> Result<LeafKey, MintError> {
        let made = PrivateKey::generate(KeyType::P256).and_then(|key| LeafKey::of(LeafKeyKind::P256, &key));
        let key = made.map_err(|error| MintError::NoKey(error.to_string()))?;
        Ok(key.owned_by(KeyOf::Leaf))
    }

    /// What a new leaf stands over.
    ///
    /// # Errors
    /// [`MintError::NoRsaKey`], [`MintError::NoKey`]
    pub fn current(&self, kind: LeafKeyKind) -> Result<LeafKey, MintError> {
        match kind {
            LeafKeyKind::P256 if self.of_leaves == KeysOfLeaves::ByHost => Self::of_one_leaf(),
            LeafKeyKind::P256 => Ok(self.p256.read().clone()),
            LeafKeyKind::Rsa2048 => self.rsa().ok_or(MintError::NoRsaKey),
        }
    }

    fn rsa(&self) -> Option<LeafKey> {
        if let Some(ready) = self.rsa.read().clone() {
            return Some(ready);
        }
        let stock = self.stock.as_ref()?;
        let mut rsa = self.rsa.write();
        if rsa.is_none() {
            let taken = LeafKey::of(LeafKeyKind::Rsa2048, &stock.take()?).ok()?.owned_by(KeyOf::Owner);
            *rsa = Some(taken.for_another(self.p256.read().is_handed_out));
        }
        rsa.clone()
    }

    /// Makes an RSA key now, and new keys of both kinds each `life`, until `stop`.
    #[crate::boxed]
    pub async fn keep(&self, life: Duration, stop: CancellationToken) {
        self.change(LeafKeyKind::Rsa2048).await;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(life) => {}
            }
            self.change(LeafKeyKind::P256).await;
            self.change(LeafKeyKind::Rsa2048).await;
        }
    }

    async fn change(&self, kind: LeafKeyKind) {
        let made = PrivateKey::generate_aside(kind.key_type()).await;
        match made.and_then(|key| LeafKey::of(kind, &key)) {
            Ok(key) => match kind {
                LeafKeyKind::P256 => *self.p256.write() = key,
                LeafKeyKind::Rsa2048 => *self.rsa.write() = Some(key),
            },
            // The one before goes on.
            Err(error) => tracing::warn!(%error, ?kind, "no new key for leaves"),
        }
    }
}
