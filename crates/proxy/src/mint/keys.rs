//! The keys that leaves stand over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keys::{KeyError, KeyType, PrivateKey, Signer};
use parking_lot::RwLock;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;
use tokio_util::sync::CancellationToken;
use x509::Fingerprint;
use zeroize::Zeroizing;

use super::MintError;
use super::stock::RsaStock;

/// How long a new leaf is made over the same key, unless said otherwise.
pub const LEAF_KEY_LIFE: Duration = Duration::from_secs(3_600);
/// The longest that may be said: whoever keeps leaves keeps their keys by it.
pub const LEAF_KEY_LIFE_MAX: Duration = Duration::from_secs(86_400);

/// What key a client can be shown.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LeafKeyKind {
    /// For whoever verifies ECDSA: every client of the last fifteen years.
    P256,
    /// For whoever does not.
    Rsa2048,
}

impl LeafKeyKind {
    const fn key_type(self) -> KeyType {
        match self {
            Self::P256 => KeyType::P256,
            Self::Rsa2048 => KeyType::Rsa2048,
        }
    }
}

/// One of them.
#[derive(Clone)]
pub struct LeafKey {
    kind: LeafKeyKind,
    /// For whoever keeps it, sealed.
    private: PrivateKey,
    spki: Arc<[u8]>,
    id: [u8; 20],
    signing: Arc<dyn SigningKey>,
    /// Whether it was made to be handed to another process.
    is_handed_out: bool,
    of: KeyOf,
}

/// Who has leaves over it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum KeyOf {
    /// All for whom there is no other.
    Process,
    /// One user, or one consumer.
    Owner,
    /// One leaf.
    Leaf,
}

impl fmt::Debug for LeafKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafKey").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl LeafKey {
    /// One that was kept.
    pub(crate) fn read(key: PrivateKey) -> Result<Self, KeyError> {
        let kind = match key.key_type() {
            KeyType::P256 => LeafKeyKind::P256,
            KeyType::Rsa2048 => LeafKeyKind::Rsa2048,
            other => return Err(KeyError::Unsound(format!("leaves stand over no {other}"))),
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
            is_handed_out: false,
            of: KeyOf::Process,
        })
    }

    /// The key itself (PKCS#8), if it was made for another process ([`KeysByOwner::of_consumers`](super::KeysByOwner::of_consumers)).
    #[must_use]
    pub fn to_pkcs8_pem(&self) -> Option<Zeroizing<String>> {
        self.is_handed_out.then(|| self.private.to_pkcs8_pem())
    }

    /// Whether no other leaf stands over it ([`KeysOfLeaves::ByHost`]).
    #[must_use]
    pub fn is_of_one_leaf(&self) -> bool {
        self.of == KeyOf::Leaf
    }

    /// Whether it is kept no longer than the leaves over it, as there are many such keys: one of a user, a consumer or a leaf.
    #[must_use]
    pub fn ends_with_its_leaves(&self) -> bool {
        self.of != KeyOf::Process
    }

    /// The same, as one that may be handed to another process, or may not.
    pub(crate) fn for_another(self, is_handed_out: bool) -> Self {
        Self { is_handed_out, ..self }
    }

    /// SHA-256 of the public key (DER SubjectPublicKeyInfo).
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.spki)
    }

    /// What it is.
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

/// Which leaves stand over one key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum KeysOfLeaves {
    /// All that are made within the key's life: a leaf is one signature.
    #[default]
    Shared,
    /// None but one: a P-256 key is made from the system's randomness with each leaf, renewals included. Leaves over RSA stand over
    /// one all the same, as no request waits for such a key.
    ByHost,
    /// Those of one user, or consumer, that are made within the key's life ([`KeysByOwner`](super::KeysByOwner)); those for clients of whom no user is known
    /// stand over the process's.
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

    /// Which leaves stand over one key.
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
            p256: RwLock::new(LeafKey { of: KeyOf::Owner, ..key }),
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
        Ok(LeafKey { of: KeyOf::Leaf, ..key })
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
            let taken = LeafKey { of: KeyOf::Owner, ..stock.take()? };
            *rsa = Some(taken.for_another(self.p256.read().is_handed_out));
        }
        rsa.clone()
    }

    /// Makes an RSA key now, and new keys of both kinds each `life`, until `stop`.
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
