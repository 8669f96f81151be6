//! Hash algorithms of CMS messages.

use aws_lc_rs::digest;

use crate::build::identifier;
use crate::der::{DerError, Reader, tag};
use crate::{SignatureAlgorithm, oid};

/// Hash algorithm of a signature in a CMS message. MD5 is not supported.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Digest {
    /// SHA-1, used by old clients.
    Sha1,
    /// SHA-256, mandatory by RFC 8894 section 2.9.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Digest {
    /// Hashes `bytes`.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    /// Returns RSASSA-PKCS1-v1_5 with this hash.
    #[must_use]
    pub fn with_rsa(self) -> SignatureAlgorithm {
        match self {
            Self::Sha1 => SignatureAlgorithm::RsaSha1,
            Self::Sha256 => SignatureAlgorithm::RsaSha256,
            Self::Sha384 => SignatureAlgorithm::RsaSha384,
            Self::Sha512 => SignatureAlgorithm::RsaSha512,
        }
    }

    pub(super) fn read(mut identifier: Reader<'_>) -> Result<Self, DerError> {
        let hash = identifier.expect(tag::OID)?.content;
        if hash == oid::SHA1 {
            return Ok(Self::Sha1);
        }
        match hash.strip_prefix(oid::NIST_HASHES) {
            Some([1]) => Ok(Self::Sha256),
            Some([2]) => Ok(Self::Sha384),
            Some([3]) => Ok(Self::Sha512),
            _ => Err(DerError::Malformed("digest algorithm: only SHA-1 and SHA-2 are supported")),
        }
    }

    pub(super) fn to_der(self) -> Vec<u8> {
        match self {
            Self::Sha1 => identifier(oid::SHA1, true),
            Self::Sha256 => identifier(&[oid::NIST_HASHES, &[1]].concat(), true),
            Self::Sha384 => identifier(&[oid::NIST_HASHES, &[2]].concat(), true),
            Self::Sha512 => identifier(&[oid::NIST_HASHES, &[3]].concat(), true),
        }
    }
}
