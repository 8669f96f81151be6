//! Points of edwards25519 (RFC 8032 section 5.1: -x² + y² = 1 + d·x²·y²), eight in parallel, in extended coordinates (Hisil, Wong,
//! Carter and Dawson 2008): x = X/Z, y = Y/Z, x·y = T/Z.
//!
//! The formulas hold for all points, as -1 is a square modulo p and d is not. Computed coordinates stay below 5·p.

use super::super::comb::{Sign, Tags, select};
use super::super::instructions::{__m512i, _mm512_setzero_si512};
use super::super::short::{EightShort, LIMBS};
use super::field::{add, canonical, multiply, square, subtract};

/// Eight points in extended coordinates.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: EightShort,
    pub(super) y: EightShort,
    pub(super) z: EightShort,
    pub(super) t: EightShort,
}

/// Eight points in the form used by additions: numbers below p.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// y + x
    pub(super) sum: EightShort,
    /// y - x
    pub(super) difference: EightShort,
    /// 2·d·x·y
    pub(super) product: EightShort,
}

/// Constants of the curve equation.
#[derive(Clone, Copy)]
pub(super) struct CurveConstants {
    /// The number 1.
    pub(super) one: EightShort,
    /// The constant d of the curve equation.
    pub(super) d: EightShort,
}

/// Affine coordinates of eight points.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    pub(super) x: EightShort,
    pub(super) y: EightShort,
}

impl Affine {
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn extended(&self, one: &EightShort) -> Point {
        Point { x: self.x, y: self.y, z: *one, t: multiply(&self.x, &self.y) }
    }

    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn entry(&self, d: &EightShort) -> Entry {
        let product = multiply(&multiply(&self.x, &self.y), d);
        Entry {
            sum: canonical(&add(&self.y, &self.x)),
            difference: canonical(&subtract(&self.y, &self.x)),
            product: canonical(&add(&product, &product)),
        }
    }

    /// Returns y² - x² - 1 - d·x²·y², below p. It is zero for points on the curve.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn off_curve(&self, constants: &CurveConstants) -> EightShort {
        let (xx, yy) = (square(&self.x), square(&self.y));
        let right = add(&constants.one, &multiply(&multiply(&xx, &yy), &constants.d));
        canonical(&subtract(&subtract(&yy, &xx), &right))
    }
}

impl Point {
    /// Adds `other`, or subtracts it in the lanes whose `negative` is all ones (madd-2008-hwcd-3): seven products. Then adds the
    /// tag of this addition to `tags`.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn add(&mut self, other: &Entry, sign: &Sign, tags: &mut Tags) {
        // -(x, y) is (-x, y): swap sum and difference, and negate the product.
        let (sum, difference) = swapped(sign.negative, &other.sum, &other.difference);
        let a = multiply(&subtract(&self.y, &self.x), &difference);
        let b = multiply(&add(&self.y, &self.x), &sum);
        let c = multiply(&self.t, &other.product);
        let d = add(&self.z, &self.z);
        let (e, h) = (subtract(&b, &a), add(&b, &a));
        let (g, f) = swapped(sign.negative, &add(&d, &c), &subtract(&d, &c));
        self.x = multiply(&e, &f);
        self.y = multiply(&g, &h);
        self.t = multiply(&e, &h);
        self.z = multiply(&f, &g);
        tags.add_tag(sign, [self.x[0], self.y[0], self.z[0], self.t[0]]);
    }

    /// Doubles the points (dbl-2008-hwcd).
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn doubled(&self) -> Self {
        let (a, b, zz) = (square(&self.x), square(&self.y), square(&self.z));
        let e = subtract(&subtract(&square(&add(&self.x, &self.y)), &a), &b);
        let g = subtract(&b, &a);
        let f = subtract(&g, &add(&zz, &zz));
        let h = subtract(&subtract(&[_mm512_setzero_si512(); LIMBS], &a), &b);
        Self { x: multiply(&e, &f), y: multiply(&g, &h), z: multiply(&f, &g), t: multiply(&e, &h) }
    }

    /// Returns the affine coordinates, given 1/Z. They are below 2·p, not always below p.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn affine(&self, inverse: &EightShort) -> Affine {
        Affine { x: multiply(&self.x, inverse), y: multiply(&self.y, inverse) }
    }
}

/// Returns both numbers, swapped where the mask is all ones.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn swapped(mask: __m512i, first: &EightShort, second: &EightShort) -> (EightShort, EightShort) {
    let (mut left, mut right) = (*first, *second);
    for limb in 0..LIMBS {
        left[limb] = select(mask, second[limb], first[limb]);
        right[limb] = select(mask, first[limb], second[limb]);
    }
    (left, right)
}
