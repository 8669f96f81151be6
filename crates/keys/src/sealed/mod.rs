//! Private keys sealed to a policy: only who was given the policy's key opens them, wherever the sealed bytes lie.
//!
//! Two layers, both HPKE in base mode (RFC 9180 section 5.1.1) with the KEM X-Wing (X25519 and ML-KEM-768:
//! draft-connolly-cfrg-xwing-kem, 0x647a), HKDF-SHA256 and AES-256-GCM:
//!
//! - [`PolicyKey::wrap_for`]: the seed of a generation of a policy, to a node's [`NodeKey`]. Once a node and generation.
//! - [`seal_key`]: a private key, to a generation's public half. Needs no secret, so anyone who has a key seals it themselves.
//!
//! What is sealed, 1,137 bytes longer than what is in it:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | algorithm, 1: the three above |
//! | 1,120 | X-Wing's ciphertext |
//! | rest | what is sealed, encrypted, with its tag of 16 |
//!
//! Both are bound to what they are for ([`WrapContext`], [`SealContext`]); the public key they are sealed to is bound by
//! HPKE itself.

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
/// Bytes of a wrap.
pub const WRAP: usize = SEED + OVERHEAD;
/// Bytes of a sealed key, at most.
pub const SEALED_KEY_MAX: usize = OVERHEAD + crate::encoding::PRIVATE_KEY_OCTETS_MAX;

/// A node's own pair. What is wrapped to it opens nowhere else. Wiped when dropped.
pub struct NodeKey(Pair);

impl NodeKey {
    /// A new one, from the operating system's randomness.
    ///
    /// # Errors
    /// [`SealedError::Library`]
    pub fn generate() -> Result<Self, SealedError> {
        Pair::of_seed(&*random::<SEED>()).map(Self)
    }

    /// As [`Self::to_octets`] gave it.
    ///
    /// # Errors
    /// [`SealedError::NotSeed`]
    pub fn from_octets(octets: &[u8]) -> Result<Self, SealedError> {
        Pair::of_seed(octets).map(Self)
    }

    /// The private half, for the node's own file, which nobody else may read.
    #[must_use]
    pub fn to_octets(&self) -> Zeroizing<[u8; SEED]> {
        self.0.seed()
    }

    /// The half that others may know.
    #[must_use]
    pub fn public(&self) -> &KemPublic {
        &self.0.public
    }

    /// The policy's key of what [`PolicyKey::wrap_for`] gave. Takes 0.3 ms.
    ///
    /// # Errors
    /// [`SealedError::Length`], [`SealedError::Algorithm`]; [`SealedError::Forged`] when it is another node's, of another
    /// policy or generation, or changed.
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

/// The pair of one generation of a policy. Wiped when dropped.
pub struct PolicyKey(Pair);

impl PolicyKey {
    /// A new one, from the operating system's randomness.
    ///
    /// # Errors
    /// [`SealedError::Library`]
    pub fn generate() -> Result<Self, SealedError> {
        Pair::of_seed(&*random::<SEED>()).map(Self)
    }

    /// As [`Self::seed`] gave it.
    ///
    /// # Errors
    /// [`SealedError::NotSeed`]
    pub fn from_seed(seed: &[u8]) -> Result<Self, SealedError> {
        Pair::of_seed(seed).map(Self)
    }

    /// The private half. Anyone who has it opens every key sealed to this generation: it leaves this process sealed only.
    #[must_use]
    pub fn seed(&self) -> Zeroizing<[u8; SEED]> {
        self.0.seed()
    }

    /// The half that keys are sealed to.
    #[must_use]
    pub fn public(&self) -> &KemPublic {
        &self.0.public
    }

    /// The seed, sealed to a node: [`WRAP`] bytes.
    ///
    /// # Errors
    /// [`SealedError::Library`]
    pub fn wrap_for(&self, node: &KemPublic, context: &WrapContext) -> Result<Vec<u8>, SealedError> {
        hybrid::seal(node, WrapContext::DOMAIN, &context.bound(), &*self.seed())
    }

    /// What is sealed to this generation, sealed to the public half of another; the key stays in this crate.
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

    /// The key of what [`seal_key`] gave, held against the public half it is said to have. Takes 0.3 ms, for RSA 0.2 ms
    /// more.
    ///
    /// # Errors
    /// [`SealedError::Length`], [`SealedError::Algorithm`]; [`SealedError::Forged`] when it is sealed to another policy or
    /// generation, for another public half, or changed; [`SealedError::NotKey`] and [`SealedError::OtherKey`] when
    /// anyone who sealed it sealed something else.
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

/// A private key (its PKCS#8), sealed to a generation of a policy.
///
/// # Errors
/// [`SealedError::OtherKey`] when `context` names another public half; [`SealedError::Library`].
pub fn seal_key(to: &KemPublic, key: &PrivateKey, context: &SealContext) -> Result<Vec<u8>, SealedError> {
    if key.spki_hash().as_bytes() != &context.spki_sha256 {
        return Err(SealedError::OtherKey);
    }
    hybrid::seal(to, SealContext::DOMAIN, &context.bound(), &key.to_pkcs8_der())
}

/// Whether these bytes may be a sealed key, as far as can be seen without opening them.
///
/// # Errors
/// [`SealedError::Length`], [`SealedError::Algorithm`]
pub fn check_sealed_key(sealed: &[u8]) -> Result<(), SealedError> {
    match sealed.len() {
        length if length <= OVERHEAD || length > SEALED_KEY_MAX => Err(SealedError::Length(length)),
        _ => hybrid::check_algorithm(sealed),
    }
}
