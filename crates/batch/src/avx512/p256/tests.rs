//! Tests of the arithmetic against plain numbers, and of the fault checks.

use num_bigint::BigUint;
use proptest::prelude::*;

use super::super::comb;
use super::super::plain::{Plain, TestRng, cases, is_product, random_numbers};
use super::*;
use crate::P256Key;

/// A number below 2^260 may contain the modulus this many times.
const TIMES: u32 = 15;

fn prime() -> BigUint {
    big(&field::PRIME)
}

fn order() -> BigUint {
    big(&ORDER.limbs)
}

fn big(limbs: &[u64; LIMBS]) -> BigUint {
    limbs.iter().rev().fold(BigUint::ZERO, |sum, limb| (sum << number::BITS) + *limb)
}

/// Returns R modulo `modulus`.
fn r(modulus: &BigUint) -> BigUint {
    (BigUint::from(1_u8) << 260_u32) % modulus
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn of(numbers: &[BigUint; LANES]) -> EightShort {
    let limbs = numbers.each_ref().map(|number| {
        let words: [u64; 5] = number::words(&number.to_bytes_be()).unwrap();
        number::limbs(&words)
    });
    let mut short = [_mm512_setzero_si512(); LIMBS];
    gather(&mut short, &limbs.each_ref());
    short
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn to(short: &EightShort) -> [BigUint; LANES] {
    let limbs = short.map(|limb| lanes(limb));
    assert!(limbs.iter().flatten().all(|limb| *limb <= number::LIMB_MAX));
    std::array::from_fn(|lane| big(&limbs.map(|limb| limb[lane])))
}

/// Asserts that the numbers are congruent, lane by lane, and smaller than `below` times the modulus.
fn congruent(found: &[BigUint; LANES], wanted: &[BigUint; LANES], modulus: &BigUint, below: u32) {
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found % modulus, wanted % modulus);
        assert!(*found < modulus * below, "{found:x}");
    }
}

