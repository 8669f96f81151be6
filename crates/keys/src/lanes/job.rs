//! Jobs of a batch and their results.

use crate::Scheme;

/// Signatures in a full batch.
pub const BATCH: usize = batch::LANES;

/// From so many RSA signatures on a batch is made: it costs as much as three to four signatures made one by one, full or not, and
/// those wait for each other that would not have.
pub const BATCH_MIN: usize = 5;

/// The same of signatures on P-256 and by Ed25519, of which a batch costs as much as two made one by one: as none leaves a
/// slice before all are made, three are answered sooner so.
pub const EC_BATCH_MIN: usize = 3;

/// One signature of a batch. The public key is in memory here and beside the numbers: see [`ed25519`](super::ed25519).
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneJob<'a> {
    pub(super) scheme: Scheme,
    /// A digest; for Ed25519 a message.
    pub(super) input: &'a [u8],
    /// The public half, a DER SubjectPublicKeyInfo.
    pub(super) spki: &'a [u8],
}

/// What became of one signature of a batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Signed(Vec<u8>),
    /// Something that a batch does not make, or not with what chance gave it.
    Refused,
    /// It did not pass its check.
    Faulty,
}
