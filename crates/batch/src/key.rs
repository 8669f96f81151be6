//! Keys as the kernel reads them.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, zeroize_stack};

use crate::number::{self, BITS};

/// Bytes of a modulus, and of what goes in and out.
pub const OCTETS: usize = 256;

/// Bytes of stack that are wiped after an operation on secrets: several times what the operation uses, because the compiler
/// decides how much that is.
pub(crate) const STACK: usize = 128 * 1024;

/// One private operation.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// By which key.
    pub key: &'a Key,
    /// On what: big-endian, below the modulus.
    pub input: &'a [u8; OCTETS],
}

/// Words of a prime.
const WORDS: usize = 16;
/// Limbs of a prime; R is 2^1040.
const LIMBS: usize = 20;
/// Bits of R.
const R: usize = LIMBS * BITS;

/// The numbers of an RSA private key with two primes (RFC 8017 section 3.2), big-endian.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// n
    pub modulus: &'a [u8],
    /// e
    pub public_exponent: &'a [u8],
    /// p
    pub first_prime: &'a [u8],
    /// q
    pub second_prime: &'a [u8],
    /// dP
    pub first_exponent: &'a [u8],
    /// dQ
    pub second_exponent: &'a [u8],
    /// qInv
    pub coefficient: &'a [u8],
}

/// A private key. It holds secrets: wiped when dropped, and not shown.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Key {
    /// That of p, then that of q.
    pub(crate) sides: [Side; 2],
    /// 1/q modulo p, times R.
    pub(crate) coefficient: [u64; LIMBS],
    /// n
    pub(crate) modulus: [u64; 2 * LIMBS],
    /// -1/n modulo 2^52.
    pub(crate) inverse: u64,
    /// R⁴ modulo n: the square of what R is for numbers of this length.
    pub(crate) r4: [u64; 2 * LIMBS],
}

/// Values derived from one prime.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Side {
    pub(crate) prime: [u64; LIMBS],
    /// -1/prime modulo 2^52.
    pub(crate) inverse: u64,
    /// R² modulo the prime.
    pub(crate) r2: [u64; LIMBS],
    /// R³ modulo the prime.
    pub(crate) r3: [u64; LIMBS],
    /// d modulo the prime less one: in words, as windows of four bits are read from it.
    pub(crate) exponent: [u64; WORDS],
}

impl Key {
    /// Takes the numbers of a key of 2,048 bits, whose primes have 1,024 each and whose public exponent is 65,537, as nearly all
    /// have; `None` for others. Some 0.2 ms of work, which depends on the lengths of what is given alone. Whether the numbers
    /// belong together shows when they are used.
    #[must_use]
    pub fn new(parts: &Parts<'_>) -> Option<Box<Self>> {
        // Filled where it stays: what is moved leaves copies behind.
        let mut key = Box::new(Self::zero());
        let filled = key.fill(parts);
        zeroize_stack::<STACK>();
        filled.map(|()| key)
    }

    fn zero() -> Self {
        let sides = [Side::zero(), Side::zero()];
        let (modulus, r4) = ([0; 2 * LIMBS], [0; 2 * LIMBS]);
        Self { sides, coefficient: [0; LIMBS], modulus, inverse: 0, r4 }
    }

    /// In a frame of its own, which can be wiped after it.
    #[inline(never)]
    fn fill(&mut self, parts: &Parts<'_>) -> Option<()> {
        let exponent: [u64; 1] = number::words(parts.public_exponent)?;
        let modulus: [u64; 2 * WORDS] = number::words(parts.modulus)?;
        if exponent != [65_537] || !is_odd_and_full(&modulus) {
            return None;
        }
        let [first, second] = &mut self.sides;
        first.fill(parts.first_prime, parts.first_exponent)?;
        second.fill(parts.second_prime, parts.second_exponent)?;
        let prime: [u64; WORDS] = number::words(parts.first_prime)?;
        let coefficient: [u64; WORDS] = number::words(parts.coefficient)?;
        self.coefficient = number::limbs(&number::doubled(&coefficient, &prime, R));
        self.modulus = number::limbs(&modulus);
        self.inverse = number::negative_inverse(modulus[0]);
        self.r4 = number::limbs(&number::doubled(&half(), &modulus, 4 * R - (64 * modulus.len() - 1)));
        Some(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Side {
    fn zero() -> Self {
        let (r2, r3) = ([0; LIMBS], [0; LIMBS]);
        Self { prime: [0; LIMBS], inverse: 0, r2, r3, exponent: [0; WORDS] }
    }

    fn fill(&mut self, prime: &[u8], exponent: &[u8]) -> Option<()> {
        let prime: [u64; WORDS] = number::words(prime)?;
        if !is_odd_and_full(&prime) {
            return None;
        }
        let r2 = number::doubled(&half(), &prime, 2 * R - (64 * WORDS - 1));
        self.prime = number::limbs(&prime);
        self.inverse = number::negative_inverse(prime[0]);
        self.r2 = number::limbs(&r2);
        self.r3 = number::limbs(&number::doubled(&r2, &prime, R));
        self.exponent = number::words(exponent)?;
        Some(())
    }
}

/// Half of what is one more than the words hold: below every odd number whose highest bit is set.
fn half<const WORDS: usize>() -> [u64; WORDS] {
    std::array::from_fn(|word| if word + 1 == WORDS { 1 << 63 } else { 0 })
}

fn is_odd_and_full<const WORDS: usize>(number: &[u64; WORDS]) -> bool {
    number[0] & 1 == 1 && number[WORDS - 1] >> 63 == 1
}
