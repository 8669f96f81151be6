//! Tests of the arithmetic against plain numbers, and of the fault checks.

use num_bigint::BigUint;
use proptest::prelude::*;

use super::super::comb;
use super::super::instructions::_mm512_xor_si512;
use super::super::plain::{Plain, TestRng, cases, is_product, random_numbers};
use super::*;
use crate::Ed25519Key;

/// A number below 2^260 may contain the prime this many times.
const TIMES: u32 = 31;

fn big(limbs: &[u64; LIMBS]) -> BigUint {
    limbs.iter().rev().fold(BigUint::ZERO, |sum, limb| (sum << number::BITS) + *limb)
}

fn prime() -> BigUint {
    big(&field::PRIME)
}

fn order() -> BigUint {
    big(&ORDER.limbs)
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
    let [small_a, small_b] = [a, b].map(|numbers| each(numbers, |_, number| number % (&p * 5_u8)));
    let (small_x, small_y) = (of(&small_a), of(&small_b));
    congruent(&to(&field::multiply(&x, &y)), &each(a, |lane, a| a * &b[lane]), &p, 2);
    congruent(&to(&field::square(&x)), &each(a, |_, a| a * a), &p, 2);
    congruent(&to(&field::add(&small_x, &small_y)), &each(&small_a, |lane, a| a + &small_b[lane]), &p, 10);
    congruent(&to(&field::folded(&x)), a, &p, 3);
    congruent(&to(&field::canonical(&x)), a, &p, 1);
    congruent(&to(&field::subtract(&x, &y)), &each(a, |lane, a| &p * 33_u8 + a - &b[lane]), &p, 3);
    let inverted = to(&field::inverse(&x));
    for (inverted, of) in inverted.iter().zip(a) {
        let is_zero = of % &p == BigUint::ZERO;
        assert_eq!(inverted * of % &p, if is_zero { BigUint::ZERO } else { BigUint::from(1_u8) });
    }
}

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn order_holds(a: &[BigUint; LANES], wide_number: &[[u8; 64]; LANES]) {
    let l = order();
    let inverse = r(&l).modinv(&l).unwrap();
    let full = of(a);
    let small: [BigUint; LANES] = each(a, |lane, a| (a + lane) % &l);
    let product = ORDER.multiply(&full, &of(&small));
    congruent(&to(&product), &each(a, |lane, a| a * &small[lane] * &inverse), &l, 2);
    let found = super::wide(Curve::get().unwrap(), &wide_number.each_ref());
    let wanted = wide_number.map(|bytes| BigUint::from_bytes_le(&bytes) * r(&l));
    congruent(&to(&found), &wanted, &l, 4);
}

/// Generates numbers of all sizes, and numbers near multiples of the prime.
fn numbers_below_2_260() -> impl Strategy<Value = [BigUint; LANES]> {
    let edge = (0..=TIMES, 0_u32..=20, any::<bool>()).prop_map(|(times, by, is_more)| {
        let multiple = prime() * times;
        if is_more || times == 0 { multiple + by } else { multiple - by }
    });
    let any = any::<[u8; 33]>().prop_map(|bytes| BigUint::from_bytes_be(&bytes) >> 4_u32);
    let full = Just((BigUint::from(1_u8) << 260_u32) - 1_u8);
    prop::array::uniform8(prop_oneof![2 => any, 1 => edge, 1 => full])
}

/// Generates hashes of all sizes.
fn hash() -> impl Strategy<Value = [u8; 64]> {
    prop_oneof![
        Just([0; 64]),
        Just([0xff; 64]),
        prop::collection::vec(any::<u8>(), 64).prop_map(|of| of.try_into().unwrap())
    ]
}

proptest! {
    #[test]
    #[allow(unsafe_code, reason = "functions of instructions that not every processor has")]
    fn field_and_order_arithmetic_matches_big_integers(
        a in numbers_below_2_260(),
        b in numbers_below_2_260(),
        hashes in prop::array::uniform8(hash()),
    ) {
        if crate::test_kernel().is_some() {
            // SAFETY: the processor has the instructions.
            unsafe {
                field_holds(&a, &b);
                order_holds(&a, &hashes);
            }
        }
    }
}

