//! Ed25519 (RFC 8032 section 5.1.6) without its hashes. Each lane computes one signature.

mod curve;
mod field;
mod point;
#[cfg(test)]
mod tests;

use super::instructions::{
    __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpeq_epi64_mask, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_sub_epi64,
};

use zeroize::zeroize_stack;

use super::barrier::{opaque, opaque_bytes, opaque_number};
use super::comb::select;
use super::lanes::{gather, lanes};
use super::registers;
use super::short::{EightShort, LIMBS, Modulus, broadcast, carried, is_zero, same, sum};
use crate::ed25519::{Commitments, Job, STACK, Scalars};
use crate::{Ed25519Nonces, Kernel, LANES, number};
use curve::Curve;
use point::Affine;

/// L, the order of the base point.
const ORDER: Modulus = Modulus::new([0x2_631a_5cf5_d3ed, 0xd_ea2f_79cd_6581, 0x14_def9, 0, 0x1000_0000_0000]);

/// Builds the tables that every signature reads. Returns whether they are sound.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn prepare(_kernel: Kernel) -> bool {
    // SAFETY: a `Kernel` exists only where `is_there` has found the features that the function is compiled for.
    unsafe { Curve::get().is_some() }
}

/// Returns R of each nonce whose computation is sound. Stores r and R in `state`.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn commitments(
    kernel: Kernel,
    nonces: &[&[u8; 64]; LANES],
    state: &mut Ed25519Nonces,
) -> Commitments {
    // SAFETY: a `Kernel` exists only where `is_there` has found the features that the function is compiled for.
    let committed = unsafe { Curve::get().map_or([None; LANES], |curve| commit(curve, nonces, state)) };
    zeroize_stack::<STACK>();
    registers::clear(kernel);
    committed
}

/// Returns S of each job whose computation is sound, with the earlier r.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn responses(kernel: Kernel, jobs: &[Job<'_>; LANES], scalars: &Scalars) -> Commitments {
    // SAFETY: a `Kernel` exists only where `is_there` has found the features that the function is compiled for.
    let responses = unsafe { Curve::get().map_or([None; LANES], |curve| respond(curve, jobs, scalars)) };
    zeroize_stack::<STACK>();
    registers::clear(kernel);
    responses
}

/// Computes the commitments. A separate function, so that its stack frame can be wiped.
#[inline(never)]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn commit(curve: &Curve, nonces: &[&[u8; 64]; LANES], state: &mut Ed25519Nonces) -> Commitments {
    commit_by(curve, nonces, state, |_| ())
}

/// Same as `commit`, but tests can inject a fault into the point to encode.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn commit_by(
    curve: &Curve,
    nonces: &[&[u8; 64]; LANES],
    state: &mut Ed25519Nonces,
    spoil: impl Fn(&mut Affine),
) -> Commitments {
    let r = ORDER.canonical(&ORDER.multiply(&wide(curve, nonces), &broadcast(&[1, 0, 0, 0, 0])));
    let odd = odd(&r);
    let multiple = curve.multiple(&odd);
    let point = multiple.point.affine(&field::inverse(&multiple.point.z));
    let mut point = Affine { x: field::canonical(&point.x), y: field::canonical(&point.y) };
    spoil(&mut point);
    let encoded = encoded(&point);
    state.scalars = r.map(|limb| lanes(limb));
    // These copies are checked. A later fault in either copy changes the hash computed from it.
    state.points = encoded;
    let sound = is_encoded(curve, &state.points, &point.x)
        & multiple.matches_scalars(&odd)
        & (same(&odd, &r) | same(&odd, &sum(&r, &broadcast(&ORDER.limbs))));
    std::array::from_fn(|lane| (sound >> lane & 1 == 1).then_some(encoded[lane]))
}

