//! Ed25519: compares every lane with the signatures of AWS-LC, bit for bit, and R with big integers.

use std::sync::LazyLock;

use aws_lc_rs::digest::{Context, SHA512};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use batch::{Ed25519Job, Ed25519Key, Kernel, LANES};
use num_bigint::BigUint;
use proptest::prelude::*;

use crate::lanes::kernel;

static P: LazyLock<BigUint> = LazyLock::new(|| (BigUint::from(1_u8) << 255_u32) - 19_u8);
pub(crate) static L: LazyLock<BigUint> = LazyLock::new(|| {
    let low = BigUint::parse_bytes(b"27742317777372353535851937790883648493", 10).unwrap();
    (BigUint::from(1_u8) << 252_u32) + low
});

fn sha512(parts: &[&[u8]]) -> [u8; 64] {
    let mut context = Context::new(&SHA512);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().unwrap()
}

/// Signs up to eight messages with the batch (RFC 8032 section 5.1.6). Takes pairs of seed and message.
pub(crate) fn signed(kernel: Kernel, cases: &[([u8; 32], Vec<u8>)]) -> Vec<Option<Vec<u8>>> {
    let halves: Vec<[u8; 64]> = cases.iter().map(|(seed, _)| sha512(&[seed])).collect();
    let keys: Vec<_> = halves.iter().map(|half| Ed25519Key::new(half[..32].try_into().unwrap())).collect();
    let nonces: Vec<_> =
        cases.iter().zip(&halves).map(|(case, half)| sha512(&[&half[32..], &case.1])).collect();
    let (points, state) = kernel.ed25519_commitments(&nonces.iter().collect::<Vec<_>>());
    let points: Vec<[u8; 32]> = points.into_iter().map(|point| point.unwrap()).collect();
    let public =
        |seed: &[u8; 32]| Ed25519KeyPair::from_seed_unchecked(seed).unwrap().public_key().as_ref().to_vec();
    let challenges: Vec<_> =
        cases.iter().zip(&points).map(|(case, r)| sha512(&[r, &public(&case.0), &case.1])).collect();
    let jobs: Vec<Ed25519Job<'_>> = (0..cases.len())
        .map(|at| {
            let (key, challenge) = (&keys[at], &challenges[at]);
            Ed25519Job { key, challenge, recomputed_challenge: challenge, recomputed_nonce: &nonces[at] }
        })
        .collect();
    let responses = kernel.ed25519_responses(&jobs, state);
    let whole = |(r, s): (&[u8; 32], Option<[u8; 32]>)| s.map(|s| [*r, s].concat());
    points.iter().zip(responses).map(whole).collect()
}

proptest! {
    #[test]
    fn every_lane_equals_the_signature_of_aws_lc(
        cases in prop::collection::vec((any::<[u8; 32]>(), prop::collection::vec(any::<u8>(), 0..200)), 1..=LANES),
    ) {
        let Some(kernel) = kernel() else { return Ok(()) };
        for ((seed, message), made) in cases.iter().zip(signed(kernel, &cases)) {
            let pair = Ed25519KeyPair::from_seed_unchecked(seed).unwrap();
            prop_assert_eq!(made, Some(pair.sign(message).as_ref().to_vec()));
        }
    }
}

/// Returns the sum of any two points in projective coordinates (add-2008-bbjlp).
fn sum(a: &[BigUint; 3], b: &[BigUint; 3], d: &BigUint) -> [BigUint; 3] {
    let p = &*P;
    let less = |a: &BigUint, b: &BigUint| (a + (p - b % p)) % p;
    let z = &a[2] * &b[2] % p;
    let (x, y) = (&a[0] * &b[0] % p, &a[1] * &b[1] % p);
    let (square, product) = (&z * &z % p, d * &x % p * &y % p);
    let (f, g) = (less(&square, &product), (&square + &product) % p);
    let mixed = less(&((&a[0] + &a[1]) * (&b[0] + &b[1])), &(&x + &y));
    [&z * &f % p * mixed % p, &z * &g % p * (y + x) % p, f * g % p]
}

/// Returns k·B, encoded (RFC 8032 section 5.1.2).
fn multiple(k: &BigUint) -> [u8; 32] {
    let (p, one) = (&*P, BigUint::from(1_u8));
    let d = p - BigUint::from(121_665_u32) * BigUint::from(121_666_u32).modinv(p).unwrap() % p;
    let x = b"15112221349535400772501151409588531511454012693041857206046113283949847762202";
    let y = BigUint::from(4_u8) * BigUint::from(5_u8).modinv(p).unwrap() % p;
    let base = [BigUint::parse_bytes(x, 10).unwrap(), y, one.clone()];
    let mut point = [BigUint::ZERO, one.clone(), one];
    for bit in (0..k.bits()).rev() {
        point = sum(&point, &point, &d);
        if k.bit(bit) {
            point = sum(&point, &base, &d);
        }
    }
    let inverse = point[2].modinv(p).unwrap();
    let (x, y) = (&point[0] * &inverse % p, &point[1] * &inverse % p);
    let mut bytes = y.to_bytes_le();
    bytes.resize(32, 0);
    bytes[31] |= u8::from(x.bit(0)) << 7;
    bytes.try_into().unwrap()
}

#[test]
fn edge_case_scalars_match_big_integers() {
    let Some(kernel) = kernel() else { return };
    let (l, one) = (&*L, BigUint::from(1_u8));
    let mut scalars: Vec<BigUint> = (0_u32..=3).map(BigUint::from).collect();
    for position in 1..37_u32 {
        let power = &one << (7 * position);
        scalars.extend([&power - &one, power.clone(), &power + &one]);
    }
    scalars.extend((0_u32..=20).flat_map(|by| [l - by, l + by]));
    scalars.extend([
        l * 5_u8,
        (&one << 512_u32) - &one,
        &one << 511_u32,
        &one << 260_u32,
        (&one << 260_u32) - &one,
    ]);
    for eight in scalars.chunks(LANES) {
        let nonces: Vec<[u8; 64]> = eight
            .iter()
            .map(|scalar| {
                let mut bytes = scalar.to_bytes_le();
                bytes.resize(64, 0);
                bytes.try_into().unwrap()
            })
            .collect();
        let made = kernel.ed25519_commitments(&nonces.iter().collect::<Vec<_>>()).0;
        let wanted: Vec<_> = eight.iter().map(|scalar| Some(multiple(&(scalar % l)))).collect();
        assert_eq!(made, wanted);
    }
}

#[test]
fn empty_batch_returns_nothing_and_debug_hides_secrets() {
    let Some(kernel) = kernel() else { return };
    let (made, state) = kernel.ed25519_commitments(&[]);
    assert_eq!(format!("{:?} {state:?}", Ed25519Key::new(&[1; 32])), "Ed25519Key(…) Ed25519Nonces(…)");
    assert!(made.is_empty() && kernel.ed25519_responses(&[], state).is_empty());
}

/// A batch that is too large panics, so that no job is skipped silently.
#[test]
fn batch_larger_than_lane_count_panics() {
    let Some(kernel) = kernel() else { return };
    let (key, hash) = (Ed25519Key::new(&[1; 32]), [7; 64]);
    let commitments = || kernel.ed25519_commitments(&[&hash; LANES + 1]);
    assert!(std::panic::catch_unwind(commitments).is_err());
    let job =
        Ed25519Job { key: &key, challenge: &hash, recomputed_challenge: &hash, recomputed_nonce: &hash };
    let responses = || kernel.ed25519_responses(&[job; LANES + 1], kernel.ed25519_commitments(&[&hash]).1);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(responses)).is_err());
}
