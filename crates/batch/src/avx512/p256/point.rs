//! Points of P-256 (SP 800-186 section 3.2.1.3: y² = x³ - 3x + b), eight in parallel, in coordinates that need no inversion for
//! additions: x = X/ZZ, y = Y/ZZZ, ZZ³ = ZZZ² (Sutherland's "XYZZ").
//!
//! The addition formulas hold for points that differ and are not inverse to each other; the doubling formula holds for all points.
//! Otherwise the result has ZZ = 0. [`super::curve`] explains why that does not happen. X stays below 2.1·p, Y below 3.9·p, ZZ and
//! ZZZ below 1.3·p.

use super::super::comb::{Sign, Tags};
use super::super::instructions::{__m512i, _mm512_add_epi64, _mm512_sub_epi64, _mm512_xor_si512};
use super::super::short::{EightShort, LIMBS, broadcast, carried};
use super::field::{self, folded, multiple, multiply, multiply_two, square, subtract};

/// Eight points in XYZZ coordinates.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: EightShort,
    pub(super) y: EightShort,
    pub(super) zz: EightShort,
    pub(super) zzz: EightShort,
}

/// Eight points in affine coordinates, below p.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    pub(super) x: EightShort,
    pub(super) y: EightShort,
}

impl Affine {
    /// Converts to extended coordinates. `one` is R.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn extended(&self, one: &EightShort) -> Point {
        Point { x: self.x, y: self.y, zz: *one, zzz: *one }
    }
}

impl Point {
    /// Adds `other`, or subtracts it in the lanes whose `negative` is all ones (madd-2008-s): ten products. Then adds the tag of
    /// this addition to `tags`.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn add(&mut self, other: &Affine, sign: &Sign, tags: &mut Tags) {
        let (u2, s2) = (multiply(&other.x, &self.zz), multiply(&other.y, &self.zzz));
        // The results are below 4.1·p and 6.1·p.
        let p = subtract::<3>(&u2, &self.x);
        let r = signed_subtract(&s2, sign.negative, &self.y);
        let pp = square(&p);
        let ppp = multiply(&p, &pp);
        let q = multiply(&self.x, &pp);
        let rr = square(&r);
        let mut x = rr;
        for limb in 0..LIMBS {
            let twice = _mm512_add_epi64(q[limb], q[limb]);
            x[limb] = _mm512_sub_epi64(_mm512_sub_epi64(rr[limb], ppp[limb]), twice);
        }
        let x = folded(&x);
        let less_y = subtract::<4>(&broadcast(&[0; LIMBS]), &self.y);
        self.y = multiply_two([&r, &subtract::<3>(&q, &x)], [&less_y, &ppp]);
        self.x = x;
        self.zz = multiply(&self.zz, &pp);
        self.zzz = multiply(&self.zzz, &ppp);
        tags.add_tag(sign, [self.x[0], self.y[0], self.zz[0], self.zzz[0]]);
    }

    /// Doubles the points (dbl-2008-s-1).
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn doubled(&self) -> Self {
        let u = sum::<1>(&self.y, &self.y);
        let v = square(&u);
        let w = multiply(&u, &v);
        let s = multiply(&self.x, &v);
        // 3·(X² - ZZ²)
        let difference = sum::<-1>(&square(&self.x), &square(&self.zz));
        let m = sum::<2>(&difference, &difference);
        let x = sum::<-2>(&square(&m), &s);
        let y = sum::<-1>(&multiply(&m, &subtract::<3>(&s, &x)), &multiply(&w, &self.y));
        Self { x, y, zz: multiply(&v, &self.zz), zzz: multiply(&w, &self.zzz) }
    }

    /// Returns the affine coordinates, given 1/ZZZ. They are below 2·p, not always below p.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn affine(&self, inverse: &EightShort) -> Affine {
        // 1/Z, as ZZ = Z² and ZZZ = Z³.
        let z = multiply(inverse, &self.zz);
        Affine { x: multiply(&self.x, &square(&z)), y: multiply(&self.y, inverse) }
    }
}

impl Affine {
    /// Returns y² - x³ + 3x - b, below p. It is zero for points on the curve.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn off_curve(&self, b: &EightShort) -> EightShort {
        let (xx, yy) = (square(&self.x), square(&self.y));
        let rest = sum::<3>(&sum::<-1>(&yy, &multiply(&xx, &self.x)), &self.x);
        field::canonical(&sum::<-1>(&rest, b))
    }
}

/// Returns a + `TIMES`·b, folded (see `folded`).
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn sum<const TIMES: i8>(a: &EightShort, b: &EightShort) -> EightShort {
    let mut limbs = *a;
    for limb in 0..LIMBS {
        for _ in 0..TIMES.unsigned_abs() {
            limbs[limb] = if TIMES < 0 {
                _mm512_sub_epi64(limbs[limb], b[limb])
            } else {
                _mm512_add_epi64(limbs[limb], b[limb])
            };
        }
    }
    folded(&limbs)
}

/// Returns ±a - b + 5·p. The sign is minus in the lanes where `negative` is all ones.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn signed_subtract(a: &EightShort, negative: __m512i, b: &EightShort) -> EightShort {
    let bias = broadcast(&const { multiple(5) });
    let mut limbs = bias;
    for limb in 0..LIMBS {
        let signed = _mm512_sub_epi64(_mm512_xor_si512(a[limb], negative), negative);
        limbs[limb] = _mm512_sub_epi64(_mm512_add_epi64(signed, bias[limb]), b[limb]);
    }
    carried(&limbs)
}
