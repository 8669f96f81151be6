//! Digests as the library takes them.

use aws_lc_rs::digest::{self, Digest};

use crate::{Hash, KeyType};

/// The library takes digests of one length for a curve. ECDSA reads a digest as a number: its leftmost bytes when it is
/// longer than the order (FIPS 186-5 section 6.4.1; all orders here but that of P-521, which is longer than any digest,
/// are whole bytes), and zeros before a shorter one change nothing.
pub(crate) fn ecdsa_digest(kind: KeyType, input: &[u8]) -> Option<Digest> {
    let algorithm = match kind {
        KeyType::P256 => &digest::SHA256,
        KeyType::P384 => &digest::SHA384,
        _ => &digest::SHA512,
    };
    let mut number = [0; digest::MAX_OUTPUT_LEN];
    let number = number.get_mut(..algorithm.output_len())?;
    let kept = &input[..input.len().min(number.len())];
    let at = number.len() - kept.len();
    number[at..].copy_from_slice(kept);
    Digest::import_less_safe(number, algorithm).ok()
}

/// `None` for hashes that nobody should trust a signature over, and for what is no value of the hash.
pub(crate) fn rsa_digest(hash: Hash, input: &[u8]) -> Option<Digest> {
    let algorithm = match hash {
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha384 => &digest::SHA384,
        Hash::Sha512 => &digest::SHA512,
        Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224 => return None,
    };
    Digest::import_less_safe(input, algorithm).ok()
}
