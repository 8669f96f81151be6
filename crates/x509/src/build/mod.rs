//! Building certificates: the data to be signed, and the signed result.
//!
//! This module checks only what DER requires. The caller decides whether a certificate may be issued, and [`crate::lint`] checks
//! the result.

mod alternative_name;
mod extension;
mod subject;

pub use alternative_name::BadName;
pub use extension::Extension;
pub use subject::{Attribute, BadSubject, distinguished_name};

use crate::der::{self, Writer, tag};
use crate::{PublicKey, SerialNumber, SignatureAlgorithm, UnixTime, oid};

/// A certificate before it is signed (RFC 5280 section 4.1.2). The version is always 3.
#[derive(Clone, Debug)]
pub struct CertificateSpec<'a> {
    /// Serial number: see [`SerialNumber::from_random`].
    pub serial: &'a SerialNumber,
    /// Signature algorithm of the issuer's key.
    pub signature: SignatureAlgorithm,
    /// DER `Name` of the issuer: exactly the subject of the issuer's certificate.
    pub issuer: &'a [u8],
    /// DER `Name` of the subject. An empty one (`30 00`) requires a critical subject alternative name.
    pub subject: &'a [u8],
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity, inclusive.
    pub not_after: UnixTime,
    /// Complete DER SubjectPublicKeyInfo.
    pub spki: &'a [u8],
    /// Extensions, in the order in which they are written.
    pub extensions: &'a [Extension],
}

/// Encodes the tbsCertificate, which the issuer signs. Then call [`signed`].
#[must_use]
pub fn tbs_certificate(spec: &CertificateSpec<'_>) -> Vec<u8> {
    const VERSION_3: i64 = 2;
    der::write(|w| {
        w.sequence(|w| {
            w.context(0, |w| {
                w.integer(VERSION_3);
            });
            w.integer_content(spec.serial.content()).raw(&spec.signature.to_der()).raw(spec.issuer);
            w.sequence(|w| {
                w.time(spec.not_before).time(spec.not_after);
            });
            w.raw(spec.subject).raw(spec.spki);
            if !spec.extensions.is_empty() {
                w.context(3, |w| write_extensions(w, spec.extensions));
            }
        });
    })
}

/// Writes `Extensions`: the SEQUENCE of all extensions.
pub(crate) fn write_extensions(w: &mut Writer, extensions: &[Extension]) {
    w.sequence(|w| extensions.iter().for_each(|extension| extension.write(w)));
}

/// Combines signed data and its signature into a Certificate, CertificationRequest or CertificateList, which all are `SEQUENCE {
/// tbs, algorithm, BIT STRING }`. If `tbs` contains an algorithm, `algorithm` must be the same.
#[must_use]
pub fn signed(tbs: &[u8], algorithm: &SignatureAlgorithm, signature: &[u8]) -> Vec<u8> {
    let algorithm = algorithm.to_der();
    let mut w = Writer::with_capacity(tbs.len() + algorithm.len() + signature.len() + 16);
    w.element_header(tag::SEQUENCE, tbs.len() + algorithm.len() + Writer::bits_len(signature.len()))
        .raw(tbs)
        .raw(&algorithm)
        .bits(signature);
    w.finish()
}

/// Computes the key identifier of RFC 7093 section 2, method 1: the leftmost 160 bits of the SHA-256 of the subjectPublicKey's
/// content. Treats an invalid SubjectPublicKeyInfo as empty content.
#[must_use]
pub fn key_id(spki: &[u8]) -> [u8; 20] {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &subject_public_key(spki));
    let mut id = [0; 20];
    id.copy_from_slice(&hash.as_ref()[..20]);
    id
}

/// Computes the SHA-1 of the subjectPublicKey's content. OCSP identifies issuers and responders by this hash (RFC 6960 section
/// 4.1.1 and 4.2.1). The same hash is the key identifier of RFC 5280 section 4.2.1.2.
#[must_use]
pub fn key_sha1(spki: &[u8]) -> [u8; 20] {
    let algorithm = &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;
    let hash = aws_lc_rs::digest::digest(algorithm, &subject_public_key(spki));
    let mut id = [0; 20];
    id.copy_from_slice(hash.as_ref());
    id
}

