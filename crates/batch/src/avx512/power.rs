//! Powers modulo the two primes of eight keys, interleaved: while one power waits for its last carries, the processor computes
//! products of the other.

use super::barrier::opaque;
use super::instructions::{
    __m512i, _mm512_and_si512, _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_srai_epi64,
    _mm512_srlv_epi64, _mm512_sub_epi64, _mm512_xor_si512,
};
use super::montgomery::{EightIntegers, LIMBS, Moduli, multiply, square};

/// Number of bits of an exponent that are read at a time. With five, the tables would exceed the first-level cache.
const WINDOW: usize = 4;
/// Number of powers in a table.
pub(super) const ENTRIES: usize = 1 << WINDOW;
/// Number of words in an exponent.
pub(super) const WORDS: usize = 16;
/// Number of windows in a word.
const WINDOWS: usize = 64 / WINDOW;

/// Eight exponents as words.
pub(super) type Exponents = [__m512i; WORDS];
/// The lowest powers of eight bases.
pub(super) type Table = [EightIntegers; ENTRIES];

/// Raises each of `numbers` to its exponent modulo its modulus. All values are in Montgomery form. `ones` are R; `tables` and
/// `chosen` are scratch space.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn power(
    numbers: &mut [EightIntegers; 2],
    ones: &[EightIntegers; 2],
    exponents: &[Exponents; 2],
    moduli: &[Moduli; 2],
    tables: &mut [Table; 2],
    chosen: &mut EightIntegers,
) {
    for side in 0..2 {
        let table = &mut tables[side];
        table[0] = ones[side];
        for entry in 1..ENTRIES {
            table[entry] = table[entry - 1];
            multiply(&mut table[entry], &numbers[side], &moduli[side]);
        }
    }
    *numbers = *ones;
    for word in (0..WORDS).rev() {
        for window in (0..WINDOWS).rev() {
            for _ in 0..WINDOW {
                for side in 0..2 {
                    square(&mut numbers[side], &moduli[side]);
                }
            }
            for side in 0..2 {
                let shift = _mm512_set1_epi64((WINDOW * window) as i64);
                let bits = _mm512_srlv_epi64(exponents[side][word], shift);
                let index = _mm512_and_si512(bits, _mm512_set1_epi64(ENTRIES as i64 - 1));
                choose(chosen, &tables[side], index);
                multiply(&mut numbers[side], chosen, &moduli[side]);
            }
        }
    }
}

/// Selects the power that each lane's index names. Always reads the whole table: a masked load might depend on the index.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn choose(chosen: &mut EightIntegers, table: &Table, index: __m512i) {
    let mut found = [_mm512_setzero_si512(); LIMBS];
    for (entry, candidate) in table.iter().enumerate() {
        let differs = _mm512_xor_si512(index, _mm512_set1_epi64(entry as i64));
        // The difference minus one is negative only for zero. Without the barrier the compiler would turn the mask into a masked
        // load.
        let mask = _mm512_srai_epi64::<63>(_mm512_sub_epi64(differs, _mm512_set1_epi64(1)));
        let mask = opaque(mask);
        for limb in 0..LIMBS {
            found[limb] = _mm512_or_si512(found[limb], _mm512_and_si512(candidate[limb], mask));
        }
    }
    *chosen = found;
}
