//! Multiples of a fixed point by digits: what curves have in common.
//!
//! An odd scalar k below 2^259 is a sum of 37 odd digits d_i·128^i with |d_i| < 128: with m = (k + 2^259 - 1)/2, which is k without its
//! lowest bit and with bit 258 set, and windows u_i of seven bits of m, d_i = 2·u_i - 127. A table holds (2·e + 1)·128^i times the point
//! for each e below 64 and each i; signs are put in by the addition. Each digit is looked up by reading all of its window's
//! entries, and costs one addition. No digit is zero, so no lane ever adds nothing.

use super::barrier::opaque;
use super::instructions::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpeq_epi64_mask, _mm512_or_si512,
    _mm512_permutex2var_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_sllv_epi64,
    _mm512_srli_epi64, _mm512_srlv_epi64, _mm512_sub_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};
use super::lanes::{across, lanes};
use super::montgomery::BITS;
use super::short::{LIMBS, Short};
use crate::{LANES, number};

/// Bits of a digit.
pub(super) const DIGIT: usize = 7;
/// Digits of a scalar.
pub(super) const DIGITS: usize = 37;
/// Odd multiples in a window.
pub(super) const ENTRIES: usize = 1 << (DIGIT - 1);
/// Vectors with one limb of all of them.
const VECTORS: usize = ENTRIES / LANES;
/// What tags are modulo.
const TAG_MAX: u64 = number::LIMB_MAX;

/// The multiples of one place, a row for each limb of their coordinates; and their tags.
pub(super) struct Window<const ROWS: usize> {
    rows: [[__m512i; VECTORS]; ROWS],
    tags: [__m512i; VECTORS],
}

impl<const ROWS: usize> Window<ROWS> {
    /// Of the limbs of each entry's coordinates.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn of(entries: &[[u64; ROWS]; ENTRIES], place: usize) -> Self {
        let tag = |entry: usize| {
            let tag = (2 * entry as u64 + 1) << (DIGIT * place % number::BITS);
            (tag & TAG_MAX) + (tag >> number::BITS)
        };
        let tags = vectors(&std::array::from_fn(tag));
        Self { rows: std::array::from_fn(|row| vectors(&entries.map(|entry| entry[row]))), tags }
    }
}

/// What shows whether tables are as they must be: a change of one word always shows, and others but for one in 2^64.
pub(super) struct Checksum(u64);

impl Checksum {
    pub(super) const fn new() -> Self {
        Self(0)
    }

    pub(super) const fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Of all lanes of a constant.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn add_number(&mut self, number: &Short) {
        number.iter().for_each(|limb| lanes(*limb).into_iter().for_each(|word| self.add(word)));
    }

    /// Of all entries and tags of a table.
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

/// Faults, for tests of what finds them.
#[cfg(test)]
impl<const ROWS: usize> Window<ROWS> {
    /// Shifts each index to the entry of another one, with its tag.
    pub(super) fn shift(&mut self) {
        self.rows.iter_mut().for_each(|row| row.rotate_left(1));
        self.tags.rotate_left(1);
    }

    /// One entry's tag has lost a bit.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn flip_tag(&mut self) {
        self.tags[3] = _mm512_xor_si512(self.tags[3], across([0, 0, 0, 0, 0, 1 << 51, 0, 0]));
    }

    /// Each entry has lost a bit of a coordinate.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn flip(&mut self) {
        for vector in &mut self.rows[0] {
            *vector = _mm512_xor_si512(*vector, _mm512_set1_epi64(1 << 20));
        }
    }
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn vectors(values: &[u64; ENTRIES]) -> [__m512i; VECTORS] {
    std::array::from_fn(|vector| across(std::array::from_fn(|element| values[LANES * vector + element])))
}

/// What a digit adds.
pub(super) struct Step<const ROWS: usize> {
    /// The limbs of the entry's coordinates.
    pub(super) rows: [__m512i; ROWS],
    pub(super) sign: Sign,
}

/// Whether an entry is added or subtracted.
#[derive(Clone, Copy)]
pub(super) struct Sign {
    /// All ones where the entry is to be taken away, else all zeros.
    pub(super) negative: __m512i,
    /// The entry's, with its sign.
    tag: __m512i,
}

impl Sign {
    /// Of what is added without a tag, as tables are made.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn plus() -> Self {
        Self { negative: _mm512_setzero_si512(), tag: _mm512_setzero_si512() }
    }
}

