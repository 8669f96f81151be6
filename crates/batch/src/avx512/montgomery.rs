//! Montgomery multiplication of eight pairs of 1,024-bit numbers in parallel. This is an "almost" Montgomery multiplication: if
//! both factors are below twice the modulus, the result is, too. So no final subtraction is needed. R is 2^1040, sixteen bits above
//! the modulus.
//!
//! A number consists of twenty limbs of 52 bits; a vector holds one limb of eight numbers. The 64-bit sums have twelve spare bits
//! for up to eighty products before a carry.

use super::instructions::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64,
    _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_srli_epi64,
};

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Number of limbs of a prime.
pub(super) const LIMBS: usize = 20;
/// Number of positions that one row of products changes: the window of sums that stays in registers.
const WINDOW: usize = LIMBS + 1;
/// Number of bits in a limb.
pub(super) const BITS: u32 = 52;
/// A limb with all bits set.
pub(super) const LIMB_MAX: i64 = (1 << BITS) - 1;

/// Eight numbers of twenty limbs.
pub(super) type EightIntegers = [__m512i; LIMBS];

/// Eight moduli. They are secret, as they are primes of private keys.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Moduli {
    /// Limbs of the moduli.
    pub(super) limbs: EightIntegers,
    /// -1/modulus modulo 2^52.
    pub(super) inverse: __m512i,
}

/// Expands to all rows of a product, and passes to each row the limbs after its own. The code is fully unrolled, so that every sum
/// has its own register: the window shifts by renaming, not by copying.
macro_rules! rows {
    ($row:ident) => {
        $row!(0; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(1; 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(2; 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(3; 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(4; 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(5; 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(6; 7 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(7; 8 9 10 11 12 13 14 15 16 17 18 19);
        $row!(8; 9 10 11 12 13 14 15 16 17 18 19);
        $row!(9; 10 11 12 13 14 15 16 17 18 19);
        $row!(10; 11 12 13 14 15 16 17 18 19);
        $row!(11; 12 13 14 15 16 17 18 19);
        $row!(12; 13 14 15 16 17 18 19);
        $row!(13; 14 15 16 17 18 19);
        $row!(14; 15 16 17 18 19);
        $row!(15; 16 17 18 19);
        $row!(16; 17 18 19);
        $row!(17; 18 19);
        $row!(18; 19);
        $row!(19;);
    };
}

/// Adds `by`·`of` to the sums of a position and the next. The model must not inline this function. LLVM's compile time grows with
/// the square of the number of vector moves in a function, and a product has 6,500 moves (80 s).
#[cfg_attr(batch_model, inline(never))]
#[cfg_attr(not(batch_model), inline, target_feature(enable = "avx512f,avx512ifma"))]
fn add_product(window: &mut [__m512i; WINDOW], position: usize, by: &__m512i, of: &__m512i) {
    let (low, high) = (position % WINDOW, (position + 1) % WINDOW);
    window[low] = _mm512_madd52lo_epu64(window[low], *by, *of);
    window[high] = _mm512_madd52hi_epu64(window[high], *by, *of);
}

/// Adds `$by` times each limb of `$of`.
macro_rules! add_row {
    ($window:ident, $at:literal, $by:expr, $of:expr) => {
        add_row!($window, $at, $by, $of, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19)
    };
    ($window:ident, $at:literal, $by:expr, $of:expr, $($limb:literal)*) => {
        $(add_product(&mut $window, $at + $limb, &$by, &$of[$limb]);)*
    };
}

/// Returns how often the modulus must be added to make the window's lowest limb zero.
macro_rules! quotient {
    ($window:ident, $at:literal, $modulus:ident) => {
        _mm512_madd52lo_epu64(_mm512_setzero_si512(), $window[$at % WINDOW], $modulus.inverse)
    };
}

/// Adds the multiple of the modulus that clears the lowest limb, and carries the rest.
macro_rules! reduce {
    ($window:ident, $at:literal, $quotient:ident, $modulus:ident) => {{
        add_row!($window, $at, $quotient, $modulus.limbs);
        let carry = _mm512_srli_epi64::<BITS>($window[$at % WINDOW]);
        $window[($at + 1) % WINDOW] = _mm512_add_epi64($window[($at + 1) % WINDOW], carry);
        $window[$at % WINDOW] = _mm512_setzero_si512();
    }};
}

/// Replaces a by a·b/R modulo the modulus. The result is below twice the modulus if a·b is below R times the modulus.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn multiply(a: &mut EightIntegers, b: &EightIntegers, modulus: &Moduli) {
    let mut window = [_mm512_setzero_si512(); WINDOW];
    macro_rules! row {
        ($at:literal; $($after:literal)*) => {{
            let by = b[$at];
            add_product(&mut window, $at, &by, &a[0]);
            let quotient = quotient!(window, $at, modulus);
            add_row!(window, $at, by, a, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
            reduce!(window, $at, quotient, modulus);
        }};
    }
    rows!(row);
    carried(a, &window);
}

/// Replaces a by a·a/R modulo the modulus, like [`multiply`]. Products of two different limbs are computed once, with a doubled
/// limb.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
pub(super) fn square(a: &mut EightIntegers, modulus: &Moduli) {
    let mut window = [_mm512_setzero_si512(); WINDOW];
    // 2a, and each of its limbs without the carry from the limb below. Bits beyond 52 are ignored.
    let (mut shifted, mut doubled) = (*a, *a);
    for limb in 0..LIMBS {
        shifted[limb] = _mm512_add_epi64(a[limb], a[limb]);
        doubled[limb] = match limb {
            0 => shifted[0],
            _ => _mm512_or_si512(shifted[limb], _mm512_srli_epi64::<{ BITS - 1 }>(a[limb - 1])),
        };
    }
    macro_rules! row {
        ($at:literal; $($after:literal)*) => {{
            let by = a[$at];
            add_product(&mut window, $at + $at, &by, &by);
            $(add_product(&mut window, $at + $after, &by, if $after == $at + 1 { &shifted[$after] } else { &doubled[$after] });)*
            let quotient = quotient!(window, $at, modulus);
            reduce!(window, $at, quotient, modulus);
        }};
    }
    rows!(row);
    carried(a, &window);
}

/// Converts the window after its last row to a number in limbs of 52 bits.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn carried(number: &mut EightIntegers, window: &[__m512i; WINDOW]) {
    let mask = _mm512_set1_epi64(LIMB_MAX);
    let mut carry = _mm512_setzero_si512();
    for limb in 0..LIMBS {
        let sum = _mm512_add_epi64(window[(LIMBS + limb) % WINDOW], carry);
        number[limb] = _mm512_and_si512(sum, mask);
        carry = _mm512_srli_epi64::<BITS>(sum);
    }
}
