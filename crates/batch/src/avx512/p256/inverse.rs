//! Inverses modulo p and n, interleaved (Fermat: the exponent is the modulus minus two). While one square waits for its carries,
//! the other computes products. The exponents are not secret.

use super::super::short::EightShort;
use super::field::{self, PRIME_WORDS};
use super::order::ORDER;
use crate::p256::ORDER_WORDS;

/// Number of bits of an exponent that are read at a time.
const WINDOW: usize = 4;
/// Number of windows in a word.
const WINDOWS: usize = 64 / WINDOW;
/// Number of powers in a table, without the zeroth.
const ENTRIES: usize = (1 << WINDOW) - 1;

/// Returns 1/a modulo p and 1/b modulo n. Inputs and results are in Montgomery form. Zero for zero.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn inverses(a: &EightShort, b: &EightShort) -> (EightShort, EightShort) {
    // The windows of p - 2 are only 0, 1, 13 and 15; the windows of n - 2 have any value.
    let three = field::multiply(&field::square(a), a);
    let twelve = field::square(&field::square(&three));
    let (thirteen, fifteen) = (field::multiply(&twelve, a), field::multiply(&twelve, &three));
    let mut powers = [*b; ENTRIES];
    for at in 1..ENTRIES {
        powers[at] = ORDER.multiply(&powers[at - 1], b);
    }
    // The first window of both exponents is 15.
    let (mut of_a, mut of_b) = (fifteen, powers[ENTRIES - 1]);
    for window in (0..4 * WINDOWS - 1).rev() {
        for _ in 0..WINDOW {
            of_a = field::square(&of_a);
            of_b = ORDER.square(&of_b);
        }
        match bits(&PRIME_WORDS, window) {
            0 => {}
            1 => of_a = field::multiply(&of_a, a),
            13 => of_a = field::multiply(&of_a, &thirteen),
            _ => of_a = field::multiply(&of_a, &fifteen),
        }
        let at = bits(&ORDER_WORDS, window);
        if at > 0 {
            of_b = ORDER.multiply(&of_b, &powers[at - 1]);
        }
    }
    (of_a, of_b)
}

/// Returns a window of the exponent, which is the modulus minus two.
fn bits(modulus: &[u64; 4], window: usize) -> usize {
    // The lowest word of both moduli is above two, so that no borrow occurs.
    let word = modulus[window / WINDOWS] - if window < WINDOWS { 2 } else { 0 };
    (word >> (WINDOW * (window % WINDOWS))) as usize & ENTRIES
}
