//! A token which proves that the processor has the AVX-512 instructions that this crate uses.

/// A token which proves that the processor has the AVX-512 instructions that this crate uses.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(());

impl Kernel {
    /// Detects the AVX-512 instructions. Returns `None` if the processor does not have them, or if the operating system does not
    /// save their registers.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(any(target_arch = "x86_64", batch_model))]
        if is_supported() {
            return Some(Self(()));
        }
        None
    }
}

/// Returns whether the processor has the instructions and the operating system saves their registers.
#[cfg(all(target_arch = "x86_64", not(batch_model)))]
fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")
}

/// Returns true: the model of the instructions runs on every processor.
#[cfg(batch_model)]
fn is_supported() -> bool {
    true
}
