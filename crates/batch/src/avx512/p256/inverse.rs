//! Inverses modulo p and n side by side (Fermat: powers of the modulus less two): while one square waits for its carries the other has
//! products to make. The exponents are no secret.

use super::super::short::Short;
use super::field::{self, PRIME_WORDS};
use super::order::ORDER;
use crate::p256::ORDER_WORDS;

/// Bits of an exponent that are read at once.
const WINDOW: usize = 4;
/// Windows of a word.
const WINDOWS: usize = 64 / WINDOW;
/// Powers in a table, without the first.
const ENTRIES: usize = (1 << WINDOW) - 1;

/// 1/a modulo p and 1/b modulo n, in Montgomery's form as they are; zero for zero.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inverses(a: &Short, b: &Short) -> (Short, Short) {
    let (mut of_a, mut of_b) = ([*a; ENTRIES], [*b; ENTRIES]);
    for at in 1..ENTRIES {
        of_a[at] = field::multiply(&of_a[at - 1], a);
        of_b[at] = ORDER.multiply(&of_b[at - 1], b);
    }
    // The first windows of both are full.
    let (mut power_a, mut power_b) = (of_a[ENTRIES - 1], of_b[ENTRIES - 1]);
    for window in (0..4 * WINDOWS - 1).rev() {
        for _ in 0..WINDOW {
            power_a = field::square(&power_a);
            power_b = ORDER.square(&power_b);
        }
        if let Some(of_a) = bits(&PRIME_WORDS, window).and_then(|at| of_a.get(at)) {
            power_a = field::multiply(&power_a, of_a);
        }
        if let Some(of_b) = bits(&ORDER_WORDS, window).and_then(|at| of_b.get(at)) {
            power_b = ORDER.multiply(&power_b, of_b);
        }
    }
    (power_a, power_b)
}

/// A window of the modulus less two, less one.
fn bits(modulus: &[u64; 4], window: usize) -> Option<usize> {
    // Both moduli end in more than two, so that nothing is borrowed from a word.
    let word = modulus[window / WINDOWS] - if window < WINDOWS { 2 } else { 0 };
    let bits = (word >> (WINDOW * (window % WINDOWS))) as usize & ENTRIES;
    bits.checked_sub(1)
}
