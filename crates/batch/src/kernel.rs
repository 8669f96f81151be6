//! The proof that the processor has the instructions.

/// The instructions are there.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(());

impl Kernel {
    /// Asks the processor, and the system whether it keeps the registers.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(any(target_arch = "x86_64", batch_model))]
        if is_there() {
            return Some(Self(()));
        }
        None
    }
}

/// Whether the processor has the instructions, and the system keeps their registers.
#[cfg(all(target_arch = "x86_64", not(batch_model)))]
fn is_there() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")
}

/// The model of the instructions is everywhere.
#[cfg(batch_model)]
fn is_there() -> bool {
    true
}