fn each(a: &[BigUint; LANES], of: impl Fn(usize, &BigUint) -> BigUint) -> [BigUint; LANES] {
    std::array::from_fn(|lane| of(lane, &a[lane]))
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn field_holds(a: &[BigUint; LANES], b: &[BigUint; LANES]) {
    let p = prime();
    let (x, y) = (of(a), of(b));
    // With larger factors, the sum of two products would overflow.
    let [small_a, small_b] = [a, b].map(|numbers| each(numbers, |_, number| number % (&p * 4_u8)));
    let (small_x, small_y) = (of(&small_a), of(&small_b));
    let inverse = r(&p).modinv(&p).unwrap();
    let product = |a: &BigUint, b: &BigUint| a * b * &inverse;
    congruent(&to(&field::multiply(&x, &y)), &each(a, |lane, a| product(a, &b[lane])), &p, TIMES + 1);
    congruent(&to(&field::square(&x)), &each(a, |_, a| product(a, a)), &p, TIMES + 1);
    congruent(
        &to(&field::multiply(&small_x, &small_y)),
        &each(&small_a, |lane, a| product(a, &small_b[lane])),
        &p,
        2,
    );
    let two = field::multiply_two([&small_x, &small_y], [&small_y, &small_y]);
    let wanted = each(&small_a, |lane, a| product(&(a + &small_b[lane]), &small_b[lane]));
    congruent(&to(&two), &wanted, &p, 3);
    let difference = field::subtract::<4>(&small_x, &small_y);
    congruent(&to(&difference), &each(&small_a, |lane, a| a + &p * 4_u8 - &small_b[lane]), &p, 8);
    congruent(&to(&field::folded(&x)), a, &p, 3);
    congruent(&to(&field::canonical(&x)), &each(a, |_, a| a * &inverse), &p, 1);
    let negative = std::array::from_fn(|limb| _mm512_sub_epi64(_mm512_setzero_si512(), x[limb]));
    congruent(&to(&field::folded(&negative)), &each(a, |_, a| &p * 16_u8 - a), &p, 3);
    let inverted = to(&field::inverse(&small_x));
    for (inverted, of) in inverted.iter().zip(&small_a) {
        let wanted = if of % &p == BigUint::ZERO { BigUint::ZERO } else { r(&p) * r(&p) % &p };
        assert_eq!(inverted * of % &p, wanted);
    }
    let combined = to(&inverse::inverses(&small_x, &small_y).0);
    congruent(&combined, &inverted, &p, 2);
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn order_holds(a: &[BigUint; LANES], b: &[BigUint; LANES]) {
    let n = order();
    let (x, y) = (of(a), of(b));
    let inverse = r(&n).modinv(&n).unwrap();
    let product = |a: &BigUint, b: &BigUint| a * b * &inverse;
    congruent(&to(&ORDER.multiply(&x, &y)), &each(a, |lane, a| product(a, &b[lane])), &n, TIMES + 1);
    congruent(&to(&ORDER.square(&x)), &each(a, |_, a| product(a, a)), &n, TIMES + 1);
    let small = each(a, |_, a| a % (&n * 2_u8));
    congruent(&to(&ORDER.canonical(&of(&small))), &small, &n, 1);
    let inverted = to(&inverse::inverses(&of(&small), &of(&small)).1);
    for (inverted, of) in inverted.iter().zip(&small) {
        let wanted = if of % &n == BigUint::ZERO { BigUint::ZERO } else { r(&n) * r(&n) % &n };
        assert_eq!(inverted * of % &n, wanted);
    }
}

/// Generates numbers of all sizes, and numbers near multiples of both moduli.
fn numbers_below_2_260() -> impl Strategy<Value = [BigUint; LANES]> {
    let edge =
        (0..=TIMES, any::<bool>(), 0_u32..=4, any::<bool>()).prop_map(|(times, is_order, by, is_more)| {
            let multiple = if is_order { order() } else { prime() } * times;
            if is_more || times == 0 { multiple + by } else { multiple - by }
        });
    let any = any::<[u8; 33]>().prop_map(|bytes| BigUint::from_bytes_be(&bytes) >> 4_u32);
    let full = Just((prime() * TIMES) - 1_u8);
    prop::array::uniform8(prop_oneof![2 => any, 1 => edge, 1 => full])
        .prop_map(|numbers| numbers.map(|number| number % (prime() * TIMES)))
}

proptest! {
    #[test]
    #[allow(unsafe_code, reason = "functions of instructions that not every processor has")]
    fn field_and_order_arithmetic_matches_big_integers(a in numbers_below_2_260(), b in numbers_below_2_260()) {
        if crate::test_kernel().is_some() {
            // SAFETY: the processor has the instructions.
            unsafe {
                field_holds(&a, &b);
                order_holds(&a, &b);
            }
        }
    }
}

/// Number of lanes of each operation that are compared with plain words. Fewer with the model of the instructions.
const CASES: usize = if cfg!(batch_model) { 250_000 } else { 1_000_000 };

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn products_are_those_of_plain_words() {
    // Keeps numbers below 15 times either modulus.
    const HIGHEST: u64 = (14 << 48) - 1;
    let (prime, order, mut rng) = (Plain::<4>::new(&prime()), Plain::<4>::new(&order()), TestRng(256));
    let (prime, order) = ([&prime; LANES], [&order; LANES]);
    for _ in 0..cases(CASES).div_ceil(LANES) {
        let (a, b): (EightShort, EightShort) =
            (random_numbers(&mut rng, HIGHEST), random_numbers(&mut rng, HIGHEST));
        is_product(&prime, [&a, &b], &field::multiply(&a, &b), LIMBS);
        is_product(&prime, [&a, &a], &field::square(&a), LIMBS);
        is_product(&order, [&a, &b], &ORDER.multiply(&a, &b), LIMBS);
        is_product(&order, [&b, &b], &ORDER.square(&b), LIMBS);
    }
}

#[test]
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
fn one_million_products_match_plain_words() {
    if crate::test_kernel().is_some() {
        // SAFETY: the processor has the instructions.
        unsafe { products_are_those_of_plain_words() };
    }
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn what_is_another_multiple_or_no_point_is_found() {
    let curve = Curve::get().unwrap();
    let scalar = order() >> 3_u32 | BigUint::from(1_u8);
    let same: [BigUint; LANES] = std::array::from_fn(|_| scalar.clone());
    let multiple = curve.multiple(&of(&same));
    assert_eq!(multiple.matches_scalars(&of(&same)), __mmask8::MAX);
    // Change each digit by a small and a large amount, in one lane.
    for position in 0..37_u32 {
        for times in [2_u8, 126] {
            let mut other = same.clone();
            other[3] = &scalar + (BigUint::from(times) << (7 * position));
            assert_eq!(multiple.matches_scalars(&of(&other)), !(1 << 3), "{position}");
        }
    }
    let point = multiple.point.affine(&field::inverse(&multiple.point.zzz));
    assert_eq!(is_zero(&point.off_curve(&curve.b)), __mmask8::MAX);
    for limb in 0..LIMBS {
        for bit in [0, 17, 47] {
            let mut fault = [[0; LANES]; LIMBS];
            fault[limb][5] = 1 << bit;
            let fault = fault.map(|limb| super::super::lanes::from_lanes(limb));
            let x = sum(&point.x, &fault);
            assert_eq!(is_zero(&point::Affine { x, ..point }.off_curve(&curve.b)), !(1 << 5));
            let y = sum(&point.y, &fault);
            assert_eq!(is_zero(&point::Affine { y, ..point }.off_curve(&curve.b)), !(1 << 5));
        }
    }
}

/// No signature leaves the kernel when a table at any position returns wrong or corrupt entries.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn what_a_faulty_table_makes_does_not_leave() {
    let (key, mut curve) = (P256Key::new(&[0x5a; 32]).unwrap(), Curve::made());
    let nonces: [[u8; 32]; LANES] = std::array::from_fn(|lane| [0x11 * (lane as u8 + 1); 32]);
    let jobs = nonces.each_ref().map(|nonce| Job { key: &key, digest: &[7; 32], nonce });
    let sound = sign(&curve, &jobs);
    assert!(sound.iter().all(|made| matches!(made, SignatureOutcome::Signature(_))));
    for position in 0..curve.windows.len() {
        curve.windows[position].shift();
        assert_eq!(sign(&curve, &jobs), [SignatureOutcome::Faulty; LANES], "{position}");
        (0..7).for_each(|_| curve.windows[position].shift());
        curve.windows[position].flip();
        assert_eq!(sign(&curve, &jobs), [SignatureOutcome::Faulty; LANES], "{position}");
        curve.windows[position].flip();
        assert_eq!(sign(&curve, &jobs), sound);
    }
}

/// A skipped addition at any position is detected: the sum is another point of the curve.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn an_addition_that_is_lost_is_found() {
    let curve = Curve::get().unwrap();
    let scalars = of(&std::array::from_fn(|lane| (order() >> (lane + 1) as u32) | BigUint::from(1_u8)));
    for lost in 0..36 {
        let multiple = curve.multiple_by(&scalars, |position| position != lost);
        let point = multiple.point.affine(&field::inverse(&multiple.point.zzz));
        assert_eq!(is_zero(&point.off_curve(&curve.b)), __mmask8::MAX);
        assert_eq!(multiple.matches_scalars(&scalars), 0, "{lost}");
    }
}

/// A corrupt k·R, which both computes and checks s, is detected.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn what_a_spoilt_nonce_makes_does_not_leave() {
    let (key, curve) = (P256Key::new(&[0x5a; 32]).unwrap(), Curve::get().unwrap());
    let nonces: [[u8; 32]; LANES] = std::array::from_fn(|lane| [0x11 * (lane as u8 + 1); 32]);
    let jobs = nonces.each_ref().map(|nonce| Job { key: &key, digest: &[7; 32], nonce });
    let sound = sign(curve, &jobs);
    for limb in 0..LIMBS {
        let mut fault = [[0; LANES]; LIMBS];
        fault[limb][6] = 1 << 33;
        let fault = fault.map(|limb| super::super::lanes::from_lanes(limb));
        let made = sign_by(curve, &jobs, |nonces_r| *nonces_r = sum(nonces_r, &fault));
        let wanted: [SignatureOutcome; LANES] =
            std::array::from_fn(|lane| if lane == 6 { SignatureOutcome::Faulty } else { sound[lane] });
        assert_eq!(made, wanted, "{limb}");
    }
}

