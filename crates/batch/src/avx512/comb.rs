//! Fixed-point multiplication with a comb of signed digits, shared by all curves.
//!
//! An odd scalar k below 2^259 is a sum of 37 odd digits d_i·128^i with |d_i| < 128. Let m = (k + 2^259 - 1)/2, which is k without
//! its lowest bit and with bit 258 set. With windows u_i of seven bits of m, d_i = 2·u_i - 127. For each e below 64 and each i, a
//! table holds (2·e + 1)·128^i times the point; the addition applies the sign. Each lookup reads all entries of the digit's window,
//! and each digit costs one addition. No digit is zero, so no lane ever adds the neutral element.

use super::barrier::opaque;
use super::instructions::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpeq_epi64_mask, _mm512_or_si512,
    _mm512_permutex2var_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_sllv_epi64,
    _mm512_srli_epi64, _mm512_srlv_epi64, _mm512_sub_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};
use super::lanes::{from_lanes, lanes};
use super::montgomery::BITS;
use super::short::{EightShort, LIMBS};
use crate::{LANES, number};

/// Number of bits of a digit.
pub(super) const DIGIT: usize = 7;
/// Number of digits of a scalar.
pub(super) const DIGITS: usize = 37;
/// Number of odd multiples in a window.
pub(super) const ENTRIES: usize = 1 << (DIGIT - 1);
/// Number of vectors that hold one limb of all entries.
const VECTORS: usize = ENTRIES / LANES;
/// Modulus of the tags.
const TAG_MAX: u64 = number::LIMB_MAX;

/// The multiples for one digit position: a row for each limb of their coordinates, and their tags.
pub(super) struct Window<const ROWS: usize> {
    rows: [[__m512i; VECTORS]; ROWS],
    tags: [__m512i; VECTORS],
}

impl<const ROWS: usize> Window<ROWS> {
    /// Builds a window from the limbs of each entry's coordinates.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn of(entries: &[[u64; ROWS]; ENTRIES], position: usize) -> Self {
        let tag = |entry: usize| {
            let tag = (2 * entry as u64 + 1) << (DIGIT * position % number::BITS);
            (tag & TAG_MAX) + (tag >> number::BITS)
        };
        let tags = vectors(&std::array::from_fn(tag));
        Self { rows: std::array::from_fn(|row| vectors(&entries.map(|entry| entry[row]))), tags }
    }
}

/// Checksum of the tables. It always detects a change of one word. It detects any other change except with probability 2^-64.
pub(super) struct Checksum(u64);

impl Checksum {
    pub(super) const fn new() -> Self {
        Self(0)
    }

    pub(super) const fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Adds all lanes of a constant to the checksum.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn add_number(&mut self, number: &EightShort) {
        number.iter().for_each(|limb| lanes(*limb).into_iter().for_each(|word| self.add(word)));
    }

    /// Adds all table entries of the windows, and their tags, to the checksum.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn add_windows<const ROWS: usize>(&mut self, windows: &[Window<ROWS>]) {
        for Window { rows, tags } in windows {
            for vector in rows.iter().chain([tags]).flatten() {
                lanes(*vector).into_iter().for_each(|word| self.add(word));
            }
        }
    }

    pub(super) const fn value(&self) -> u64 {
        self.0
    }
}

/// Fault injection for tests of the checks.
#[cfg(test)]
impl<const ROWS: usize> Window<ROWS> {
    /// Rotates the entries and their tags, so that each index selects another entry.
    pub(super) fn shift(&mut self) {
        self.rows.iter_mut().for_each(|row| row.rotate_left(1));
        self.tags.rotate_left(1);
    }

    /// Flips a bit of one entry's tag.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn flip_tag(&mut self) {
        self.tags[3] = _mm512_xor_si512(self.tags[3], from_lanes([0, 0, 0, 0, 0, 1 << 51, 0, 0]));
    }

    /// Flips a bit in a coordinate of each entry.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn flip(&mut self) {
        for vector in &mut self.rows[0] {
            *vector = _mm512_xor_si512(*vector, _mm512_set1_epi64(1 << 20));
        }
    }
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn vectors(values: &[u64; ENTRIES]) -> [__m512i; VECTORS] {
    std::array::from_fn(|vector| from_lanes(std::array::from_fn(|element| values[LANES * vector + element])))
}

/// The operand of one digit's addition.
pub(super) struct Step<const ROWS: usize> {
    /// Limbs of the entry's coordinates.
    pub(super) rows: [__m512i; ROWS],
    pub(super) sign: Sign,
}

/// Whether an entry is added or subtracted, and its tag.
#[derive(Clone, Copy)]
pub(super) struct Sign {
    /// All ones where the entry is subtracted, else all zeros.
    pub(super) negative: __m512i,
    /// Tag of the entry, with its sign.
    tag: __m512i,
}

impl Sign {
    /// Returns a plus sign with a zero tag, for additions while the tables are built.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn plus() -> Self {
        Self { negative: _mm512_setzero_si512(), tag: _mm512_setzero_si512() }
    }
}

