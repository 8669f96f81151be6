//! Private keys of simulated servers and CAs.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use aws_lc_rs::{rsa, signature::RsaEncoding};
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use x509::der;

use crate::FleetError;
use crate::key_kind::KeyKind;
use crate::old_key::{Digest, Dsa, OldRsa};

/// A private key of a simulated server or CA.
#[derive(Debug)]
pub(crate) enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(rsa::KeyPair),
    OldRsa(OldRsa),
    Dsa(Dsa),
}

/// Signature algorithm of a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SignedWith {
    /// The default algorithm of the key.
    Usual,
    /// PKCS #1 v1.5 with SHA-1; RSA only.
    Sha1,
    /// PKCS #1 v1.5 with MD5; RSA only.
    Md5,
}

const EC_PUBLIC_KEY: &[u64] = &[1, 2, 840, 10_045, 2, 1];
const PRIME256V1: &[u64] = &[1, 2, 840, 10_045, 3, 1, 7];
const SECP384R1: &[u64] = &[1, 3, 132, 0, 34];
const ED25519: &[u64] = &[1, 3, 101, 112];
const RSA_ENCRYPTION: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
const MD5_WITH_RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 4];
const SHA1_WITH_RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 5];
const SHA256_WITH_RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 11];
const ECDSA_WITH_SHA256: &[u64] = &[1, 2, 840, 10_045, 4, 3, 2];
const ECDSA_WITH_SHA384: &[u64] = &[1, 2, 840, 10_045, 4, 3, 3];

impl Key {
    /// Creates a new key. Small RSA and DSA keys are not created but built in.
    pub(crate) fn generate(kind: KeyKind) -> Result<Self, FleetError> {
        let failed = |_| FleetError::Key(kind);
        Ok(match kind {
            KeyKind::P256 => Self::P256(
                EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).map_err(failed)?,
            ),
            KeyKind::P384 => Self::P384(
                EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_ASN1_SIGNING).map_err(failed)?,
            ),
            KeyKind::Ed25519 => Self::Ed25519(Ed25519KeyPair::generate().map_err(failed)?),
            KeyKind::Rsa2048 => Self::Rsa(rsa::KeyPair::generate(rsa::KeySize::Rsa2048).map_err(failed)?),
            KeyKind::Rsa1024 => Self::OldRsa(OldRsa::fixed_1024()),
            KeyKind::Rsa512 => Self::OldRsa(OldRsa::fixed_512()),
            KeyKind::Dsa1024 => Self::Dsa(Dsa::fixed_1024()),
        })
    }

    /// Returns a built-in RSA-2048 key that can create signatures with obsolete hashes.
    pub(crate) fn legacy_rsa_ca() -> Self {
        Self::OldRsa(OldRsa::fixed_2048())
    }

    /// Returns the SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).
    pub(crate) fn spki(&self) -> Vec<u8> {
        der::write(|w| {
            w.sequence(|w| match self {
                Self::P256(pair) => ec_spki(w, PRIME256V1, pair),
                Self::P384(pair) => ec_spki(w, SECP384R1, pair),
                Self::Ed25519(pair) => {
                    w.sequence(|w| {
                        w.oid(ED25519);
                    });
                    w.bits(pair.public_key().as_ref());
                }
                Self::Rsa(pair) => rsa_spki(w, pair.public_key().as_ref()),
                Self::OldRsa(key) => rsa_spki(w, &key.public_der()),
                Self::Dsa(key) => key.write_spki(w),
            });
        })
    }

    /// Returns the AlgorithmIdentifier of certificate signatures by this key.
    pub(crate) fn algorithm(&self, with: SignedWith) -> Vec<u8> {
        let (oid, null) = match (self, with) {
            (Self::P256(_), _) => (ECDSA_WITH_SHA256, false),
            (Self::P384(_), _) => (ECDSA_WITH_SHA384, false),
            (Self::Ed25519(_), _) => (ED25519, false),
            (_, SignedWith::Usual) => (SHA256_WITH_RSA, true),
            (_, SignedWith::Sha1) => (SHA1_WITH_RSA, true),
            (_, SignedWith::Md5) => (MD5_WITH_RSA, true),
        };
        der::write(|w| {
            w.sequence(|w| {
                w.oid(oid);
                if null {
                    w.null();
                }
            });
        })
    }

    /// Signs the bytes of a certificate.
    pub(crate) fn sign_certificate(&self, with: SignedWith, message: &[u8]) -> Result<Vec<u8>, FleetError> {
        match self {
            Self::OldRsa(key) => Ok(key.sign_pkcs1(
                match with {
                    SignedWith::Usual => Digest::Sha256,
                    SignedWith::Sha1 => Digest::Sha1,
                    SignedWith::Md5 => Digest::Md5,
                },
                message,
            )),
            Self::Dsa(key) => Ok(key.sign(message)),
            _ => self.sign(&signature::RSA_PKCS1_SHA256, message),
        }
    }

    /// Signs a message; `encoding` applies to RSA only; other key types have a single encoding.
    fn sign(&self, encoding: &'static dyn RsaEncoding, message: &[u8]) -> Result<Vec<u8>, FleetError> {
        let failed = |_| FleetError::Sign;
        match self {
            Self::P256(pair) | Self::P384(pair) => pair
                .sign(&SystemRandom::new(), message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(failed),
            Self::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Self::OldRsa(key) => Ok(key.sign_pkcs1(Digest::Sha256, message)),
            Self::Dsa(key) => Ok(key.sign(message)),
        }
    }

    /// Returns the signature schemes for handshakes, in order of preference.
    fn schemes(&self) -> &'static [SignatureScheme] {
        match self {
            Self::P256(_) => &[SignatureScheme::ECDSA_NISTP256_SHA256],
            Self::P384(_) => &[SignatureScheme::ECDSA_NISTP384_SHA384],
            Self::Ed25519(_) => &[SignatureScheme::ED25519],
            Self::Rsa(_) => &[SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256],
            Self::OldRsa(_) => &[SignatureScheme::RSA_PKCS1_SHA256],
            Self::Dsa(_) => &[],
        }
    }
}

