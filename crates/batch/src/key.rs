//! RSA keys in the form that the kernel reads.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, zeroize_stack};

use crate::number::{self, BITS};

/// Size of a modulus, an input and a result in bytes.
pub const BYTES: usize = 256;

/// Bytes of stack that are wiped after an operation on secrets: several times the needed amount, which depends on the compiler.
pub(crate) const STACK: usize = 128 * 1024;

/// Input of one RSA private-key operation: the key and a number.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// Key whose private exponent is applied to `input`.
    pub key: &'a Key,
    /// Input, big-endian and below the modulus.
    pub input: &'a [u8; BYTES],
}

/// Number of words of a prime.
const WORDS: usize = 16;
/// Number of limbs of a prime. R is 2^1040.
const LIMBS: usize = 20;
/// Number of bits of R.
const R: usize = LIMBS * BITS;

/// The numbers of an RSA private key with two primes (RFC 8017 section 3.2), big-endian.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The modulus n.
    pub modulus: &'a [u8],
    /// The public exponent e.
    pub public_exponent: &'a [u8],
    /// The first prime p.
    pub first_prime: &'a [u8],
    /// The second prime q.
    pub second_prime: &'a [u8],
    /// The first exponent dP: d modulo p - 1.
    pub first_exponent: &'a [u8],
    /// The second exponent dQ: d modulo q - 1.
    pub second_exponent: &'a [u8],
    /// The coefficient qInv: 1/q modulo p.
    pub coefficient: &'a [u8],
}

/// An RSA-2048 private key with precomputed values. Wiped when dropped, and omitted from debug output.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Key {
    /// Values of p, then of q.
    pub(crate) sides: [Side; 2],
    /// 1/q modulo p, in Montgomery form.
    pub(crate) coefficient: [u64; LIMBS],
    /// The modulus n as limbs.
    pub(crate) modulus: [u64; 2 * LIMBS],
    /// -1/n modulo 2^52.
    pub(crate) inverse: u64,
    /// R⁴ modulo n, for the conversion into Montgomery form.
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
    /// d modulo (prime - 1), as words, which are read in windows of four bits.
    pub(crate) exponent: [u64; WORDS],
}

impl Key {
    /// Creates a key from the numbers of a 2,048-bit key with primes of 1,024 bits and the public exponent 65,537. `None` for other
    /// keys. Takes about 0.2 ms; the time depends only on the lengths of the inputs. Whether the numbers form a valid key is
    /// detected when the key is used.
    #[must_use]
    pub fn new(parts: &Parts<'_>) -> Option<Box<Self>> {
        // Fill the key at its final address: moving it would leave copies behind.
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

    /// Computes the fields from the parts of the key. A separate function, so that its stack frame can be wiped.
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

/// Returns 2^(64·`WORDS` - 1), which is below every odd number whose highest bit is set.
fn half<const WORDS: usize>() -> [u64; WORDS] {
    std::array::from_fn(|word| if word + 1 == WORDS { 1 << 63 } else { 0 })
}

fn is_odd_and_full<const WORDS: usize>(number: &[u64; WORDS]) -> bool {
    number[0] & 1 == 1 && number[WORDS - 1] >> 63 == 1
}
