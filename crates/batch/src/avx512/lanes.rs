//! Moves numbers into and out of the lanes of registers.

use super::instructions::{__m512i, _mm256_extract_epi64, _mm512_extracti64x4_epi64, _mm512_set_epi64};
use crate::lanes::LANES;

/// Loads the numbers of eight lanes, limb by limb.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn gather<const LENGTH: usize>(into: &mut [__m512i; LENGTH], lanes: &[&[u64; LENGTH]; LANES]) {
    for (at, limb) in into.iter_mut().enumerate() {
        *limb = from_lanes(lanes.map(|lane| lane[at]));
    }
}

/// Builds a vector from one value per lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn from_lanes(of: [u64; LANES]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = of.map(u64::cast_signed);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

/// Returns the value of each lane.
#[cfg_attr(not(batch_model), target_feature(enable = "avx512f"))]
pub(super) fn lanes(of: __m512i) -> [u64; LANES] {
    let low = _mm512_extracti64x4_epi64::<0>(of);
    let high = _mm512_extracti64x4_epi64::<1>(of);
    [
        _mm256_extract_epi64::<0>(low),
        _mm256_extract_epi64::<1>(low),
        _mm256_extract_epi64::<2>(low),
        _mm256_extract_epi64::<3>(low),
        _mm256_extract_epi64::<0>(high),
        _mm256_extract_epi64::<1>(high),
        _mm256_extract_epi64::<2>(high),
        _mm256_extract_epi64::<3>(high),
    ]
    .map(i64::cast_unsigned)
}
