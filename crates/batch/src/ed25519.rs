//! Ed25519.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, zeroize_stack};

use crate::{LANES, number};

/// L, the order of the base point (RFC 8032 section 5.1), in words.
#[cfg(any(target_arch = "x86_64", batch_model))]
pub(crate) const ORDER_WORDS: [u64; 4] =
    [0x5812_631a_5cf5_d3ed, 0x14de_f9de_a2f7_9cd6, 0, 0x1000_0000_0000_0000];
/// 8·L, above every scalar that was clamped.
const EIGHT_ORDERS: [u64; 4] = [0xc093_18d2_e7ae_9f68, 0xa6f7_cef5_17bc_e6b2, 0, 0x8000_0000_0000_0000];
/// Limbs of a number.
const LIMBS: usize = 5;

/// Bytes of stack that are wiped after what handles secrets: several times what it takes.
pub(crate) const STACK: usize = 32 * 1024;

/// r of each lane, limb by limb.
pub(crate) type Scalars = [[u64; LANES]; LIMBS];
/// What each lane made, where it is sound.
pub(crate) type Committed = [Option<[u8; 32]>; LANES];

/// A private key. It holds secrets: wiped when dropped, and not shown.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Ed25519Key {
    /// s, with which signatures are made.
    pub(crate) private: [u64; LIMBS],
    /// 8·L - s, with which they are checked.
    pub(crate) negative: [u64; LIMBS],
}

/// What is kept of a batch between its halves: the secret scalars, wiped when dropped, and R once more.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Ed25519Nonces {
    pub(crate) scalars: Scalars,
    pub(crate) points: [[u8; 32]; LANES],
}

impl Ed25519Nonces {
    /// R of each lane, as it was made; for those that are not sound anything.
    #[must_use]
    pub const fn points(&self) -> &[[u8; 32]; LANES] {
        &self.points
    }
}

/// One signature, of which R is known.
#[derive(Clone, Copy)]
pub struct Ed25519Job<'a> {
    /// By which key.
    pub key: &'a Ed25519Key,
    /// SHA-512 of R, the public key and the message.
    pub challenge: &'a [u8; 64],
    /// The same, hashed again, with R as it was kept ([`Ed25519Nonces::points`]).
    pub challenge_again: &'a [u8; 64],
    /// SHA-512 of the key's prefix and the message, hashed again.
    pub nonce_again: &'a [u8; 64],
}

pub(crate) use Ed25519Job as Job;

impl Ed25519Key {
    /// Takes the first half of the hash of a private key (RFC 8032 section 5.1.5); it is clamped here.
    #[must_use]
    pub fn new(half: &[u8; 32]) -> Box<Self> {
        // Filled where it stays: what is moved leaves copies behind.
        let mut key = Box::new(Self { private: [0; LIMBS], negative: [0; LIMBS] });
        key.fill(half);
        zeroize_stack::<STACK>();
        key
    }

    /// A key whose signatures do not pass their check, for tests of what becomes of them.
    #[doc(hidden)]
    #[must_use]
    pub fn unsound() -> Box<Self> {
        Box::new(Self { private: [1, 0, 0, 0, 0], negative: [1, 0, 0, 0, 0] })
    }

    /// In a frame of its own, which can be wiped after it.
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