/// Flips bits in finished tables and in constants.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn tables_that_lost_a_bit_are_not_used() {
    let mut curve = Curve::made();
    assert!(curve.is_sound());
    for position in 0..curve.windows.len() {
        curve.windows[position].shift();
        assert!(!curve.is_sound(), "{position}");
        (0..7).for_each(|_| curve.windows[position].shift());
        curve.windows[position].flip();
        assert!(!curve.is_sound(), "{position}");
        curve.windows[position].flip();
        curve.windows[position].flip_tag();
        assert!(!curve.is_sound(), "{position}");
        curve.windows[position].flip_tag();
    }
    let fault = broadcast(&[0, 1 << 51, 0, 0, 0]);
    let constants: [fn(&mut Curve) -> &mut EightShort; 3] =
        [|curve| &mut curve.b, |curve| &mut curve.one, |curve| &mut curve.order_r2];
    for constant in constants {
        let before = std::mem::replace(constant(&mut curve), fault);
        assert!(!curve.is_sound());
        *constant(&mut curve) = before;
    }
    assert!(curve.is_sound());
}

/// Adds two points that are not inverse to each other, or doubles one, in affine coordinates.
fn plus(a: &[BigUint; 2], b: &[BigUint; 2]) -> [BigUint; 2] {
    let p = &prime();
    let less = |a: &BigUint, b: &BigUint| (a + (p - b % p)) % p;
    let slope = if a == b {
        (less(&(&a[0] * &a[0] * 3_u8), &BigUint::from(3_u8)), &a[1] * 2_u8)
    } else {
        (less(&b[1], &a[1]), less(&b[0], &a[0]))
    };
    let slope = slope.0 * slope.1.modinv(p).unwrap() % p;
    let x = less(&(&slope * &slope), &(&a[0] + &b[0]));
    let y = less(&(slope * less(&a[0], &x)), &a[1]);
    [x, y]
}

