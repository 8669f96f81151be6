//! Compares every lane with big integers. On processors without the instructions there is nothing to compare, and the tests say so.
//! With `BULLA_IFMA` set they fail instead; `.ci/run` sets it on processors that have the instructions.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use batch::{BYTES, Job, Kernel, Key, LANES, Parts};
use num_bigint::BigUint;
use proptest::prelude::*;

/// The numbers of a key, named as in the standard.
#[derive(Clone)]
pub(crate) struct Numbers {
    n: BigUint,
    pub(crate) d: BigUint,
    pub(crate) p: BigUint,
    pub(crate) q: BigUint,
}

impl Numbers {
    fn new(p: BigUint, q: BigUint) -> Self {
        let (n, one) = (&p * &q, BigUint::from(1_u8));
        let d = BigUint::from(65_537_u32).modinv(&((&p - &one) * (&q - &one))).unwrap();
        Self { n, d, p, q }
    }

    fn generated() -> Self {
        Self::of(&KeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    /// Reads the numbers from an AWS-LC key pair.
    pub(crate) fn of(pair: &KeyPair) -> Self {
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        // Version, n, e, d, p, q of the inner RSAPrivateKey.
        let mut bytes = integers(der.as_ref());
        let (q, p) = (bytes.remove(5), bytes.remove(4));
        Self::new(p, q)
    }

    pub(crate) fn key(&self) -> Key {
        *Key::new(&self.bytes().parts()).unwrap()
    }

    /// Returns the numbers as bytes, in the form that the batch takes.
    pub(crate) fn bytes(&self) -> KeyBytes {
        let one = BigUint::from(1_u8);
        let (dp, dq) = (&self.d % (&self.p - &one), &self.d % (&self.q - &one));
        self.bytes_of(&dp, &dq, &self.q.modinv(&self.p).unwrap(), 65_537)
    }

    fn bytes_of(&self, dp: &BigUint, dq: &BigUint, coefficient: &BigUint, e: u32) -> KeyBytes {
        let numbers = [&self.n, &BigUint::from(e), &self.p, &self.q, dp, dq, coefficient];
        KeyBytes(numbers.map(BigUint::to_bytes_be))
    }

    fn with_coefficient(&self, coefficient: &BigUint) -> Option<Key> {
        let one = BigUint::from(1_u8);
        let (dp, dq) = (&self.d % (&self.p - &one), &self.d % (&self.q - &one));
        self.with_exponents(&dp, &dq, coefficient, 65_537)
    }

    fn with_exponents(&self, dp: &BigUint, dq: &BigUint, coefficient: &BigUint, e: u32) -> Option<Key> {
        Key::new(&self.bytes_of(dp, dq, coefficient, e).parts()).map(|key| *key)
    }

    fn raised(&self, input: &BigUint) -> BigUint {
        input.modpow(&self.d, &self.n)
    }
}

/// The bytes that [`Parts`] borrows, in the same order.
pub(crate) struct KeyBytes([Vec<u8>; 7]);

impl KeyBytes {
    pub(crate) fn parts(&self) -> Parts<'_> {
        let [
            modulus,
            public_exponent,
            first_prime,
            second_prime,
            first_exponent,
            second_exponent,
            coefficient,
        ] = &self.0;
        Parts {
            modulus,
            public_exponent,
            first_prime,
            second_prime,
            first_exponent,
            second_exponent,
            coefficient,
        }
    }
}

/// Returns the INTEGERs of the RSAPrivateKey in a PrivateKeyInfo. Each has a two-byte length, except the first and e.
fn integers(der: &[u8]) -> Vec<BigUint> {
    // SEQUENCE, version, AlgorithmIdentifier, OCTET STRING, SEQUENCE: 4 + 3 + 15 + 4 + 4 bytes for this size.
    let mut rest = &der[30..];
    let mut found = Vec::new();
    while let [2, length @ ..] = rest {
        let (length, content) = match length {
            [0x82, high, low, content @ ..] => (usize::from(*high) << 8 | usize::from(*low), content),
            [0x81, length, content @ ..] => (usize::from(*length), content),
            [length, content @ ..] => (usize::from(*length), content),
            [] => break,
        };
        found.push(BigUint::from_bytes_be(&content[..length]));
        rest = &content[length..];
    }
    found
}

pub(crate) static KEYS: LazyLock<Vec<Numbers>> =
    LazyLock::new(|| (0..LANES).map(|_| Numbers::generated()).collect());

pub(crate) fn kernel() -> Option<Kernel> {
    let kernel = Kernel::detect();
    if kernel.is_none() {
        assert!(std::env::var_os("BULLA_IFMA").is_none(), "no AVX-512 IFMA here");
        eprintln!("this processor has no AVX-512 IFMA: nothing to test");
    }
    kernel
}

pub(crate) fn bytes(number: &BigUint) -> [u8; BYTES] {
    let bytes = number.to_bytes_be();
    let mut padded = [0; BYTES];
    padded[BYTES - bytes.len()..].copy_from_slice(&bytes);
    padded
}

/// Runs the kernel on inputs with their keys.
fn made(kernel: Kernel, of: &[(&Key, [u8; BYTES])]) -> Vec<Option<BigUint>> {
    let jobs: Vec<Job<'_>> = of.iter().map(|(key, input)| Job { key, input }).collect();
    let results = kernel.private_operations(&jobs);
    results.into_iter().map(|result| result.map(|bytes| BigUint::from_bytes_be(&bytes))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_lane_matches_big_integers(
        seeds in prop::collection::vec((0..LANES, prop::collection::vec(any::<u8>(), BYTES)), 1..=2 * LANES + 1),
    ) {
        let Some(kernel) = kernel() else { return Ok(()) };
        let keys: Vec<Key> = KEYS.iter().map(Numbers::key).collect();
        let given: Vec<(usize, BigUint)> = seeds
            .iter()
            .map(|(key, bytes)| (*key, BigUint::from_bytes_be(bytes) % &KEYS[*key].n))
            .collect();
        let jobs: Vec<_> = given.iter().map(|(key, input)| (&keys[*key], bytes(input))).collect();
        let wanted: Vec<_> = given.iter().map(|(key, input)| Some(KEYS[*key].raised(input))).collect();
        prop_assert_eq!(made(kernel, &jobs), wanted);
    }
}

#[test]
fn edge_case_inputs_match_big_integers() {
    let Some(kernel) = kernel() else { return };
    let mut cases = Vec::new();
    for numbers in &KEYS[..2] {
        let (n, p, q) = (&numbers.n, &numbers.p, &numbers.q);
        let one = BigUint::from(1_u8);
        let mut inputs: Vec<BigUint> = [0_u8, 1, 2].map(BigUint::from).to_vec();
        inputs.extend([n - &one, n - 2_u8, p.clone(), q.clone(), p - &one, q - &one, p + &one]);
        inputs.extend([p * 2_u8, q * 3_u8, n - p, n - q, (q - &one) * p, (p - &one) * q]);
        inputs.extend([(&one << 1040_u32) - &one, &one << 1040_u32, (&one << 2047_u32) - &one]);
        cases.extend(inputs.into_iter().map(|input| (numbers, input)));
    }
    let keys: Vec<Key> = cases.iter().map(|(numbers, _)| numbers.key()).collect();
    let jobs: Vec<_> = keys.iter().zip(&cases).map(|(key, (_, input))| (key, bytes(input))).collect();
    let wanted: Vec<_> = cases.iter().map(|(numbers, input)| Some(numbers.raised(input))).collect();
    assert_eq!(made(kernel, &jobs), wanted);
}

#[test]
fn keys_with_swapped_or_extreme_primes_match_big_integers() {
    let Some(kernel) = kernel() else { return };
    // The smallest and the largest prime of 1,024 bits.
    let one = BigUint::from(1_u8);
    let (least, greatest) = ((&one << 1023_u32) + 1155_u32, (&one << 1024_u32) - 105_u32);
    let pairs = [(&greatest, &KEYS[0].p), (&KEYS[0].p, &greatest), (&greatest, &KEYS[1].q)];
    let mut of: Vec<Numbers> = pairs.map(|(p, q)| Numbers::new(p.clone(), q.clone())).to_vec();
    for (p, q) in [(&least, &greatest), (&greatest, &least)] {
        of.push(Numbers::new(p.clone(), q.clone()));
    }
    let keys: Vec<Key> = of.iter().map(Numbers::key).collect();
    let inputs: Vec<BigUint> = of.iter().map(|numbers| &numbers.n - 3_u8).collect();
    let jobs: Vec<_> = keys.iter().zip(&inputs).map(|(key, input)| (key, bytes(input))).collect();
    let wanted: Vec<_> = of.iter().zip(&inputs).map(|(of, input)| Some(of.raised(input))).collect();
    assert_eq!(made(kernel, &jobs), wanted);
}

#[test]
fn short_crt_exponents_are_supported() {
    let Some(kernel) = kernel() else { return };
    // The two smallest primes from 3·2^1022 on with 2p ≡ 1 modulo 65,537. Their exponents are (2p-1)/65,537, fifteen bits short, so
    // that the first three windows are empty.
    let base = BigUint::from(3_u8) << 1022_u32;
    let numbers = Numbers::new(&base + 18_039_059_u32, &base + 84_886_799_u32);
    assert_eq!((&numbers.d % (&numbers.p - 1_u8)).bits(), 1009);
    let input = BigUint::from_bytes_be(&[0xa5; BYTES - 1]);
    assert_eq!(made(kernel, &[(&numbers.key(), bytes(&input))]), [Some(numbers.raised(&input))]);
    // Other short exponents do not invert 65,537. The check accepts their result only for an input that is its own 65,537th power.
    let numbers = &KEYS[0];
    let coefficient = numbers.q.modinv(&numbers.p).unwrap();
    for (dp, dq) in [(0_u8, 0_u8), (1, 1), (16, 1), (1, 255)] {
        let key = numbers.with_exponents(&dp.into(), &dq.into(), &coefficient, 65_537).unwrap();
        let one = bytes(&BigUint::from(1_u8));
        assert_eq!(made(kernel, &[(&key, one)]), [Some(BigUint::from(1_u8))], "{dp} {dq}");
    }
    // -1 to any odd power is itself.
    let key = numbers.with_exponents(&3_u8.into(), &5_u8.into(), &coefficient, 65_537).unwrap();
    let last = &numbers.n - 1_u8;
    assert_eq!(made(kernel, &[(&key, bytes(&last))]), [Some(last)]);
}

#[test]
fn faulty_key_or_input_voids_only_its_own_lane() {
    let Some(kernel) = kernel() else { return };
    let numbers = &KEYS[0];
    let (sound, coefficient) = (numbers.key(), numbers.q.modinv(&numbers.p).unwrap());
    let one = BigUint::from(1_u8);
    let (dp, dq) = (&numbers.d % (&numbers.p - &one), &numbers.d % (&numbers.q - &one));
    let faulty = [
        numbers.with_coefficient(&(&coefficient - &one)).unwrap(),
        numbers.with_exponents(&(&dp - &one), &dq, &coefficient, 65_537).unwrap(),
        numbers.with_exponents(&dp, &(&dq + &one), &coefficient, 65_537).unwrap(),
    ];
    let input = BigUint::from(0x1234_5678_u32);
    let given = bytes(&input);
    let wanted = Some(numbers.raised(&input));
    for faulty in &faulty {
        for lane in 0..LANES {
            let jobs: Vec<_> =
                (0..LANES).map(|at| (if at == lane { faulty } else { &sound }, given)).collect();
            let made = made(kernel, &jobs);
            let expected: Vec<_> =
                (0..LANES).map(|at| if at == lane { None } else { wanted.clone() }).collect();
            assert_eq!(made, expected, "lane {lane}");
        }
    }
    // The input is not below the modulus.
    assert_eq!(made(kernel, &[(&sound, bytes(&numbers.n)), (&sound, [0xff; BYTES])]), [None, None]);
}

#[test]
fn keys_of_unsupported_size_or_exponent_are_rejected() {
    let numbers = &KEYS[0];
    let coefficient = numbers.q.modinv(&numbers.p).unwrap();
    let (dp, dq) = (BigUint::from(3_u8), BigUint::from(3_u8));
    assert!(numbers.with_exponents(&dp, &dq, &coefficient, 65_537).is_some());
    assert!(numbers.with_exponents(&dp, &dq, &coefficient, 3).is_none());
    for broken in [
        Numbers { n: &numbers.n >> 1, ..numbers.clone() },
        Numbers { n: &numbers.n << 8, ..numbers.clone() },
        Numbers { n: &numbers.n - 1_u8, ..numbers.clone() },
        Numbers { p: &numbers.p >> 1, ..numbers.clone() },
        Numbers { q: &numbers.q << 1, ..numbers.clone() },
        Numbers { q: &numbers.q - 1_u8, ..numbers.clone() },
    ] {
        assert!(broken.with_exponents(&dp, &dq, &coefficient, 65_537).is_none());
    }
}

#[test]
fn debug_output_hides_the_key() {
    assert_eq!(format!("{:?}", KEYS[0].key()), "Key(…)");
}
