//! Jobs of a batch and their results.

use crate::Scheme;

/// Signatures in a full batch.
pub const BATCH: usize = batch::LANES;

/// Minimum number of RSA signatures for a batch. A batch costs as much as three to four single signatures, full or not, and each
/// signature waits for the whole batch.
pub const BATCH_MIN: usize = 5;

/// Minimum number of P-256 or Ed25519 signatures for a batch. A batch costs as much as two single signatures, so three signatures
/// are faster in a batch.
pub const EC_BATCH_MIN: usize = 3;

/// One signature of a batch. The public key is in memory twice: in this struct, and with the numbers of the key. See
/// [`ed25519`](super::ed25519).
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneJob<'a> {
    pub(super) scheme: Scheme,
    /// A digest. For Ed25519: the message.
    pub(super) input: &'a [u8],
    /// The public key, a DER SubjectPublicKeyInfo.
    pub(super) spki: &'a [u8],
}

/// Result of one signature of a batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Signed(Vec<u8>),
    /// The batch did not make this signature, for example because an input is unsuitable or no nonce could be derived.
    Refused,
    /// The signature failed its check.
    Faulty,
}
