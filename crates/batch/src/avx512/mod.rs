//! The kernels for processors with AVX-512 IFMA.

pub(crate) mod barrier;
mod comb;
pub(crate) mod ed25519;
mod instructions;
mod lanes;
#[cfg(batch_model)]
mod model;
mod montgomery;
pub(crate) mod p256;
#[cfg(test)]
mod plain;
mod power;
mod registers;
mod short;
#[cfg(test)]
mod tests;
mod wide;

use instructions::{_mm512_add_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_sub_epi64};

use zeroize::{Zeroize, ZeroizeOnDrop, zeroize_stack};

use crate::key::{BYTES, Job, STACK};
use crate::{Kernel, LANES, number};
use lanes::{from_lanes, gather, lanes};
use montgomery::{EightIntegers, LIMBS, Moduli, multiply};
use power::{ENTRIES, Exponents, Table, WORDS, power};
use wide::{EightWide, WIDE, WideModuli, carry, multiply_add, multiply_wide, reduce, same};

/// Same as [`Kernel::private_operations`]. Each lane is a job.
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
pub(crate) fn private_operations(kernel: Kernel, jobs: &[Job<'_>; LANES]) -> [Option<[u8; BYTES]>; LANES] {
    // SAFETY: a `Kernel` exists only where `Kernel::detect` has found the features that the function is compiled for.
    let results = unsafe { operate(jobs) };
    zeroize_stack::<STACK>();
    registers::clear(kernel);
    results
}

/// All secret intermediate values that are not in registers. Registers are cleared, and the stack, which contains spilled
/// registers, is wiped.
#[derive(Zeroize, ZeroizeOnDrop)]
struct Scratch {
    moduli: [Moduli; 2],
    /// R² and R³ modulo each prime.
    powers_of_r: [[EightIntegers; 2]; 2],
    exponents: [Exponents; 2],
    coefficient: EightIntegers,
    /// R modulo each prime (1 in Montgomery form).
    ones: [EightIntegers; 2],
    tables: [Table; 2],
    /// Table entry that a window of the exponent selected.
    chosen: EightIntegers,
    numbers: [EightIntegers; 2],
    high: EightIntegers,
    result: EightWide,
    raised: EightWide,
}

impl Scratch {
    /// Creates an empty value. In a separate function, because the value needs a large stack frame.
    #[inline(never)]
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    fn zero() -> Box<Self> {
        let zero = _mm512_setzero_si512();
        let moduli = || Moduli { limbs: [zero; LIMBS], inverse: zero };
        Box::new(Self {
            moduli: [moduli(), moduli()],
            powers_of_r: [[[zero; LIMBS]; 2]; 2],
            exponents: [[zero; WORDS]; 2],
            coefficient: [zero; LIMBS],
            ones: [[zero; LIMBS]; 2],
            tables: [[[zero; LIMBS]; ENTRIES]; 2],
            chosen: [zero; LIMBS],
            numbers: [[zero; LIMBS]; 2],
            high: [zero; LIMBS],
            result: [zero; WIDE],
            raised: [zero; WIDE],
        })
    }

    /// Fills the values at their final address: moving a value would leave copies behind.
    #[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
    fn of(jobs: &[Job<'_>; LANES]) -> Box<Self> {
        let mut scratch = Self::zero();
        for side in 0..2 {
            let Moduli { limbs, inverse } = &mut scratch.moduli[side];
            gather(limbs, &jobs.map(|job| &job.key.sides[side].prime));
            *inverse = from_lanes(jobs.map(|job| job.key.sides[side].inverse));
            let [r2, r3] = &mut scratch.powers_of_r[side];
            gather(r2, &jobs.map(|job| &job.key.sides[side].r2));
            gather(r3, &jobs.map(|job| &job.key.sides[side].r3));
            gather(&mut scratch.exponents[side], &jobs.map(|job| &job.key.sides[side].exponent));
        }
        gather(&mut scratch.coefficient, &jobs.map(|job| &job.key.coefficient));
        scratch
    }
}

/// Runs the private operations. A separate function, so that its stack frame can be wiped.
#[inline(never)]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn operate(jobs: &[Job<'_>; LANES]) -> [Option<[u8; BYTES]>; LANES] {
    let words = jobs.map(|job| number::words::<{ BYTES / 8 }>(job.input).unwrap_or_default());
    let inputs = words.map(|words| number::limbs(&words));
    let mut input: EightWide = [_mm512_setzero_si512(); WIDE];
    gather(&mut input, &inputs.each_ref());
    let mut scratch = Scratch::of(jobs);
    raise(&input, &mut scratch);
    recombine(&mut scratch);
    let sound = verified_lanes(&input, jobs, &mut scratch);
    let limbs = scratch.result.map(|limb| lanes(limb));
    std::array::from_fn(|lane| {
        // This step need not run in constant time: a faulty result is never returned.
        let result = || number::bytes::<WIDE, BYTES>(&limbs.map(|limb| limb[lane]));
        (sound >> lane & 1 == 1).then(result)
    })
}

/// Raises the input to the private exponent of each prime.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn raise(input: &EightWide, scratch: &mut Scratch) {
    let Scratch { moduli, powers_of_r, exponents, ones, tables, chosen, numbers, high, .. } = scratch;
    let one = one();
    for side in 0..2 {
        let (number, modulus, [r2, r3]) = (&mut numbers[side], &moduli[side], &powers_of_r[side]);
        // The input is the lower half plus R times the upper half. Convert both to Montgomery form: multiply them by R.
        number.copy_from_slice(&input[..LIMBS]);
        high.copy_from_slice(&input[LIMBS..]);
        multiply(number, r2, modulus);
        multiply(high, r3, modulus);
        for limb in 0..LIMBS {
            number[limb] = _mm512_add_epi64(number[limb], high[limb]);
        }
        carry(number);
        ones[side] = *r2;
        multiply(&mut ones[side], &one, modulus);
    }
    power(numbers, ones, exponents, moduli, tables, chosen);
    for side in 0..2 {
        multiply(&mut numbers[side], &one, &moduli[side]);
        reduce(&mut numbers[side], &moduli[side].limbs);
    }
}

