//! Optimization barriers: values about which the compiler can assume nothing. The compiler therefore cannot turn masks into
//! branches, masked loads or masked permutations. It also cannot remove a repeated computation that serves as a check.
//!
//! Each barrier is a block of inline assembly without an instruction. The compiler must assume that the assembly changes its
//! operand (Rust reference, "Rules for inline assembly"). `std::hint::black_box` guarantees nothing.

#[cfg(all(target_arch = "x86_64", not(batch_model)))]
use std::arch::asm;
#[cfg(not(all(target_arch = "x86_64", not(batch_model))))]
use std::hint::black_box;

use super::instructions::__m512i;

/// Optimization barrier for a vector: returns it unchanged, but the compiler can assume nothing about its value.
#[cfg(not(batch_model))]
#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code, reason = "assembly without an instruction")]
pub(super) fn opaque(vector: __m512i) -> __m512i {
    let mut vector = vector;
    // SAFETY: the assembly contains no instruction.
    unsafe { asm!("/* {0} */", inout(zmm_reg) vector, options(nomem, nostack, preserves_flags)) };
    vector
}

#[cfg(batch_model)]
pub(super) fn opaque(vector: __m512i) -> __m512i {
    black_box(vector)
}

/// Optimization barrier for a number in limbs: see [`opaque`].
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn opaque_number<const LIMBS: usize>(number: &[__m512i; LIMBS]) -> [__m512i; LIMBS] {
    let mut number = *number;
    for limb in &mut number {
        *limb = opaque(*limb);
    }
    number
}

/// Optimization barrier for bytes in memory: returns them unchanged, but the compiler must read them again.
#[cfg(all(target_arch = "x86_64", not(batch_model)))]
#[inline]
#[allow(unsafe_code, reason = "assembly without an instruction")]
pub(super) fn opaque_bytes<const BYTES: usize, const LANES: usize>(
    bytes: &[[u8; BYTES]; LANES],
) -> [[u8; BYTES]; LANES] {
    let mut bytes = *bytes;
    // SAFETY: the assembly contains no instruction. The compiler must assume that the memory behind the pointer was written.
    unsafe { asm!("/* {0} */", in(reg) &raw mut bytes, options(nostack, preserves_flags)) };
    bytes
}

#[cfg(not(all(target_arch = "x86_64", not(batch_model))))]
pub(super) fn opaque_bytes<const BYTES: usize, const LANES: usize>(
    bytes: &[[u8; BYTES]; LANES],
) -> [[u8; BYTES]; LANES] {
    black_box(*bytes)
}

/// Optimization barrier for a word: see [`opaque`].
#[cfg(all(target_arch = "x86_64", not(batch_model)))]
#[inline]
#[allow(unsafe_code, reason = "assembly without an instruction")]
pub(crate) fn opaque_word(word: u64) -> u64 {
    let mut word = word;
    // SAFETY: the assembly contains no instruction.
    unsafe { asm!("/* {0} */", inout(reg) word, options(nomem, nostack, preserves_flags)) };
    word
}

#[cfg(not(all(target_arch = "x86_64", not(batch_model))))]
pub(crate) fn opaque_word(word: u64) -> u64 {
    black_box(word)
}
