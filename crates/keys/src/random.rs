//! Random bytes from the cryptography library.

use aws_lc_rs::rand;
use zeroize::Zeroizing;

/// Returns random bytes that are wiped when dropped.
pub(crate) fn random<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    rand::fill(&mut *bytes).expect("the operating system gives randomness");
    bytes
}