/// Number of lanes of each operation that are compared with plain words. Fewer with the model of the instructions.
const CASES: usize = if cfg!(batch_model) { 250_000 } else { 1_000_000 };

#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn products_are_those_of_plain_words() {
    let (prime, order, mut rng) = (Plain::<4>::new(&prime()), Plain::<4>::new(&order()), TestRng(25_519));
    let (prime, order) = ([&prime; LANES], [&order; LANES]);
    for _ in 0..cases(CASES).div_ceil(LANES) {
        let a: EightShort = random_numbers(&mut rng, number::LIMB_MAX);
        let b: EightShort = random_numbers(&mut rng, number::LIMB_MAX);
        is_product(&prime, [&a, &b], &field::multiply(&a, &b), 0);
        is_product(&prime, [&a, &a], &field::square(&a), 0);
        // The second factor is below 2·L.
        let small: EightShort = random_numbers(&mut rng, (1 << 45) - 1);
        is_product(&order, [&a, &small], &ORDER.multiply(&a, &small), LIMBS);
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
    for position in 0..36_u32 {
        for times in [2_u8, 126] {
            let mut other = same.clone();
            other[3] = &scalar + (BigUint::from(times) << (7 * position));
            assert_eq!(multiple.matches_scalars(&of(&other)), !(1 << 3), "{position}");
        }
    }
    let point = multiple.point.affine(&field::inverse(&multiple.point.z));
    assert_eq!(is_zero(&point.off_curve(&curve.constants)), __mmask8::MAX);
    for limb in 0..LIMBS {
        for bit in [0, 17, 45] {
            let mut fault = [[0; LANES]; LIMBS];
            fault[limb][5] = 1 << bit;
            let fault = fault.map(|limb| super::super::lanes::from_lanes(limb));
            let x = sum(&point.x, &fault);
            assert_eq!(is_zero(&point::Affine { x, ..point }.off_curve(&curve.constants)), !(1 << 5));
            let y = sum(&point.y, &fault);
            assert_eq!(is_zero(&point::Affine { y, ..point }.off_curve(&curve.constants)), !(1 << 5));
        }
    }
}

/// Any fault in a coordinate or in the encoding is detected.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn what_was_encoded_wrong_is_found() {
    let curve = Curve::get().unwrap();
    let nonces: [[u8; 64]; LANES] = std::array::from_fn(|lane| [0x11 * (lane as u8 + 1); 64]);
    let made = |spoil: &dyn Fn(&mut Affine)| {
        let mut state = Ed25519Nonces { scalars: Default::default(), points: Default::default() };
        commit_by(curve, &nonces.each_ref(), &mut state, spoil)
    };
    let sound = made(&|_| ());
    assert!(sound.iter().all(Option::is_some));
    let mut wanted = sound;
    wanted[2] = None;
    let in_lane =
        |limbs: [u64; LIMBS]| limbs.map(|limb| super::super::lanes::from_lanes([0, 0, limb, 0, 0, 0, 0, 0]));
    // The same residue with another lowest bit.
    let prime = in_lane(field::PRIME);
    assert_eq!(made(&|point| point.x = sum(&point.x, &prime)), wanted);
    for limb in 0..LIMBS {
        for bit in [0, 1, 46] {
            let mut flipped = [0; LIMBS];
            flipped[limb] = 1 << bit;
            let flipped = in_lane(flipped);
            let flip = |number: &mut EightShort| {
                for limb in 0..LIMBS {
                    number[limb] = _mm512_xor_si512(number[limb], flipped[limb]);
                }
            };
            assert_eq!(made(&|point| flip(&mut point.x)), wanted, "x {limb} {bit}");
            assert_eq!(made(&|point| flip(&mut point.y)), wanted, "y {limb} {bit}");
        }
    }
    // Faults in the encoded bytes, including the sign of x.
    let base = of(&std::array::from_fn(|lane| BigUint::from(2 * lane + 1)));
    let point = curve.multiple(&base).point;
    let point = point.affine(&field::inverse(&point.z));
    let point = Affine { x: field::canonical(&point.x), y: field::canonical(&point.y) };
    let right = encoded(&point);
    assert_eq!(is_encoded(curve, &right, &point.x), __mmask8::MAX);
    for bit in [0, 77, 254, 255] {
        let mut wrong = right;
        wrong[2][bit / 8] ^= 1 << (bit % 8);
        assert_eq!(is_encoded(curve, &wrong, &point.x), !(1 << 2), "{bit}");
    }
    // The neutral point has two byte strings: y = 1 and y = 1 + p.
    let neutral = [in_lane([1, 0, 0, 0, 0]), sum(&in_lane([1, 0, 0, 0, 0]), &in_lane(field::PRIME))];
    let [one, other] = neutral.map(|y| encoded(&Affine { x: [_mm512_setzero_si512(); LIMBS], y }));
    let zero = [_mm512_setzero_si512(); LIMBS];
    assert_eq!([one, other].map(|encoded| is_encoded(curve, &encoded, &zero) >> 2 & 1), [1, 0]);
}

