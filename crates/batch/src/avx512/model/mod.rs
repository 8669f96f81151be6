//! A software model of the instructions: a vector is eight words. The functions have the names and meanings of those in
//! `core::arch::x86_64` (Intel's intrinsics guide), so that the kernels' source runs with either. For tests only: constant-time but
//! slow, and nothing is wiped.

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

use zeroize::DefaultIsZeroes;

// Instructions are never inlined: the unrolled products of RSA would become megabytes of code and take minutes to compile.

/// Number of words in a vector.
const WORDS: usize = 8;
/// Mask of the lowest 52 bits.
const LOW_52: u64 = (1 << 52) - 1;

/// Eight words, lowest first.
#[allow(non_camel_case_types, reason = "the processor's name")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(align(64))]
pub(crate) struct __m512i([u64; WORDS]);

/// Four words, lowest first.
#[allow(non_camel_case_types, reason = "the processor's name")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct __m256i([u64; WORDS / 2]);

/// One bit for each word of a vector.
#[allow(non_camel_case_types, reason = "the processor's name")]
pub(crate) type __mmask8 = u8;

impl DefaultIsZeroes for __m512i {}

#[inline(always)]
fn each(a: __m512i, of: impl Fn(u64) -> u64) -> __m512i {
    __m512i(a.0.map(of))
}

#[inline(always)]
fn both(a: __m512i, b: __m512i, of: impl Fn(u64, u64) -> u64) -> __m512i {
    __m512i(std::array::from_fn(|at| of(a.0[at], b.0[at])))
}

#[inline(never)]
pub(crate) fn _mm512_setzero_si512() -> __m512i {
    __m512i([0; WORDS])
}

#[inline(never)]
pub(crate) fn _mm512_set1_epi64(word: i64) -> __m512i {
    __m512i([word.cast_unsigned(); WORDS])
}

/// The highest word is the first argument.
#[allow(clippy::too_many_arguments, reason = "the processor's form")]
#[inline(never)]
pub(crate) fn _mm512_set_epi64(h: i64, g: i64, f: i64, e: i64, d: i64, c: i64, b: i64, a: i64) -> __m512i {
    __m512i([a, b, c, d, e, f, g, h].map(i64::cast_unsigned))
}

#[inline(never)]
pub(crate) fn _mm512_add_epi64(a: __m512i, b: __m512i) -> __m512i {
    both(a, b, u64::wrapping_add)
}

#[inline(never)]
pub(crate) fn _mm512_sub_epi64(a: __m512i, b: __m512i) -> __m512i {
    both(a, b, u64::wrapping_sub)
}

#[inline(never)]
pub(crate) fn _mm512_and_si512(a: __m512i, b: __m512i) -> __m512i {
    both(a, b, |a, b| a & b)
}

/// Bitwise (not a) and b.
#[inline(never)]
pub(crate) fn _mm512_andnot_si512(a: __m512i, b: __m512i) -> __m512i {
    both(a, b, |a, b| !a & b)
}

#[inline(never)]
pub(crate) fn _mm512_or_si512(a: __m512i, b: __m512i) -> __m512i {
    both(a, b, |a, b| a | b)
}

#[inline(never)]
pub(crate) fn _mm512_xor_si512(a: __m512i, b: __m512i) -> __m512i {
    both(a, b, |a, b| a ^ b)
}

/// For each bit position: bit 4a + 2b + c of `TABLE`.
#[inline(never)]
pub(crate) fn _mm512_ternarylogic_epi64<const TABLE: i32>(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    __m512i(std::array::from_fn(|at| {
        (0..8).fold(0, |found, row| {
            let is_set = |word: u64, bit: i32| if row >> bit & 1 == 1 { word } else { !word };
            let selected = is_set(a.0[at], 2) & is_set(b.0[at], 1) & is_set(c.0[at], 0);
            if TABLE >> row & 1 == 1 { found | selected } else { found }
        })
    }))
}

#[inline(never)]
pub(crate) fn _mm512_slli_epi64<const BITS: u32>(a: __m512i) -> __m512i {
    each(a, |a| a.checked_shl(BITS).unwrap_or(0))
}

#[inline(never)]
pub(crate) fn _mm512_srli_epi64<const BITS: u32>(a: __m512i) -> __m512i {
    each(a, |a| a.checked_shr(BITS).unwrap_or(0))
}

/// Arithmetic shift: fills with copies of the sign bit.
#[inline(never)]
pub(crate) fn _mm512_srai_epi64<const BITS: u32>(a: __m512i) -> __m512i {
    each(a, |a| (a.cast_signed() >> BITS.min(63)).cast_unsigned())
}

#[inline(never)]
pub(crate) fn _mm512_sllv_epi64(a: __m512i, bits: __m512i) -> __m512i {
    both(a, bits, |a, bits| if bits < 64 { a << bits } else { 0 })
}

#[inline(never)]
pub(crate) fn _mm512_srlv_epi64(a: __m512i, bits: __m512i) -> __m512i {
    both(a, bits, |a, bits| if bits < 64 { a >> bits } else { 0 })
}

/// Returns the product of the lowest 52 bits of b and c.
#[inline(always)]
fn product_52(b: u64, c: u64) -> u128 {
    u128::from(b & LOW_52) * u128::from(c & LOW_52)
}

/// a plus the lower 52 bits of the product.
#[inline(never)]
pub(crate) fn _mm512_madd52lo_epu64(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    __m512i(std::array::from_fn(|at| a.0[at].wrapping_add(product_52(b.0[at], c.0[at]) as u64 & LOW_52)))
}

/// a plus the upper 52 bits of the product.
#[inline(never)]
pub(crate) fn _mm512_madd52hi_epu64(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    __m512i(std::array::from_fn(|at| a.0[at].wrapping_add((product_52(b.0[at], c.0[at]) >> 52) as u64)))
}

#[inline(never)]
pub(crate) fn _mm512_cmpeq_epi64_mask(a: __m512i, b: __m512i) -> __mmask8 {
    (0..WORDS).fold(0, |mask, at| mask | u8::from(a.0[at] == b.0[at]) << at)
}

/// The lowest three bits of each word of `index` select a word; the next bit selects a or b.
#[inline(never)]
pub(crate) fn _mm512_permutex2var_epi64(a: __m512i, index: __m512i, b: __m512i) -> __m512i {
    each(index, |index| {
        let at = index as usize % WORDS;
        if index >> 3 & 1 == 0 { a.0[at] } else { b.0[at] }
    })
}

#[inline(never)]
pub(crate) fn _mm512_extracti64x4_epi64<const HALF: i32>(a: __m512i) -> __m256i {
    let [b, c, d, e, f, g, h, i] = a.0;
    __m256i(if HALF == 0 { [b, c, d, e] } else { [f, g, h, i] })
}

#[inline(never)]
pub(crate) fn _mm256_extract_epi64<const AT: i32>(a: __m256i) -> i64 {
    a.0[AT as usize].cast_signed()
}