/// Returns the operand for the digit at this position.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn step<const ROWS: usize>(
    windows: &[Window<ROWS>],
    scalars: &EightShort,
    position: usize,
) -> Step<ROWS> {
    let bits = bits(scalars, DIGIT * position + 1);
    // The highest digit is positive, as bit 258 is set. Another digit is positive if its highest bit is set.
    let high = if position + 1 == DIGITS {
        _mm512_set1_epi64(1)
    } else {
        _mm512_srli_epi64::<{ DIGIT as u32 - 1 }>(bits)
    };
    let negative = _mm512_sub_epi64(high, _mm512_set1_epi64(1));
    let (rows, tag) = select_entry(&windows[position], _mm512_xor_si512(bits, negative));
    let tag = _mm512_sub_epi64(_mm512_xor_si512(tag, negative), negative);
    Step { rows, sign: Sign { negative, tag } }
}

/// Check value of a computed multiple: the sum of the signed tags of all added entries. A tag is the entry's multiple of the point,
/// modulo 2^52 - 1. The same registers select and sign an entry and its tag, so that a wrong entry is detected. The tag is added
/// after the entry's addition, so that a skipped addition is detected, too.
pub(super) struct Tags(__m512i);

impl Tags {
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn none() -> Self {
        Self(_mm512_setzero_si512())
    }

    /// Adds the tag of an addition. The new tag depends on one limb of each coordinate of `sum`, so that the sum must be computed
    /// first.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn add_tag(&mut self, sign: &Sign, sum: [__m512i; 4]) {
        let [a, b, c, d] = sum;
        let known = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
        let nothing = _mm512_xor_si512(known, opaque(known));
        self.0 = _mm512_add_epi64(self.0, _mm512_xor_si512(sign.tag, nothing));
    }

    /// Returns the lanes whose sum of tags matches the scalar: each digit was added once, at its position.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn match_scalars(&self, scalars: &EightShort) -> __mmask8 {
        let modulus = _mm512_set1_epi64(TAG_MAX.cast_signed());
        // The absolute value of the tag sum is below 37 times the modulus.
        let mut difference = _mm512_add_epi64(self.0, _mm512_slli_epi64::<6>(modulus));
        for limb in scalars {
            // 2^52 is 1 modulo 2^52 - 1.
            difference = _mm512_add_epi64(difference, _mm512_sub_epi64(modulus, *limb));
        }
        for _ in 0..2 {
            let high = _mm512_srli_epi64::<BITS>(difference);
            difference = _mm512_add_epi64(_mm512_and_si512(difference, modulus), high);
        }
        // The folded value is not zero. So it is a multiple of the modulus only if it equals the modulus.
        _mm512_cmpeq_epi64_mask(difference, modulus)
    }
}

/// Returns the seven bits from bit `from`. Bits past the number are zero.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn bits(scalars: &EightShort, from: usize) -> __m512i {
    let (limb, bit) = (from / number::BITS, from % number::BITS);
    let shift = |bits: usize| _mm512_set1_epi64(bits as i64);
    let mut found = _mm512_srlv_epi64(scalars[limb], shift(bit));
    if bit + DIGIT > number::BITS && limb + 1 < LIMBS {
        found = _mm512_or_si512(found, _mm512_sllv_epi64(scalars[limb + 1], shift(number::BITS - bit)));
    }
    _mm512_and_si512(found, _mm512_set1_epi64((1 << DIGIT) - 1))
}

/// Returns the entry and the tag of each lane's index (six bits). Always reads whole vectors, whatever the index is; the selection
/// happens between registers.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn select_entry<const ROWS: usize>(window: &Window<ROWS>, index: __m512i) -> ([__m512i; ROWS], __m512i) {
    let index = opaque(index);
    let mask = |bit: __m512i| {
        let bit = _mm512_and_si512(bit, _mm512_set1_epi64(1));
        _mm512_sub_epi64(_mm512_setzero_si512(), bit)
    };
    let (fifth, sixth) = (mask(_mm512_srli_epi64::<4>(index)), mask(_mm512_srli_epi64::<5>(index)));
    // Without the barrier the compiler would turn these masks into masked permutations.
    let (fifth, sixth) = (opaque(fifth), opaque(sixth));
    let one = |vectors: &[__m512i; VECTORS]| {
        let sixteen = |at: usize| _mm512_permutex2var_epi64(vectors[2 * at], index, vectors[2 * at + 1]);
        let low = select(fifth, sixteen(1), sixteen(0));
        select(sixth, select(fifth, sixteen(3), sixteen(2)), low)
    };
    let mut rows = [_mm512_setzero_si512(); ROWS];
    for (row, vectors) in rows.iter_mut().zip(&window.rows) {
        *row = one(vectors);
    }
    (rows, one(&window.tags))
}

/// Returns the first vector where the mask has ones, the second where it has zeros.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn select(mask: __m512i, first: __m512i, second: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xca>(mask, first, second)
}