fn subject_public_key(spki: &[u8]) -> Vec<u8> {
    PublicKey::parse(spki).map(|key| key.key_bytes().to_vec()).unwrap_or_default()
}

impl SerialNumber {
    /// Creates a serial number with 126 random bits. It is always positive and has 16 bytes: more than the 64 bits required by the
    /// baseline requirements, and less than the maximum of 20 bytes in RFC 5280.
    #[must_use]
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[0] = bytes[0] & 0x7f | 0x40;
        Self::from_content(&bytes)
    }
}

impl SignatureAlgorithm {
    /// Encodes the DER AlgorithmIdentifier with the parameters that its RFC requires:
    ///
    /// - PKCS #1: NULL (RFC 4055 section 5).
    /// - RSASSA-PSS: the hash, MGF1 with the same hash, and a salt as long as the hash (RFC 4055 section 3.1).
    /// - ECDSA (RFC 5758), Ed25519 (RFC 8410) and ML-DSA (RFC 9881): none.
    /// - [`Self::Other`]: no parameters.
    #[must_use]
    pub fn to_der(&self) -> Vec<u8> {
        use SignatureAlgorithm as S;
        let pkcs1 = |last: u8| identifier(&[oid::PKCS1, &[last]].concat(), true);
        let plain = |parts: &[&[u8]]| identifier(&parts.concat(), false);
        match self {
            S::RsaMd2 => pkcs1(2),
            S::RsaMd5 => pkcs1(4),
            S::RsaSha1 => pkcs1(5),
            S::RsaSha256 => pkcs1(11),
            S::RsaSha384 => pkcs1(12),
            S::RsaSha512 => pkcs1(13),
            S::RsaPss(bits) => pss(*bits),
            S::EcdsaSha1 => plain(&[oid::ECDSA_SHA1]),
            S::EcdsaSha256 => plain(&[oid::ECDSA_SHA2, &[2]]),
            S::EcdsaSha384 => plain(&[oid::ECDSA_SHA2, &[3]]),
            S::EcdsaSha512 => plain(&[oid::ECDSA_SHA2, &[4]]),
            S::DsaSha1 => plain(&[oid::DSA_SHA1]),
            S::DsaSha256 => plain(&[oid::DSA_SHA256]),
            S::Ed25519 => plain(&[oid::ED25519]),
            S::Ed448 => plain(&[oid::ED448]),
            S::MlDsa(44) => plain(&[oid::NIST_SIGNATURES, &[17]]),
            S::MlDsa(65) => plain(&[oid::NIST_SIGNATURES, &[18]]),
            S::MlDsa(_) => plain(&[oid::NIST_SIGNATURES, &[19]]),
            S::Other(dotted) => der::write(|w| {
                w.sequence(|w| {
                    w.oid_text(dotted);
                });
            }),
        }
    }
}

/// Encodes an AlgorithmIdentifier without parameters, or with NULL.
pub(crate) fn identifier(algorithm: &[u8], null: bool) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.element(tag::OID, algorithm);
            if null {
                w.null();
            }
        });
    })
}

/// Encodes RSASSA-PSS with one hash for the message and MGF1, and a salt as long as the hash.
fn pss(hash_bits: u16) -> Vec<u8> {
    let hash = match hash_bits {
        384 => identifier(&[oid::NIST_HASHES, &[2]].concat(), true),
        512 => identifier(&[oid::NIST_HASHES, &[3]].concat(), true),
        256 => identifier(&[oid::NIST_HASHES, &[1]].concat(), true),
        _ => identifier(oid::SHA1, true),
    };
    der::write(|w| {
        w.sequence(|w| {
            w.element(tag::OID, oid::RSA_PSS);
            w.sequence(|w| {
                if !matches!(hash_bits, 256 | 384 | 512) {
                    return; // SHA-1 and a salt of 20 octets are the defaults, which DER leaves out.
                }
                w.context(0, |w| {
                    w.raw(&hash);
                });
                w.context(1, |w| {
                    w.sequence(|w| {
                        w.element(tag::OID, oid::MGF1).raw(&hash);
                    });
                });
                w.context(2, |w| {
                    w.integer(i64::from(hash_bits / 8));
                });
            });
        });
    })
}
