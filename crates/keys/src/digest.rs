//! Digests in the lengths that the cryptography library accepts.

use aws_lc_rs::digest::{self, Digest};

use crate::{Hash, KeyType};

/// Returns the digest in the length that the library accepts for the curve.
///
/// ECDSA reads a digest as a number, and uses its leftmost bytes if the digest is longer than the order (FIPS 186-5 section 6.4.1).
/// Zeros before a shorter digest do not change that number. All orders here are whole bytes, except the order of P-521, which is longer
/// than any digest.
pub(crate) fn ecdsa_digest(kind: KeyType, input: &[u8]) -> Option<Digest> {
    let algorithm = match kind {
        KeyType::P256 => &digest::SHA256,
        KeyType::P384 => &digest::SHA384,
        _ => &digest::SHA512,
    };
    let mut number = [0; digest::MAX_OUTPUT_LEN];
    let number = number.get_mut(..algorithm.output_len())?;
    let truncated = &input[..input.len().min(number.len())];
    let at = number.len() - truncated.len();
    number[at..].copy_from_slice(truncated);
    Digest::import_less_safe(number, algorithm).ok()
}

/// Returns `input` as a digest of the library's type. `None` for a hash that is too weak for signatures, or if `input` has the
/// wrong length.
pub(crate) fn rsa_digest(hash: Hash, input: &[u8]) -> Option<Digest> {
    let algorithm = match hash {
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha384 => &digest::SHA384,
        Hash::Sha512 => &digest::SHA512,
        Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224 => return None,
    };
    Digest::import_less_safe(input, algorithm).ok()
}
