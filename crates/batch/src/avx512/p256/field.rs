//! Arithmetic modulo p = 2^256 - 2^224 + 2^192 + 2^96 - 1 (SP 800-186 section 3.2.1.3), in Montgomery form with R = 2^260.
//!
//! Numbers represent their residues and may exceed p. For factors below a·p and b·p, the product is below (ab/16 + 1)·p. So small
//! sums need no reduction before a multiplication.

use super::super::instructions::{
    _mm512_add_epi64, _mm512_and_si512, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_set1_epi64,
    _mm512_slli_epi64, _mm512_srai_epi64, _mm512_srli_epi64, _mm512_sub_epi64,
};
use super::super::montgomery::BITS;
use super::super::short::{Columns, EightShort, LIMBS, add_product, broadcast, carried, product, squared};
use super::super::wide;

/// The prime p as limbs.
pub(super) const PRIME: [u64; LIMBS] =
    [0xf_ffff_ffff_ffff, 0xfff_ffff_ffff, 0, 0x10_0000_0000, 0xffff_ffff_0000];

/// The prime p as words.
pub(super) const PRIME_WORDS: [u64; 4] = [u64::MAX, 0xffff_ffff, 0, 0xffff_ffff_0000_0001];

/// Returns `times`·p. Its limbs have more than 52 bits.
pub(super) const fn multiple(times: u64) -> [u64; LIMBS] {
    let mut limbs = PRIME;
    let mut limb = 0;
    while limb < LIMBS {
        limbs[limb] *= times;
        limb += 1;
    }
    limbs
}

/// Returns a·b/R modulo p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn multiply(a: &EightShort, b: &EightShort) -> EightShort {
    reduced(product(a, b))
}

/// Returns (a·b + c·d)/R modulo p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn multiply_two([a, b]: [&EightShort; 2], [c, d]: [&EightShort; 2]) -> EightShort {
    let mut columns = product(a, b);
    add_product(&mut columns, c, d);
    reduced(columns)
}

/// Returns a²/R modulo p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn square(a: &EightShort) -> EightShort {
    reduced(squared(a))
}

/// Returns a to the power of 2^`times`, in Montgomery form.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn repeated_square(a: &EightShort, times: usize) -> EightShort {
    let mut power = *a;
    for _ in 0..times {
        power = square(&power);
    }
    power
}

/// Reduces a sum of products and divides it by R. As p is -1 modulo 2^52, each lowest limb is itself the multiple of p to add. The
/// limbs above are then the limbs of p + 1.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn reduced(mut columns: Columns) -> EightShort {
    let limb = |limb: u64| _mm512_set1_epi64(limb.cast_signed());
    let (second, fourth, fifth) = (limb(PRIME[1] + 1), limb(PRIME[3]), limb(PRIME[4]));
    for row in 0..LIMBS {
        let times = columns[row];
        let carry = _mm512_srli_epi64::<BITS>(times);
        let next = _mm512_madd52lo_epu64(columns[row + 1], times, second);
        columns[row + 1] = _mm512_add_epi64(next, carry);
        columns[row + 2] = _mm512_madd52hi_epu64(columns[row + 2], times, second);
        columns[row + 3] = _mm512_madd52lo_epu64(columns[row + 3], times, fourth);
        columns[row + 4] = _mm512_madd52hi_epu64(columns[row + 4], times, fourth);
        columns[row + 4] = _mm512_madd52lo_epu64(columns[row + 4], times, fifth);
        columns[row + 5] = _mm512_madd52hi_epu64(columns[row + 5], times, fifth);
    }
    carried(&[columns[5], columns[6], columns[7], columns[8], columns[9]])
}

/// Returns a - b + `TIMES`·p, for b up to `TIMES`·p.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn subtract<const TIMES: u64>(a: &EightShort, b: &EightShort) -> EightShort {
    let bias = broadcast(&const { multiple(TIMES) });
    let mut limbs = bias;
    for limb in 0..LIMBS {
        limbs[limb] = _mm512_sub_epi64(_mm512_add_epi64(a[limb], bias[limb]), b[limb]);
    }
    carried(&limbs)
}

/// Reduces a number between -2^260 and 2^260 to a residue above zero and below 2.001·p. Its limbs may be negative and have up to 56
/// bits. Subtracts p as often as the number contains 2^256, and adds p once.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn folded(number: &EightShort) -> EightShort {
    let bias = broadcast(&PRIME);
    let times = _mm512_srai_epi64::<48>(number[4]);
    let top = _mm512_and_si512(number[4], _mm512_set1_epi64((1 << 48) - 1));
    let limbs = [
        _mm512_add_epi64(number[0], times),
        _mm512_sub_epi64(number[1], _mm512_slli_epi64::<44>(times)),
        number[2],
        _mm512_sub_epi64(number[3], _mm512_slli_epi64::<36>(times)),
        _mm512_add_epi64(top, _mm512_slli_epi64::<16>(times)),
    ];
    let mut sum = bias;
    for limb in 0..LIMBS {
        sum[limb] = _mm512_add_epi64(limbs[limb], bias[limb]);
    }
    carried(&sum)
}

/// Converts a from Montgomery form: a/R, reduced below p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn canonical(a: &EightShort) -> EightShort {
    let mut residue = multiply(a, &broadcast(&[1, 0, 0, 0, 0]));
    wide::reduce(&mut residue, &broadcast(&PRIME));
    residue
}

/// Returns 1/a (a to the power of p - 2, Fermat). Input and result are in Montgomery form. Zero for zero.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn inverse(a: &EightShort) -> EightShort {
    // The variable names say how many ones an exponent has. In binary, p - 2 is 32 ones, 31 zeros, a one, 96 zeros, 94 ones, a zero
    // and a one.
    let ones2 = multiply(&square(a), a);
    let ones4 = multiply(&repeated_square(&ones2, 2), &ones2);
    let ones8 = multiply(&repeated_square(&ones4, 4), &ones4);
    let ones16 = multiply(&repeated_square(&ones8, 8), &ones8);
    let ones32 = multiply(&repeated_square(&ones16, 16), &ones16);
    let ones30 = {
        let ones24 = multiply(&repeated_square(&ones16, 8), &ones8);
        let ones28 = multiply(&repeated_square(&ones24, 4), &ones4);
        multiply(&repeated_square(&ones28, 2), &ones2)
    };
    let head = multiply(&repeated_square(&ones32, 32), a);
    let tail = multiply(&repeated_square(&head, 128), &ones32);
    let tail = multiply(&repeated_square(&tail, 32), &ones32);
    let tail = multiply(&repeated_square(&tail, 30), &ones30);
    multiply(&repeated_square(&tail, 2), a)
}
