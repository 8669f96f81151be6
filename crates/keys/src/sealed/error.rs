//! Why nothing was sealed, or nothing opened.

use crate::KeyError;

/// Bytes of a seed: of a node's key, and of a generation's.
pub const SEED: usize = 32;

/// Bytes of an X-Wing public key: 1,184 of ML-KEM-768, then 32 of X25519.
pub const KEM_PUBLIC: usize = 1_216;

/// Why nothing was sealed, or nothing opened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SealedError {
    /// Fewer or more bytes than it has.
    #[error("not sealed bytes, or cut off: {0} bytes")]
    Length(usize),
    /// Made by a later version.
    #[error("sealed by algorithm {0}, which this version does not know; update the program")]
    Algorithm(u8),
    /// HPKE does not tell these apart, on purpose.
    #[error(
        "does not open: changed, or sealed to another key, or for another policy, generation, node or key"
    )]
    Forged,
    /// It opens, and a key is not in it.
    #[error("what is sealed is not a private key: {0}")]
    NotKey(#[from] KeyError),
    /// The sealed key is another one than its context names.
    #[error("another private key is sealed than its public half says")]
    OtherKey,
    /// Not an X-Wing public key.
    #[error("not an X-Wing public key: {KEM_PUBLIC} bytes, of which the first 1,184 are one of ML-KEM-768")]
    NotPublic,
    /// Not a seed.
    #[error("not a seed: it must have {SEED} bytes, not {0}")]
    NotSeed(usize),
    /// The library failed.
    #[error("the cryptographic library failed")]
    Library,
}
