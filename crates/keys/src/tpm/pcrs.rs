//! Platform configuration registers.

use super::error::TpmError;

/// Set of registers (PCR 0 to 23 of the SHA-256 bank) that must have the same values as when the key was sealed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pcrs(pub(super) u32);

impl Pcrs {
    /// Number of registers of a PC's TPM.
    const COUNT: u8 = 24;

    /// Creates a set of registers.
    ///
    /// # Errors
    /// [`TpmError::Pcr`] names a register that does not exist.
    pub fn new(registers: &[u8]) -> Result<Self, TpmError> {
        registers.iter().try_fold(Self(0), |all, register| match register {
            0..Self::COUNT => Ok(Self(all.0 | 1 << register)),
            _ => Err(TpmError::Pcr(*register)),
        })
    }
}
