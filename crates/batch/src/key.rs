//! Keys as the kernel reads them.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::number::{self, BITS};

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
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
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

/// What is known of one prime.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
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
    pub fn new(parts: &Parts<'_>) -> Option<Self> {
        let exponent: [u64; 1] = number::words(parts.public_exponent)?;
        let modulus: [u64; 2 * WORDS] = number::words(parts.modulus)?;
        if exponent != [65_537] || !is_odd_and_full(&modulus) {
            return None;
        }
        let sides = [
            Side::new(parts.first_prime, parts.first_exponent)?,
            Side::new(parts.second_prime, parts.second_exponent)?,
        ];
        let prime: Zeroizing<[u64; WORDS]> = Zeroizing::new(number::words(parts.first_prime)?);
        let coefficient: Zeroizing<[u64; WORDS]> = Zeroizing::new(number::words(parts.coefficient)?);
        let coefficient = Zeroizing::new(number::doubled(&coefficient, &prime, R));
        let r4 = number::doubled(&half(), &modulus, 4 * R - (64 * modulus.len() - 1));
        Some(Self {
            sides,
            coefficient: number::limbs(&coefficient),
            modulus: number::limbs(&modulus),
            inverse: number::negative_inverse(modulus[0]),
            r4: number::limbs(&r4),
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Side {
    fn new(prime: &[u8], exponent: &[u8]) -> Option<Self> {
        let prime: Zeroizing<[u64; WORDS]> = Zeroizing::new(number::words(prime)?);
        if !is_odd_and_full(&prime) {
            return None;
        }
        let r2 = Zeroizing::new(number::doubled(&half(), &prime, 2 * R - (64 * WORDS - 1)));
        let r3 = Zeroizing::new(number::doubled(&r2, &prime, R));
        Some(Self {
            prime: number::limbs(&prime),
            inverse: number::negative_inverse(prime[0]),
            r2: number::limbs(&r2),
            r3: number::limbs(&r3),
            exponent: number::words(exponent)?,
        })
    }
}

/// Half of what is one more than the words hold: below every odd number whose highest bit is set.
fn half<const WORDS: usize>() -> [u64; WORDS] {
    std::array::from_fn(|word| if word + 1 == WORDS { 1 << 63 } else { 0 })
}

fn is_odd_and_full<const WORDS: usize>(number: &[u64; WORDS]) -> bool {
    number[0] & 1 == 1 && number[WORDS - 1] >> 63 == 1
}
