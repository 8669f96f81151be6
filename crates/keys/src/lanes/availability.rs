//! Whether this machine makes batches, and of what.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use batch::Kernel;

use super::batches::Batches;
use super::{ed25519, p256};
use crate::{Hash, KeyType, Scheme};

/// The kinds of keys by which batches are made.
pub const BATCH_KINDS: [KeyType; 3] = [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519];

/// The kinds of keys of which a batch was faulty. The kinds share little arithmetic, so that a fault of one says nothing of the others'
/// checks.
#[derive(Debug, Default)]
pub(super) struct Faults([AtomicBool; BATCH_KINDS.len()]);

/// Those of this process. It makes no more batches of a kind that is in it.
pub(super) static FAULTS: Faults = Faults([const { AtomicBool::new(false) }; BATCH_KINDS.len()]);

impl Faults {
    pub(super) fn contain(&self, kind: KeyType) -> bool {
        BATCH_KINDS.iter().zip(&self.0).any(|(known, faulty)| *known == kind && faulty.load(Relaxed))
    }

    /// Adds a kind. Whether it is new.
    pub(super) fn add(&self, kind: KeyType) -> bool {
        let known = BATCH_KINDS.iter().zip(&self.0).find(|(known, _)| **known == kind);
        known.is_some_and(|(_, faulty)| !faulty.swap(true, Relaxed))
    }
}

/// Whether signatures like this are made in batches on this machine, until one by that kind of key was faulty: by RSA keys of 2,048
/// bits, but a few ([`crate::PrivateKey::is_batched`]), by keys on P-256, and by Ed25519 keys, of
/// messages of up to 512 bytes.
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

/// Whether batches by this kind of key are made: they are chosen, the processor can, and none was faulty in this process.
#[must_use]
pub fn are_made(kind: KeyType, batches: Batches) -> bool {
    batches.include(kind) && Kernel::detect().is_some() && !FAULTS.contain(kind)
}

/// Has the tables made that batches on P-256 and by Ed25519 read, where those are chosen: a millisecond of work each, once in a process; the first key of
/// each that is prepared does it, too, and waits for it. Nothing where no batches are made.
pub fn prepare_tables(batches: Batches) {
    let Some(kernel) = Kernel::detect() else { return };
    if batches.include(KeyType::P256) {
        p256::prepare_tables(kernel);
    }
    if batches.include(KeyType::Ed25519) {
        ed25519::prepare_tables(kernel);
    }
}
