//! Compares the model with the processor's instructions, if it has them: random words, and edge values of every width that the
//! kernels use.

use std::arch::x86_64 as processor;

use super::*;

/// Number of rounds, each with different words.
const ROUNDS: u64 = 20_000;

/// Random words from a seed (SplitMix64), mixed with edge values.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn word(&mut self) -> u64 {
        let (choice, word) = (self.next(), self.next());
        let edge = 1_u64 << ((choice >> 8) % 64);
        match choice % 8 {
            0 => edge,
            1 => edge - 1,
            2 => edge.wrapping_neg(),
            3 => word & LOW_52,
            4 => LOW_52,
            5 => word % 70,
            _ => word,
        }
    }

    fn vector(&mut self) -> __m512i {
        __m512i(std::array::from_fn(|_| self.word()))
    }
}

#[target_feature(enable = "avx512f")]
fn to_processor(of: __m512i) -> processor::__m512i {
    let [a, b, c, d, e, f, g, h] = of.0.map(u64::cast_signed);
    processor::_mm512_set_epi64(h, g, f, e, d, c, b, a)
}

#[target_feature(enable = "avx512f")]
fn back(of: processor::__m512i) -> __m512i {
    let (low, high) =
        (processor::_mm512_extracti64x4_epi64::<0>(of), processor::_mm512_extracti64x4_epi64::<1>(of));
    let words = [
        processor::_mm256_extract_epi64::<0>(low),
        processor::_mm256_extract_epi64::<1>(low),
        processor::_mm256_extract_epi64::<2>(low),
        processor::_mm256_extract_epi64::<3>(low),
        processor::_mm256_extract_epi64::<0>(high),
        processor::_mm256_extract_epi64::<1>(high),
        processor::_mm256_extract_epi64::<2>(high),
        processor::_mm256_extract_epi64::<3>(high),
    ];
    __m512i(words.map(i64::cast_unsigned))
}

/// Compares an instruction of the model with the processor's.
macro_rules! same {
    ($name:ident $(::<$constant:literal>)? ($($given:ident),*)) => {
        assert_eq!(
            $name $(::<$constant>)? ($($given),*),
            back(processor::$name $(::<$constant>)? ($(to_processor($given)),*)),
            concat!(stringify!($name), " {:x?}"),
            ($($given),*)
        );
    };
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn the_processor_agrees() {
    let mut words = Words(52);
    for _ in 0..ROUNDS {
        let (a, b, c) = (words.vector(), words.vector(), words.vector());
        same!(_mm512_add_epi64(a, b));
        same!(_mm512_sub_epi64(a, b));
        same!(_mm512_and_si512(a, b));
        same!(_mm512_andnot_si512(a, b));
        same!(_mm512_or_si512(a, b));
        same!(_mm512_xor_si512(a, b));
        same!(_mm512_sllv_epi64(a, b));
        same!(_mm512_srlv_epi64(a, b));
        same!(_mm512_madd52lo_epu64(a, b, c));
        same!(_mm512_madd52hi_epu64(a, b, c));
        same!(_mm512_permutex2var_epi64(a, b, c));
        same!(_mm512_ternarylogic_epi64::<0xca>(a, b, c));
        same!(_mm512_ternarylogic_epi64::<0x96>(a, b, c));
        same!(_mm512_slli_epi64::<1>(a));
        same!(_mm512_slli_epi64::<44>(a));
        same!(_mm512_srli_epi64::<52>(a));
        same!(_mm512_srli_epi64::<51>(a));
        same!(_mm512_srli_epi64::<6>(a));
        same!(_mm512_srai_epi64::<52>(a));
        same!(_mm512_srai_epi64::<47>(a));
        same!(_mm512_srai_epi64::<63>(a));
        let some = __m512i(std::array::from_fn(|at| if b.0[at] & 1 == 0 { a.0[at] } else { b.0[at] }));
        assert_eq!(
            _mm512_cmpeq_epi64_mask(a, some),
            processor::_mm512_cmpeq_epi64_mask(to_processor(a), to_processor(some))
        );
        let word = words.word().cast_signed();
        assert_eq!(_mm512_set1_epi64(word), back(processor::_mm512_set1_epi64(word)));
    }
    assert_eq!(_mm512_setzero_si512(), back(processor::_mm512_setzero_si512()));
}

#[test]
#[allow(unsafe_code, reason = "a function of instructions that not every processor has")]
fn model_matches_processor_instructions() {
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma") {
        // SAFETY: the processor has the features that the function is compiled for.
        unsafe { the_processor_agrees() };
    } else {
        assert!(std::env::var_os("BULLA_IFMA").is_none(), "no AVX-512 IFMA here");
    }
}

/// Needs no AVX-512 processor: the expected values are from Intel's intrinsics guide.
#[test]
fn intrinsics_match_reference_values() {
    let of = |word: u64| __m512i([word; WORDS]);
    let all = of(u64::MAX);
    // (2^52 - 1)² = 2^104 - 2^53 + 1
    assert_eq!(_mm512_madd52lo_epu64(of(7), all, all), of(8));
    assert_eq!(_mm512_madd52hi_epu64(of(7), all, all), of(7 + LOW_52 - 1));
    assert_eq!(_mm512_madd52lo_epu64(all, of(1), of(1)), of(0));
    assert_eq!(_mm512_srai_epi64::<63>(of(1 << 63)), all);
    assert_eq!(_mm512_ternarylogic_epi64::<0xca>(of(0b1100), of(0b1010), of(0b0110)), of(0b1010));
    let (a, b) =
        (__m512i(std::array::from_fn(|at| at as u64)), __m512i(std::array::from_fn(|at| 8 + at as u64)));
    assert_eq!(_mm512_permutex2var_epi64(a, of(13 + 16), b), of(13));
    assert_eq!(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), a);
}
