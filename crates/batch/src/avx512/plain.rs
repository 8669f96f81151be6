//! Arithmetic in plain words, for tests with millions of cases. It is itself tested against big integers.

use num_bigint::BigUint;

use super::instructions::{__m512i, _mm512_setzero_si512};
use super::lanes::{from_lanes, lanes};
use crate::{LANES, number};

/// Arithmetic modulo a number of `WORDS` words.
pub(super) struct Plain<const WORDS: usize> {
    modulus: [u64; WORDS],
    /// 2^(64·i) modulo the modulus, for each i from `WORDS` to `2·WORDS + 2`.
    powers: Vec<[u64; WORDS]>,
}

/// Returns the words of a big integer.
pub(super) fn words<const WORDS: usize>(of: &BigUint) -> [u64; WORDS] {
    number::words(&of.to_bytes_be()).unwrap()
}

/// Converts a number from limbs, each below 2^52, to words.
pub(super) fn limbs_to_words(limbs: &[u64]) -> Vec<u64> {
    let mut words = vec![0; limbs.len() * number::BITS / 64 + 1];
    for (limb, value) in limbs.iter().enumerate() {
        let (word, bit) = (limb * number::BITS / 64, limb * number::BITS % 64);
        assert!(*value <= number::LIMB_MAX, "a limb of more than 52 bits");
        words[word] |= value << bit;
        if bit > 64 - number::BITS {
            words[word + 1] |= value >> (64 - bit);
        }
    }
    words
}

/// Returns the words of each lane's number.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn lane_words(limbs: &[__m512i]) -> [Vec<u64>; LANES] {
    let mut each = [const { Vec::new() }; LANES];
    for limb in limbs {
        lanes(*limb).into_iter().zip(&mut each).for_each(|(value, limbs)| limbs.push(value));
    }
    each.map(|limbs| limbs_to_words(&limbs))
}

/// Returns a·b.
pub(super) fn product(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut product = vec![0; a.len() + b.len()];
    for (at, by) in b.iter().enumerate() {
        let high = add_multiple(&mut product[at..], a, *by);
        assert_eq!(high, 0);
    }
    product
}

/// Adds a·b to `sum` and returns the carry.
fn add_multiple(sum: &mut [u64], a: &[u64], b: u64) -> u64 {
    let mut carry = 0;
    for (at, word) in sum.iter_mut().enumerate() {
        let times = u128::from(a.get(at).copied().unwrap_or(0)) * u128::from(b);
        let whole = times + u128::from(*word) + u128::from(carry);
        (*word, carry) = (whole as u64, (whole >> 64) as u64);
    }
    carry
}

impl<const WORDS: usize> Plain<WORDS> {
    /// Creates the arithmetic for a modulus, which must have few leading zero bits.
    pub(super) fn new(modulus: &BigUint) -> Self {
        let power = |word: usize| words(&((BigUint::from(1_u8) << (64 * word)) % modulus));
        Self { modulus: words(modulus), powers: (WORDS..=2 * WORDS + 2).map(power).collect() }
    }

    /// Reduces a number modulo the modulus.
    pub(super) fn residue(&self, of: &[u64]) -> [u64; WORDS] {
        let mut rest = of.to_vec();
        rest.resize(rest.len().max(WORDS + 1), 0);
        while rest[WORDS..].iter().any(|word| *word > 0) {
            let (low, high) = rest.split_at(WORDS);
            let mut sum = low.to_vec();
            sum.resize(WORDS + 2, 0);
            for (by, power) in high.iter().zip(&self.powers) {
                assert_eq!(add_multiple(&mut sum, power, *by), 0);
            }
            assert!(high.len() <= self.powers.len());
            rest = sum;
        }
        let mut residue: [u64; WORDS] = std::array::from_fn(|word| rest[word]);
        while let (less, true) = number::difference(&residue, &self.modulus) {
            residue = less;
        }
        residue
    }
}

/// Generator of random words (SplitMix64), and of limbs with edge values.
pub(super) struct TestRng(pub(super) u64);

impl TestRng {
    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a limb up to `most`: any value, and in a quarter of cases one that causes long carries.
    pub(super) fn limb(&mut self, most: u64) -> u64 {
        let word = self.word();
        match self.word() % 24 {
            0 | 1 => 0,
            2 | 3 => most,
            4 => most.saturating_sub(1),
            5 => most.min(1),
            _ => word % (most + 1),
        }
    }
}

/// Returns eight random numbers whose limbs often cause long carries. The highest limb is at most `highest`.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn random_numbers<const LIMBS: usize>(rng: &mut TestRng, highest: u64) -> [__m512i; LIMBS] {
    let mut most = [number::LIMB_MAX; LIMBS];
    most[LIMBS - 1] = highest;
    most.map(|most| from_lanes(std::array::from_fn(|_| rng.limb(most))))
}

/// Asserts that a·b is congruent to `found`·2^(52·`shift`), lane by lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn is_product<const WORDS: usize>(
    plains: &[&Plain<WORDS>; LANES],
    [a, b]: [&[__m512i]; 2],
    found: &[__m512i],
    shift: usize,
) {
    let mut shifted = vec![_mm512_setzero_si512(); shift];
    shifted.extend_from_slice(found);
    let (a, b, found) = (lane_words(a), lane_words(b), lane_words(&shifted));
    for lane in 0..LANES {
        let wanted = plains[lane].residue(&product(&a[lane], &b[lane]));
        assert_eq!(plains[lane].residue(&found[lane]), wanted, "{:x?} {:x?}", a[lane], b[lane]);
    }
}

/// Returns how many lanes of each operation to compare with plain numbers: the environment variable `BULLA_BATCH_CASES`, or `usual`
/// if it is not set.
pub(super) fn cases(usual: usize) -> usize {
    let given = std::env::var("BULLA_BATCH_CASES").ok();
    given.map_or(usual, |given| given.parse().expect("BULLA_BATCH_CASES is a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn big(words: &[u64]) -> BigUint {
        words.iter().rev().fold(BigUint::ZERO, |sum, word| (sum << 64) + *word)
    }

    /// Tests this arithmetic against big integers.
    #[test]
    fn plain_word_arithmetic_matches_big_integers() {
        let mut rng = TestRng(1);
        let p256 = (BigUint::from(1_u8) << 256_u32) - (BigUint::from(1_u8) << 224_u32)
            + (BigUint::from(1_u8) << 192_u32)
            + (BigUint::from(1_u8) << 96_u32)
            - 1_u8;
        let edwards = (BigUint::from(1_u8) << 255_u32) - 19_u8;
        for modulus in [p256, edwards] {
            let plain = Plain::<4>::new(&modulus);
            for _ in 0..2_000 {
                let limbs =
                    |rng: &mut TestRng| -> Vec<u64> { (0..5).map(|_| rng.limb(number::LIMB_MAX)).collect() };
                let (a, b) = (limbs_to_words(&limbs(&mut rng)), limbs_to_words(&limbs(&mut rng)));
                let product = product(&a, &b);
                assert_eq!(big(&product), big(&a) * big(&b));
                assert_eq!(big(&plain.residue(&product)), big(&product) % &modulus);
            }
        }
    }
}
