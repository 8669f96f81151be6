//! Arithmetic modulo p = 2^255 - 19 (RFC 8032 section 5.1). Numbers represent their residues and may exceed p: factors are below
//! 2^260, and a product is below 2^255 + 2^215.

use super::super::instructions::{
    _mm512_add_epi64, _mm512_and_si512, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srai_epi64, _mm512_srli_epi64, _mm512_sub_epi64,
};
use super::super::montgomery::BITS;
use super::super::short::{Columns, EightShort, LIMBS, broadcast, carried, product, squared};
use super::super::wide;

/// The prime p as limbs.
pub(super) const PRIME: [u64; LIMBS] =
    [0xf_ffff_ffff_ffed, 0xf_ffff_ffff_ffff, 0xf_ffff_ffff_ffff, 0xf_ffff_ffff_ffff, 0x7fff_ffff_ffff];

/// Returns a·b modulo p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn multiply(a: &EightShort, b: &EightShort) -> EightShort {
    reduced(product(a, b))
}

/// Returns a² modulo p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn square(a: &EightShort) -> EightShort {
    reduced(squared(a))
}

/// Squares a `times` times: a to the power of 2^`times`.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn repeated_square(a: &EightShort, times: usize) -> EightShort {
    let mut power = *a;
    for _ in 0..times {
        power = square(&power);
    }
    power
}

/// Reduces a sum of products. As 2^260 is congruent to 608, each upper limb is multiplied by 608 and added five limbs lower, in two
/// parts: the lowest 52 bits and the rest. Finally the bits from 2^255 on are multiplied by 19 and added, so that the highest limb
/// has room for a carry.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn reduced(columns: Columns) -> EightShort {
    let by = _mm512_set1_epi64(608);
    let [c0, c1, c2, c3, c4, high @ ..] = columns;
    let mut limbs = [c0, c1, c2, c3, c4, _mm512_setzero_si512()];
    for limb in 0..LIMBS {
        let above = _mm512_srli_epi64::<BITS>(high[limb]);
        limbs[limb] = _mm512_madd52lo_epu64(limbs[limb], high[limb], by);
        limbs[limb + 1] = _mm512_madd52hi_epu64(limbs[limb + 1], high[limb], by);
        limbs[limb + 1] = _mm512_madd52lo_epu64(limbs[limb + 1], above, by);
    }
    let [l0, l1, l2, l3, l4, l5] = limbs;
    let times = _mm512_srli_epi64::<47>(l4);
    let l4 = _mm512_and_si512(l4, _mm512_set1_epi64((1 << 47) - 1));
    let l0 = _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(l0, l5, by), times, _mm512_set1_epi64(19));
    carried(&[l0, l1, l2, l3, l4])
}

/// Reduces a number between -2^260 and 2^260 to a residue above zero and below 2.001·p. Its limbs may be negative and have up to 56
/// bits. Subtracts p as often as the number contains 2^255, and adds p once.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn folded(number: &EightShort) -> EightShort {
    let bias = broadcast(&PRIME);
    let times = _mm512_srai_epi64::<47>(number[4]);
    let top = _mm512_and_si512(number[4], _mm512_set1_epi64((1 << 47) - 1));
    let nineteen_times = _mm512_add_epi64(
        _mm512_add_epi64(_mm512_slli_epi64::<4>(times), _mm512_slli_epi64::<1>(times)),
        times,
    );
    let limbs = [_mm512_add_epi64(number[0], nineteen_times), number[1], number[2], number[3], top];
    let mut sum = bias;
    for limb in 0..LIMBS {
        sum[limb] = _mm512_add_epi64(limbs[limb], bias[limb]);
    }
    carried(&sum)
}

/// Returns a + b. The result is below 2^260.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn add(a: &EightShort, b: &EightShort) -> EightShort {
    super::super::short::sum(a, b)
}

/// Returns a - b, folded (see `folded`).
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn subtract(a: &EightShort, b: &EightShort) -> EightShort {
    let mut limbs = *a;
    for limb in 0..LIMBS {
        limbs[limb] = _mm512_sub_epi64(a[limb], b[limb]);
    }
    folded(&limbs)
}

/// Reduces a number below 2·p to its residue below p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn below_prime(number: &EightShort) -> EightShort {
    let mut residue = *number;
    wide::reduce(&mut residue, &broadcast(&PRIME));
    residue
}

/// Reduces a number below 2^260 to its residue below p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn canonical(number: &EightShort) -> EightShort {
    // The folded number may exceed 2·p by so little that two steps are enough.
    below_prime(&below_prime(&folded(number)))
}

/// Returns 1/a (a to the power of p - 2, Fermat); zero for zero.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn inverse(a: &EightShort) -> EightShort {
    // In binary, p - 2 is 250 ones, a zero, a one, a zero and two ones: 32·(2^250 - 1) + 11. The variable names say how many ones
    // an exponent has.
    let two = square(a);
    let nine = multiply(&repeated_square(&two, 2), a);
    let eleven = multiply(&nine, &two);
    let ones5 = multiply(&square(&eleven), &nine);
    let ones10 = multiply(&repeated_square(&ones5, 5), &ones5);
    let ones20 = multiply(&repeated_square(&ones10, 10), &ones10);
    let ones40 = multiply(&repeated_square(&ones20, 20), &ones20);
    let ones50 = multiply(&repeated_square(&ones40, 10), &ones10);
    let ones100 = multiply(&repeated_square(&ones50, 50), &ones50);
    let ones200 = multiply(&repeated_square(&ones100, 100), &ones100);
    let ones250 = multiply(&repeated_square(&ones200, 50), &ones50);
    multiply(&repeated_square(&ones250, 5), &eleven)
}