/// Computes the responses. A separate function, so that its stack frame can be wiped.
#[inline(never)]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn respond(curve: &Curve, jobs: &[Job<'_>; LANES], scalars: &Scalars) -> Commitments {
    let [mut r, mut private, mut negative] = [[_mm512_setzero_si512(); LIMBS]; 3];
    let of_lane = std::array::from_fn::<_, LANES, _>(|lane| scalars.map(|limb| limb[lane]));
    gather(&mut r, &of_lane.each_ref());
    gather(&mut private, &jobs.map(|job| &job.key.private));
    gather(&mut negative, &jobs.map(|job| &job.key.negative));
    // k·s is below 1.1·L. S is r + k·s, reduced by subtracting L at most twice.
    let product = ORDER.multiply(&wide(curve, &jobs.map(|job| job.challenge)), &private);
    let s = ORDER.canonical(&ORDER.canonical(&sum(&r, &product)));
    // Check with recomputed hashes: S + k·(8·L - s) - r must be a multiple of L.
    let recomputed = wide(curve, &jobs.map(|job| job.recomputed_challenge));
    let right = ORDER.multiply(&recomputed, &negative);
    let nonce =
        ORDER.multiply(&wide(curve, &jobs.map(|job| job.recomputed_nonce)), &broadcast(&[1, 0, 0, 0, 0]));
    let mut rest = broadcast(&ORDER.limbs);
    for limb in 0..LIMBS {
        let positive = _mm512_add_epi64(_mm512_add_epi64(rest[limb], rest[limb]), s[limb]);
        rest[limb] = _mm512_sub_epi64(_mm512_add_epi64(positive, right[limb]), nonce[limb]);
    }
    let rest = ORDER.multiply(&carried(&rest), &curve.order_r2);
    let sound = is_zero(&ORDER.canonical(&rest));
    let limbs = s.map(|limb| lanes(limb));
    std::array::from_fn(|lane| {
        let bytes = || {
            let mut bytes = number::bytes::<LIMBS, 32>(&limbs.map(|limb| limb[lane]));
            bytes.reverse();
            bytes
        };
        (sound >> lane & 1 == 1).then(bytes)
    })
}

/// Reduces numbers of 512 bits, lowest byte first, modulo L and multiplies them by R. The results are below 3.1·L.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn wide(curve: &Curve, of: &[&[u8; 64]; LANES]) -> EightShort {
    let limbs: [[u64; 2 * LIMBS]; LANES] =
        of.map(|bytes| number::limbs(&number::words_from_lowest::<8, 64>(bytes)));
    let mut both = [_mm512_setzero_si512(); 2 * LIMBS];
    gather(&mut both, &limbs.each_ref());
    let [l0, l1, l2, l3, l4, h0, h1, h2, h3, h4] = both;
    // The upper half is scaled by R.
    let low = ORDER.multiply(&[l0, l1, l2, l3, l4], &curve.order_r2);
    sum(&low, &ORDER.multiply(&[h0, h1, h2, h3, h4], &curve.order_r3))
}

/// Returns the number or its sum with L, whichever is odd: both give the same multiple of the base point.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn odd(number: &EightShort) -> EightShort {
    let one = _mm512_set1_epi64(1);
    let even = opaque(_mm512_sub_epi64(_mm512_and_si512(number[0], one), one));
    let mut odd = sum(number, &broadcast(&ORDER.limbs));
    for limb in 0..LIMBS {
        odd[limb] = select(even, odd[limb], number[limb]);
    }
    odd
}

/// Encodes y and the lowest bit of x, lowest byte first (RFC 8032 section 5.1.2). Both are below p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn encoded(point: &Affine) -> [[u8; 32]; LANES] {
    let signs = lanes(_mm512_and_si512(point.x[0], _mm512_set1_epi64(1)));
    let limbs = point.y.map(|limb| lanes(limb));
    std::array::from_fn(|lane| {
        let mut bytes = number::bytes::<LIMBS, 32>(&limbs.map(|limb| limb[lane]));
        bytes[0] |= (signs[lane] as u8) << 7;
        bytes.reverse();
        bytes
    })
}

/// Returns the lanes in which the encoding is a point of the curve with this x, and x and y are below p.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn is_encoded(curve: &Curve, encoded: &[[u8; 32]; LANES], x: &EightShort) -> __mmask8 {
    let words = opaque_bytes(encoded).map(|bytes| number::words_from_lowest::<4, 32>(&bytes));
    let limbs: [[u64; LIMBS]; LANES] = words.map(|[a, b, c, d]| number::limbs(&[a, b, c, d & u64::MAX >> 1]));
    let signs: [[u64; 1]; LANES] = words.map(|words| [words[3] >> 63]);
    let (mut y, mut sign) = ([_mm512_setzero_si512(); LIMBS], [_mm512_setzero_si512()]);
    gather(&mut y, &limbs.each_ref());
    gather(&mut sign, &signs.each_ref());
    let point = Affine { x: opaque_number(x), y };
    let lowest = _mm512_and_si512(point.x[0], _mm512_set1_epi64(1));
    // x and x + p are the same residue, but differ in their lowest bit.
    is_zero(&point.off_curve(&curve.constants))
        & same(&field::canonical(&point.x), &point.x)
        & same(&field::canonical(&point.y), &point.y)
        & _mm512_cmpeq_epi64_mask(lowest, sign[0])
}
