//! Platform configuration registers.

use super::error::TpmError;

/// Registers (PCR 0 to 23, of the bank SHA-256) that must have the values that they had when the key was sealed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pcrs(pub(super) u32);

impl Pcrs {
    /// Registers that a TPM of a PC has.
    const COUNT: u8 = 24;

    /// These registers.
    ///
    /// # Errors
    /// [`TpmError::Pcr`] names the one that there is not.
    pub fn new(registers: &[u8]) -> Result<Self, TpmError> {
        registers.iter().try_fold(Self(0), |all, register| match register {
            0..Self::COUNT => Ok(Self(all.0 | 1 << register)),
            _ => Err(TpmError::Pcr(*register)),
        })
    }
}
