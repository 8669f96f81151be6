//! Signatures over what was hashed elsewhere: which there are, and which key makes which.

use aws_lc_rs::digest;

use crate::{KeyType, SignError};

/// A hash whose value is signed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Hash {
    /// MD5 and SHA-1 side by side, as TLS 1.0 and 1.1 sign (RFC 4346 section 7.4.3).
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
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Md5Sha1, Self::Sha1, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// Bytes of a value.
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

    /// The value for a message; `None` for [`Self::Md5Sha1`], which nobody hashes with any more.
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

/// How something is signed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 section 8.2) over a digest; the DigestInfo is put before it here, and none before
    /// [`Hash::Md5Sha1`].
    RsaPkcs1(Hash),
    /// RSASSA-PSS (RFC 8017 section 8.1) over a digest, MGF1 with the same hash, a salt as long as the hash.
    RsaPss(Hash),
    /// ECDSA (FIPS 186-5 section 6.4) over a digest, on the curve of the key; a digest longer than the curve's order is
    /// cut to it. The signature is DER.
    Ecdsa(Hash),
    /// Ed25519 (RFC 8032) over a whole message.
    Ed25519,
}

/// Why a key does not sign this so.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Misfit {
    /// The scheme is another algorithm's.
    #[error("a key of kind {0} does not sign so")]
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
    /// How keys of this kind sign whole messages: see [`KeyType::algorithm`]. `None` for kinds that have no scheme here.
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

    /// How a key of this kind signs a whole message in TLS, and what it signs of it: for keys elsewhere, which are given
    /// digests.
    ///
    /// # Errors
    /// [`SignError::Failed`] for kinds that sign for nobody.
    pub fn of_message(kind: KeyType, message: &[u8]) -> Result<(Self, Vec<u8>), SignError> {
        let scheme = Self::of(kind).ok_or_else(|| SignError::Failed("no scheme of its kind".to_owned()))?;
        let input = scheme.input(message);
        Ok((scheme, input.ok_or_else(|| SignError::Failed("no hash of its kind".to_owned()))?))
    }

    /// What is signed of a whole message: its digest, or itself for Ed25519. `None` where [`Hash::digest`] has none.
    #[must_use]
    pub fn input(self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash) | Self::Ecdsa(hash) => hash.digest(message),
            Self::Ed25519 => Some(message.to_vec()),
        }
    }

    /// Whether a key of this kind signs `octets` of input so. To be asked before the key is touched: a signature by a
    /// key over what was meant for another algorithm may be worth something to somebody.
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
    fn a_scheme_takes_its_own_keys_and_lengths_only() {
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
