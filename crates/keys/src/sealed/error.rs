//! Errors of sealing and opening.

use crate::KeyError;

/// Bytes of a seed: of a node key, or of a policy key.
pub const SEED: usize = 32;

/// Bytes of an X-Wing public key: 1,184 of ML-KEM-768, then 32 of X25519.
pub const KEM_PUBLIC: usize = 1_216;

/// Sealing or opening failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SealedError {
    /// The sealed value has the wrong length.
    #[error("not sealed bytes, or cut off: {0} bytes")]
    Length(usize),
    /// The algorithm number is unknown: a later version sealed the value.
    #[error("sealed by algorithm {0}, which this version does not know; update the program")]
    Algorithm(u8),
    /// HPKE decryption failed. HPKE deliberately does not reveal the cause.
    #[error(
        "does not open: changed, or sealed to another key, or for another policy, generation, node or key"
    )]
    Forged,
    /// The decrypted content is not a private key.
    #[error("what is sealed is not a private key: {0}")]
    NotKey(#[from] KeyError),
    /// The sealed key is not the key that its context names.
    #[error("another private key is sealed than its public half says")]
    OtherKey,
    /// The bytes are not an X-Wing public key.
    #[error("not an X-Wing public key: {KEM_PUBLIC} bytes, of which the first 1,184 are one of ML-KEM-768")]
    NotPublic,
    /// The bytes are not a seed.
    #[error("not a seed: it must have {SEED} bytes, not {0}")]
    NotSeed(usize),
    /// The cryptography library failed.
    #[error("the cryptographic library failed")]
    Library,
}
