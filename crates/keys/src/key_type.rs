//! Kinds of keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use x509::{KeyAlgorithm, PublicKey, SignatureAlgorithm};

/// A kind of key that can be made and signed with here.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum KeyType {
    /// RSA, a modulus of 2,048 bits.
    Rsa2048,
    /// RSA, a modulus of 3,072 bits.
    Rsa3072,
    /// RSA, a modulus of 4,096 bits.
    Rsa4096,
    /// NIST P-256 (secp256r1).
    P256,
    /// NIST P-384 (secp384r1).
    P384,
    /// NIST P-521 (secp521r1).
    P521,
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// ML-DSA-44 (FIPS 204).
    MlDsa44,
    /// ML-DSA-65 (FIPS 204).
    MlDsa65,
    /// ML-DSA-87 (FIPS 204).
    MlDsa87,
}

/// A name that is no kind of key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no kind of key is called {0:?}; there are {names}", names = KeyType::names())]
pub struct UnknownKeyType(pub String);

impl KeyType {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 10] = [
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
        Self::P256,
        Self::P384,
        Self::P521,
        Self::Ed25519,
        Self::MlDsa44,
        Self::MlDsa65,
        Self::MlDsa87,
    ];

    /// As configuration, the API and the database write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::P521 => "p521",
            Self::Ed25519 => "ed25519",
            Self::MlDsa44 => "ml-dsa-44",
            Self::MlDsa65 => "ml-dsa-65",
            Self::MlDsa87 => "ml-dsa-87",
        }
    }

    /// The kind of a public key; `None` for one that cannot be made here: another algorithm,
    /// curve or size.
    #[must_use]
    pub fn of(key: &PublicKey) -> Option<Self> {
        Some(match (&key.algorithm, key.bits) {
            (KeyAlgorithm::Rsa, 2048) => Self::Rsa2048,
            (KeyAlgorithm::Rsa, 3072) => Self::Rsa3072,
            (KeyAlgorithm::Rsa, 4096) => Self::Rsa4096,
            (KeyAlgorithm::EcP256, _) => Self::P256,
            (KeyAlgorithm::EcP384, _) => Self::P384,
            (KeyAlgorithm::EcP521, _) => Self::P521,
            (KeyAlgorithm::Ed25519, _) => Self::Ed25519,
            (KeyAlgorithm::MlDsa(44), _) => Self::MlDsa44,
            (KeyAlgorithm::MlDsa(65), _) => Self::MlDsa65,
            (KeyAlgorithm::MlDsa(87), _) => Self::MlDsa87,
            _ => return None,
        })
    }

    /// The kind of a DER SubjectPublicKeyInfo; as [`Self::of`], and `None` for what is none.
    #[must_use]
    pub fn of_spki(spki: &[u8]) -> Option<Self> {
        PublicKey::parse(spki).ok().as_ref().and_then(Self::of)
    }

    /// How keys of this kind sign here: RSA by PKCS #1 v1.5 with SHA-256, which every client reads;
    /// ECDSA with the hash as strong as the curve (RFC 5480 section 4).
    #[must_use]
    pub const fn algorithm(self) -> SignatureAlgorithm {
        match self {
            Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 => SignatureAlgorithm::RsaSha256,
            Self::P256 => SignatureAlgorithm::EcdsaSha256,
            Self::P384 => SignatureAlgorithm::EcdsaSha384,
            Self::P521 => SignatureAlgorithm::EcdsaSha512,
            Self::Ed25519 => SignatureAlgorithm::Ed25519,
            Self::MlDsa44 => SignatureAlgorithm::MlDsa(44),
            Self::MlDsa65 => SignatureAlgorithm::MlDsa(65),
            Self::MlDsa87 => SignatureAlgorithm::MlDsa(87),
        }
    }

    /// Bits of an RSA modulus; `None` for other kinds.
    #[must_use]
    pub const fn rsa_bits(self) -> Option<u32> {
        match self {
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            _ => None,
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KeyType {
    type Err = UnknownKeyType;

    fn from_str(text: &str) -> Result<Self, UnknownKeyType> {
        let found = Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| UnknownKeyType(text.to_owned()))
    }
}

impl Serialize for KeyType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for KeyType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in KeyType::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.name().to_uppercase().parse(), Ok(kind));
        }
        let error = "rsa1024".parse::<KeyType>().unwrap_err();
        assert!(error.to_string().contains("rsa2048, rsa3072"), "{error}");
    }
}
