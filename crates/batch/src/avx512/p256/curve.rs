//! Multiples of P-256's base point G.
//!
//! An odd scalar k below 2^259 is a sum of 37 odd digits d_i·128^i with |d_i| < 128: with m = (k + 2^259 - 1)/2, which is k without its
//! lowest bit and with bit 258 set, and windows u_i of seven bits of m, d_i = 2·u_i - 127. A table holds (2·e + 1)·128^i·G for each e
//! below 64 and each i; signs are put in by the addition. Each digit is looked up by reading all of its window's entries, and costs
//! one addition. No digit is zero, so no lane ever adds nothing.
//!
//! **The formulas of addition hold for every odd k below n.** The digits are summed from the highest, which is positive. Let A be
//! the sum before d_i·128^i = D is added, as a number. A is an odd multiple of 128^(i+1), and positive, as the rest is less than
//! its highest digit's place; so 0 < |D| < 128^(i+1) ≤ A, and A + D < n + 128^i. The points would be the same or inverse to each
//! other only if A ± D were a multiple of n, and as 0 < A ± D < 2·n, only if it were n. A ± D is a multiple of 128^i and n
//! is odd, so i = 0, where A + D = k < n is not n. If A - D were n, D would be (k - n)/2 < 0, and as A is 128 modulo 256, n
//! modulo 256 would be 128 - D > 128. It is 81.

use std::arch::x86_64::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpeq_epi64_mask, _mm512_or_si512,
    _mm512_permutex2var_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_sllv_epi64,
    _mm512_srli_epi64, _mm512_srlv_epi64, _mm512_sub_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};
use std::hint::black_box;
use std::sync::OnceLock;

use super::super::montgomery::BITS;
use super::super::short::{LIMBS, Short, broadcast};
use super::super::{across, gather, lanes, wide};
use super::field::{PRIME, PRIME_WORDS, inverse, multiply};
use super::point::{Affine, Point};
use crate::p256::ORDER_WORDS;
use crate::{LANES, number};

/// Bits of a digit.
const DIGIT: usize = 7;
/// Digits of a scalar.
const DIGITS: usize = 37;
/// Odd multiples in a window.
const ENTRIES: usize = 1 << (DIGIT - 1);
/// Vectors with one limb of all of them.
const VECTORS: usize = ENTRIES / LANES;
/// The limbs of an entry's coordinates, and its tag.
const ROWS: usize = 2 * LIMBS + 1;
/// The prime's and the order's R².
const TWICE_R: usize = 2 * LIMBS * number::BITS;
/// What tags are modulo.
const TAG_MAX: u64 = number::LIMB_MAX;

/// The multiples of one place, row by row.
type Window = [[__m512i; VECTORS]; ROWS];

/// What is known of the curve. No secret.
pub(super) struct Curve {
    /// b, in Montgomery's form.
    pub(super) b: Short,
    /// R modulo p.
    pub(super) one: Short,
    /// R² modulo n.
    pub(super) order_r2: Short,
    /// From the lowest place on.
    windows: Vec<Window>,
}

/// A multiple of G, and what shows that it is the one that was asked for.
pub(super) struct Multiple {
    pub(super) point: Point,
    /// The sum of the tags of the entries it was made of, with their signs: the scalar modulo 2^52 - 1, where nothing went wrong.
    tag: __m512i,
}

const BASE_X: [u64; 4] =
    [0xf4a1_3945_d898_c296, 0x7703_7d81_2deb_33a0, 0xf8bc_e6e5_63a4_40f2, 0x6b17_d1f2_e12c_4247];
const BASE_Y: [u64; 4] =
    [0xcbb6_4068_37bf_51f5, 0x2bce_3357_6b31_5ece, 0x8ee7_eb4a_7c0f_9e16, 0x4fe3_42e2_fe1a_7f9b];
