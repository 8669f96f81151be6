//! Numbers of the size of curve coordinates: five limbs of 52 bits, eight numbers in parallel.

use super::barrier::opaque;
use super::instructions::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpeq_epi64_mask, _mm512_madd52hi_epu64,
    _mm512_madd52lo_epu64, _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_srai_epi64,
    _mm512_srli_epi64, _mm512_xor_si512,
};
use super::montgomery::{BITS, LIMB_MAX};
use super::wide;
use crate::number;

/// Number of limbs. Values stay below 2^260.
pub(super) const LIMBS: usize = 5;

/// Eight numbers. Their limbs are below 2^52 unless stated otherwise.
pub(super) type EightShort = [__m512i; LIMBS];

/// Sums of products by limb position, each below 2^63.
pub(super) type Columns = [__m512i; 2 * LIMBS];

/// An odd modulus m, for arithmetic in Montgomery form with R = 2^260. For factors below a·m and b·m, the product is below (ab·m/R
/// + 1)·m.
pub(super) struct Modulus {
    pub(super) limbs: [u64; LIMBS],
    /// -1/m modulo 2^52.
    inverse: u64,
}

impl Modulus {
    pub(super) const fn new(limbs: [u64; LIMBS]) -> Self {
        Self { limbs, inverse: number::negative_inverse(limbs[0]) }
    }

    /// Returns a·b/R modulo m.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn multiply(&self, a: &EightShort, b: &EightShort) -> EightShort {
        self.reduced(product(a, b))
    }

    /// Returns a²/R modulo m.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn square(&self, a: &EightShort) -> EightShort {
        self.reduced(squared(a))
    }

    /// Reduces a sum of products and divides it by R.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    fn reduced(&self, mut columns: Columns) -> EightShort {
        let (modulus, inverse) = (broadcast(&self.limbs), _mm512_set1_epi64(self.inverse.cast_signed()));
        for row in 0..LIMBS {
            let times = _mm512_madd52lo_epu64(_mm512_setzero_si512(), columns[row], inverse);
            for limb in 0..LIMBS {
                columns[row + limb] = _mm512_madd52lo_epu64(columns[row + limb], times, modulus[limb]);
                columns[row + limb + 1] =
                    _mm512_madd52hi_epu64(columns[row + limb + 1], times, modulus[limb]);
            }
            columns[row + 1] = _mm512_add_epi64(columns[row + 1], _mm512_srli_epi64::<BITS>(columns[row]));
        }
        carried(&[columns[5], columns[6], columns[7], columns[8], columns[9]])
    }

    /// Reduces a number below twice the modulus to its residue below the modulus.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn canonical(&self, number: &EightShort) -> EightShort {
        let mut residue = *number;
        wide::reduce(&mut residue, &broadcast(&self.limbs));
        residue
    }
}

/// Copies a number to every lane.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn broadcast(limbs: &[u64; LIMBS]) -> EightShort {
    limbs.map(|limb| _mm512_set1_epi64(limb.cast_signed()))
}

/// Returns a·b as columns of unreduced sums.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn product(a: &EightShort, b: &EightShort) -> Columns {
    let mut columns = [_mm512_setzero_si512(); 2 * LIMBS];
    add_product(&mut columns, a, b);
    columns
}

/// Adds a·b to `columns`.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn add_product(columns: &mut Columns, a: &EightShort, b: &EightShort) {
    for at in 0..LIMBS {
        for limb in 0..LIMBS {
            columns[at + limb] = _mm512_madd52lo_epu64(columns[at + limb], a[limb], b[at]);
        }
        for limb in 0..LIMBS {
            columns[at + limb + 1] = _mm512_madd52hi_epu64(columns[at + limb + 1], a[limb], b[at]);
        }
    }
}

/// Returns a·a. Products of two different limbs are computed once, and their sums doubled.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn squared(a: &EightShort) -> Columns {
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

/// Normalizes each limb to 52 bits and carries the rest, which may be negative, to the next. The number itself must not be
/// negative.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn carried(limbs: &EightShort) -> EightShort {
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

/// Returns a + b. The result is below 2^260.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn sum(a: &EightShort, b: &EightShort) -> EightShort {
    let mut limbs = *a;
    for limb in 0..LIMBS {
        limbs[limb] = _mm512_add_epi64(a[limb], b[limb]);
    }
    carried(&limbs)
}

/// Returns the lanes in which two numbers have the same limbs. A single comparison covers all limbs: a chain of comparisons would
/// use masked loads.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn same(a: &EightShort, b: &EightShort) -> __mmask8 {
    let zero = _mm512_setzero_si512();
    let mut differ = zero;
    for limb in 0..LIMBS {
        differ = _mm512_or_si512(differ, _mm512_xor_si512(a[limb], b[limb]));
    }
    _mm512_cmpeq_epi64_mask(opaque(differ), zero)
}

/// Returns the lanes in which all limbs are zero.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn is_zero(number: &EightShort) -> __mmask8 {
    same(number, &[_mm512_setzero_si512(); LIMBS])
}