/// Combines the results modulo p and q to one modulo n (Garner): with `h` = (m1 - m2)/q modulo p it is m2 + h·q.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn recombine(scratch: &mut Scratch) {
    let Scratch { moduli: [p, q], coefficient, numbers: [h, m2], result, .. } = scratch;
    for limb in 0..LIMBS {
        // Adding 2·p avoids a negative number: 2·p exceeds q, as the primes have the same number of bits.
        let more = _mm512_add_epi64(h[limb], _mm512_add_epi64(p.limbs[limb], p.limbs[limb]));
        h[limb] = _mm512_sub_epi64(more, m2[limb]);
    }
    carry(h);
    multiply(h, coefficient, p);
    reduce(h, &p.limbs);
    *result = multiply_add(h, &q.limbs, m2);
}

/// Checks the results: returns the lanes in which result^65,537 modulo n equals the input.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f,avx512ifma"))]
fn verified_lanes(input: &EightWide, jobs: &[Job<'_>; LANES], scratch: &mut Scratch) -> u8 {
    let zero = _mm512_setzero_si512();
    let inverse = from_lanes(jobs.map(|job| job.key.inverse));
    let mut modulus = WideModuli { limbs: [zero; WIDE], inverse };
    gather(&mut modulus.limbs, &jobs.map(|job| &job.key.modulus));
    let mut r4: EightWide = [zero; WIDE];
    gather(&mut r4, &jobs.map(|job| &job.key.r4));
    let Scratch { result, raised, .. } = scratch;
    *raised = multiply_wide(result, &r4, &modulus);
    for _ in 0..16 {
        *raised = multiply_wide(raised, raised, &modulus);
    }
    // Multiply by the result without Montgomery form, which removes the last factor R.
    *raised = multiply_wide(raised, result, &modulus);
    reduce(raised, &modulus.limbs);
    same(raised, input)
}

/// Returns 1 in each lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
fn one() -> EightIntegers {
    let mut one = [_mm512_setzero_si512(); LIMBS];
    one[0] = _mm512_set1_epi64(1);
    one
}
