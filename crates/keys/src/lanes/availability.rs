//! Whether this machine makes batches, and of what.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use batch::Kernel;

use super::{ed25519, p256};
use crate::{Hash, KeyType, Scheme};

/// Set by the first faulty signature: whatever made it, this process makes no more batches.
pub(super) static FAULTY: AtomicBool = AtomicBool::new(false);

/// Whether signatures like this are made in batches on this machine, until one was faulty: by RSA keys of 2,048 bits, but a few
/// ([`crate::PrivateKey::is_batched`]), by keys on P-256, and by Ed25519 keys, of
/// messages of up to 512 octets.
#[must_use]
pub fn is_batched(kind: KeyType, scheme: Scheme) -> bool {
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
    is_made && are_made()
}

/// Whether batches are made on this machine, and none was faulty.
pub(crate) fn are_made() -> bool {
    Kernel::detect().is_some() && !FAULTY.load(Relaxed)
}

/// Has the tables made that batches on P-256 and by Ed25519 read, a millisecond of work each, once in a process; the first key of
/// each that is prepared does it, too, and waits for it. Nothing where no batches are made.
pub fn prepare_tables() {
    if let Some(kernel) = Kernel::detect() {
        p256::prepare_tables(kernel);
        ed25519::prepare_tables(kernel);
    }
}
