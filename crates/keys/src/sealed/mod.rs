//! Private keys sealed to a policy. Only nodes that received the policy key can open them, wherever the sealed bytes are stored.
//!
//! There are two layers. Both use HPKE in base mode (RFC 9180 section 5.1.1) with the KEM X-Wing (X25519 and ML-KEM-768:
//! draft-connolly-cfrg-xwing-kem, 0x647a), HKDF-SHA256 and AES-256-GCM:
//!
//! - [`PolicyKey::wrap_for`] seals the seed of a policy generation to a node's [`NodeKey`], once for each node and generation.
//! - [`seal_key`] seals a private key to the public key of a generation. It needs no secret.
//!
//! A sealed value is 1,137 bytes longer than its plaintext:
//!
//! | bytes | content |
//! | --- | --- |
//! | 1 | algorithm, 1: the three above |
//! | 1,120 | X-Wing's ciphertext |
//! | rest | the plaintext, encrypted, with its tag of 16 |
//!
//! Both layers are bound to their context ([`WrapContext`], [`SealContext`]). HPKE itself binds the public key.

mod context;
mod error;
mod hybrid;
mod public;

use std::fmt;

use zeroize::Zeroizing;

pub use context::{SealContext, WrapContext};
pub use error::{KEM_PUBLIC, SEED, SealedError};
pub use public::KemPublic;

use crate::PrivateKey;
use crate::random::random;
use hybrid::Pair;
/// Bytes by which sealed data is longer than its plaintext.
pub const OVERHEAD: usize = hybrid::OVERHEAD;
/// Bytes of a wrapped seed.
pub const WRAP: usize = SEED + OVERHEAD;
/// Maximum bytes of a sealed key.
pub const SEALED_KEY_MAX: usize = OVERHEAD + crate::encoding::PRIVATE_KEY_BYTES_MAX;

/// Key pair of a node. Values wrapped to it open nowhere else. Wiped when dropped.
pub struct NodeKey(Pair);

impl NodeKey {
    /// Generates a key pair from the operating system's randomness.
    ///
    /// # Errors
    /// [`SealedError::Library`]
    pub fn generate() -> Result<Self, SealedError> {
        Pair::from_seed(&*random::<SEED>()).map(Self)
    }

    /// Reads the output of [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`SealedError::NotSeed`]
    pub fn from_bytes(seed: &[u8]) -> Result<Self, SealedError> {
        Pair::from_seed(seed).map(Self)
    }

    /// Returns the private key, for a file that only the node can read.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; SEED]> {
        self.0.seed()
    }

    /// Returns the public key, to which policy keys are wrapped.
    #[must_use]
    pub fn public(&self) -> &KemPublic {
        &self.0.public
    }

    /// Opens the output of [`PolicyKey::wrap_for`], and returns the policy key. Takes 0.3 ms.
    ///
    /// # Errors
    /// [`SealedError::Length`], [`SealedError::Algorithm`]; [`SealedError::Forged`] if `wrap` was changed, or belongs to another
    /// node, policy or generation.
    pub fn unwrap_seed(&self, wrap: &[u8], context: &WrapContext) -> Result<PolicyKey, SealedError> {
        if wrap.len() != WRAP {
            return Err(SealedError::Length(wrap.len()));
        }
        let seed = self.0.open(wrap, WrapContext::DOMAIN, &context.bound())?;
        PolicyKey::from_seed(&seed)
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(…)")
    }
}

/// Key pair of one generation of a policy. Wiped when dropped.
pub struct PolicyKey(Pair);

impl PolicyKey {
    /// Generates a key pair from the operating system's randomness.
    ///
    /// # Errors
    /// [`SealedError::Library`]
    pub fn generate() -> Result<Self, SealedError> {
        Pair::from_seed(&*random::<SEED>()).map(Self)
    }

    /// Reads the output of [`Self::seed`].
    ///
    /// # Errors
    /// [`SealedError::NotSeed`]
    pub fn from_seed(seed: &[u8]) -> Result<Self, SealedError> {
        Pair::from_seed(seed).map(Self)
    }

    /// Returns the private key. It opens every key sealed to this generation, and must leave this process only in sealed form.
    #[must_use]
    pub fn seed(&self) -> Zeroizing<[u8; SEED]> {
        self.0.seed()
    }

    /// Returns the public key, to which private keys are sealed.
    #[must_use]
    pub fn public(&self) -> &KemPublic {
        &self.0.public
    }

    /// Seals the seed to a node. The result has [`WRAP`] bytes.
    ///
    /// # Errors
    /// [`SealedError::Library`]
    pub fn wrap_for(&self, node: &KemPublic, context: &WrapContext) -> Result<Vec<u8>, SealedError> {
        hybrid::seal(node, WrapContext::DOMAIN, &context.bound(), &*self.seed())
    }

    /// Opens a key that is sealed to this generation, and seals it to the public key of another generation. The private key stays
    /// in this crate.
    ///
    /// # Errors
    /// As [`Self::open_key`], and [`seal_key`].
    pub fn reseal(
        &self,
        sealed: &[u8],
        from: &SealContext,
        to: &KemPublic,
        into: &SealContext,
    ) -> Result<Vec<u8>, SealedError> {
        seal_key(to, &self.open_key(sealed, from)?, into)
    }

    /// Opens the output of [`seal_key`], and checks that the private key belongs to the public key in `context`. Takes 0.3 ms; for
    /// RSA 0.5 ms.
    ///
    /// # Errors
    /// [`SealedError::Length`], [`SealedError::Algorithm`]; [`SealedError::Forged`] if `sealed` was changed, or sealed to another
    /// policy, generation or public key; [`SealedError::NotKey`] and [`SealedError::OtherKey`] if the sender sealed something else.
    pub fn open_key(&self, sealed: &[u8], context: &SealContext) -> Result<PrivateKey, SealedError> {
        if sealed.len() > SEALED_KEY_MAX {
            return Err(SealedError::Length(sealed.len()));
        }
        let pkcs8 = self.0.open(sealed, SealContext::DOMAIN, &context.bound())?;
        let key = PrivateKey::from_pkcs8_der(&pkcs8)?;
        if key.spki_hash().as_bytes() != &context.spki_sha256 {
            return Err(SealedError::OtherKey);
        }
        Ok(key)
    }
}

impl fmt::Debug for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyKey(…)")
    }
}

/// Seals a private key (its PKCS#8) to a generation of a policy.
///
/// # Errors
/// [`SealedError::OtherKey`] if `context` names another public key; [`SealedError::Library`].
pub fn seal_key(to: &KemPublic, key: &PrivateKey, context: &SealContext) -> Result<Vec<u8>, SealedError> {
    if key.spki_hash().as_bytes() != &context.spki_sha256 {
        return Err(SealedError::OtherKey);
    }
    hybrid::seal(to, SealContext::DOMAIN, &context.bound(), &key.to_pkcs8_der())
}

/// Checks length and algorithm of a sealed key, without opening it.
///
/// # Errors
/// [`SealedError::Length`], [`SealedError::Algorithm`]
pub fn check_sealed_key(sealed: &[u8]) -> Result<(), SealedError> {
    match sealed.len() {
        length if length <= OVERHEAD || length > SEALED_KEY_MAX => Err(SealedError::Length(length)),
        _ => hybrid::check_algorithm(sealed),
    }
}
