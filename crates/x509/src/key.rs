//! Public keys and signature algorithms in SubjectPublicKeyInfo and AlgorithmIdentifier.

use std::borrow::Cow;
use std::fmt;

use crate::der::{self, DerError, Element, Reader, tag};
use crate::{KeyAlgorithm, PublicKey, SignatureAlgorithm, SpkiHash, oid};

impl PublicKey {
    /// Parses a SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7). An unknown or malformed key is accepted, with its algorithm and a
    /// size of 0 bits.
    ///
    /// # Errors
    /// If the bytes do not have the structure of a SubjectPublicKeyInfo.
    pub fn parse(spki: &[u8]) -> Result<Self, DerError> {
        let parts = Parts::of(spki)?;
        let (algorithm, bits, rsa_exponent) = parts.describe();
        Ok(Self { algorithm, bits, rsa_exponent, spki: spki.into(), spki_sha256: SpkiHash::of(spki) })
    }

    /// Returns the content of subjectPublicKey, in the format of the algorithm.
    #[must_use]
    pub fn key_bytes(&self) -> &[u8] {
        Parts::of(&self.spki).map(|parts| parts.key).unwrap_or_default()
    }
}

struct Parts<'a> {
    algorithm: &'a [u8],
    parameters: Option<Element<'a>>,
    key: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(spki: &'a [u8]) -> Result<Self, DerError> {
        let mut info = Reader::new(spki).sequence()?;
        let mut identifier = info.sequence()?;
        let algorithm = identifier.expect(tag::OID)?.content;
        let parameters = identifier.any().ok();
        let key = info.expect(tag::BIT_STRING)?.bits()?.0;
        Ok(Self { algorithm, parameters, key })
    }

    fn describe(&self) -> (KeyAlgorithm, u32, Option<u64>) {
        match self.algorithm {
            oid::RSA => self.rsa(KeyAlgorithm::Rsa),
            oid::RSA_PSS => self.rsa(KeyAlgorithm::RsaPss),
            oid::DSA => (KeyAlgorithm::Dsa, self.dsa_bits().unwrap_or(0), None),
            oid::EC_PUBLIC_KEY => {
                let curve = self.curve();
                let bits = match curve {
                    KeyAlgorithm::EcP256 => 256,
                    KeyAlgorithm::EcP384 => 384,
                    KeyAlgorithm::EcP521 => 521,
                    _ => self.field_bits(),
                };
                (curve, bits, None)
            }
            oid::ED25519 => (KeyAlgorithm::Ed25519, 256, None),
            oid::ED448 => (KeyAlgorithm::Ed448, 448, None),
            other => (
                ml_dsa(other).map_or_else(|| KeyAlgorithm::Other(der::oid_text(other)), KeyAlgorithm::MlDsa),
                0,
                None,
            ),
        }
    }

    fn rsa(&self, algorithm: KeyAlgorithm) -> (KeyAlgorithm, u32, Option<u64>) {
        let read = || -> Result<_, DerError> {
            let mut key = Reader::new(self.key).sequence()?;
            let modulus = bit_length(key.expect(tag::INTEGER)?.content);
            let exponent = key.expect(tag::INTEGER)?.integer().ok();
            Ok((modulus, exponent.and_then(|e| u64::try_from(e).ok())))
        };
        let (bits, exponent) = read().unwrap_or((0, None));
        (algorithm, bits, exponent)
    }

    fn dsa_bits(&self) -> Option<u32> {
        let prime = self.parameters?.inside().expect(tag::INTEGER).ok()?;
        Some(bit_length(prime.content))
    }

    fn curve(&self) -> KeyAlgorithm {
        match self.parameters {
            Some(Element { tag: tag::OID, content, .. }) => match content {
                oid::P256 => KeyAlgorithm::EcP256,
                oid::P384 => KeyAlgorithm::EcP384,
                oid::P521 => KeyAlgorithm::EcP521,
                other => KeyAlgorithm::EcOther(der::oid_text(other)),
            },
            // RFC 5480 section 2.1.1 forbids explicit and implicit curve parameters.
            Some(Element { tag: tag::SEQUENCE, .. }) => KeyAlgorithm::EcOther("explicit".to_owned()),
            _ => KeyAlgorithm::EcOther("implicit".to_owned()),
        }
    }

    /// Computes the size from the length of the point. It is exact for curves whose field size is a multiple of 8 bits.
    fn field_bits(&self) -> u32 {
        let length = match self.key {
            [4 | 6 | 7, point @ ..] => point.len() / 2,
            [2 | 3, point @ ..] => point.len(),
            _ => 0,
        };
        u32::try_from(length * 8).unwrap_or(0)
    }
}

