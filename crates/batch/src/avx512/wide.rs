//! Numbers of the size of the whole modulus: too many limbs for the registers, but rarely multiplied.

use super::barrier::opaque;
use super::instructions::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_andnot_si512, _mm512_cmpeq_epi64_mask,
    _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_srai_epi64, _mm512_srli_epi64, _mm512_sub_epi64, _mm512_xor_si512,
};
use super::montgomery::{BITS, EightIntegers, LIMB_MAX, LIMBS};

/// Number of limbs of a modulus.
pub(super) const WIDE: usize = 2 * LIMBS;

/// Eight numbers of the size of a modulus.
pub(super) type EightWide = [__m512i; WIDE];

/// Eight moduli n of RSA keys.
pub(super) struct WideModuli {
    /// Limbs of the moduli.
    pub(super) limbs: EightWide,
    /// -1/modulus modulo 2^52.
    pub(super) inverse: __m512i,
}

/// Returns a·b/R² modulo the modulus. The result is below twice the modulus when both factors are.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn multiply_wide(a: &EightWide, b: &EightWide, modulus: &WideModuli) -> EightWide {
    let zero = _mm512_setzero_si512();
    let mut sums = [zero; WIDE];
    for by in b {
        let lowest = _mm512_madd52lo_epu64(sums[0], *by, a[0]);
        let quotient = _mm512_madd52lo_epu64(zero, lowest, modulus.inverse);
        let lowest = _mm512_madd52lo_epu64(lowest, quotient, modulus.limbs[0]);
        let mut carry = _mm512_srli_epi64::<BITS>(lowest);
        for limb in 1..WIDE {
            let sum = _mm512_add_epi64(sums[limb], carry);
            let sum = _mm512_madd52hi_epu64(sum, *by, a[limb - 1]);
            let sum = _mm512_madd52hi_epu64(sum, quotient, modulus.limbs[limb - 1]);
            let sum = _mm512_madd52lo_epu64(sum, *by, a[limb]);
            sums[limb - 1] = _mm512_madd52lo_epu64(sum, quotient, modulus.limbs[limb]);
            carry = zero;
        }
        let highest = _mm512_madd52hi_epu64(zero, *by, a[WIDE - 1]);
        sums[WIDE - 1] = _mm512_madd52hi_epu64(highest, quotient, modulus.limbs[WIDE - 1]);
    }
    carry(&mut sums);
    sums
}

/// Returns a·b + c.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn multiply_add(a: &EightIntegers, b: &EightIntegers, c: &EightIntegers) -> EightWide {
    let mut sums = [_mm512_setzero_si512(); WIDE];
    sums[..LIMBS].copy_from_slice(c);
    for (at, by) in b.iter().enumerate() {
        for (limb, of) in a.iter().enumerate() {
            sums[at + limb] = _mm512_madd52lo_epu64(sums[at + limb], *by, *of);
            sums[at + limb + 1] = _mm512_madd52hi_epu64(sums[at + limb + 1], *by, *of);
        }
    }
    carry(&mut sums);
    sums
}

/// Normalizes each limb to 52 bits and carries the rest, which may be negative, to the next.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn carry(limbs: &mut [__m512i]) {
    let mask = _mm512_set1_epi64(LIMB_MAX);
    let mut carry = _mm512_setzero_si512();
    for limb in limbs {
        let sum = _mm512_add_epi64(*limb, carry);
        *limb = _mm512_and_si512(sum, mask);
        carry = _mm512_srai_epi64::<BITS>(sum);
    }
}

/// Subtracts the modulus once, unless the number is below it.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn reduce<const LENGTH: usize>(number: &mut [__m512i; LENGTH], modulus: &[__m512i; LENGTH]) {
    let zero = _mm512_setzero_si512();
    let mask = _mm512_set1_epi64(LIMB_MAX);
    let mut less = [zero; LENGTH];
    let mut borrow = zero;
    for limb in 0..LENGTH {
        let difference = _mm512_sub_epi64(number[limb], modulus[limb]);
        let difference = _mm512_add_epi64(difference, borrow);
        less[limb] = _mm512_and_si512(difference, mask);
        borrow = _mm512_srai_epi64::<BITS>(difference);
    }
    // Without the barrier the compiler would turn this mask into masked loads and stores.
    let below = opaque(_mm512_srai_epi64::<63>(borrow));
    for limb in 0..LENGTH {
        let unreduced = _mm512_and_si512(below, number[limb]);
        number[limb] = _mm512_or_si512(unreduced, _mm512_andnot_si512(below, less[limb]));
    }
}

/// Returns the lanes in which two numbers are equal, like [`super::short::same`].
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn same(a: &EightWide, b: &EightWide) -> __mmask8 {
    let zero = _mm512_setzero_si512();
    let mut differ = zero;
    for limb in 0..WIDE {
        differ = _mm512_or_si512(differ, _mm512_xor_si512(a[limb], b[limb]));
    }
    _mm512_cmpeq_epi64_mask(opaque(differ), zero)
}
