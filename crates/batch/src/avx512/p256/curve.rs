//! Multiples of P-256's base point G, by digits ([`super::super::comb`]).
//!
//! **The addition formulas hold for every odd k below n.** The digits are summed from the highest, which is positive. Let A be the
//! sum, as a number, before D = d_i·128^i is added. A is an odd multiple of 128^(i+1). It is positive, as the remaining digits are
//! less than one unit of the highest one. So 0 < |D| < 128^(i+1) ≤ A, and A + D < n + 128^i.
//!
//! The points are equal or inverse to each other only if A ± D is a multiple of n. As 0 < A ± D < 2·n, it must be n. A ± D is a
//! multiple of 128^i and n is odd, so i = 0. There A + D = k < n is not n. If A - D were n, D would be (k - n)/2 < 0. As A is 128
//! modulo 256, n modulo 256 would be 128 - D > 128. But it is 81.

use super::super::instructions::{__mmask8, _mm512_setzero_si512};
use std::sync::OnceLock;

use super::super::comb::{Checksum, DIGIT, DIGITS, ENTRIES, Sign, Step, Tags, Window, step};
use super::super::lanes::{gather, lanes};
use super::super::short::{EightShort, LIMBS, broadcast};
use super::super::wide;
use super::field::{PRIME, PRIME_WORDS, inverse, multiply};
use super::point::{Affine, Point};
use crate::p256::ORDER_WORDS;
use crate::{LANES, number};

/// Number of limbs of both coordinates.
const ROWS: usize = 2 * LIMBS;
/// Number of bits of R².
const TWICE_R: usize = 2 * LIMBS * number::BITS;

const BASE_X: [u64; 4] =
    [0xf4a1_3945_d898_c296, 0x7703_7d81_2deb_33a0, 0xf8bc_e6e5_63a4_40f2, 0x6b17_d1f2_e12c_4247];
const BASE_Y: [u64; 4] =
    [0xcbb6_4068_37bf_51f5, 0x2bce_3357_6b31_5ece, 0x8ee7_eb4a_7c0f_9e16, 0x4fe3_42e2_fe1a_7f9b];
const B: [u64; 4] =
    [0x3bce_3c3e_27d2_604b, 0x651d_06b0_cc53_b0f6, 0xb3eb_bd55_7698_86bc, 0x5ac6_35d8_aa3a_93e7];

/// Expected checksum of [`Curve`], which a test computes with plain numbers.
pub(super) const CHECKSUM: u64 = 0x1932_eaf0_79b6_69ab;

/// Constants of the curve. They are not secret.
pub(super) struct Curve {
    /// b, in Montgomery form.
    pub(super) b: EightShort,
    /// R modulo p (1 in Montgomery form).
    pub(super) one: EightShort,
    /// R² modulo n.
    pub(super) order_r2: EightShort,
    /// Tables, from the lowest digit position on.
    pub(super) windows: Vec<Window<ROWS>>,
}

/// A multiple of G, and tags that prove that it is the requested one.
pub(super) struct Multiple {
    pub(super) point: Point,
    tags: Tags,
}

impl Curve {
    /// Returns the shared tables. The first caller builds them in a millisecond, and others wait. `None` for the rest of the
    /// process if the tables are corrupt: they would corrupt every later signature.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn get() -> Option<&'static Self> {
        static CURVE: OnceLock<Option<Box<Curve>>> = OnceLock::new();
        // Check the tables at their final address.
        CURVE.get_or_init(|| Some(Box::new(Self::made())).filter(|curve| curve.is_sound())).as_deref()
    }

    /// Returns whether the tables match the checksum that was verified with plain numbers.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn is_sound(&self) -> bool {
        self.checksum() == CHECKSUM
    }

    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn made() -> Self {
        let r2 = broadcast(&number::limbs(&number::doubled(&[1, 0, 0, 0], &PRIME_WORDS, TWICE_R)));
        let order_r2 = broadcast(&number::limbs(&number::doubled(&[1, 0, 0, 0], &ORDER_WORDS, TWICE_R)));
        let of = |words: &[u64; 4]| below_prime(&multiply(&broadcast(&number::limbs(words)), &r2));
        let one = of(&[1, 0, 0, 0]);
        let base = Affine { x: of(&BASE_X), y: of(&BASE_Y) };
        Self { b: of(&B), one, order_r2, windows: windows(&base, &one) }
    }

    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    fn checksum(&self) -> u64 {
        let mut checksum = Checksum::new();
        [&self.b, &self.one, &self.order_r2].into_iter().for_each(|number| checksum.add_number(number));
        checksum.add_windows(&self.windows);
        checksum.value()
    }

    /// Returns k·G for each odd k below n.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn multiple(&self, scalars: &EightShort) -> Multiple {
        self.multiple_by(scalars, |_| true)
    }

    /// Same as `multiple`, but tests can skip additions with `is_made`.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn multiple_by(&self, scalars: &EightShort, is_made: impl Fn(usize) -> bool) -> Multiple {
        let mut tags = Tags::none();
        let highest = step(&self.windows, scalars, DIGITS - 1);
        let mut point = to_affine(&highest).extended(&self.one);
        tags.add_tag(&highest.sign, [point.x[0], point.y[0], point.zz[0], point.zzz[0]]);
        for position in (0..DIGITS - 1).rev() {
            let step = step(&self.windows, scalars, position);
            if is_made(position) {
                point.add(&to_affine(&step), &step.sign, &mut tags);
            }
        }
        Multiple { point, tags }
    }
}