fn bit_length(content: &[u8]) -> u32 {
    let zeros = content.iter().take_while(|&&b| b == 0).count();
    let Some(first) = content.get(zeros) else {
        return 0;
    };
    u32::try_from((content.len() - zeros) * 8).map_or(0, |bits| bits - first.leading_zeros())
}

fn ml_dsa(algorithm: &[u8]) -> Option<u8> {
    match algorithm.strip_prefix(oid::NIST_SIGNATURES)? {
        [17] => Some(44),
        [18] => Some(65),
        [19] => Some(87),
        _ => None,
    }
}

impl SignatureAlgorithm {
    /// Parses the content of an AlgorithmIdentifier (RFC 5280 section 4.1.1.2).
    pub(crate) fn read(mut identifier: Reader<'_>) -> Result<Self, DerError> {
        let algorithm = identifier.expect(tag::OID)?.content;
        let parameters = identifier.any().ok();
        Ok(Self::of_oid(algorithm, parameters).unwrap_or_else(|| Self::Other(der::oid_text(algorithm))))
    }

    fn of_oid(algorithm: &[u8], parameters: Option<Element<'_>>) -> Option<Self> {
        if algorithm == oid::RSA_PSS {
            return pss_hash(parameters).map(Self::RsaPss);
        }
        if let Some(parameter_set) = ml_dsa(algorithm) {
            return Some(Self::MlDsa(parameter_set));
        }
        if let Some(last) = algorithm.strip_prefix(oid::PKCS1) {
            return match last {
                [2] => Some(Self::RsaMd2),
                [4] => Some(Self::RsaMd5),
                [5] => Some(Self::RsaSha1),
                [11] => Some(Self::RsaSha256),
                [12] => Some(Self::RsaSha384),
                [13] => Some(Self::RsaSha512),
                _ => None,
            };
        }
        match algorithm {
            oid::OIW_SHA1_RSA => Some(Self::RsaSha1),
            oid::DSA_SHA1 => Some(Self::DsaSha1),
            oid::DSA_SHA256 => Some(Self::DsaSha256),
            oid::ECDSA_SHA1 => Some(Self::EcdsaSha1),
            oid::ED25519 => Some(Self::Ed25519),
            oid::ED448 => Some(Self::Ed448),
            other => match other.strip_prefix(oid::ECDSA_SHA2)? {
                [2] => Some(Self::EcdsaSha256),
                [3] => Some(Self::EcdsaSha384),
                [4] => Some(Self::EcdsaSha512),
                _ => None,
            },
        }
    }

    /// Returns the algorithm of a TLS SignatureScheme (RFC 8446 section 4.2.3). `None` for schemes that cannot sign certificates.
    #[must_use]
    pub fn from_tls_scheme(scheme: u16) -> Option<Self> {
        Some(match scheme {
            0x0101 => Self::RsaMd5,
            0x0201 => Self::RsaSha1,
            0x0202 => Self::DsaSha1,
            0x0203 => Self::EcdsaSha1,
            0x0401 => Self::RsaSha256,
            0x0402 => Self::DsaSha256,
            0x0403 => Self::EcdsaSha256,
            0x0501 => Self::RsaSha384,
            0x0503 => Self::EcdsaSha384,
            0x0601 => Self::RsaSha512,
            0x0603 => Self::EcdsaSha512,
            0x0804 | 0x0809 => Self::RsaPss(256),
            0x0805 | 0x080a => Self::RsaPss(384),
            0x0806 | 0x080b => Self::RsaPss(512),
            0x0807 => Self::Ed25519,
            0x0808 => Self::Ed448,
            0x0904 => Self::MlDsa(44),
            0x0905 => Self::MlDsa(65),
            0x0906 => Self::MlDsa(87),
            _ => return None,
        })
    }

