//! Numbers of one lane: 64-bit words, lowest first, and 52-bit limbs. No function branches on their values.

#[cfg(any(target_arch = "x86_64", batch_model))]
use crate::avx512::barrier::opaque_word;
// Without AVX-512 there are no kernels and no barrier module.
#[cfg(not(any(target_arch = "x86_64", batch_model)))]
use std::hint::black_box as opaque_word;

/// Number of bits in a limb.
pub(crate) const BITS: usize = 52;
/// A limb with all bits set.
pub(crate) const LIMB_MAX: u64 = (1 << BITS) - 1;

/// Parses a big-endian number. `None` when it needs more words. Skips leading zeros.
pub(crate) fn words<const WORDS: usize>(bytes: &[u8]) -> Option<[u64; WORDS]> {
    let mut words = [0; WORDS];
    for (at, byte) in bytes.iter().rev().enumerate() {
        match words.get_mut(at / 8) {
            Some(word) => *word |= u64::from(*byte) << (8 * (at % 8)),
            None if *byte == 0 => {}
            None => return None,
        }
    }
    Some(words)
}

/// Parses a little-endian number into 64-bit words.
pub(crate) fn words_from_lowest<const WORDS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (at, byte) in bytes.iter().enumerate().take(8 * WORDS) {
        words[at / 8] |= u64::from(*byte) << (8 * (at % 8));
    }
    words
}

/// Converts words to limbs. Drops bits that do not fit.
pub(crate) fn limbs<const WORDS: usize, const LIMBS: usize>(words: &[u64; WORDS]) -> [u64; LIMBS] {
    std::array::from_fn(|limb| {
        let (word, bit) = (limb * BITS / 64, limb * BITS % 64);
        let low = words.get(word).map_or(0, |low| low >> bit);
        let high = match bit {
            0 => 0,
            _ => words.get(word + 1).map_or(0, |high| high << (64 - bit)),
        };
        (low | high) & LIMB_MAX
    })
}

/// Converts limbs, each below 2^52, to big-endian bytes. Drops bits that do not fit.
#[cfg(any(test, target_arch = "x86_64", batch_model))]
pub(crate) fn bytes<const LIMBS: usize, const BYTES: usize>(limbs: &[u64; LIMBS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (at, byte) in bytes.iter_mut().rev().enumerate() {
        let (limb, bit) = (8 * at / BITS, 8 * at % BITS);
        let low = limbs.get(limb).map_or(0, |low| low >> bit);
        // At most four bits of the byte come from the next limb.
        let high = match bit {
            45.. => limbs.get(limb + 1).map_or(0, |high| high << (BITS - bit)),
            _ => 0,
        };
        *byte = (low | high) as u8;
    }
    bytes
}

/// Returns `number`·2^`times` modulo `modulus`, for a `number` below `modulus`.
pub(crate) fn doubled<const WORDS: usize>(
    number: &[u64; WORDS],
    modulus: &[u64; WORDS],
    times: usize,
) -> [u64; WORDS] {
    let mut number = *number;
    for _ in 0..times {
        let mut carry = 0;
        for word in &mut number {
            let twice = *word << 1 | carry;
            carry = *word >> 63;
            *word = twice;
        }
        let (less, is_whole) = difference(&number, modulus);
        // The doubled number is at least the modulus if it overflows or the subtraction does not borrow. The barrier keeps the
        // compiler from turning the comparison into a branch.
        let is_whole = opaque_word(u64::from(is_whole));
        let keep = (is_whole | carry) ^ 1;
        let mask = opaque_word(keep.wrapping_neg());
        for word in 0..WORDS {
            number[word] = number[word] & mask | less[word] & !mask;
        }
    }
    number
}

/// Returns a - b, and whether a is at least b.
pub(crate) fn difference<const WORDS: usize>(a: &[u64; WORDS], b: &[u64; WORDS]) -> ([u64; WORDS], bool) {
    let (mut less, mut borrow) = ([0; WORDS], false);
    for word in 0..WORDS {
        let (difference, first) = a[word].overflowing_sub(b[word]);
        let (difference, second) = difference.overflowing_sub(u64::from(borrow));
        less[word] = difference;
        borrow = first | second;
    }
    (less, !borrow)
}

/// Returns -1/`odd` modulo 2^52.
pub(crate) const fn negative_inverse(odd: u64) -> u64 {
    // Correct in three bits; each Newton step doubles the number of correct bits.
    let mut inverse = odd;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse.wrapping_neg() & LIMB_MAX
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_round_trip_through_words_and_limbs(given in prop::collection::vec(any::<u8>(), 256)) {
            let words: [u64; 32] = words(&given).unwrap();
            let limbs: [u64; 40] = limbs(&words);
            prop_assert!(limbs.iter().all(|limb| *limb <= LIMB_MAX));
            prop_assert_eq!(bytes::<40, 256>(&limbs).to_vec(), given);
        }

        #[test]
        fn modular_doubling_matches_big_integers(
            number in prop::array::uniform4(any::<u64>()),
            modulus in prop::array::uniform4(any::<u64>()),
            times in 0_usize..300,
        ) {
            let modulus = [modulus[0] | 1, modulus[1], modulus[2], modulus[3] | 1 << 63];
            let big = |words: &[u64; 4]| {
                words.iter().rev().fold(BigUint::ZERO, |sum, word| (sum << 64) + *word)
            };
            let below = big(&number) % big(&modulus);
            let number: [u64; 4] = words(&below.to_bytes_be()).unwrap();
            let wanted = (below << times) % big(&modulus);
            prop_assert_eq!(big(&doubled(&number, &modulus, times)), wanted);
        }

        #[test]
        fn negative_inverse_times_number_is_minus_one(odd: u64) {
            let odd = odd | 1;
            prop_assert_eq!(odd.wrapping_mul(negative_inverse(odd)) & LIMB_MAX, LIMB_MAX);
        }
    }

    #[test]
    fn words_reject_numbers_that_are_too_long() {
        assert_eq!(words::<1>(&[0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), Some([0x0102_0304_0506_0708]));
        assert_eq!(words::<1>(&[1, 1, 2, 3, 4, 5, 6, 7, 8]), None);
    }
}