/// A skipped addition at any position is detected: the sum is another point of the curve.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn an_addition_that_is_lost_is_found() {
    let curve = Curve::get().unwrap();
    let scalars = of(&std::array::from_fn(|lane| (order() >> (lane + 1) as u32) | BigUint::from(1_u8)));
    for lost in 0..comb::DIGITS {
        let multiple = curve.multiple_by(&scalars, |position| position != lost);
        let point = multiple.point.affine(&field::inverse(&multiple.point.z));
        assert_eq!(is_zero(&point.off_curve(&curve.constants)), __mmask8::MAX);
        assert_eq!(multiple.matches_scalars(&scalars), 0, "{lost}");
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
    let constants: [fn(&mut Curve) -> &mut EightShort; 4] = [
        |curve| &mut curve.constants.one,
        |curve| &mut curve.constants.d,
        |curve| &mut curve.order_r2,
        |curve| &mut curve.order_r3,
    ];
    for constant in constants {
        let before = std::mem::replace(constant(&mut curve), fault);
        assert!(!curve.is_sound());
        *constant(&mut curve) = before;
    }
    assert!(curve.is_sound());
}

/// Adds two points in affine coordinates (the addition law of RFC 8032 section 5.1.4).
fn plus(a: &[BigUint; 2], b: &[BigUint; 2], d: &BigUint) -> [BigUint; 2] {
    let (p, one) = (&prime(), BigUint::from(1_u8));
    let product = d * &a[0] * &b[0] % p * &a[1] * &b[1] % p;
    let over = |above: BigUint, below: BigUint| above * below.modinv(p).unwrap() % p;
    let x = over(&a[0] * &b[1] + &a[1] * &b[0], &one + &product);
    let y = over(&a[1] * &b[1] + &a[0] * &b[0], p + &one - &product);
    [x, y]
}

/// Computes the expected tables with plain numbers only (RFC 8032 section 5.1).
#[test]
fn table_checksum_matches_big_integers() {
    let (p, l, one) = (prime(), order(), BigUint::from(1_u8));
    let mut checksum = comb::Checksum::new();
    let limbs = |number: &BigUint| -> [u64; LIMBS] {
        number::limbs(&number::words::<5>(&number.to_bytes_be()).unwrap())
    };
    let d = &p - BigUint::from(121_665_u32) * BigUint::from(121_666_u32).modinv(&p).unwrap() % &p;
    let r2 = r(&l) * r(&l) % &l;
    for constant in [&one, &d, &r2, &(&r2 * r(&l) % &l)] {
        limbs(constant).into_iter().for_each(|limb| (0..LANES).for_each(|_| checksum.add(limb)));
    }
    let x = b"15112221349535400772501151409588531511454012693041857206046113283949847762202";
    let y = BigUint::from(4_u8) * BigUint::from(5_u8).modinv(&p).unwrap() % &p;
    let mut position = [BigUint::parse_bytes(x, 10).unwrap(), y];
    for number in 0..comb::DIGITS as u32 {
        let twice = plus(&position, &position, &d);
        let mut entries = vec![position.clone()];
        while entries.len() < comb::ENTRIES {
            entries.push(plus(entries.last().unwrap(), &twice, &d));
        }
        let entries: Vec<Vec<u64>> = entries
            .iter()
            .map(|[x, y]| {
                let entry = [(x + y) % &p, (y + &p - x) % &p, &d * x * y * 2_u8 % &p];
                entry.iter().flat_map(limbs).collect()
            })
            .collect();
        (0..3 * LIMBS).for_each(|row| entries.iter().for_each(|entry| checksum.add(entry[row])));
        for entry in 0..comb::ENTRIES {
            let tag = (BigUint::from(2 * entry + 1) << (7 * number)) % number::LIMB_MAX;
            checksum.add(tag.to_u64_digits()[0]);
        }
        (0..7).for_each(|_| position = plus(&position, &position, &d));
    }
    assert_eq!(checksum.value(), curve::CHECKSUM, "{:#x}", checksum.value());
}

