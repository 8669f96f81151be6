//! The arithmetic beside plain numbers, and what the checks find.

use num_bigint::BigUint;
use proptest::prelude::*;

use super::super::is_there;
use super::*;
use crate::Ed25519Key;

/// As often as a number below 2^260 may hold the prime.
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

/// R modulo this.
fn r(modulus: &BigUint) -> BigUint {
    (BigUint::from(1_u8) << 260_u32) % modulus
}

#[target_feature(enable = "avx512f")]
fn of(numbers: &[BigUint; LANES]) -> Short {
    let limbs = numbers.each_ref().map(|number| {
        let words: [u64; 5] = number::words(&number.to_bytes_be()).unwrap();
        number::limbs(&words)
    });
    let mut short = [_mm512_setzero_si512(); LIMBS];
    gather(&mut short, &limbs.each_ref());
    short
}

#[target_feature(enable = "avx512f")]
fn to(short: &Short) -> [BigUint; LANES] {
    let limbs = short.map(|limb| lanes(limb));
    assert!(limbs.iter().flatten().all(|limb| *limb <= number::LIMB_MAX));
    std::array::from_fn(|lane| big(&limbs.map(|limb| limb[lane])))
}

/// Numbers that are congruent, lane by lane, and below this many times the modulus.
fn congruent(found: &[BigUint; LANES], wanted: &[BigUint; LANES], modulus: &BigUint, below: u32) {
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found % modulus, wanted % modulus);
        assert!(*found < modulus * below, "{found:x}");
    }
}

fn each(a: &[BigUint; LANES], of: impl Fn(usize, &BigUint) -> BigUint) -> [BigUint; LANES] {
    std::array::from_fn(|lane| of(lane, &a[lane]))
}

#[target_feature(enable = "avx512f,avx512ifma")]
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

#[target_feature(enable = "avx512f,avx512ifma")]
fn order_holds(a: &[BigUint; LANES], wide_number: &[[u8; 64]; LANES]) {
    let l = order();
    let inverse = r(&l).modinv(&l).unwrap();
    let full = of(a);
    let small: [BigUint; LANES] = each(a, |lane, a| (a + lane) % &l);
    let product = ORDER.multiply(&full, &of(&small));
    congruent(&to(&product), &each(a, |lane, a| a * &small[lane] * &inverse), &l, 2);
    let found = super::wide(Curve::get(), &wide_number.each_ref());
    let wanted = wide_number.map(|octets| BigUint::from_bytes_le(&octets) * r(&l));
    congruent(&to(&found), &wanted, &l, 4);
}

/// Numbers of all sizes, and those about the multiples of the prime.
fn numbers_below_2_260() -> impl Strategy<Value = [BigUint; LANES]> {
    let edge = (0..=TIMES, 0_u32..=20, any::<bool>()).prop_map(|(times, by, is_more)| {
        let multiple = prime() * times;
        if is_more || times == 0 { multiple + by } else { multiple - by }
    });
    let any = any::<[u8; 33]>().prop_map(|octets| BigUint::from_bytes_be(&octets) >> 4_u32);
    let full = Just((BigUint::from(1_u8) << 260_u32) - 1_u8);
    prop::array::uniform8(prop_oneof![2 => any, 1 => edge, 1 => full])
}

