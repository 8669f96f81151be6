//! ECDSA on P-256 (FIPS 186-5 section 6.4.1). Each lane computes one signature.

mod curve;
mod field;
mod inverse;
mod order;
mod point;
#[cfg(test)]
mod tests;

use super::instructions::{
    __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_sub_epi64,
};
use zeroize::zeroize_stack;

use super::barrier::{opaque, opaque_number};
use super::comb::select;
use super::lanes::{gather, lanes};
use super::registers;
use super::short::{EightShort, LIMBS, broadcast, carried, is_zero, same, sum};
use crate::p256::{Job, STACK};
use crate::{Kernel, LANES, SignatureOutcome, number};
use curve::Curve;
use order::ORDER;

/// Builds the tables that every signature reads. Returns whether they are sound.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn prepare(_kernel: Kernel) -> bool {
    // SAFETY: a `Kernel` exists only where `is_there` has found the features that the function is compiled for.
    unsafe { Curve::get().is_some() }
}

/// Same as [`Kernel::p256_signatures`]. Each lane is a job.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn signatures(kernel: Kernel, jobs: &[Job<'_>; LANES]) -> [SignatureOutcome; LANES] {
    // SAFETY: a `Kernel` exists only where `is_there` has found the features that the function is compiled for.
    let made = unsafe { Curve::get().map_or([SignatureOutcome::Faulty; LANES], |curve| sign(curve, jobs)) };
    zeroize_stack::<STACK>();
    registers::clear(kernel);
    made
}

/// Computes the signatures. A separate function, so that its stack frame can be wiped.
#[inline(never)]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn sign(curve: &Curve, jobs: &[Job<'_>; LANES]) -> [SignatureOutcome; LANES] {
    sign_by(curve, jobs, |_| ())
}

/// Same as `sign`, but a test can inject a fault into k·R.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn sign_by(
    curve: &Curve,
    jobs: &[Job<'_>; LANES],
    spoil: impl Fn(&mut EightShort),
) -> [SignatureOutcome; LANES] {
    let nonces = numbers(&jobs.map(|job| job.nonce));
    let digests = numbers(&jobs.map(|job| job.digest));
    let usable = in_range(&nonces);
    // r is the x coordinate of k·G modulo n, which equals the x coordinate of (n - k)·G.
    let odd = odd(&nonces);
    let multiple = curve.multiple(&odd);
    let mut nonces_r = ORDER.multiply(&nonces, &curve.order_r2);
    spoil(&mut nonces_r);
    let (of_point, of_nonces) = inverse::inverses(&multiple.point.zzz, &nonces_r);
    let point = multiple.point.affine(&of_point);
    let x = field::canonical(&point.x);
    let r = ORDER.canonical(&x);
    // s is (z + r·d)/k modulo n.
    let [mut private, mut negative] = [[_mm512_setzero_si512(); LIMBS]; 2];
    gather(&mut private, &jobs.map(|job| &job.key.private));
    gather(&mut negative, &jobs.map(|job| &job.key.negative));
    let s = ORDER.multiply(&sum(&ORDER.multiply(&r, &private), &digests), &of_nonces);
    let s = ORDER.canonical(&s);
    // Compute all checks without branches: a fault must not change the control flow.
    let sound = is_zero(&point.off_curve(&curve.b))
        & multiple.matches_scalars(&odd)
        & (same(&odd, &nonces) | same(&sum(&odd, &nonces), &broadcast(&ORDER.limbs)))
        & is_reduced(&x, &r)
        & valid_signatures(&nonces, &digests, [&r, &negative], &s);
    let usable = usable & !is_zero(&r) & !is_zero(&s);
    let [r, s] = [r, s].map(|number| number.map(|limb| lanes(limb)));
    std::array::from_fn(|lane| {
        if usable >> lane & 1 == 0 {
            return SignatureOutcome::Refused;
        } else if sound >> lane & 1 == 0 {
            return SignatureOutcome::Faulty;
        }
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&number::bytes::<LIMBS, 32>(&r.map(|limb| limb[lane])));
        signature[32..].copy_from_slice(&number::bytes::<LIMBS, 32>(&s.map(|limb| limb[lane])));
        SignatureOutcome::Signature(signature)
    })
}

/// Loads big-endian numbers, one per lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn numbers(of: &[&[u8; 32]; LANES]) -> EightShort {
    let limbs = of.map(|bytes| number::limbs(&number::words::<4>(bytes).unwrap_or_default()));
    let mut numbers = [_mm512_setzero_si512(); LIMBS];
    gather(&mut numbers, &limbs.each_ref());
    numbers
}

/// Returns the lanes whose number is between 1 and n - 1.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn in_range(number: &EightShort) -> __mmask8 {
    // Reduction keeps only a number below n unchanged.
    same(&ORDER.canonical(number), number) & !is_zero(number)
}

/// Returns the number or n minus the number, whichever is odd. As multipliers of a point they differ only in the sign of y.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn odd(number: &EightShort) -> EightShort {
    let order = broadcast(&ORDER.limbs);
    let one = _mm512_set1_epi64(1);
    let even = opaque(_mm512_sub_epi64(_mm512_and_si512(number[0], one), one));
    let mut other = order;
    for limb in 0..LIMBS {
        other[limb] = _mm512_sub_epi64(order[limb], number[limb]);
    }
    let mut odd = carried(&other);
    for limb in 0..LIMBS {
        odd[limb] = select(even, odd[limb], number[limb]);
    }
    odd
}

/// Returns the lanes in which r is x or x - n.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn is_reduced(x: &EightShort, r: &EightShort) -> __mmask8 {
    same(x, r) | same(x, &sum(r, &broadcast(&ORDER.limbs)))
}

/// Returns the lanes in which s·k - z + r·(n - d) is a multiple of n. This repeats the equation with another copy of the key, and
/// with k as used for k·G, not its inverse.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn valid_signatures(
    nonces: &EightShort,
    digests: &EightShort,
    [r, negative]: [&EightShort; 2],
    s: &EightShort,
) -> __mmask8 {
    let right = ORDER.multiply(r, negative);
    let mut rest = broadcast(&ORDER.limbs);
    for limb in 0..LIMBS {
        let positive = _mm512_add_epi64(_mm512_add_epi64(rest[limb], rest[limb]), right[limb]);
        rest[limb] = _mm512_sub_epi64(positive, digests[limb]);
    }
    // Divide the rest by R, like s·k. A rest below 4·n is then at most n, so the sum is below 2.1·n.
    let rest = ORDER.multiply(&carried(&rest), &broadcast(&[1, 0, 0, 0, 0]));
    let sum = sum(&ORDER.multiply(s, &opaque_number(nonces)), &rest);
    is_zero(&ORDER.canonical(&ORDER.canonical(&sum)))
}
