//! Arithmetic modulo n, the order of P-256's group (SP 800-186 section 3.2.1.3), in Montgomery's form with R = 2^260. The bounds
//! are those of [`super::field`].

use std::arch::x86_64::{
    _mm512_add_epi64, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_srli_epi64,
};

use super::super::montgomery::BITS;
use super::super::short::{Columns, LIMBS, Short, broadcast, carried, product, squared};
use super::super::wide;
use crate::number;
use crate::p256::ORDER_WORDS;

/// n, in limbs.
pub(super) const ORDER: [u64; LIMBS] =
    [0x9_cac2_fc63_2551, 0xa_da71_79e8_4f3b, 0xf_ffff_ffbc_e6fa, 0xf_ffff_ffff, 0xffff_ffff_0000];

/// -1/n modulo 2^52.
const INVERSE: u64 = number::negative_inverse(ORDER_WORDS[0]);

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

/// A sum of products over R.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn reduced(mut columns: Columns) -> Short {
    let (order, inverse) = (broadcast(&ORDER), _mm512_set1_epi64(INVERSE.cast_signed()));
    for row in 0..LIMBS {
        let times = _mm512_madd52lo_epu64(_mm512_setzero_si512(), columns[row], inverse);
        for limb in 0..LIMBS {
            columns[row + limb] = _mm512_madd52lo_epu64(columns[row + limb], times, order[limb]);
            columns[row + limb + 1] = _mm512_madd52hi_epu64(columns[row + limb + 1], times, order[limb]);
        }
        columns[row + 1] = _mm512_add_epi64(columns[row + 1], _mm512_srli_epi64::<BITS>(columns[row]));
    }
    carried(&[columns[5], columns[6], columns[7], columns[8], columns[9]])
}

/// The residue below n of a number below 2·n.
#[target_feature(enable = "avx512f")]
pub(super) fn canonical(number: &Short) -> Short {
    let mut residue = *number;
    wide::reduce(&mut residue, &broadcast(&ORDER));
    residue
}

/// 1/a (a to the power of n - 2, Fermat), in Montgomery's form as a is; zero for zero. The exponent is no secret.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inverse(a: &Short) -> Short {
    // a to the powers from 1 to 15.
    let mut powers = [*a; 15];
    for at in 1..powers.len() {
        powers[at] = multiply(&powers[at - 1], a);
    }
    let [lowest, rest @ ..] = ORDER_WORDS;
    let exponent = [lowest - 2, rest[0], rest[1], rest[2]];
    // Its first window is full.
    let mut power = powers[14];
    for window in (0..63).rev() {
        for _ in 0..4 {
            power = square(&power);
        }
        let bits = exponent[window / 16] >> (4 * (window % 16)) & 15;
        if bits > 0 {
            power = multiply(&power, &powers[bits as usize - 1]);
        }
    }
    power
}
