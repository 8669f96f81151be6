//! The instructions that the kernels use: the processor's or, in tests on any processor, a model of them.

#[cfg(not(batch_model))]
pub(super) use std::arch::x86_64::{
    __m512i, __mmask8, _mm256_extract_epi64, _mm512_add_epi64, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_cmpeq_epi64_mask, _mm512_extracti64x4_epi64, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64,
    _mm512_or_si512, _mm512_permutex2var_epi64, _mm512_set_epi64, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_slli_epi64, _mm512_sllv_epi64, _mm512_srai_epi64, _mm512_srli_epi64, _mm512_srlv_epi64,
    _mm512_sub_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

#[cfg(batch_model)]
pub(super) use super::model::*;