/// Computes the expected tables with plain numbers only (SP 800-186 section 3.2.1.3).
#[test]
fn table_checksum_matches_big_integers() {
    let hex = |digits: &[u8]| BigUint::parse_bytes(digits, 16).unwrap();
    let (p, n) = (prime(), order());
    let mut checksum = comb::Checksum::new();
    let limbs = |number: &BigUint| -> [u64; LIMBS] {
        number::limbs(&number::words::<5>(&number.to_bytes_be()).unwrap())
    };
    let b = hex(b"5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b");
    for constant in [b * r(&p) % &p, r(&p), r(&n) * r(&n) % &n] {
        limbs(&constant).into_iter().for_each(|limb| (0..LANES).for_each(|_| checksum.add(limb)));
    }
    let mut position = [
        hex(b"6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
        hex(b"4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
    ];
    for number in 0..comb::DIGITS as u32 {
        let twice = plus(&position, &position);
        let mut entries = vec![position.clone()];
        while entries.len() < comb::ENTRIES {
            entries.push(plus(entries.last().unwrap(), &twice));
        }
        let entries: Vec<[u64; 2 * LIMBS]> = entries
            .iter()
            .map(|entry| {
                let [x, y] = entry.each_ref().map(|number| limbs(&(number * r(&p) % &p)));
                std::array::from_fn(|row| *x.iter().chain(&y).nth(row).unwrap())
            })
            .collect();
        (0..2 * LIMBS).for_each(|row| entries.iter().for_each(|entry| checksum.add(entry[row])));
        for entry in 0..comb::ENTRIES {
            let tag = (BigUint::from(2 * entry + 1) << (7 * number)) % number::LIMB_MAX;
            checksum.add(tag.to_u64_digits()[0]);
        }
        (0..7).for_each(|_| position = plus(&position, &position));
    }
    assert_eq!(checksum.value(), curve::CHECKSUM, "{:#x}", checksum.value());
}

#[test]
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
fn faults_in_points_tables_and_nonces_are_detected() {
    if crate::test_kernel().is_some() {
        // SAFETY: the processor has the instructions.
        unsafe {
            what_is_another_multiple_or_no_point_is_found();
            what_a_faulty_table_makes_does_not_leave();
            an_addition_that_is_lost_is_found();
            what_a_spoilt_nonce_makes_does_not_leave();
            tables_that_lost_a_bit_are_not_used();
        }
    }
}

#[test]
fn corrupt_key_in_one_lane_voids_only_that_signature() {
    let Some(kernel) = crate::test_kernel() else { return };
    let sound = P256Key::new(&[0x5a; 32]).unwrap();
    let broken = |change: fn(&mut P256Key)| {
        let mut key = P256Key::new(&[0x5a; 32]).unwrap();
        change(&mut key);
        key
    };
    for faulty in
        [broken(|key| key.private[2] ^= 1 << 40), broken(|key| key.negative[4] ^= 1), P256Key::unsound()]
    {
        for lane in 0..LANES {
            let job = |at| Job {
                key: if at == lane { &faulty } else { &sound },
                digest: &[7; 32],
                nonce: &[9; 32],
            };
            let jobs: Vec<Job<'_>> = (0..LANES).map(job).collect();
            for (at, made) in kernel.p256_signatures(&jobs).into_iter().enumerate() {
                assert_eq!(made == SignatureOutcome::Faulty, at == lane, "lane {lane}");
                assert!(made != SignatureOutcome::Refused);
            }
        }
    }
}

#[test]
fn constants_in_limbs_match_constants_in_words() {
    assert_eq!(field::PRIME, number::limbs(&field::PRIME_WORDS));
    assert_eq!(ORDER.limbs, number::limbs(&crate::p256::ORDER_WORDS));
}
