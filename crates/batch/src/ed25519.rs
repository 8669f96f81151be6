//! Ed25519 keys, nonces and jobs for signatures in batches.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, zeroize_stack};

use crate::{LANES, number};

/// The order L of the base point (RFC 8032 section 5.1), as words.
#[cfg(any(target_arch = "x86_64", batch_model))]
pub(crate) const ORDER_WORDS: [u64; 4] =
    [0x5812_631a_5cf5_d3ed, 0x14de_f9de_a2f7_9cd6, 0, 0x1000_0000_0000_0000];
/// 8·L, which is above every clamped scalar.
const EIGHT_ORDERS: [u64; 4] = [0xc093_18d2_e7ae_9f68, 0xa6f7_cef5_17bc_e6b2, 0, 0x8000_0000_0000_0000];
/// Number of limbs of a scalar.
const LIMBS: usize = 5;

/// Bytes of stack that are wiped after handling secrets: several times the needed amount.
pub(crate) const STACK: usize = 32 * 1024;

/// The nonce scalars r of all lanes, limb by limb.
pub(crate) type Scalars = [[u64; LANES]; LIMBS];
/// The output of each lane, R or S, 32 bytes; `None` where a check failed.
pub(crate) type Commitments = [Option<[u8; 32]>; LANES];

/// An Ed25519 private key, prepared for batch signatures. Wiped when dropped, and omitted from debug output.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Ed25519Key {
    /// s, used to compute signatures.
    pub(crate) private: [u64; LIMBS],
    /// 8·L - s, used to check signatures.
    pub(crate) negative: [u64; LIMBS],
}

/// State of a batch between the two halves of its signatures: the secret scalars, wiped when dropped, and a second copy of R.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Ed25519Nonces {
    pub(crate) scalars: Scalars,
    pub(crate) points: [[u8; 32]; LANES],
}

impl Ed25519Nonces {
    /// Returns R of each lane. Lanes whose check failed contain arbitrary bytes.
    #[must_use]
    pub const fn points(&self) -> &[[u8; 32]; LANES] {
        &self.points
    }
}

/// Input for computing S of one signature (R, S), after R is known (RFC 8032 section 5.1.6).
#[derive(Clone, Copy)]
pub struct Ed25519Job<'a> {
    /// The signing key.
    pub key: &'a Ed25519Key,
    /// SHA-512 of R, the public key and the message.
    pub challenge: &'a [u8; 64],
    /// SHA-512 of R, the public key and the message, computed again from [`Ed25519Nonces::points`].
    pub recomputed_challenge: &'a [u8; 64],
    /// SHA-512 of the key's prefix and the message, computed again.
    pub recomputed_nonce: &'a [u8; 64],
}

pub(crate) use Ed25519Job as Job;

impl Ed25519Key {
    /// Creates a key from the first half of the hash of a private key (RFC 8032 section 5.1.5), and clamps it.
    #[must_use]
    pub fn new(half: &[u8; 32]) -> Box<Self> {
        // Fill the key at its final address: moving it would leave copies behind.
        let mut key = Box::new(Self { private: [0; LIMBS], negative: [0; LIMBS] });
        key.fill(half);
        zeroize_stack::<STACK>();
        key
    }

    /// Returns a key whose signatures fail their check, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn unsound() -> Box<Self> {
        Box::new(Self { private: [1, 0, 0, 0, 0], negative: [1, 0, 0, 0, 0] })
    }

    /// Computes the fields from the private half. A separate function, so that its stack frame can be wiped.
    #[inline(never)]
    fn fill(&mut self, half: &[u8; 32]) {
        let mut words = number::words_from_lowest::<4, 32>(half);
        words[0] &= !7;
        words[3] = words[3] & u64::MAX >> 1 | 1 << 62;
        self.private = number::limbs(&words);
        self.negative = number::limbs(&number::difference(&EIGHT_ORDERS, &words).0);
    }
}

impl fmt::Debug for Ed25519Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ed25519Key(…)")
    }
}

impl fmt::Debug for Ed25519Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ed25519Nonces(…)")
    }
}