const B: [u64; 4] =
    [0x3bce_3c3e_27d2_604b, 0x651d_06b0_cc53_b0f6, 0xb3eb_bd55_7698_86bc, 0x5ac6_35d8_aa3a_93e7];

impl Curve {
    /// The one there is, which takes a millisecond to make.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn get() -> &'static Self {
        static CURVE: OnceLock<Curve> = OnceLock::new();
        match CURVE.get() {
            Some(curve) => curve,
            None => {
                let made = Self::made();
                CURVE.get_or_init(|| made)
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    fn made() -> Self {
        let r2 = broadcast(&number::limbs(&number::doubled(&[1, 0, 0, 0], &PRIME_WORDS, TWICE_R)));
        let order_r2 = broadcast(&number::limbs(&number::doubled(&[1, 0, 0, 0], &ORDER_WORDS, TWICE_R)));
        let of = |words: &[u64; 4]| below_prime(&multiply(&broadcast(&number::limbs(words)), &r2));
        let one = of(&[1, 0, 0, 0]);
        let base = Affine { x: of(&BASE_X), y: of(&BASE_Y) };
        Self { b: of(&B), one, order_r2, windows: windows(&base, &one) }
    }

    /// k·G of each odd k below n.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn multiple(&self, scalars: &Short) -> Multiple {
        // The bits that are left above the last whole window: that digit is positive, and below 16.
        let highest = DIGIT * (DIGITS - 1) + 1;
        let index = bits(scalars, highest);
        let (entry, mut tag) = chosen(&self.windows[DIGITS - 1], index);
        let mut point = entry.extended(&self.one);
        for at in (0..DIGITS - 1).rev() {
            let digit = bits(scalars, DIGIT * at + 1);
            // All ones where the digit's highest bit is not set.
            let negative =
                _mm512_sub_epi64(_mm512_srli_epi64::<{ DIGIT as u32 - 1 }>(digit), _mm512_set1_epi64(1));
            let (entry, entry_tag) = chosen(&self.windows[at], _mm512_xor_si512(digit, negative));
            let signed = _mm512_sub_epi64(_mm512_xor_si512(entry_tag, negative), negative);
            tag = _mm512_add_epi64(tag, signed);
            point.add(&entry, negative);
        }
        Multiple { point, tag }
    }
}

impl Multiple {
    /// The lanes whose multiple was made of this scalar's digits, each once and in its place.
    #[target_feature(enable = "avx512f")]
    pub(super) fn is_of(&self, scalars: &Short) -> __mmask8 {
        let modulus = _mm512_set1_epi64(TAG_MAX.cast_signed());
        // The sum's size is below 37 times the modulus.
        let mut difference = _mm512_add_epi64(self.tag, _mm512_slli_epi64::<6>(modulus));
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
#[target_feature(enable = "avx512f")]
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
#[target_feature(enable = "avx512f")]
fn chosen(window: &Window, index: __m512i) -> (Affine, __m512i) {
    let index = black_box(index);
    let mask = |bit: __m512i| {
        let bit = _mm512_and_si512(bit, _mm512_set1_epi64(1));
        _mm512_sub_epi64(_mm512_setzero_si512(), bit)
    };
    let (fifth, sixth) = (mask(_mm512_srli_epi64::<4>(index)), mask(_mm512_srli_epi64::<5>(index)));
    // The compiler would make masked permutations of it, if it knew what they are.
    let (fifth, sixth) = (black_box(fifth), black_box(sixth));
    let mut rows = [_mm512_setzero_si512(); ROWS];
    for (row, vectors) in rows.iter_mut().zip(window) {
        let sixteen = |at: usize| _mm512_permutex2var_epi64(vectors[2 * at], index, vectors[2 * at + 1]);
        let low = either(fifth, sixteen(1), sixteen(0));
        let high = either(fifth, sixteen(3), sixteen(2));
        *row = either(sixth, high, low);
    }
    let [x0, x1, x2, x3, x4, y0, y1, y2, y3, y4, tag] = rows;
    (Affine { x: [x0, x1, x2, x3, x4], y: [y0, y1, y2, y3, y4] }, tag)
}

/// The first where the mask has ones, the second where it has zeros.
#[inline]
#[target_feature(enable = "avx512f")]
fn either(mask: __m512i, first: __m512i, second: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xca>(mask, first, second)
}

/// The residue below p of a number below 2·p.
#[target_feature(enable = "avx512f")]
fn below_prime(number: &Short) -> Short {
    let mut residue = *number;
    wide::reduce(&mut residue, &broadcast(&PRIME));
    residue
}

/// The multiples of each place; eight places at once.
#[target_feature(enable = "avx512f,avx512ifma")]
fn windows(base: &Affine, one: &Short) -> Vec<Window> {
    let mut place = base.extended(one);
    let mut places = Vec::with_capacity(DIGITS);
    for _ in 0..DIGITS {
        // All lanes are the same.
        places.push([place.x, place.y, place.zz, place.zzz].map(|number| number.map(|limb| lanes(limb)[0])));
        for _ in 0..DIGIT {
            place = place.doubled();
        }
    }
    let mut windows = Vec::with_capacity(DIGITS);
    for eight in places.chunks(LANES) {
        let [x, y, zz, zzz] = std::array::from_fn(|coordinate| {
            let numbers = std::array::from_fn(|lane| &eight.get(lane).unwrap_or(&eight[0])[coordinate]);
            let mut number = [_mm512_setzero_si512(); LIMBS];
            gather(&mut number, &numbers);
            number
        });
        let place = Point { x, y, zz, zzz };
        let entries = entries(&affine(&place, &inverse(&place.zzz)), one);
        for lane in 0..eight.len() {
            windows.push(window(&entries, lane, windows.len()));
        }
    }
    windows
}

/// The coordinates of the odd multiples of eight points.
#[target_feature(enable = "avx512f,avx512ifma")]
fn entries(point: &Affine, one: &Short) -> Vec<Affine> {
    let twice = point.extended(one).doubled();
    let twice = affine(&twice, &inverse(&twice.zzz));
    let mut points = vec![point.extended(one)];
    // Products of ZZZ of all points so far: one inverse is enough (Montgomery 1987).
    let mut products = vec![*one];
    for entry in 1..ENTRIES {
        let mut next = points[entry - 1];
        next.add(&twice, _mm512_setzero_si512());
        products.push(multiply(&products[entry - 1], &next.zzz));
        points.push(next);
    }
    let mut rest = inverse(&products[ENTRIES - 1]);
    let mut entries = vec![*point; ENTRIES];
    for entry in (1..ENTRIES).rev() {
        entries[entry] = affine(&points[entry], &multiply(&rest, &products[entry - 1]));
        rest = multiply(&rest, &points[entry].zzz);
    }
    entries
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn affine(point: &Point, inverse: &Short) -> Affine {
    let Affine { x, y } = point.affine(inverse);
    Affine { x: below_prime(&x), y: below_prime(&y) }
}

/// What a lane's entries are, row by row, and the tags of this place's.
#[target_feature(enable = "avx512f")]
fn window(entries: &[Affine], lane: usize, place: usize) -> Window {
    let mut values = [[0; ENTRIES]; ROWS];
    for (entry, Affine { x, y }) in entries.iter().enumerate() {
        for (row, limb) in x.iter().chain(y).enumerate() {
            values[row][entry] = lanes(*limb)[lane];
        }
        let tag = (2 * entry as u64 + 1) << (DIGIT * place % number::BITS);
        values[ROWS - 1][entry] = (tag & TAG_MAX) + (tag >> number::BITS);
    }
    values.map(|row| {
        std::array::from_fn(|vector| across(std::array::from_fn(|element| row[LANES * vector + element])))
    })
}
