//! Multiples of edwards25519's base point B, by digits ([`super::super::comb`]). The addition formulas are complete.

use super::super::instructions::{__mmask8, _mm512_setzero_si512};
use std::sync::OnceLock;

use super::super::comb::{Checksum, DIGIT, DIGITS, ENTRIES, Sign, Step, Tags, Window, step};
use super::super::lanes::{gather, lanes};
use super::super::short::{EightShort, LIMBS, broadcast};
use super::field::{inverse, multiply};
use super::point::{Affine, CurveConstants, Entry, Point};
use crate::ed25519::ORDER_WORDS;
use crate::{LANES, number};

/// Number of limbs of an entry.
const ROWS: usize = 3 * LIMBS;
/// Number of bits of R.
const R: usize = LIMBS * number::BITS;

const BASE_X: [u64; 4] =
    [0xc956_2d60_8f25_d51a, 0x692c_c760_9525_a7b2, 0xc0a4_e231_fdd6_dc5c, 0x2169_36d3_cd6e_53fe];
const BASE_Y: [u64; 4] =
    [0x6666_6666_6666_6658, 0x6666_6666_6666_6666, 0x6666_6666_6666_6666, 0x6666_6666_6666_6666];
const D: [u64; 4] =
    [0x75eb_4dca_1359_78a3, 0x0070_0a4d_4141_d8ab, 0x8cc7_4079_7779_e898, 0x5203_6cee_2b6f_fe73];

/// Expected checksum of [`Curve`], which a test computes with plain numbers.
pub(super) const CHECKSUM: u64 = 0x2dc5_0db1_4a65_47f4;

/// Constants of the curve. They are not secret.
pub(super) struct Curve {
    pub(super) constants: CurveConstants,
    /// R² and R³ modulo L.
    pub(super) order_r2: EightShort,
    pub(super) order_r3: EightShort,
    /// Tables, from the lowest digit position on.
    pub(super) windows: Vec<Window<ROWS>>,
}

/// Eight multiples of the base point B, and tags that show by which scalar each was computed.
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
        let of_order =
            |times| broadcast(&number::limbs(&number::doubled(&[1, 0, 0, 0], &ORDER_WORDS, times * R)));
        let of = |words: &[u64; 4]| broadcast(&number::limbs(words));
        let constants = CurveConstants { one: of(&[1, 0, 0, 0]), d: of(&D) };
        let windows = windows(&Affine { x: of(&BASE_X), y: of(&BASE_Y) }, &constants);
        Self { constants, order_r2: of_order(2), order_r3: of_order(3), windows }
    }

    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    fn checksum(&self) -> u64 {
        let (mut checksum, CurveConstants { one, d }) = (Checksum::new(), &self.constants);
        [one, d, &self.order_r2, &self.order_r3].into_iter().for_each(|number| checksum.add_number(number));
        checksum.add_windows(&self.windows);
        checksum.value()
    }

    /// Returns k·B for each odd k below 2^256.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn multiple(&self, scalars: &EightShort) -> Multiple {
        self.multiple_by(scalars, |_| true)
    }

    /// Same as `multiple`, but tests can skip additions with `is_made`.
    #[inline]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
    pub(super) fn multiple_by(&self, scalars: &EightShort, is_made: impl Fn(usize) -> bool) -> Multiple {
        let (mut tags, zero) = (Tags::none(), [_mm512_setzero_si512(); LIMBS]);
        let one = self.constants.one;
        let mut point = Point { x: zero, y: one, z: one, t: zero };
        for position in (0..DIGITS).rev() {
            let step = step(&self.windows, scalars, position);
            if is_made(position) {
                point.add(&entry_of(&step), &step.sign, &mut tags);
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
fn entry_of(step: &Step<ROWS>) -> Entry {
    let [s0, s1, s2, s3, s4, d0, d1, d2, d3, d4, p0, p1, p2, p3, p4] = step.rows;
    Entry { sum: [s0, s1, s2, s3, s4], difference: [d0, d1, d2, d3, d4], product: [p0, p1, p2, p3, p4] }
}

/// Computes the multiples for each digit position, eight positions in parallel.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn windows(base: &Affine, constants: &CurveConstants) -> Vec<Window<ROWS>> {
    let mut position = base.extended(&constants.one);
    let mut positions = Vec::with_capacity(DIGITS);
    for _ in 0..DIGITS {
        // All lanes are equal.
        positions.push([position.x, position.y, position.z].map(|number| number.map(|limb| lanes(limb)[0])));
        for _ in 0..DIGIT {
            position = position.doubled();
        }
    }
    let mut windows = Vec::with_capacity(DIGITS);
    for eight in positions.chunks(LANES) {
        let [x, y, z] = std::array::from_fn(|coordinate| {
            let numbers = std::array::from_fn(|lane| &eight.get(lane).unwrap_or(&eight[0])[coordinate]);
            let mut number = [_mm512_setzero_si512(); LIMBS];
            gather(&mut number, &numbers);
            number
        });
        let inverse = inverse(&z);
        let entries = entries(&Affine { x: multiply(&x, &inverse), y: multiply(&y, &inverse) }, constants);
        for lane in 0..eight.len() {
            windows.push(window(&entries, lane, windows.len()));
        }
    }
    windows
}

/// Computes the odd multiples of eight points.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn entries(point: &Affine, constants: &CurveConstants) -> Vec<Entry> {
    let mut next = point.extended(&constants.one);
    let twice = next.doubled();
    let twice = twice.affine(&inverse(&twice.z)).entry(&constants.d);
    let mut points = vec![next];
    // Products of the Z coordinates of all points so far, so that one inversion is enough (Montgomery 1987).
    let mut products = vec![next.z];
    for entry in 1..ENTRIES {
        next.add(&twice, &Sign::plus(), &mut Tags::none());
        products.push(multiply(&products[entry - 1], &next.z));
        points.push(next);
    }
    let mut rest = inverse(&products[ENTRIES - 1]);
    let mut entries = vec![point.entry(&constants.d); ENTRIES];
    for entry in (1..ENTRIES).rev() {
        let inverse = multiply(&rest, &products[entry - 1]);
        entries[entry] = points[entry].affine(&inverse).entry(&constants.d);
        rest = multiply(&rest, &points[entry].z);
    }
    entries
}

/// Builds the window from the entries in one lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn window(entries: &[Entry], lane: usize, position: usize) -> Window<ROWS> {
    let mut limbs = [[0; ROWS]; ENTRIES];
    for (limbs, Entry { sum, difference, product }) in limbs.iter_mut().zip(entries) {
        for (row, limb) in limbs.iter_mut().zip(sum.iter().chain(difference).chain(product)) {
            *row = lanes(*limb)[lane];
        }
    }
    Window::of(&limbs, position)
}
