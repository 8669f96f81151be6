//! RSA with key sizes and hashes that libraries reject, and DSA, which they no longer support.

mod arithmetic;
mod numbers;

use aws_lc_rs::digest;
use data_encoding::HEXLOWER_PERMISSIVE;
use md5::Digest as _;
use x509::der;

use arithmetic::{Modulus, limbs, octets};

/// A hash function for PKCS #1 v1.5.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Digest {
    Sha256,
    Sha1,
    Md5,
}

impl Digest {
    fn of(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => digest::digest(&digest::SHA256, message).as_ref().to_vec(),
            Self::Sha1 => sha1(message),
            Self::Md5 => md5::Md5::digest(message).to_vec(),
        }
    }

    fn oid(self) -> &'static [u64] {
        match self {
            Self::Sha256 => &[2, 16, 840, 1, 101, 3, 4, 2, 1],
            Self::Sha1 => &[1, 3, 14, 3, 2, 26],
            Self::Md5 => &[1, 2, 840, 113_549, 2, 5],
        }
    }
}

/// Computes the SHA-1 hash of a message.
pub(crate) fn sha1(message: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, message).as_ref().to_vec()
}

/// An RSA key of any size, public exponent 65537.
#[derive(Debug)]
pub(crate) struct OldRsa {
    modulus: Modulus,
    /// Length of the modulus and of signatures in bytes.
    length: usize,
    exponent: Vec<u8>,
}

impl OldRsa {
    pub(crate) fn fixed_512() -> Self {
        Self::new(numbers::RSA_512_MODULUS, numbers::RSA_512_EXPONENT)
    }

    pub(crate) fn fixed_1024() -> Self {
        Self::new(numbers::RSA_1024_MODULUS, numbers::RSA_1024_EXPONENT)
    }

    pub(crate) fn fixed_2048() -> Self {
        Self::new(numbers::RSA_2048_MODULUS, numbers::RSA_2048_EXPONENT)
    }

    fn new(modulus: &str, exponent: &str) -> Self {
        let modulus = hex(modulus);
        Self { length: modulus.len(), modulus: Modulus::new(&modulus), exponent: hex(exponent) }
    }

    /// Returns the RSAPublicKey (RFC 8017 appendix A.1.1).
    pub(crate) fn public_der(&self) -> Vec<u8> {
        der::write(|w| {
            w.sequence(|w| {
                w.unsigned(&octets(&self.modulus.n, self.length)).integer(65_537);
            });
        })
    }

    /// Signs with RSASSA-PKCS1-v1_5 (RFC 8017 section 8.2.1).
    pub(crate) fn sign_pkcs1(&self, digest: Digest, message: &[u8]) -> Vec<u8> {
        let info = der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(digest.oid()).null();
                });
                w.octets(&digest.of(message));
            });
        });
        self.sign_unhashed(&info)
    }

    /// Adds PKCS #1 v1.5 padding to `content` and signs it, without a hash.
    pub(crate) fn sign_unhashed(&self, content: &[u8]) -> Vec<u8> {
        let mut block = vec![0, 1];
        block.resize(self.length.saturating_sub(content.len() + 1), 0xff);
        block.push(0);
        block.extend_from_slice(content);
        let block = limbs(&block, self.modulus.n.len());
        octets(&self.modulus.power(&block, &self.exponent), self.length)
    }
}

/// A DSA key (FIPS 186-4 section 4) for signatures with SHA-1.
#[derive(Debug)]
pub(crate) struct Dsa {
    p: Modulus,
    q: Modulus,
    g: Vec<u8>,
    x: Vec<u8>,
    y: Vec<u8>,
}

impl Dsa {
    pub(crate) fn fixed_1024() -> Self {
        Self {
            p: Modulus::new(&hex(numbers::DSA_P)),
            q: Modulus::new(&hex(numbers::DSA_Q)),
            g: hex(numbers::DSA_G),
            x: hex(numbers::DSA_X),
            y: hex(numbers::DSA_Y),
        }
    }

    /// Writes the content of the SubjectPublicKeyInfo (RFC 3279 section 2.3.2).
    pub(crate) fn write_spki(&self, w: &mut der::Writer) {
        w.sequence(|w| {
            w.oid(&[1, 2, 840, 10_040, 4, 1]).sequence(|w| {
                w.unsigned(&hex(numbers::DSA_P)).unsigned(&hex(numbers::DSA_Q)).unsigned(&self.g);
            });
        });
        w.bits_containing(|w| {
            w.unsigned(&self.y);
        });
    }

    /// Signs a message. The nonce is derived from message and key, similar to RFC 6979.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let hash = sha1(message);
        let secret = digest::digest(&digest::SHA256, &[&self.x[..], &hash].concat());
        let k = self.q.remainder(secret.as_ref());
        let q_bytes = octets(&self.q.n, self.q.n.len() * 8);
        let k_bytes = octets(&k, q_bytes.len());
        let g = self.p.remainder(&self.g);
        let power = self.p.power(&g, &k_bytes);
        let r = self.q.remainder(&octets(&power, self.p.n.len() * 8));
        // q is prime, so the inverse is the power q − 2 (Fermat's little theorem).
        let mut exponent = self.q.n.clone();
        exponent[0] -= 2;
        let inverse = self.q.power(&k, &octets(&exponent, q_bytes.len()));
        let secret = self.q.multiply(&self.q.remainder(&self.x), &r);
        let sum = self.q.add(&self.q.remainder(&hash), &secret);
        let s = self.q.multiply(&inverse, &sum);
        der::write(|w| {
            w.sequence(|w| {
                w.unsigned(&octets(&r, q_bytes.len())).unsigned(&octets(&s, q_bytes.len()));
            });
        })
    }
}

fn hex(text: &str) -> Vec<u8> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};

    #[test]
    fn old_rsa_signatures_are_accepted_by_an_external_library() {
        for key in [OldRsa::fixed_1024(), OldRsa::fixed_2048()] {
            let public = key.public_der();
            UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, public)
                .verify(b"message", &key.sign_pkcs1(Digest::Sha256, b"message"))
                .expect("the signature is good");
        }
    }
}
