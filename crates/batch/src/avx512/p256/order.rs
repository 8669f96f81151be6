//! Arithmetic modulo n, the order of P-256's group (SP 800-186 section 3.2.1.3).

use super::super::short::{Modulus, Short};
use crate::p256::ORDER_WORDS;

/// n.
pub(super) const ORDER: Modulus = Modulus::new([
    0x9_cac2_fc63_2551,
    0xa_da71_79e8_4f3b,
    0xf_ffff_ffbc_e6fa,
    0xf_ffff_ffff,
    0xffff_ffff_0000,
]);

/// 1/a (a to the power of n - 2, Fermat), in Montgomery's form as a is; zero for zero. The exponent is no secret.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inverse(a: &Short) -> Short {
    // a to the powers from 1 to 15.
    let mut powers = [*a; 15];
    for at in 1..powers.len() {
        powers[at] = ORDER.multiply(&powers[at - 1], a);
    }
    let [lowest, rest @ ..] = ORDER_WORDS;
    let exponent = [lowest - 2, rest[0], rest[1], rest[2]];
    // Its first window is full.
    let mut power = powers[14];
    for window in (0..63).rev() {
        for _ in 0..4 {
            power = ORDER.square(&power);
        }
        let bits = exponent[window / 16] >> (4 * (window % 16)) & 15;
        if bits > 0 {
            power = ORDER.multiply(&power, &powers[bits as usize - 1]);
        }
    }
    power
}
