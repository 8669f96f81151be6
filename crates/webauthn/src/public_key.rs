//! COSE public keys of the accepted algorithms, and their signatures.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

use crate::cbor::{self, Value};
use crate::error::Error;

/// Bytes of a coordinate of P-256, and of an Ed25519 key.
const COORDINATE: usize = 32;

/// Minimum and maximum bytes of an RSA modulus.
const MODULUS: std::ops::RangeInclusive<usize> = 256..=1024;

/// A signature algorithm, with its COSE identifier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
    /// RSA PKCS #1 v1.5 with SHA-256.
    Rs256,
}

impl Algorithm {
    /// The accepted algorithms, the preferred one first.
    pub const ALL: [Self; 3] = [Self::EdDsa, Self::Es256, Self::Rs256];

    /// Returns the identifier in the COSE registry.
    #[must_use]
    pub fn cose(self) -> i64 {
        match self {
            Self::Es256 => -7,
            Self::EdDsa => -8,
            Self::Rs256 => -257,
        }
    }

    /// Returns the name in the COSE registry.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
        }
    }
}

/// Public key of a credential, parsed from a `COSE_Key`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKey {
    material: Material,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Material {
    /// The uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

impl PublicKey {
    /// Parses a `COSE_Key`.
    ///
    /// # Errors
    /// [`Error::Cbor`] or [`Error::PublicKey`].
    pub fn parse(cose: &[u8]) -> Result<Self, Error> {
        Self::of(&cbor::read_all(cose)?)
    }

    pub(crate) fn of(key: &Value<'_>) -> Result<Self, Error> {
        let int = |label| key.get(&Value::Int(label)).and_then(Value::int);
        let bytes = |label| key.get(&Value::Int(label)).and_then(Value::bytes).ok_or(Error::PublicKey);
        let fixed = |label| bytes(label).and_then(|found| sized(found, COORDINATE..=COORDINATE));
        // Label 1 is the key type, 3 the algorithm, -1 the curve.
        let material = match (int(1), int(3), int(-1)) {
            (Some(2), Some(-7), Some(1)) => Material::P256([&[4], fixed(-2)?, fixed(-3)?].concat()),
            (Some(1), Some(-8), Some(6)) => Material::Ed25519(fixed(-2)?.to_vec()),
            (Some(3), Some(-257), _) => Material::Rsa {
                modulus: sized(bytes(-1)?, MODULUS)?.to_vec(),
                exponent: sized(bytes(-2)?, 1..=4)?.to_vec(),
            },
            _ => return Err(Error::PublicKey),
        };
        Ok(Self { material })
    }

    /// Returns the algorithm of the key's signatures.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::EdDsa,
            Material::Rsa { .. } => Algorithm::Rs256,
        }
    }

    /// Verifies a signature over `message`.
    ///
    /// # Errors
    /// [`Error::Signature`].
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Error> {
        let verified =
            match &self.material {
                Material::P256(point) => {
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature)
                }
                Material::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
                Material::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }
                    .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            };
        verified.map_err(|_| Error::Signature)
    }
}

fn sized(bytes: &[u8], range: std::ops::RangeInclusive<usize>) -> Result<&[u8], Error> {
    if range.contains(&bytes.len()) { Ok(bytes) } else { Err(Error::PublicKey) }
}