fn ec_spki(w: &mut der::Writer, curve: &[u64], pair: &EcdsaKeyPair) {
    w.sequence(|w| {
        w.oid(EC_PUBLIC_KEY).oid(curve);
    });
    w.bits(pair.public_key().as_ref());
}

fn rsa_spki(w: &mut der::Writer, public: &[u8]) {
    w.sequence(|w| {
        w.oid(RSA_ENCRYPTION).null();
    });
    w.bits(public);
}

/// The signing key of a simulated server, for rustls. Unlike rustls' own type, it needs no parsing: up to 180,000 server keys are
/// created in memory.
#[derive(Clone, Debug)]
pub(crate) struct ServerKey(pub(crate) Arc<Key>);

impl SigningKey for ServerKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *self.0.schemes().iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(ServerSigner { key: self.0.clone(), scheme }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match &*self.0 {
            Key::P256(_) | Key::P384(_) => SignatureAlgorithm::ECDSA,
            Key::Ed25519(_) => SignatureAlgorithm::ED25519,
            Key::Rsa(_) | Key::OldRsa(_) => SignatureAlgorithm::RSA,
            Key::Dsa(_) => SignatureAlgorithm::DSA,
        }
    }
}

#[derive(Debug)]
struct ServerSigner {
    key: Arc<Key>,
    scheme: SignatureScheme,
}

impl Signer for ServerSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let encoding: &'static dyn RsaEncoding = match self.scheme {
            SignatureScheme::RSA_PSS_SHA256 => &signature::RSA_PSS_SHA256,
            _ => &signature::RSA_PKCS1_SHA256,
        };
        self.key.sign(encoding, message).map_err(|e| rustls::Error::General(e.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
