//! Arithmetic modulo p = 2^255 - 19 (RFC 8032 section 5.1), in Montgomery's form with R = 2^260.
//!
//! Numbers stand for their residues and are not kept below p. With bounds of a·p and b·p a product is below (ab/32 + 1)·p, so
//! that sums of a few need not be reduced before they are multiplied.

use std::arch::x86_64::{
    _mm512_add_epi64, _mm512_and_si512, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srai_epi64, _mm512_sub_epi64,
};

use super::super::montgomery::BITS;
use super::super::short::{Columns, LIMBS, Short, broadcast, carried, product, squared};
use super::super::wide;

/// p, in limbs.
pub(super) const PRIME: [u64; LIMBS] =
    [0xf_ffff_ffff_ffed, 0xf_ffff_ffff_ffff, 0xf_ffff_ffff_ffff, 0xf_ffff_ffff_ffff, 0x7fff_ffff_ffff];

/// p, in words.
pub(super) const PRIME_WORDS: [u64; 4] = [0u64.wrapping_sub(19), u64::MAX, u64::MAX, u64::MAX >> 1];

/// 1/19 modulo 2^52.
const INVERSE: i64 = 0xc_a1af_286b_ca1b;

/// a·b/R.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn multiply(a: &Short, b: &Short) -> Short {
    reduced(product(a, b))
}

/// a·a/R.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn square(a: &Short) -> Short {
    reduced(squared(a))
}

/// a to the power of 2^`times`, and as often divided by R as it is multiplied.
#[target_feature(enable = "avx512f,avx512ifma")]
fn squared_often(a: &Short, times: usize) -> Short {
    let mut power = *a;
    for _ in 0..times {
        power = square(&power);
    }
    power
}

/// A sum of products over R. With a nineteenth of a lowest limb as the multiple of p that is added, -19 times it makes the limb zero and
/// carries what it has above, and 2^255 times it stands four limbs on.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn reduced(mut columns: Columns) -> Short {
    let zero = _mm512_setzero_si512();
    let constant = |number: i64| _mm512_set1_epi64(number);
    let (inverse, nineteen, top) = (constant(INVERSE), constant(19), constant(1 << 47));
    for row in 0..LIMBS {
        let times = _mm512_madd52lo_epu64(zero, columns[row], inverse);
        let above = _mm512_madd52hi_epu64(zero, times, nineteen);
        let carry = _mm512_sub_epi64(_mm512_srai_epi64::<BITS>(columns[row]), above);
        columns[row + 1] = _mm512_add_epi64(columns[row + 1], carry);
        columns[row + 4] = _mm512_madd52lo_epu64(columns[row + 4], times, top);
        columns[row + 5] = _mm512_madd52hi_epu64(columns[row + 5], times, top);
    }
    carried(&[columns[5], columns[6], columns[7], columns[8], columns[9]])
}

/// The residue of a number between -2^260 and 2^260, whose limbs may have 56 bits and be less than nothing: above zero and below
/// 2.001·p. Of the multiple of 2^255 in it the same one of p is taken off, and p is added.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn folded(number: &Short) -> Short {
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

/// a + b, below 2^260.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add(a: &Short, b: &Short) -> Short {
    super::super::short::sum(a, b)
}

/// a - b, folded.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn subtract(a: &Short, b: &Short) -> Short {
    let mut limbs = *a;
    for limb in 0..LIMBS {
        limbs[limb] = _mm512_sub_epi64(a[limb], b[limb]);
    }
    folded(&limbs)
}

/// a + b, folded.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_folded(a: &Short, b: &Short) -> Short {
    let mut limbs = *a;
    for limb in 0..LIMBS {
        limbs[limb] = _mm512_add_epi64(a[limb], b[limb]);
    }
    folded(&limbs)
}

/// The residue below p of a number below 2·p.
#[target_feature(enable = "avx512f")]
pub(super) fn below_prime(number: &Short) -> Short {
    let mut residue = *number;
    wide::reduce(&mut residue, &broadcast(&PRIME));
    residue
}

/// a/R, below p: the residue that a number in Montgomery's form stands for.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn canonical(a: &Short) -> Short {
    below_prime(&multiply(a, &broadcast(&[1, 0, 0, 0, 0])))
}

/// 1/a (a to the power of p - 2, Fermat), in Montgomery's form as a is; zero for zero.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inverse(a: &Short) -> Short {
    // p - 2 has 250 ones, a zero, a one, a zero and two ones: 32 times 2^250 - 1, and 11. Names say how many ones an exponent has.
    let two = square(a);
    let nine = multiply(&squared_often(&two, 2), a);
    let eleven = multiply(&nine, &two);
    let ones5 = multiply(&square(&eleven), &nine);
    let ones10 = multiply(&squared_often(&ones5, 5), &ones5);
    let ones20 = multiply(&squared_often(&ones10, 10), &ones10);
    let ones40 = multiply(&squared_often(&ones20, 20), &ones20);
    let ones50 = multiply(&squared_often(&ones40, 10), &ones10);
    let ones100 = multiply(&squared_often(&ones50, 50), &ones50);
    let ones200 = multiply(&squared_often(&ones100, 100), &ones100);
    let ones250 = multiply(&squared_often(&ones200, 50), &ones50);
    multiply(&squared_often(&ones250, 5), &eleven)
}
