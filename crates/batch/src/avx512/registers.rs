//! Clears the vector registers after computations with secrets. Code compiled for older instruction sets never writes the upper
//! sixteen registers, so they would keep secrets until the next batch.

#[cfg(not(batch_model))]
use std::arch::asm;

use crate::Kernel;

/// Does nothing: the portable model has no vector registers.
#[cfg(batch_model)]
pub(super) fn clear(_kernel: Kernel) {}

/// Clears all vector registers.
#[cfg(not(batch_model))]
#[allow(unsafe_code, reason = "instructions that not every processor has")]
pub(super) fn clear(_kernel: Kernel) {
    // SAFETY: a `Kernel` exists only where `is_there` has found the features that the function is compiled for.
    unsafe { clear_all() }
}

#[cfg(not(batch_model))]
#[inline(never)]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code, reason = "no other way to name a register")]
fn clear_all() {
    // SAFETY: touches neither memory nor stack, and declares every changed register.
    unsafe {
        asm!(
            "vzeroall",
            "vpxorq zmm16, zmm16, zmm16", "vpxorq zmm17, zmm17, zmm17",
            "vpxorq zmm18, zmm18, zmm18", "vpxorq zmm19, zmm19, zmm19",
            "vpxorq zmm20, zmm20, zmm20", "vpxorq zmm21, zmm21, zmm21",
            "vpxorq zmm22, zmm22, zmm22", "vpxorq zmm23, zmm23, zmm23",
            "vpxorq zmm24, zmm24, zmm24", "vpxorq zmm25, zmm25, zmm25",
            "vpxorq zmm26, zmm26, zmm26", "vpxorq zmm27, zmm27, zmm27",
            "vpxorq zmm28, zmm28, zmm28", "vpxorq zmm29, zmm29, zmm29",
            "vpxorq zmm30, zmm30, zmm30", "vpxorq zmm31, zmm31, zmm31",
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
            out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
            out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
            out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
            out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(all(test, not(batch_model)))]
mod tests {
    use crate::{Ed25519Job, Ed25519Key, P256Job, P256Key};

    /// Returns the content of the upper sixteen registers.
    #[inline(never)]
    #[target_feature(enable = "avx512f")]
    #[allow(unsafe_code, reason = "no other way to name a register")]
    fn upper() -> [[u64; 8]; 16] {
        let mut found = [[1; 8]; 16];
        // SAFETY: sixteen registers of 64 bytes are stored into memory of this size.
        unsafe {
            std::arch::asm!(
                "vmovdqu64 [{to}], zmm16", "vmovdqu64 [{to} + 64], zmm17",
                "vmovdqu64 [{to} + 128], zmm18", "vmovdqu64 [{to} + 192], zmm19",
                "vmovdqu64 [{to} + 256], zmm20", "vmovdqu64 [{to} + 320], zmm21",
                "vmovdqu64 [{to} + 384], zmm22", "vmovdqu64 [{to} + 448], zmm23",
                "vmovdqu64 [{to} + 512], zmm24", "vmovdqu64 [{to} + 576], zmm25",
                "vmovdqu64 [{to} + 640], zmm26", "vmovdqu64 [{to} + 704], zmm27",
                "vmovdqu64 [{to} + 768], zmm28", "vmovdqu64 [{to} + 832], zmm29",
                "vmovdqu64 [{to} + 896], zmm30", "vmovdqu64 [{to} + 960], zmm31",
                to = in(reg) &raw mut found,
                options(nostack, preserves_flags),
            );
        }
        found
    }

    /// Fills all sixteen registers.
    #[inline(never)]
    #[target_feature(enable = "avx512f")]
    #[allow(unsafe_code, reason = "no other way to name a register")]
    fn fill() {
        // SAFETY: touches neither memory nor stack, and declares every changed register.
        unsafe {
            std::arch::asm!(
                "vpternlogd zmm16, zmm16, zmm16, 255", "vmovdqa64 zmm17, zmm16",
                "vmovdqa64 zmm18, zmm16", "vmovdqa64 zmm19, zmm16", "vmovdqa64 zmm20, zmm16",
                "vmovdqa64 zmm21, zmm16", "vmovdqa64 zmm22, zmm16", "vmovdqa64 zmm23, zmm16",
                "vmovdqa64 zmm24, zmm16", "vmovdqa64 zmm25, zmm16", "vmovdqa64 zmm26, zmm16",
                "vmovdqa64 zmm27, zmm16", "vmovdqa64 zmm28, zmm16", "vmovdqa64 zmm29, zmm16",
                "vmovdqa64 zmm30, zmm16", "vmovdqa64 zmm31, zmm16",
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
                out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
                options(nomem, nostack, preserves_flags),
            );
        }
    }

    #[allow(unsafe_code, reason = "functions of instructions that not every processor has")]
    fn after(work: impl FnOnce()) -> [[u64; 8]; 16] {
        // SAFETY: the test has a `Kernel`, so the instructions exist.
        unsafe { fill() };
        work();
        // SAFETY: the test has a `Kernel`, so the instructions exist.
        unsafe { upper() }
    }

    #[test]
    fn clear_zeroes_all_registers() {
        let Some(kernel) = crate::test_kernel() else { return };
        assert_eq!(after(|| ()), [[u64::MAX; 8]; 16]);
        assert_eq!(after(|| super::clear(kernel)), [[0; 8]; 16]);
    }

    /// Tests the four registers that the C library does not use for copies. An RSA operation of a test build leaves zeros in the
    /// others anyway.
    #[test]
    fn upper_registers_are_zero_after_each_operation() {
        let Some(kernel) = crate::test_kernel() else { return };
        let after = |work: &mut dyn FnMut()| after(work)[12..].to_vec();
        let zero = [[0; 8]; 4];
        let key = P256Key::new(&[0x5a; 32]).unwrap();
        let p256 =
            || drop(kernel.p256_signatures(&[P256Job { key: &key, digest: &[7; 32], nonce: &[9; 32] }]));
        assert_eq!(after(&mut { p256 }), zero);
        let (key, hash) = (Ed25519Key::new(&[0x5a; 32]), [7; 64]);
        let mut state = None;
        assert_eq!(after(&mut || state = Some(kernel.ed25519_commitments(&[&hash]).1)), zero);
        let job =
            Ed25519Job { key: &key, challenge: &hash, recomputed_challenge: &hash, recomputed_nonce: &hash };
        let mut responses = || assert!(kernel.ed25519_responses(&[job], state.take().unwrap())[0].is_some());
        assert_eq!(after(&mut responses), zero);
    }
}
