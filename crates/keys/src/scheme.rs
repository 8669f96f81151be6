//! Signature schemes for precomputed digests, and the keys that support them.

use aws_lc_rs::digest;

use crate::{KeyType, SignError};

/// A hash whose digest is signed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Hash {
    /// MD5 and SHA-1, concatenated, as signed by TLS 1.0 and 1.1 (RFC 4346 section 7.4.3).
    Md5Sha1,
    /// SHA-1
    Sha1,
    /// SHA-224
    Sha224,
    /// SHA-256
    Sha256,
    /// SHA-384
    Sha384,
    /// SHA-512
    Sha512,
}

impl Hash {
    /// All hashes, in the order of this enum.
    pub const ALL: [Self; 6] =
        [Self::Md5Sha1, Self::Sha1, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// Returns the length of a digest in bytes.
    #[must_use]
    pub const fn octets(self) -> usize {
        match self {
            Self::Md5Sha1 => 36,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Computes the digest of a message. `None` for [`Self::Md5Sha1`], which this function does not support.
    #[must_use]
    pub fn digest(self, message: &[u8]) -> Option<Vec<u8>> {
        let algorithm = match self {
            Self::Md5Sha1 => return None,
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha224 => &digest::SHA224,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        Some(digest::digest(algorithm, message).as_ref().to_vec())
    }
}

/// A signature scheme: algorithm, padding and hash.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 section 8.2) over a digest. The signer adds the DigestInfo, except for [`Hash::Md5Sha1`], which
    /// has none.
    RsaPkcs1(Hash),
    /// RSASSA-PSS (RFC 8017 section 8.1) over a digest. MGF1 uses the same hash; the salt is as long as the digest.
    RsaPss(Hash),
    /// ECDSA (FIPS 186-5 section 6.4) over a digest, on the curve of the key. A digest longer than the curve's order is truncated.
    /// The signature is DER.
    Ecdsa(Hash),
    /// Ed25519 (RFC 8032) over a whole message.
    Ed25519,
}

/// Reason why a key does not support a scheme or its input.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Misfit {
    /// The scheme belongs to another key type.
    #[error("a key of type {0} does not support this signature scheme")]
    Kind(KeyType),
    /// The input does not have the length of the hash.
    #[error("{given} bytes to sign, {wanted} expected")]
    Length {
        /// Length of the hash in bytes.
        wanted: usize,
        /// Length of the input in bytes.
        given: usize,
    },
}

impl Scheme {
    /// Returns the scheme in which keys of this type sign whole messages: see [`KeyType::algorithm`]. `None` for ML-DSA.
    #[must_use]
    pub const fn of(kind: KeyType) -> Option<Self> {
        match kind {
            KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => Some(Self::RsaPkcs1(Hash::Sha256)),
            KeyType::P256 => Some(Self::Ecdsa(Hash::Sha256)),
            KeyType::P384 => Some(Self::Ecdsa(Hash::Sha384)),
            KeyType::P521 => Some(Self::Ecdsa(Hash::Sha512)),
            KeyType::Ed25519 => Some(Self::Ed25519),
            KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87 => None,
        }
    }

    /// Returns the TLS signature scheme of this key type, and its input for a message. For remote keys, which sign digests.
    ///
    /// # Errors
    /// [`SignError::Failed`] for ML-DSA.
    pub fn for_message(kind: KeyType, message: &[u8]) -> Result<(Self, Vec<u8>), SignError> {
        let scheme = Self::of(kind)
            .ok_or_else(|| SignError::Failed("no signature scheme for this key type".to_owned()))?;
        let input = scheme.input(message);
        Ok((scheme, input.ok_or_else(|| SignError::Failed("no hash for this key type".to_owned()))?))
    }

    /// Returns the input of the signature for a whole message: its digest, or the message for Ed25519. `None` if [`Hash::digest`]
    /// returns `None`.
    #[must_use]
    pub fn input(self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash) | Self::Ecdsa(hash) => hash.digest(message),
            Self::Ed25519 => Some(message.to_vec()),
        }
    }

    /// Checks that a key of this type can sign `octets` bytes of input in this scheme. Call it before the key is used: a signature
    /// over input for another algorithm may help an attacker.
    ///
    /// # Errors
    /// [`Misfit`]
    pub fn check(self, kind: KeyType, octets: usize) -> Result<(), Misfit> {
        if !self.fits(kind) {
            return Err(Misfit::Kind(kind));
        }
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash) | Self::Ecdsa(hash) if hash.octets() != octets => {
                Err(Misfit::Length { wanted: hash.octets(), given: octets })
            }
            _ => Ok(()),
        }
    }

    fn fits(self, kind: KeyType) -> bool {
        match self {
            Self::RsaPkcs1(_) | Self::RsaPss(_) => kind.rsa_bits().is_some(),
            Self::Ecdsa(_) => matches!(kind, KeyType::P256 | KeyType::P384 | KeyType::P521),
            Self::Ed25519 => kind == KeyType::Ed25519,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_accepts_only_matching_key_types_and_lengths() {
        let schemes = |hash| [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash), Scheme::Ecdsa(hash)];
        for kind in KeyType::ALL {
            for hash in Hash::ALL {
                let fitting: Vec<Scheme> =
                    schemes(hash).into_iter().filter(|s| s.check(kind, hash.octets()).is_ok()).collect();
                let wanted = match kind {
                    KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => &schemes(hash)[..2],
                    KeyType::P256 | KeyType::P384 | KeyType::P521 => &schemes(hash)[2..],
                    _ => &[],
                };
                assert_eq!(fitting, wanted, "{kind} {hash:?}");
                for octets in [0, hash.octets() - 1, hash.octets() + 1] {
                    assert!(schemes(hash).iter().all(|s| s.check(kind, octets).is_err()), "{kind} {octets}");
                }
            }
            for octets in [0, 32, 65_532] {
                assert_eq!(Scheme::Ed25519.check(kind, octets).is_ok(), kind == KeyType::Ed25519);
            }
        }
    }
}
