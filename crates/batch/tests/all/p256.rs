//! ECDSA on P-256: compares every lane with big integers, and verifies the signatures with AWS-LC.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey};
use batch::{Kernel, LANES, P256Job, P256Key, SignatureOutcome};
use num_bigint::BigUint;
use proptest::prelude::*;

use crate::lanes::kernel;

fn hex(digits: &str) -> BigUint {
    BigUint::parse_bytes(digits.as_bytes(), 16).unwrap()
}

static P: LazyLock<BigUint> =
    LazyLock::new(|| hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"));
pub(crate) static N: LazyLock<BigUint> =
    LazyLock::new(|| hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"));
static G: LazyLock<(BigUint, BigUint)> = LazyLock::new(|| {
    let x = hex("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296");
    (x, hex("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"))
});

/// Returns k·G. Doubles in Jacobian coordinates from the highest bit, with one inversion at the end.
fn multiple(k: &BigUint) -> (BigUint, BigUint) {
    let p = &*P;
    let less = |a: &BigUint, b: &BigUint| (a + (p - b % p)) % p;
    let (mut x, mut y, mut z) = (G.0.clone(), G.1.clone(), BigUint::from(1_u8));
    for bit in (0..k.bits() - 1).rev() {
        let (yy, zz) = (&y * &y % p, &z * &z % p);
        let s = &x * &yy * 4_u8 % p;
        let m = less(&x, &zz) * (&x + &zz) * 3_u8 % p;
        z = &y * &z * 2_u8 % p;
        x = less(&(&m * &m), &(&s * 2_u8));
        y = less(&(&m * less(&s, &x)), &(&yy * &yy * 8_u8));
        if k.bit(bit) {
            let zz = &z * &z % p;
            let (h, r) = (less(&(&G.0 * &zz), &x), less(&(&G.1 * &zz * &z), &y));
            let (hh, v) = (&h * &h % p, &x * &h * &h % p);
            x = less(&(&r * &r), &(&hh * &h + &v * 2_u8));
            y = less(&(&r * less(&v, &x)), &(&y * &hh * &h));
            z = &z * &h % p;
        }
    }
    let z = z.modinv(p).unwrap();
    (&x * &z * &z % p, &y * &z * &z * &z % p)
}

/// Returns the expected signature (FIPS 186-5 section 6.4.1).
fn wanted((private, digest, nonce): &Case) -> (BigUint, BigUint) {
    let r = multiple(nonce).0 % &*N;
    let s = nonce.modinv(&N).unwrap() * (digest + &r * private) % &*N;
    (r, s)
}

pub(crate) fn bytes(number: &BigUint) -> [u8; 32] {
    let bytes = number.to_bytes_be();
    let mut padded = [0; 32];
    padded[32 - bytes.len()..].copy_from_slice(&bytes);
    padded
}

/// A private key, a digest, and a nonce.
type Case = (BigUint, BigUint, BigUint);

fn made(kernel: Kernel, cases: &[Case]) -> Vec<SignatureOutcome> {
    let keys: Vec<_> = cases.iter().map(|case| P256Key::new(&bytes(&case.0)).unwrap()).collect();
    let inputs: Vec<_> = cases.iter().map(|case| (bytes(&case.1), bytes(&case.2))).collect();
    let jobs: Vec<P256Job<'_>> =
        keys.iter().zip(&inputs).map(|(key, (digest, nonce))| P256Job { key, digest, nonce }).collect();
    kernel.p256_signatures(&jobs)
}

fn numbers(made: SignatureOutcome) -> Option<(BigUint, BigUint)> {
    match made {
        SignatureOutcome::Signature(bytes) => {
            Some((BigUint::from_bytes_be(&bytes[..32]), BigUint::from_bytes_be(&bytes[32..])))
        }
        SignatureOutcome::Refused | SignatureOutcome::Faulty => None,
    }
}

fn holds(kernel: Kernel, cases: &[Case]) {
    for (case, made) in cases.iter().zip(made(kernel, cases)) {
        assert_eq!(numbers(made), Some(wanted(case)), "{case:x?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_lane_matches_big_integers(
        seeds in prop::collection::vec(
            (any::<[u8; 32]>(), any::<[u8; 32]>(), any::<[u8; 32]>()),
            1..=2 * LANES + 1,
        ),
    ) {
        let Some(kernel) = kernel() else { return Ok(()) };
        let scalar = |bytes: &[u8; 32]| BigUint::from_bytes_be(bytes) % (&*N - 1_u8) + 1_u8;
        let cases: Vec<Case> = seeds
            .iter()
            .map(|(private, digest, nonce)| (scalar(private), BigUint::from_bytes_be(digest), scalar(nonce)))
            .collect();
        holds(kernel, &cases);
    }
}

#[test]
fn edge_case_scalars_and_digests_match_big_integers() {
    let Some(kernel) = kernel() else { return };
    let (n, one) = (&*N, BigUint::from(1_u8));
    let mut scalars: Vec<BigUint> = (1_u32..=4).map(BigUint::from).collect();
    // Scalars around each digit position: largest and smallest digits, and digits that change sign.
    for position in 0..37_u32 {
        let power = &one << (7 * position);
        scalars.extend([power.clone(), &power + &one, n - &power]);
        if position > 0 {
            scalars.extend([&power - &one, n - (&power - &one), &power * 3_u8 + &one]);
        }
    }
    // Scalars for which the last additions come closest to doublings and to n: n - 2·|d| and similar, and the scalar that would
    // double in a sum from the lowest digit upwards.
    scalars.extend((1_u32..=260).map(|less| n - less));
    scalars.push((BigUint::from(15_u8) << 253_u32) - n);
    scalars.extend([n >> 1_u32, (n >> 1_u32) + &one, (&one << 255_u32) - &one, &one << 255_u32]);
    let digests = [BigUint::ZERO, one.clone(), n - &one, n.clone(), (&one << 256_u32) - &one];
    let privates = [one.clone(), n - &one, n >> 3_u32];
    let cases: Vec<Case> = scalars
        .into_iter()
        .enumerate()
        .map(|(at, nonce)| (privates[at % 3].clone(), digests[at % 5].clone(), nonce))
        .collect();
    holds(kernel, &cases);
}

/// Uses the vectors and nonces of RFC 6979 appendix A.2.5 for SHA-256. The nonces are odd and even.
#[test]
fn signatures_equal_rfc_6979_vectors() {
    let Some(kernel) = kernel() else { return };
    let private = hex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721");
    let digest = |message: &[u8]| {
        BigUint::from_bytes_be(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, message).as_ref())
    };
    let vectors = [
        (
            digest(b"sample"),
            hex("A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60"),
            hex("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"),
            hex("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"),
        ),
        (
            digest(b"test"),
            hex("D16B6AE827F17175E040871A1C7EC3500192C4C92677336EC2537ACAEE0008E0"),
            hex("F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367"),
            hex("019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083"),
        ),
    ];
    let cases = vectors.clone().map(|(digest, nonce, ..)| (private.clone(), digest, nonce));
    for ((.., r, s), made) in vectors.into_iter().zip(made(kernel, &cases)) {
        assert_eq!(numbers(made), Some((r, s)));
    }
}

#[test]
fn aws_lc_verifies_batch_signatures() {
    let Some(kernel) = kernel() else { return };
    let pairs: Vec<EcdsaKeyPair> =
        (0..LANES).map(|_| EcdsaKeyPair::generate(&lc::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()).collect();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"signed");
    let mut cases = Vec::new();
    for pair in &pairs {
        let private: EcPrivateKeyBin<'_> = pair.private_key().as_be_bytes().unwrap();
        let mut nonce = [0; 32];
        aws_lc_rs::rand::SecureRandom::fill(&SystemRandom::new(), &mut nonce).unwrap();
        let nonce = BigUint::from_bytes_be(&nonce) % &*N;
        cases.push((
            BigUint::from_bytes_be(private.as_ref()),
            BigUint::from_bytes_be(digest.as_ref()),
            nonce,
        ));
    }
    for (pair, made) in pairs.iter().zip(made(kernel, &cases)) {
        let SignatureOutcome::Signature(signature) = made else { panic!("{made:?}") };
        let public = UnparsedPublicKey::new(&lc::ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        assert!(public.verify(b"signed", &signature).is_ok());
        assert!(public.verify(b"another", &signature).is_err());
    }
}

#[test]
fn unusable_nonce_is_rejected_in_its_lane_only() {
    let Some(kernel) = kernel() else { return };
    let (private, digest, nonce) = (hex("1234567"), hex("89abcdef"), hex("fedcba9876543211"));
    let sound = (private.clone(), digest.clone(), nonce.clone());
    // With this digest s is zero.
    let r = multiple(&nonce).0 % &*N;
    let unlucky = (&*N * &private - &r * &private) % &*N;
    let refused = [
        (private.clone(), digest.clone(), BigUint::ZERO),
        (private.clone(), digest.clone(), N.clone()),
        (private.clone(), digest.clone(), &*N + 5_u8),
        (private.clone(), digest.clone(), (BigUint::from(1_u8) << 256_u32) - 1_u8),
        (private, unlucky, nonce),
    ];
    for refused in refused {
        for lane in 0..LANES {
            let cases: Vec<Case> =
                (0..LANES).map(|at| if at == lane { refused.clone() } else { sound.clone() }).collect();
            for (at, made) in made(kernel, &cases).into_iter().enumerate() {
                assert_eq!(
                    made == SignatureOutcome::Refused,
                    at == lane,
                    "{refused:?}, lane {lane}: {made:?}"
                );
                assert_eq!(numbers(made).is_some(), at != lane);
            }
        }
    }
}

#[test]
fn private_keys_out_of_range_are_rejected() {
    assert!(P256Key::new(&[0; 32]).is_none());
    assert!(P256Key::new(&bytes(&N)).is_none());
    assert!(P256Key::new(&[0xff; 32]).is_none());
    assert!(P256Key::new(&[1; 33]).is_none());
    assert!(P256Key::new(&bytes(&(&*N - 1_u8))).is_some());
    assert_eq!(format!("{:?}", P256Key::new(&[1]).unwrap()), "P256Key(…)");
}
