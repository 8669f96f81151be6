//! Values of which the compiler knows nothing: it can neither turn masks made of them into branches, masked loads or masked permutations, nor
//! leave out a second computation for a check.
//!
//! Each is a block of inline assembly without an instruction. The compiler must take it that the assembly changes its operand (Rust
//! reference, "Rules for inline assembly"); `std::hint::black_box` promises nothing.

#[cfg(all(target_arch = "x86_64", not(batch_model)))]
use std::arch::asm;
#[cfg(not(all(target_arch = "x86_64", not(batch_model))))]
use std::hint::black_box;

use super::instructions::__m512i;

/// The same vector.
#[cfg(not(batch_model))]
#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code, reason = "assembly without an instruction")]
pub(super) fn opaque(vector: __m512i) -> __m512i {
    let mut vector = vector;
    // SAFETY: there is no instruction.
    unsafe { asm!("/* {0} */", inout(zmm_reg) vector, options(nomem, nostack, preserves_flags)) };
    vector
}

#[cfg(batch_model)]
pub(super) fn opaque(vector: __m512i) -> __m512i {
    black_box(vector)
}

/// The same number.
#[inline]
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn opaque_number<const LIMBS: usize>(number: &[__m512i; LIMBS]) -> [__m512i; LIMBS] {
    let mut number = *number;
    for limb in &mut number {
        *limb = opaque(*limb);
    }
    number
}

/// The same bytes, as memory holds them.
#[cfg(all(target_arch = "x86_64", not(batch_model)))]
#[inline]
#[allow(unsafe_code, reason = "assembly without an instruction")]
pub(super) fn opaque_octets<const OCTETS: usize, const LANES: usize>(
    octets: &[[u8; OCTETS]; LANES],
) -> [[u8; OCTETS]; LANES] {
    let mut octets = *octets;
    // SAFETY: there is no instruction. The compiler must take it that memory behind the pointer was written.
    unsafe { asm!("/* {0} */", in(reg) &raw mut octets, options(nostack, preserves_flags)) };
    octets
}

#[cfg(not(all(target_arch = "x86_64", not(batch_model))))]
pub(super) fn opaque_octets<const OCTETS: usize, const LANES: usize>(
    octets: &[[u8; OCTETS]; LANES],
) -> [[u8; OCTETS]; LANES] {
    black_box(*octets)
}

/// The same word.
#[cfg(all(target_arch = "x86_64", not(batch_model)))]
#[inline]
#[allow(unsafe_code, reason = "assembly without an instruction")]
pub(crate) fn opaque_word(word: u64) -> u64 {
    let mut word = word;
    // SAFETY: there is no instruction.
    unsafe { asm!("/* {0} */", inout(reg) word, options(nomem, nostack, preserves_flags)) };
    word
}

#[cfg(not(all(target_arch = "x86_64", not(batch_model))))]
pub(crate) fn opaque_word(word: u64) -> u64 {
    black_box(word)
}
