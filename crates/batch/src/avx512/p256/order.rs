//! Arithmetic modulo n, the order of P-256's group (SP 800-186 section 3.2.1.3).

use super::super::short::Modulus;

/// The modulus n.
pub(super) const ORDER: Modulus = Modulus::new([
    0x9_cac2_fc63_2551,
    0xa_da71_79e8_4f3b,
    0xf_ffff_ffbc_e6fa,
    0xf_ffff_ffff,
    0xffff_ffff_0000,
]);
