//! ECDSA on P-256 (FIPS 186-5 section 6.4.1), each lane a signature.

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
use super::comb::either;
use super::lanes::{gather, lanes};
use super::registers;
use super::short::{LIMBS, Short, broadcast, carried, is_zero, same, sum};
use crate::p256::{Job, STACK};
use crate::{Kernel, LANES, SignatureOutcome, number};
use curve::Curve;
use order::ORDER;

/// Has the tables made that every signature reads. Whether they are sound.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn prepare(_there: Kernel) -> bool {
    // SAFETY: there is a `Kernel` only where `is_there` has found the features that the function is compiled for.
    unsafe { Curve::get().is_some() }
}

/// As [`Kernel::p256_signatures`]; each lane a job.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn signatures(there: Kernel, jobs: &[Job<'_>; LANES]) -> [SignatureOutcome; LANES] {
    // SAFETY: there is a `Kernel` only where `is_there` has found the features that the function is compiled for.
    let made = unsafe { Curve::get().map_or([SignatureOutcome::Faulty; LANES], |curve| sign(curve, jobs)) };
    zeroize_stack::<STACK>();
    registers::clear(there);
    made
}

/// In a frame of its own, which can be wiped after it.
#[inline(never)]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn sign(curve: &Curve, jobs: &[Job<'_>; LANES]) -> [SignatureOutcome; LANES] {
    sign_by(curve, jobs, |_| ())
}

/// The same with a fault in k·R, for a test of what finds it.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn sign_by(curve: &Curve, jobs: &[Job<'_>; LANES], spoil: impl Fn(&mut Short)) -> [SignatureOutcome; LANES] {
    let nonces = numbers(&jobs.map(|job| job.nonce));
    let digests = numbers(&jobs.map(|job| job.digest));
    let usable = in_range(&nonces);
    // r: the x of k·G modulo n, which is that of (n - k)·G.
    let odd = odd(&nonces);
    let multiple = curve.multiple(&odd);
    let mut nonces_r = ORDER.multiply(&nonces, &curve.order_r2);
    spoil(&mut nonces_r);
    let (of_point, of_nonces) = inverse::inverses(&multiple.point.zzz, &nonces_r);
    let point = multiple.point.affine(&of_point);
    let x = field::canonical(&point.x);
    let r = ORDER.canonical(&x);
    // s: (z + r·d)/k modulo n.
    let [mut private, mut negative] = [[_mm512_setzero_si512(); LIMBS]; 2];
    gather(&mut private, &jobs.map(|job| &job.key.private));
    gather(&mut negative, &jobs.map(|job| &job.key.negative));
    let s = ORDER.multiply(&sum(&ORDER.multiply(&r, &private), &digests), &of_nonces);
    let s = ORDER.canonical(&s);
    // What is found wrong must lead nowhere else, whatever it was.
    let sound = is_zero(&point.off_curve(&curve.b))
        & multiple.is_of(&odd)
        & (same(&odd, &nonces) | same(&sum(&odd, &nonces), &broadcast(&ORDER.limbs)))
        & is_reduced(&x, &r)
        & is_solved(&nonces, &digests, [&r, &negative], &s);
    let usable = usable & !is_zero(&r) & !is_zero(&s);
    let [r, s] = [r, s].map(|number| number.map(|limb| lanes(limb)));
    std::array::from_fn(|lane| {
        if usable >> lane & 1 == 0 {
            return SignatureOutcome::Refused;
        } else if sound >> lane & 1 == 0 {
            return SignatureOutcome::Faulty;
        }
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&number::octets::<LIMBS, 32>(&r.map(|limb| limb[lane])));
        signature[32..].copy_from_slice(&number::octets::<LIMBS, 32>(&s.map(|limb| limb[lane])));
        SignatureOutcome::Signature(signature)
    })
}

/// Big-endian numbers, one a lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn numbers(of: &[&[u8; 32]; LANES]) -> Short {
    let limbs = of.map(|octets| number::limbs(&number::words::<4>(octets).unwrap_or_default()));
    let mut numbers = [_mm512_setzero_si512(); LIMBS];
    gather(&mut numbers, &limbs.each_ref());
    numbers
}

/// The lanes whose number is neither zero nor above n - 1.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn in_range(number: &Short) -> __mmask8 {
    // Only a number below n stays what it is.
    same(&ORDER.canonical(number), number) & !is_zero(number)
}

/// Of each number and what it lacks to n the odd one. As multipliers of a point they differ in the sign of y alone.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn odd(number: &Short) -> Short {
    let order = broadcast(&ORDER.limbs);
    let one = _mm512_set1_epi64(1);
    let even = opaque(_mm512_sub_epi64(_mm512_and_si512(number[0], one), one));
    let mut other = order;
    for limb in 0..LIMBS {
        other[limb] = _mm512_sub_epi64(order[limb], number[limb]);
    }
    let mut odd = carried(&other);
    for limb in 0..LIMBS {
        odd[limb] = either(even, odd[limb], number[limb]);
    }
    odd
}

/// The lanes in which r is x or x - n.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn is_reduced(x: &Short, r: &Short) -> __mmask8 {
    same(x, r) | same(x, &sum(r, &broadcast(&ORDER.limbs)))
}

/// The lanes in which s·k - z + r·(n - d) is a multiple of n: the same equation by another copy of the key, and by k as its multiple was
/// made of it and not as it was inverted.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn is_solved(nonces: &Short, digests: &Short, [r, negative]: [&Short; 2], s: &Short) -> __mmask8 {
    let right = ORDER.multiply(r, negative);
    let mut rest = broadcast(&ORDER.limbs);
    for limb in 0..LIMBS {
        let positive = _mm512_add_epi64(_mm512_add_epi64(rest[limb], rest[limb]), right[limb]);
        rest[limb] = _mm512_sub_epi64(positive, digests[limb]);
    }
    // All of it over R, as s·k is: what was below 4·n is n at most, and the sum below 2.1·n.
    let rest = ORDER.multiply(&carried(&rest), &broadcast(&[1, 0, 0, 0, 0]));
    let sum = sum(&ORDER.multiply(s, &opaque_number(nonces)), &rest);
    is_zero(&ORDER.canonical(&ORDER.canonical(&sum)))
}