impl Multiple {
    /// Returns a mask of the lanes whose point was computed with the scalar of that lane.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    pub(super) fn matches_scalars(&self, scalars: &EightShort) -> __mmask8 {
        self.tags.match_scalars(scalars)
    }
}

#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn to_affine(step: &Step<ROWS>) -> Affine {
    let [x0, x1, x2, x3, x4, y0, y1, y2, y3, y4] = step.rows;
    Affine { x: [x0, x1, x2, x3, x4], y: [y0, y1, y2, y3, y4] }
}

/// Reduces a number below 2·p to its residue below p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn below_prime(number: &EightShort) -> EightShort {
    let mut residue = *number;
    wide::reduce(&mut residue, &broadcast(&PRIME));
    residue
}

/// Computes the multiples for each digit position, eight positions in parallel.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn windows(base: &Affine, one: &EightShort) -> Vec<Window<ROWS>> {
    let mut position = base.extended(one);
    let mut positions = Vec::with_capacity(DIGITS);
    for _ in 0..DIGITS {
        // All lanes are equal.
        positions.push(
            [position.x, position.y, position.zz, position.zzz]
                .map(|number| number.map(|limb| lanes(limb)[0])),
        );
        for _ in 0..DIGIT {
            position = position.doubled();
        }
    }
    let mut windows = Vec::with_capacity(DIGITS);
    for eight in positions.chunks(LANES) {
        let [x, y, zz, zzz] = std::array::from_fn(|coordinate| {
            let numbers = std::array::from_fn(|lane| &eight.get(lane).unwrap_or(&eight[0])[coordinate]);
            let mut number = [_mm512_setzero_si512(); LIMBS];
            gather(&mut number, &numbers);
            number
        });
        let position = Point { x, y, zz, zzz };
        let entries = entries(&affine(&position, &inverse(&position.zzz)), one);
        for lane in 0..eight.len() {
            windows.push(window(&entries, lane, windows.len()));
        }
    }
    windows
}

/// Computes the coordinates of the odd multiples of eight points.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn entries(point: &Affine, one: &EightShort) -> Vec<Affine> {
    let twice = point.extended(one).doubled();
    let twice = affine(&twice, &inverse(&twice.zzz));
    let mut points = vec![point.extended(one)];
    // Products of the ZZZ coordinates of all points so far, so that one inversion is enough (Montgomery 1987).
    let mut products = vec![*one];
    for entry in 1..ENTRIES {
        let mut next = points[entry - 1];
        next.add(&twice, &Sign::plus(), &mut Tags::none());
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

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn affine(point: &Point, inverse: &EightShort) -> Affine {
    let Affine { x, y } = point.affine(inverse);
    Affine { x: below_prime(&x), y: below_prime(&y) }
}

/// Builds the window from the entries in one lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn window(entries: &[Affine], lane: usize, position: usize) -> Window<ROWS> {
    let mut limbs = [[0; ROWS]; ENTRIES];
    for (limbs, Affine { x, y }) in limbs.iter_mut().zip(entries) {
        for (row, limb) in limbs.iter_mut().zip(x.iter().chain(y)) {
            *row = lanes(*limb)[lane];
        }
    }
    Window::of(&limbs, position)
}