    /// Returns the usual name, such as `SHA256-RSA`. Unknown algorithms are dotted object identifiers.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::RsaMd2 => "MD2-RSA",
            Self::RsaMd5 => "MD5-RSA",
            Self::RsaSha1 => "SHA1-RSA",
            Self::RsaSha256 => "SHA256-RSA",
            Self::RsaSha384 => "SHA384-RSA",
            Self::RsaSha512 => "SHA512-RSA",
            Self::RsaPss(160) => "SHA1-RSAPSS",
            Self::RsaPss(256) => "SHA256-RSAPSS",
            Self::RsaPss(384) => "SHA384-RSAPSS",
            Self::RsaPss(512) => "SHA512-RSAPSS",
            Self::RsaPss(_) => "RSAPSS",
            Self::EcdsaSha1 => "ECDSA-SHA1",
            Self::EcdsaSha256 => "ECDSA-SHA256",
            Self::EcdsaSha384 => "ECDSA-SHA384",
            Self::EcdsaSha512 => "ECDSA-SHA512",
            Self::DsaSha1 => "DSA-SHA1",
            Self::DsaSha256 => "DSA-SHA256",
            Self::Ed25519 => "Ed25519",
            Self::Ed448 => "Ed448",
            Self::MlDsa(44) => "ML-DSA-44",
            Self::MlDsa(65) => "ML-DSA-65",
            Self::MlDsa(87) => "ML-DSA-87",
            Self::MlDsa(_) => "ML-DSA",
            Self::Other(dotted) => return Cow::Owned(dotted.clone()),
        })
    }
}

/// Returns the hash of RSASSA-PSS parameters (RFC 4055 section 3.1), if MGF1 uses the same hash.
fn pss_hash(parameters: Option<Element<'_>>) -> Option<u16> {
    let mut fields = parameters.filter(|p| p.tag == tag::SEQUENCE)?.inside();
    let hash = match fields.optional(tag::context_constructed(0)).ok()? {
        Some(hash) => hash_bits(hash.inside().sequence().ok()?)?,
        None => SHA1_BITS,
    };
    let mask_hash = match fields.optional(tag::context_constructed(1)).ok()? {
        Some(mask) => {
            let mut generator = mask.inside().sequence().ok()?;
            if generator.expect(tag::OID).ok()?.content != oid::MGF1 {
                return None;
            }
            hash_bits(generator.sequence().ok()?)?
        }
        None => SHA1_BITS,
    };
    (hash == mask_hash).then_some(hash)
}

/// Default of both hashes in RSASSA-PSS-params, in bits.
const SHA1_BITS: u16 = 160;

fn hash_bits(mut identifier: Reader<'_>) -> Option<u16> {
    let hash = identifier.expect(tag::OID).ok()?.content;
    if hash == oid::SHA1 {
        return Some(SHA1_BITS);
    }
    match hash.strip_prefix(oid::NIST_HASHES)? {
        [1] => Some(256),
        [2] => Some(384),
        [3] => Some(512),
        _ => None,
    }
}

impl KeyAlgorithm {
    /// Returns the usual name, such as `RSA` or `P-256`. Unknown algorithms are dotted object identifiers.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Rsa => "RSA",
            Self::RsaPss => "RSA-PSS",
            Self::Dsa => "DSA",
            Self::EcP256 => "P-256",
            Self::EcP384 => "P-384",
            Self::EcP521 => "P-521",
            Self::EcOther(curve) => return Cow::Owned(format!("EC {curve}")),
            Self::Ed25519 => "Ed25519",
            Self::Ed448 => "Ed448",
            Self::MlDsa(44) => "ML-DSA-44",
            Self::MlDsa(65) => "ML-DSA-65",
            Self::MlDsa(87) => "ML-DSA-87",
            Self::MlDsa(_) => "ML-DSA",
            Self::Other(dotted) => return Cow::Owned(dotted.clone()),
        })
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl fmt::Display for SignatureAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}
