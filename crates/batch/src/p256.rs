//! ECDSA keys and jobs on P-256.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, zeroize_stack};

use crate::number;

/// The order n of the group (SP 800-186 section 3.2.1.3), as words.
pub(crate) const ORDER_WORDS: [u64; 4] =
    [0xf3b9_cac2_fc63_2551, 0xbce6_faad_a717_9e84, u64::MAX, 0xffff_ffff_0000_0000];
/// Number of limbs of a number. R is 2^260.
const LIMBS: usize = 5;
/// Number of bits of R.
const R: usize = LIMBS * number::BITS;

/// Bytes of stack that are wiped after signatures: more than twice the needed amount.
pub(crate) const STACK: usize = 40 * 1024;

/// The result of one signature: the signature, or the reason why there is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignatureOutcome {
    /// The signature: r and s, big-endian, 32 bytes each.
    Signature([u8; 64]),
    /// The nonce cannot be used: it is out of range, or r or s would be zero.
    Refused,
    /// The check failed: a hardware fault, or an inconsistent key.
    Faulty,
}

/// A P-256 private key, prepared for batch signatures. Wiped when dropped, and omitted from debug output.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct P256Key {
    /// d·R modulo n, used to compute signatures.
    pub(crate) private: [u64; LIMBS],
    /// (n - d)·R modulo n, used to check signatures.
    pub(crate) negative: [u64; LIMBS],
}

/// One ECDSA signature to compute.
#[derive(Clone, Copy)]
pub struct P256Job<'a> {
    /// The signing key.
    pub key: &'a P256Key,
    /// The leftmost 256 bits of the digest to sign, big-endian.
    pub digest: &'a [u8; 32],
    /// The secret k, big-endian: above zero, below n, and never used twice (FIPS 186-5 appendix A.3).
    pub nonce: &'a [u8; 32],
}

pub(crate) use P256Job as Job;

impl P256Key {
    /// Creates a key from d, big-endian. `None` when d is not between 0 and n. Takes about 4 µs, independent of the value.
    #[must_use]
    pub fn new(private: &[u8]) -> Option<Box<Self>> {
        // Fill the key at its final address: moving it would leave copies behind.
        let mut key = Box::new(Self { private: [0; LIMBS], negative: [0; LIMBS] });
        let filled = key.fill(private);
        zeroize_stack::<STACK>();
        filled.map(|()| key)
    }

    /// Returns a key whose signatures fail their check, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn unsound() -> Box<Self> {
        Box::new(Self { private: [1, 0, 0, 0, 0], negative: [1, 0, 0, 0, 0] })
    }

    /// Computes the fields from the private key. A separate function, so that its stack frame can be wiped.
    #[inline(never)]
    fn fill(&mut self, private: &[u8]) -> Option<()> {
        let private: [u64; 4] = number::words(private)?;
        let (negative, is_below) = number::difference(&ORDER_WORDS, &private);
        if !is_below || private == [0; 4] || negative == [0; 4] {
            return None;
        }
        self.private = number::limbs(&number::doubled(&private, &ORDER_WORDS, R));
        self.negative = number::limbs(&number::doubled(&negative, &ORDER_WORDS, R));
        Some(())
    }
}

impl fmt::Debug for P256Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P256Key(…)")
    }
}
