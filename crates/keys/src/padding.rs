//! Padding of RSA signatures: EMSA-PKCS1-v1_5 and EMSA-PSS (RFC 8017 section 9), for moduli of 2,048 bits. The library pads the
//! signatures that it makes; this module pads those made in batches.

use aws_lc_rs::{digest, rand};
use batch::BYTES;

use crate::{Hash, Scheme};

/// Template of the DigestInfo that precedes a digest (RFC 8017 section 9.2, note 1). The bytes that depend on the hash are
/// replaced.
const DIGEST_INFO: [u8; 19] =
    [0x30, 0, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0, 0x05, 0x00, 0x04, 0];

/// Returns the encoded message, big-endian, below every modulus of 2,048 bits. `None` for unsupported schemes and wrong lengths.
pub(crate) fn encoded(scheme: Scheme, digest: &[u8]) -> Option<[u8; BYTES]> {
    match scheme {
        Scheme::RsaPkcs1(hash) => pkcs1(hash, digest),
        Scheme::RsaPss(hash) => {
            let mut salt = [0; digest::MAX_OUTPUT_LEN];
            let salt = salt.get_mut(..hash.octets())?;
            rand::fill(salt).ok()?;
            pss(hash, digest, salt)
        }
        Scheme::Ecdsa(_) | Scheme::Ed25519 => None,
    }
}

/// Returns the library's hash, and the last number of its object identifier. `None` for hashes that are too weak for signatures.
fn algorithm(hash: Hash, digest: &[u8]) -> Option<(&'static digest::Algorithm, u8)> {
    let found = match hash {
        Hash::Sha256 => (&digest::SHA256, 1),
        Hash::Sha384 => (&digest::SHA384, 2),
        Hash::Sha512 => (&digest::SHA512, 3),
        Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224 => return None,
    };
    (digest.len() == hash.octets()).then_some(found)
}

fn pkcs1(hash: Hash, digest: &[u8]) -> Option<[u8; BYTES]> {
    let (_, name) = algorithm(hash, digest)?;
    let mut info = DIGEST_INFO;
    (info[1], info[14], info[18]) = (17 + digest.len() as u8, name, digest.len() as u8);
    let mut message = [0xff; BYTES];
    (message[0], message[1]) = (0, 1);
    let at = BYTES - digest.len();
    message[at..].copy_from_slice(digest);
    message[at - info.len()..at].copy_from_slice(&info);
    message[at - info.len() - 1] = 0;
    Some(message)
}

fn pss(hash: Hash, digest: &[u8], salt: &[u8]) -> Option<[u8; BYTES]> {
    let (algorithm, _) = algorithm(hash, digest)?;
    let mut context = digest::Context::new(algorithm);
    for part in [&[0; 8], digest, salt] {
        context.update(part);
    }
    let seed = context.finish();
    let mut message = [0; BYTES];
    let (block, rest) = message.split_at_mut(BYTES - hash.octets() - 1);
    let (hashed, last) = rest.split_at_mut(hash.octets());
    hashed.copy_from_slice(seed.as_ref());
    last.fill(0xbc);
    let at = block.len() - salt.len();
    block[at..].copy_from_slice(salt);
    block[at - 1] = 1;
    mask(algorithm, seed.as_ref(), block);
    // The encoded message has one bit less than the modulus.
    block[0] &= 0x7f;
    Some(message)
}

/// Applies MGF1 (RFC 8017 appendix B.2.1) to a block by exclusive or.
fn mask(algorithm: &'static digest::Algorithm, seed: &[u8], block: &mut [u8]) {
    for (counter, part) in (0_u32..).zip(block.chunks_mut(algorithm.output_len())) {
        let mut context = digest::Context::new(algorithm);
        context.update(seed);
        context.update(&counter.to_be_bytes());
        for (byte, mask) in part.iter_mut().zip(context.finish().as_ref()) {
            *byte ^= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_hash_scheme_or_digest_length_is_not_encoded() {
        for hash in [Hash::Md5Sha1, Hash::Sha1, Hash::Sha224] {
            let digest = vec![1; hash.octets()];
            assert_eq!(encoded(Scheme::RsaPkcs1(hash), &digest), None);
            assert_eq!(encoded(Scheme::RsaPss(hash), &digest), None);
        }
        for octets in [0, 31, 33] {
            assert_eq!(encoded(Scheme::RsaPkcs1(Hash::Sha256), &vec![1; octets]), None);
            assert_eq!(encoded(Scheme::RsaPss(Hash::Sha256), &vec![1; octets]), None);
        }
        assert_eq!(encoded(Scheme::Ecdsa(Hash::Sha256), &[1; 32]), None);
    }

    #[test]
    fn pss_salts_differ() {
        let encoded = || encoded(Scheme::RsaPss(Hash::Sha512), &[7; 64]).unwrap();
        let (first, second) = (encoded(), encoded());
        assert_ne!(first, second);
        assert_eq!((first[BYTES - 1], first[0] >> 7), (0xbc, 0));
    }
}
