//! Errors of sealing and opening.

use crate::KeyError;

/// Bytes of a seed: of a node key, or of a policy key.
pub const SEED: usize = 32;

/// Bytes of an X-Wing public key: 1,184 of ML-KEM-768, then 32 of X25519.
pub const KEM_PUBLIC: usize = 1_216;

/// Reason why a private key could not be sealed or unsealed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SealedError {
    /// The sealed value has the wrong length.
    #[error("the value of {0} bytes is not in the sealed format, or is truncated")]
    Length(usize),
    /// The algorithm number is unknown: a later version sealed the value.
    #[error(
        "the value is sealed with algorithm {0}, which this version of Bulla does not support: update Bulla"
    )]
    Algorithm(u8),
    /// HPKE decryption failed. HPKE deliberately does not reveal the cause.
    #[error(
        "cannot open the sealed key: it was changed, or sealed to another key, or for another policy, generation, node or key"
    )]
    Forged,
    /// The decrypted content is not a private key.
    #[error("the sealed value is not a private key: {0}")]
    NotKey(#[from] KeyError),
    /// The sealed key is not the key that its context names.
    #[error("the sealed private key does not match its public key")]
    OtherKey,
    /// The bytes are not an X-Wing public key.
    #[error(
        "not an X-Wing public key: it must have {KEM_PUBLIC} bytes, and the first 1,184 must be an ML-KEM-768 public key"
    )]
    NotPublic,
    /// The seed does not have 32 bytes; contains its length.
    #[error("not a seed: it must have {SEED} bytes, not {0}")]
    NotSeed(usize),
    /// The cryptography library failed.
    #[error("the cryptographic library failed to seal or open a key")]
    Library,
}
