//! Random serial numbers of certificates.

use aws_lc_rs::rand;
use x509::SerialNumber;

use super::error::MintError;

/// Returns a serial number of 128 random bits.
pub(super) fn new_serial() -> Result<SerialNumber, MintError> {
    let mut random = [0; 16];
    rand::fill(&mut random).map_err(|_| MintError::NoRandomness)?;
    Ok(SerialNumber::from_random(random))
}
