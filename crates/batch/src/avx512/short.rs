//! Numbers as long as those of a curve: five limbs of 52 bits, eight numbers at once.

use std::arch::x86_64::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpeq_epi64_mask, _mm512_madd52hi_epu64,
    _mm512_madd52lo_epu64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_srai_epi64,
};

use super::montgomery::{BITS, LIMB_MAX};

/// Limbs of a number; what is computed with stays below 2^260.
pub(super) const LIMBS: usize = 5;

/// Eight numbers, their limbs below 2^52 unless it is said otherwise.
pub(super) type Short = [__m512i; LIMBS];

/// Sums of products, each below 2^63, at the place of one limb.
pub(super) type Columns = [__m512i; 2 * LIMBS];

/// The same number in each lane.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn broadcast(limbs: &[u64; LIMBS]) -> Short {
    limbs.map(|limb| _mm512_set1_epi64(limb.cast_signed()))
}

/// a·b.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn product(a: &Short, b: &Short) -> Columns {
    let mut columns = [_mm512_setzero_si512(); 2 * LIMBS];
    add_product(&mut columns, a, b);
    columns
}

/// Adds a·b.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_product(columns: &mut Columns, a: &Short, b: &Short) {
    for at in 0..LIMBS {
        for limb in 0..LIMBS {
            columns[at + limb] = _mm512_madd52lo_epu64(columns[at + limb], a[limb], b[at]);
        }
        for limb in 0..LIMBS {
            columns[at + limb + 1] = _mm512_madd52hi_epu64(columns[at + limb + 1], a[limb], b[at]);
        }
    }
}

/// a·a: products of two different limbs are made once, and their sums doubled.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn squared(a: &Short) -> Columns {
    let mut columns = [_mm512_setzero_si512(); 2 * LIMBS];
    for at in 0..LIMBS {
        for limb in at + 1..LIMBS {
            columns[at + limb] = _mm512_madd52lo_epu64(columns[at + limb], a[limb], a[at]);
            columns[at + limb + 1] = _mm512_madd52hi_epu64(columns[at + limb + 1], a[limb], a[at]);
        }
    }
    for column in &mut columns {
        *column = _mm512_add_epi64(*column, *column);
    }
    for limb in 0..LIMBS {
        columns[2 * limb] = _mm512_madd52lo_epu64(columns[2 * limb], a[limb], a[limb]);
        columns[2 * limb + 1] = _mm512_madd52hi_epu64(columns[2 * limb + 1], a[limb], a[limb]);
    }
    columns
}

/// Gives each limb its 52 bits and the next what is above them, which may be less than nothing. The number is not.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn carried(limbs: &Short) -> Short {
    let mask = _mm512_set1_epi64(LIMB_MAX);
    let mut carry = _mm512_setzero_si512();
    let mut number = *limbs;
    for limb in &mut number {
        let sum = _mm512_add_epi64(*limb, carry);
        *limb = _mm512_and_si512(sum, mask);
        carry = _mm512_srai_epi64::<BITS>(sum);
    }
    number
}

/// The lanes in which two numbers have the same limbs.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn same(a: &Short, b: &Short) -> __mmask8 {
    let mut same = __mmask8::MAX;
    for limb in 0..LIMBS {
        same &= _mm512_cmpeq_epi64_mask(a[limb], b[limb]);
    }
    same
}

/// The lanes in which all limbs are zero.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn is_zero(number: &Short) -> __mmask8 {
    same(number, &[_mm512_setzero_si512(); LIMBS])
}
