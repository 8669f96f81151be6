//! Types of keys: RSA, NIST curves, Ed25519 and ML-DSA.

use coded::named;
use x509::{KeyAlgorithm, PublicKey, SignatureAlgorithm};

named! {
    /// Type of key that can be generated and used for signatures. The configuration, the API and the database use these names.
    pub enum KeyType: "key type" in any case {
        /// RSA, a modulus of 2,048 bits.
        Rsa2048 => "rsa2048",
        /// RSA, a modulus of 3,072 bits.
        Rsa3072 => "rsa3072",
        /// RSA, a modulus of 4,096 bits.
        Rsa4096 => "rsa4096",
        /// NIST P-256 (secp256r1).
        P256 => "p256",
        /// NIST P-384 (secp384r1).
        P384 => "p384",
        /// NIST P-521 (secp521r1).
        P521 => "p521",
        /// Ed25519 (RFC 8032).
        Ed25519 => "ed25519",
        /// ML-DSA-44 (FIPS 204).
        MlDsa44 => "ml-dsa-44",
        /// ML-DSA-65 (FIPS 204).
        MlDsa65 => "ml-dsa-65",
        /// ML-DSA-87 (FIPS 204).
        MlDsa87 => "ml-dsa-87",
    }
}

impl KeyType {
    /// Returns the type of a public key. `None` for an unsupported algorithm, curve or size.
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

    /// Returns the type of a DER SubjectPublicKeyInfo, as [`Self::of`] does. `None` also for invalid DER.
    #[must_use]
    pub fn of_spki(spki: &[u8]) -> Option<Self> {
        PublicKey::parse(spki).ok().as_ref().and_then(Self::of)
    }

    /// Returns the signature algorithm for keys of this type. RSA uses PKCS #1 v1.5 with SHA-256, which every client supports;
    /// ECDSA uses the hash of the same strength as the curve (RFC 5480 section 4).
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

    /// Returns the bits of the RSA modulus. `None` for other types.
    #[must_use]
    pub const fn rsa_bits(self) -> Option<u32> {
        match self {
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_type_names_parse_back() {
        let names = "rsa2048 rsa3072 rsa4096 p256 p384 p521 ed25519 ml-dsa-44 ml-dsa-65 ml-dsa-87";
        assert_eq!(KeyType::ALL.map(KeyType::name).join(" "), names);
        for kind in KeyType::ALL {
            assert_eq!(kind.name().to_uppercase().parse(), Ok(kind));
        }
        let error = "rsa1024".parse::<KeyType>().unwrap_err();
        assert!(error.to_string().contains("rsa2048, rsa3072"), "{error}");
    }
}
