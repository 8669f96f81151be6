//! Compares thousands of signatures with AWS-LC's signatures. Includes edge cases of keys, digests and nonces.

use aws_lc_rs::digest::{Algorithm, SHA256, SHA384, SHA512, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use batch::{BYTES, Job, LANES, P256Job, P256Key, SignatureOutcome};
use num_bigint::BigUint;

use crate::lanes::{Numbers, kernel};
use crate::p256::{N, bytes};

/// Signatures by RSA-2048 keys of Project Wycheproof.
const WYCHEPROOF: &str = include_str!("../vectors/wycheproof_rsa_pkcs1_2048.txt");

/// Returns a padded message (EMSA-PKCS1-v1_5, RFC 8017 section 9.2).
fn padded(algorithm: &'static Algorithm, message: &[u8]) -> [u8; BYTES] {
    let digest = digest(algorithm, message);
    let length = digest.as_ref().len();
    let hash = match length {
        32 => 1,
        48 => 2,
        _ => 3,
    };
    let (outer, bytes) = (0x11 + length as u8, length as u8);
    let information = [
        0x30, outer, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, hash, 0x05, 0,
        0x04, bytes,
    ];
    let mut padded = [0xff; BYTES];
    let (padding, rest) = padded.split_at_mut(BYTES - information.len() - length);
    (padding[0], padding[1]) = (0, 1);
    padding[padding.len() - 1] = 0;
    rest[..information.len()].copy_from_slice(&information);
    rest[information.len()..].copy_from_slice(digest.as_ref());
    padded
}

/// Random bytes that are the same in each run (SplitMix64).
struct TestRng(u64);

impl TestRng {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn bytes(&mut self) -> [u8; 32] {
        let words = [(); 4].map(|()| self.word().to_be_bytes());
        std::array::from_fn(|at| words[at / 8][at % 8])
    }

    /// Returns a number from 1 to n - 1: any, short, long, or with long runs of zeros or ones.
    fn scalar(&mut self) -> BigUint {
        let (n, one) = (&*N, BigUint::from(1_u8));
        let any = BigUint::from_bytes_be(&self.bytes());
        let bit = self.word() % 256;
        let number = match self.word() % 8 {
            0 => any >> bit,
            1 => n - 1_u8 - (any >> bit),
            2 => &one << bit,
            3 => n - (&one << (bit % 255)),
            4 => (any >> bit) << bit,
            5 => (&one << bit) - &one,
            _ => any,
        };
        let number = number % n;
        if number == BigUint::ZERO { one } else { number }
    }
}

/// Returns the number of signatures of each kind: `BULLA_BATCH_CASES`, or `usual`.
fn cases(usual: usize) -> usize {
    let given = std::env::var("BULLA_BATCH_CASES").ok();
    given.map_or(usual, |given| given.parse().unwrap())
}

/// AWS-LC verifies each signature. Each signature must also use the given nonce, because a signature with another nonce verifies as
/// well.
#[test]
fn p256_signatures_verify_and_use_the_given_nonce() {
    let Some(kernel) = kernel() else { return };
    let mut rng = TestRng(256);
    for _ in 0..cases(4_000).div_ceil(LANES) {
        let (privates, nonces) = ([(); LANES].map(|()| rng.scalar()), [(); LANES].map(|()| rng.scalar()));
        let messages = [(); LANES].map(|()| rng.bytes());
        let digests: [[u8; 32]; LANES] =
            messages.map(|message| digest(&SHA256, &message).as_ref().try_into().unwrap());
        let keys = privates.each_ref().map(|private| P256Key::new(&bytes(private)).unwrap());
        let given = nonces.each_ref().map(bytes);
        let jobs: [P256Job<'_>; LANES] = std::array::from_fn(|lane| P256Job {
            key: &keys[lane],
            digest: &digests[lane],
            nonce: &given[lane],
        });
        for (lane, made) in kernel.p256_signatures(&jobs).into_iter().enumerate() {
            let SignatureOutcome::Signature(signature) = made else { panic!("{made:?}") };
            let pair = p256_pair(&privates[lane]);
            let public = UnparsedPublicKey::new(&lc::ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
            assert!(
                public.verify(&messages[lane], &signature).is_ok(),
                "{:x} {:x}",
                privates[lane],
                nonces[lane]
            );
            let number = |bytes: &[u8]| BigUint::from_bytes_be(bytes);
            let (r, s) = (number(&signature[..32]), number(&signature[32..]));
            assert_eq!(s * &nonces[lane] % &*N, (number(&digests[lane]) + r * &privates[lane]) % &*N);
        }
    }
}

/// Creates the AWS-LC key pair of a private number. AWS-LC computes the public half (RFC 5915).
fn p256_pair(private: &BigUint) -> EcdsaKeyPair {
    let mut sec1 = vec![0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
    sec1.extend(bytes(private));
    sec1.extend([0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]);
    EcdsaKeyPair::from_private_key_der(&lc::ECDSA_P256_SHA256_FIXED_SIGNING, &sec1).unwrap()
}

#[test]
fn ed25519_signatures_equal_those_of_aws_lc() {
    let Some(kernel) = kernel() else { return };
    let mut rng = TestRng(25_519);
    for _ in 0..cases(8_000).div_ceil(LANES) {
        let cases: Vec<([u8; 32], Vec<u8>)> = (0..LANES)
            .map(|_| {
                let length = rng.word() as usize % 160;
                (rng.bytes(), (0..length).map(|_| rng.word() as u8).collect())
            })
            .collect();
        for ((seed, message), made) in cases.iter().zip(crate::ed25519::signed(kernel, &cases)) {
            let pair = Ed25519KeyPair::from_seed_unchecked(seed).unwrap();
            assert_eq!(made, Some(pair.sign(message).as_ref().to_vec()), "{seed:x?}");
        }
    }
}

/// PKCS #1 v1.5 is deterministic: each message has exactly one signature (RFC 8017 section 8.2.1).
#[test]
fn rsa_signatures_equal_those_of_aws_lc() {
    let Some(kernel) = kernel() else { return };
    let pairs: [KeyPair; LANES] = std::array::from_fn(|_| KeyPair::generate(KeySize::Rsa2048).unwrap());
    let keys = pairs.each_ref().map(|pair| Numbers::of(pair).key());
    let mut rng = TestRng(2_048);
    for _ in 0..cases(800).div_ceil(LANES) {
        let messages = [(); LANES].map(|()| rng.bytes());
        let inputs = messages.map(|message| padded(&SHA256, &message));
        let jobs: [Job<'_>; LANES] =
            std::array::from_fn(|lane| Job { key: &keys[lane], input: &inputs[lane] });
        for ((pair, message), made) in pairs.iter().zip(&messages).zip(kernel.private_operations(&jobs)) {
            let mut wanted = [0; BYTES];
            pair.sign(&lc::RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut wanted).unwrap();
            assert_eq!(made, Some(wanted));
        }
    }
}

fn hex(digits: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn rsa_signatures_equal_wycheproof_vectors() {
    let Some(kernel) = kernel() else { return };
    let (mut keys, mut cases) = (Vec::new(), Vec::new());
    for line in WYCHEPROOF.lines().filter(|line| !line.starts_with('#')) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["key", pkcs8] => {
                keys.push(Numbers::of(&KeyPair::from_pkcs8(&hex(pkcs8)).unwrap()).key());
            }
            [hash, message, signature] => {
                let algorithm = match hash {
                    "SHA-256" => &SHA256,
                    "SHA-384" => &SHA384,
                    _ => &SHA512,
                };
                let message = if message == "-" { Vec::new() } else { hex(message) };
                cases.push((keys.len() - 1, padded(algorithm, &message), hex(signature)));
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!((keys.len(), cases.len()), (3, 24));
    let jobs: Vec<Job<'_>> = cases.iter().map(|(key, input, _)| Job { key: &keys[*key], input }).collect();
    for ((.., wanted), made) in cases.iter().zip(kernel.private_operations(&jobs)) {
        assert_eq!(made.map(|made| made.to_vec()), Some(wanted.clone()));
    }
}