/// Hashes of all sizes.
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
    fn arithmetic_is_that_of_numbers(
        a in numbers_below_2_260(),
        b in numbers_below_2_260(),
        hashes in prop::array::uniform8(hash()),
    ) {
        if is_there() {
            // SAFETY: the processor has the instructions.
            unsafe {
                field_holds(&a, &b);
                order_holds(&a, &hashes);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn what_is_another_multiple_or_no_point_is_found() {
    let curve = Curve::get();
    let scalar = order() >> 3_u32 | BigUint::from(1_u8);
    let same: [BigUint; LANES] = std::array::from_fn(|_| scalar.clone());
    let multiple = curve.multiple(&of(&same));
    assert_eq!(multiple.is_of(&of(&same)), __mmask8::MAX);
    // Each digit by so little and so much, in one lane.
    for place in 0..36_u32 {
        for times in [2_u8, 126] {
            let mut other = same.clone();
            other[3] = &scalar + (BigUint::from(times) << (7 * place));
            assert_eq!(multiple.is_of(&of(&other)), !(1 << 3), "{place}");
        }
    }
    let point = multiple.point.affine(&field::inverse(&multiple.point.z));
    assert_eq!(is_zero(&point.off_curve(&curve.constants)), __mmask8::MAX);
    for limb in 0..LIMBS {
        for bit in [0, 17, 45] {
            let mut fault = [[0; LANES]; LIMBS];
            fault[limb][5] = 1 << bit;
            let fault = fault.map(|limb| super::super::across(limb));
            let x = sum(&point.x, &fault);
            assert_eq!(is_zero(&point::Affine { x, ..point }.off_curve(&curve.constants)), !(1 << 5));
            let y = sum(&point.y, &fault);
            assert_eq!(is_zero(&point::Affine { y, ..point }.off_curve(&curve.constants)), !(1 << 5));
        }
    }
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn what_was_encoded_wrong_is_found() {
    let (x, y) = (broadcast(&[3, 0, 0, 0, 0]), broadcast(&[5, 6, 7, 8, 9]));
    let mut right = number::octets::<LIMBS, 32>(&[5, 6, 7, 8, 9]);
    right.reverse();
    right[31] |= 0x80;
    assert_eq!(leads_back(&[right; LANES], &x, &y), __mmask8::MAX);
    for bit in [0, 77, 254, 255] {
        let mut encoded = [right; LANES];
        encoded[2][bit / 8] ^= 1 << (bit % 8);
        assert_eq!(leads_back(&encoded, &x, &y), !(1 << 2), "{bit}");
    }
}

/// A table that gives other entries than it was asked for, or spoilt ones, in any place.
#[target_feature(enable = "avx512f,avx512ifma")]
fn what_a_faulty_table_makes_does_not_leave() {
    let mut curve = Curve::made();
    let nonces: [[u8; 64]; LANES] = std::array::from_fn(|lane| [0x11 * (lane as u8 + 1); 64]);
    let made = |curve: &Curve| {
        let mut kept = Ed25519Nonces { scalars: Default::default(), points: Default::default() };
        commit(curve, &nonces.each_ref(), &mut kept)
    };
    let sound = made(&curve);
    assert!(sound.iter().all(Option::is_some));
    for place in 0..curve.windows.len() {
        curve.windows[place].shift();
        assert_eq!(made(&curve), [None; LANES], "{place}");
        (0..7).for_each(|_| curve.windows[place].shift());
        curve.windows[place].flip();
        assert_eq!(made(&curve), [None; LANES], "{place}");
        curve.windows[place].flip();
        assert_eq!(made(&curve), sound);
    }
}

#[test]
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
fn a_fault_of_the_point_is_found() {
    if is_there() {
        // SAFETY: the processor has the instructions.
        unsafe {
            what_is_another_multiple_or_no_point_is_found();
            what_was_encoded_wrong_is_found();
            what_a_faulty_table_makes_does_not_leave();
        }
    }
}

#[test]
fn what_differs_the_second_time_gives_nothing_and_spoils_no_other() {
    let Some(kernel) = Kernel::detect() else { return };
    let (sound, unsound) = (Ed25519Key::new(&[0x5a; 32]), Ed25519Key::unsound());
    let broken = |change: fn(&mut Ed25519Key)| {
        let mut key = Ed25519Key::new(&[0x5a; 32]);
        change(&mut key);
        key
    };
    let [private, negative] = [broken(|key| key.private[2] ^= 1 << 40), broken(|key| key.negative[4] ^= 1)];
    let (nonces, kept) = ([[9; 64]; LANES], kernel.ed25519_commitments(&[&[9; 64]; LANES]));
    assert!(kept.0.iter().all(Option::is_some));
    let (hash, mut other) = ([7; 64], [7; 64]);
    other[63] ^= 1;
    let job = Job { key: &sound, challenge: &hash, challenge_again: &hash, nonce_again: &nonces[0] };
    let faulty = [
        Job { key: &unsound, ..job },
        Job { key: &private, ..job },
        Job { key: &negative, ..job },
        Job { challenge: &other, ..job },
        Job { challenge_again: &other, ..job },
        Job { nonce_again: &other, ..job },
    ];
    for faulty in faulty {
        for lane in 0..LANES {
            let jobs: Vec<Job<'_>> = (0..LANES).map(|at| if at == lane { faulty } else { job }).collect();
            let made = kernel.ed25519_responses(&jobs, &kept.1);
            let is_made: Vec<bool> = made.iter().map(Option::is_some).collect();
            assert_eq!(is_made, (0..LANES).map(|at| at != lane).collect::<Vec<_>>());
        }
    }
}

#[test]
fn constants_are_what_words_say() {
    assert_eq!(prime(), (BigUint::from(1_u8) << 255_u32) - 19_u8);
    assert_eq!(ORDER.limbs, number::limbs(&crate::ed25519::ORDER_WORDS));
}