/// No signature leaves the kernel when a table at any position returns wrong or corrupt entries.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn what_a_faulty_table_makes_does_not_leave() {
    let mut curve = Curve::made();
    let nonces: [[u8; 64]; LANES] = std::array::from_fn(|lane| [0x11 * (lane as u8 + 1); 64]);
    let made = |curve: &Curve| {
        let mut state = Ed25519Nonces { scalars: Default::default(), points: Default::default() };
        commit(curve, &nonces.each_ref(), &mut state)
    };
    let sound = made(&curve);
    assert!(sound.iter().all(Option::is_some));
    for position in 0..curve.windows.len() {
        curve.windows[position].shift();
        assert_eq!(made(&curve), [None; LANES], "{position}");
        (0..7).for_each(|_| curve.windows[position].shift());
        curve.windows[position].flip();
        assert_eq!(made(&curve), [None; LANES], "{position}");
        curve.windows[position].flip();
        assert_eq!(made(&curve), sound);
    }
}

#[test]
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
fn faults_in_points_and_tables_are_detected() {
    if crate::test_kernel().is_some() {
        // SAFETY: the processor has the instructions.
        unsafe {
            what_is_another_multiple_or_no_point_is_found();
            what_was_encoded_wrong_is_found();
            what_a_faulty_table_makes_does_not_leave();
            an_addition_that_is_lost_is_found();
            tables_that_lost_a_bit_are_not_used();
        }
    }
}

#[test]
fn fault_in_one_lane_voids_only_that_response() {
    let Some(kernel) = crate::test_kernel() else { return };
    let (sound, unsound) = (Ed25519Key::new(&[0x5a; 32]), Ed25519Key::unsound());
    let broken = |change: fn(&mut Ed25519Key)| {
        let mut key = Ed25519Key::new(&[0x5a; 32]);
        change(&mut key);
        key
    };
    let [private, negative] = [broken(|key| key.private[2] ^= 1 << 40), broken(|key| key.negative[4] ^= 1)];
    let nonces = [[9; 64]; LANES];
    let state = || {
        let (points, state) = kernel.ed25519_commitments(&nonces.each_ref());
        assert!(points.iter().all(Option::is_some));
        state
    };
    let (hash, mut other) = ([7; 64], [7; 64]);
    other[63] ^= 1;
    let job =
        Job { key: &sound, challenge: &hash, recomputed_challenge: &hash, recomputed_nonce: &nonces[0] };
    let faulty = [
        Job { key: &unsound, ..job },
        Job { key: &private, ..job },
        Job { key: &negative, ..job },
        Job { challenge: &other, ..job },
        Job { recomputed_challenge: &other, ..job },
        Job { recomputed_nonce: &other, ..job },
    ];
    for faulty in faulty {
        for lane in 0..LANES {
            let jobs: Vec<Job<'_>> = (0..LANES).map(|at| if at == lane { faulty } else { job }).collect();
            let made = kernel.ed25519_responses(&jobs, state());
            let is_made: Vec<bool> = made.iter().map(Option::is_some).collect();
            assert_eq!(is_made, (0..LANES).map(|at| at != lane).collect::<Vec<_>>());
        }
    }
}

#[test]
fn constants_in_limbs_match_constants_in_words() {
    assert_eq!(prime(), (BigUint::from(1_u8) << 255_u32) - 19_u8);
    assert_eq!(ORDER.limbs, number::limbs(&crate::ed25519::ORDER_WORDS));
}