/// What the digit of this place adds.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn step<const ROWS: usize>(windows: &[Window<ROWS>], scalars: &Short, place: usize) -> Step<ROWS> {
    let bits = bits(scalars, DIGIT * place + 1);
    // The highest digit is positive, as bit 258 is set. Others are where their highest bit is.
    let high = if place + 1 == DIGITS {
        _mm512_set1_epi64(1)
    } else {
        _mm512_srli_epi64::<{ DIGIT as u32 - 1 }>(bits)
    };
    let negative = _mm512_sub_epi64(high, _mm512_set1_epi64(1));
    let (rows, tag) = chosen(&windows[place], _mm512_xor_si512(bits, negative));
    let tag = _mm512_sub_epi64(_mm512_xor_si512(tag, negative), negative);
    Step { rows, sign: Sign { negative, tag } }
}

/// Which multiple was made: the tags of all entries that were added, with their signs. A tag is the multiple of the point that the entry
/// is, modulo 2^52 - 1; it is chosen and signed with the entry, by the same registers, so that a wrong one shows; and told as the
/// last part of the entry's addition, so that one that was passed over shows, too.
pub(super) struct Tags(__m512i);

impl Tags {
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn none() -> Self {
        Self(_mm512_setzero_si512())
    }

    /// Tells what was added, once the sum stands: one limb of each of its coordinates must be known for it.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn tell(&mut self, sign: &Sign, sum: [__m512i; 4]) {
        let [a, b, c, d] = sum;
        let known = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
        let nothing = _mm512_xor_si512(known, opaque(known));
        self.0 = _mm512_add_epi64(self.0, _mm512_xor_si512(sign.tag, nothing));
    }

    /// The lanes whose multiple was made of this scalar's digits, each once and in its place.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn are_of(&self, scalars: &Short) -> __mmask8 {
        let modulus = _mm512_set1_epi64(TAG_MAX.cast_signed());
        // The sum's size is below 37 times the modulus.
        let mut difference = _mm512_add_epi64(self.0, _mm512_slli_epi64::<6>(modulus));
        for limb in scalars {
            // 2^52 is 1.
            difference = _mm512_add_epi64(difference, _mm512_sub_epi64(modulus, *limb));
        }
        for _ in 0..2 {
            let high = _mm512_srli_epi64::<BITS>(difference);
            difference = _mm512_add_epi64(_mm512_and_si512(difference, modulus), high);
        }
        // A multiple of the modulus that is not zero, as what was folded is not: the modulus.
        _mm512_cmpeq_epi64_mask(difference, modulus)
    }
}

/// Seven bits from this one on; bits past the number are zero.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn bits(scalars: &Short, from: usize) -> __m512i {
    let (limb, bit) = (from / number::BITS, from % number::BITS);
    let shift = |bits: usize| _mm512_set1_epi64(bits as i64);
    let mut found = _mm512_srlv_epi64(scalars[limb], shift(bit));
    if bit + DIGIT > number::BITS && limb + 1 < LIMBS {
        found = _mm512_or_si512(found, _mm512_sllv_epi64(scalars[limb + 1], shift(number::BITS - bit)));
    }
    _mm512_and_si512(found, _mm512_set1_epi64((1 << DIGIT) - 1))
}

/// The entry of each lane's index, of which six bits are read, and its tag. Whole vectors are read whatever the index says; which
/// element goes to which lane is decided between registers.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn chosen<const ROWS: usize>(window: &Window<ROWS>, index: __m512i) -> ([__m512i; ROWS], __m512i) {
    let index = opaque(index);
    let mask = |bit: __m512i| {
        let bit = _mm512_and_si512(bit, _mm512_set1_epi64(1));
        _mm512_sub_epi64(_mm512_setzero_si512(), bit)
    };
    let (fifth, sixth) = (mask(_mm512_srli_epi64::<4>(index)), mask(_mm512_srli_epi64::<5>(index)));
    // The compiler would make masked permutations of it, if it knew what they are.
    let (fifth, sixth) = (opaque(fifth), opaque(sixth));
    let one = |vectors: &[__m512i; VECTORS]| {
        let sixteen = |at: usize| _mm512_permutex2var_epi64(vectors[2 * at], index, vectors[2 * at + 1]);
        let low = either(fifth, sixteen(1), sixteen(0));
        either(sixth, either(fifth, sixteen(3), sixteen(2)), low)
    };
    let mut rows = [_mm512_setzero_si512(); ROWS];
    for (row, vectors) in rows.iter_mut().zip(&window.rows) {
        *row = one(vectors);
    }
    (rows, one(&window.tags))
}

/// The first where the mask has ones, the second where it has zeros.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn either(mask: __m512i, first: __m512i, second: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xca>(mask, first, second)
}
