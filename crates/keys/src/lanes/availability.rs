//! Availability of batches: which kinds of keys this machine can use for batched signatures.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use batch::Kernel;

use super::batches::Batches;
use super::{ed25519, p256};
use crate::{Hash, KeyType, Scheme};

/// Key types with batched signatures.
pub const BATCH_KINDS: [KeyType; 3] = [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519];

/// Key types with a faulty batch. The types share little arithmetic, so a fault of one type is no sign of a fault of another.
#[derive(Debug, Default)]
pub(super) struct Faults([AtomicBool; BATCH_KINDS.len()]);

/// Key types with a faulty batch in this process. This process makes no more batches with them.
pub(super) static FAULTS: Faults = Faults([const { AtomicBool::new(false) }; BATCH_KINDS.len()]);

impl Faults {
    pub(super) fn contain(&self, kind: KeyType) -> bool {
        BATCH_KINDS.iter().zip(&self.0).any(|(known, faulty)| *known == kind && faulty.load(Relaxed))
    }

    /// Adds a key type. Returns true if it is new.
    pub(super) fn add(&self, kind: KeyType) -> bool {
        let known = BATCH_KINDS.iter().zip(&self.0).find(|(known, _)| **known == kind);
        known.is_some_and(|(_, faulty)| !faulty.swap(true, Relaxed))
    }
}

/// Returns whether signatures with this key type and scheme are made in batches on this machine: RSA keys of 2,048 bits with few
/// exceptions ([`crate::PrivateKey::is_batched`]), P-256 keys, and Ed25519 keys for messages of up to 512 bytes. False after a
/// faulty batch with this key type.
#[must_use]
pub fn is_batched(kind: KeyType, scheme: Scheme, batches: Batches) -> bool {
    let is_made = match kind {
        KeyType::Rsa2048 => matches!(
            scheme,
            Scheme::RsaPkcs1(Hash::Sha256 | Hash::Sha384 | Hash::Sha512)
                | Scheme::RsaPss(Hash::Sha256 | Hash::Sha384 | Hash::Sha512)
        ),
        KeyType::P256 => matches!(scheme, Scheme::Ecdsa(_)),
        KeyType::Ed25519 => scheme == Scheme::Ed25519,
        _ => false,
    };
    is_made && are_made(kind, batches)
}

/// Returns whether batches with this key type are made: the configuration selects them, the processor supports them, and none was
/// faulty in this process.
#[must_use]
pub fn are_made(kind: KeyType, batches: Batches) -> bool {
    batches.include(kind) && Kernel::detect().is_some() && !FAULTS.contain(kind)
}

/// Computes the tables for batches on P-256 and Ed25519, if the configuration selects them. This takes a millisecond for each
/// curve, once in a process. Without this call, the preparation of the first key of each curve computes them. Does nothing if no
/// batches are made.
pub fn prepare_tables(batches: Batches) {
    let Some(kernel) = Kernel::detect() else { return };
    if batches.include(KeyType::P256) {
        p256::prepare_tables(kernel);
    }
    if batches.include(KeyType::Ed25519) {
        ed25519::prepare_tables(kernel);
    }
}
