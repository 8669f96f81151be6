//! Tests of the RSA arithmetic against plain integers.

use num_bigint::BigUint;

use super::montgomery::{LIMBS, Moduli, multiply, square};
use super::plain::{Plain, TestRng, cases, is_product, random_numbers, words};
use super::wide::{WIDE, WideModuli, multiply_wide};
use super::{EightIntegers, EightWide, from_lanes, gather};
use crate::{LANES, number};

/// Number of lanes of each operation that are compared with plain words. Fewer with the model of the instructions.
const CASES: usize = if cfg!(batch_model) { 10_000 } else { 100_000 };
/// Number of batches with the same set of moduli.
const ROUNDS: usize = 125;

/// Returns an odd number whose highest bit is set.
fn modulus<const WORDS: usize>(rng: &mut TestRng) -> [u64; WORDS] {
    let mut words: [u64; WORDS] = std::array::from_fn(|_| match rng.word() % 8 {
        0 => 0,
        1 => u64::MAX,
        _ => rng.word(),
    });
    words[0] |= 1;
    words[WORDS - 1] |= 1 << 63;
    words
}

fn big(words: &[u64]) -> BigUint {
    words.iter().rev().fold(BigUint::ZERO, |sum, word| (sum << 64) + *word)
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn products_modulo_primes() {
    // Keeps numbers below 2^1024, which is at most twice a modulus.
    const HIGHEST: u64 = (1 << 36) - 1;
    let mut rng = TestRng(1_024);
    for _ in 0..cases(CASES).div_ceil(LANES * ROUNDS) {
        let of: [[u64; 16]; LANES] = std::array::from_fn(|_| modulus(&mut rng));
        let plains = of.each_ref().map(|modulus| Plain::<16>::new(&big(modulus)));
        let plains = plains.each_ref();
        let limbs = of.each_ref().map(number::limbs::<16, LIMBS>);
        let inverse = from_lanes(of.each_ref().map(|modulus| number::negative_inverse(modulus[0])));
        let mut moduli = Moduli { limbs: random_numbers(&mut rng, 0), inverse };
        gather(&mut moduli.limbs, &limbs.each_ref());
        for _ in 0..ROUNDS {
            let (a, b): (EightIntegers, EightIntegers) =
                (random_numbers(&mut rng, HIGHEST), random_numbers(&mut rng, HIGHEST));
            let (mut product, mut squared) = (a, b);
            multiply(&mut product, &b, &moduli);
            is_product(&plains, [&a, &b], &product, LIMBS);
            square(&mut squared, &moduli);
            is_product(&plains, [&b, &b], &squared, LIMBS);
        }
    }
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn products_modulo_moduli() {
    // Keeps numbers below 2^2048, which is at most twice a modulus.
    const HIGHEST: u64 = (1 << 20) - 1;
    let mut rng = TestRng(2_048);
    for _ in 0..cases(CASES).div_ceil(LANES * ROUNDS) {
        let of: [[u64; 32]; LANES] = std::array::from_fn(|_| modulus(&mut rng));
        let plains = of.each_ref().map(|modulus| Plain::<32>::new(&big(modulus)));
        let plains = plains.each_ref();
        let limbs = of.each_ref().map(number::limbs::<32, WIDE>);
        let inverse = from_lanes(of.each_ref().map(|modulus| number::negative_inverse(modulus[0])));
        let mut moduli = WideModuli { limbs: random_numbers(&mut rng, 0), inverse };
        gather(&mut moduli.limbs, &limbs.each_ref());
        for _ in 0..ROUNDS {
            let a: EightWide = random_numbers(&mut rng, HIGHEST);
            let b: EightWide = random_numbers(&mut rng, HIGHEST);
            is_product(&plains, [&a, &b], &multiply_wide(&a, &b, &moduli), WIDE);
        }
    }
}

#[test]
#[allow(unsafe_code, reason = "functions of instructions that not every processor has")]
fn one_hundred_thousand_products_match_plain_words() {
    if crate::test_kernel().is_some() {
        // SAFETY: the processor has the instructions.
        unsafe {
            products_modulo_primes();
            products_modulo_moduli();
        }
    }
}

#[test]
fn plain_word_residues_of_long_moduli_match_big_integers() {
    let mut rng = TestRng(7);
    for _ in 0..50 {
        let of: [u64; 16] = modulus(&mut rng);
        let plain = Plain::<16>::new(&big(&of));
        for _ in 0..20 {
            let number: [u64; 34] = std::array::from_fn(|_| rng.word());
            assert_eq!(plain.residue(&number), words(&(big(&number) % big(&of))));
        }
    }
}
