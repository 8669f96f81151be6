//! Keys of every type, and a CA that signs certificates.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature as lc;
use lc::{EcdsaKeyPair, Ed25519KeyPair, KeyPair, PqdsaKeyPair, RsaKeyPair};
use x509::SignatureAlgorithm as S;
use x509::build::{CertificateSpec, Extension, key_id, signed, tbs_certificate};
use x509::{BasicConstraints, Certificate, DAY, DistinguishedName, KeyUsage, SerialNumber, UnixTime};

pub(crate) enum Private {
    Rsa(RsaKeyPair, &'static dyn lc::RsaEncoding),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Ml(PqdsaKeyPair),
}

pub(crate) struct Key {
    private: Private,
    pub(crate) algorithm: S,
    pub(crate) spki: Vec<u8>,
}

impl Key {
    pub(crate) fn new(algorithm: S) -> Self {
        let rsa = |encoding| Private::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap(), encoding);
        let ec = |kind| Private::Ec(EcdsaKeyPair::generate(kind).unwrap());
        let private = match &algorithm {
            S::RsaSha256 => rsa(&lc::RSA_PKCS1_SHA256),
            S::RsaSha384 => rsa(&lc::RSA_PKCS1_SHA384),
            S::RsaSha512 => rsa(&lc::RSA_PKCS1_SHA512),
            S::RsaPss(256) => rsa(&lc::RSA_PSS_SHA256),
            S::RsaPss(384) => rsa(&lc::RSA_PSS_SHA384),
            S::RsaPss(512) => rsa(&lc::RSA_PSS_SHA512),
            S::EcdsaSha256 => ec(&lc::ECDSA_P256_SHA256_ASN1_SIGNING),
            S::EcdsaSha384 => ec(&lc::ECDSA_P384_SHA384_ASN1_SIGNING),
            S::EcdsaSha512 => ec(&lc::ECDSA_P521_SHA512_ASN1_SIGNING),
            S::Ed25519 => Private::Ed(Ed25519KeyPair::generate().unwrap()),
            S::MlDsa(44) => Private::Ml(PqdsaKeyPair::generate(&lc::ML_DSA_44_SIGNING).unwrap()),
            S::MlDsa(65) => Private::Ml(PqdsaKeyPair::generate(&lc::ML_DSA_65_SIGNING).unwrap()),
            S::MlDsa(87) => Private::Ml(PqdsaKeyPair::generate(&lc::ML_DSA_87_SIGNING).unwrap()),
            other => panic!("no key for {other}"),
        };
        let spki: PublicKeyX509Der<'_> = match &private {
            Private::Rsa(pair, _) => pair.public_key().as_der().unwrap(),
            Private::Ec(pair) => pair.public_key().as_der().unwrap(),
            Private::Ed(pair) => pair.public_key().as_der().unwrap(),
            Private::Ml(pair) => pair.public_key().as_der().unwrap(),
        };
        let spki = spki.as_ref().to_vec();
        Self { private, algorithm, spki }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.private {
            Private::Rsa(pair, encoding) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut out).unwrap();
                out
            }
            Private::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Private::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Private::Ml(pair) => {
                let mut out = vec![0; pair.algorithm().signature_len()];
                let length = pair.sign(message, &mut out).unwrap();
                out.truncate(length);
                out
            }
        }
    }

    /// Returns `tbs` with its signature by this key.
    pub(crate) fn signed(&self, tbs: &[u8]) -> Vec<u8> {
        signed(tbs, &self.algorithm, &self.sign(tbs))
    }
}

/// Returns every algorithm that a CA signs with.
pub(crate) fn algorithms() -> Vec<S> {
    let mut all = vec![S::RsaSha256, S::RsaSha384, S::RsaSha512];
    all.extend([S::RsaPss(256), S::RsaPss(384), S::RsaPss(512)]);
    all.extend([S::EcdsaSha256, S::EcdsaSha384, S::EcdsaSha512, S::Ed25519]);
    all.extend([S::MlDsa(44), S::MlDsa(65), S::MlDsa(87)]);
    all
}

/// Returns whether Debian's OpenSSL 3.0 supports the algorithm. ML-DSA needs OpenSSL 3.5.
pub(crate) fn openssl_knows(algorithm: &S) -> bool {
    !matches!(algorithm, S::MlDsa(_))
}

/// 2020-01-01 to 2049-12-31: openssl verifies with the system clock.
pub(crate) const LONG: (UnixTime, UnixTime) = (UnixTime(1_577_836_800), UnixTime(2_524_607_999));

pub(crate) struct Authority {
    pub(crate) key: Key,
    pub(crate) certificate: Certificate,
}

impl Authority {
    pub(crate) fn new(algorithm: S) -> Self {
        let key = Key::new(algorithm);
        let name = DistinguishedName::from_text("CN=Test Root, O=Acme, C=DE").unwrap();
        let extensions = [
            Extension::basic_constraints(BasicConstraints { ca: true, path_len: None }),
            Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN)),
            Extension::subject_key_id(&key_id(&key.spki)),
        ];
        let tbs = tbs_certificate(&CertificateSpec {
            serial: &SerialNumber::from_random([7; 16]),
            signature: key.algorithm.clone(),
            issuer: &name.der,
            subject: &name.der,
            not_before: LONG.0,
            not_after: LONG.1,
            spki: &key.spki,
            extensions: &extensions,
        });
        let certificate = Certificate::parse(&key.signed(&tbs)).unwrap();
        assert_eq!(certificate.faults, [""; 0]);
        Self { key, certificate }
    }

    pub(crate) fn issue(
        &self,
        serial: &SerialNumber,
        subject: &[u8],
        spki: &[u8],
        extensions: &[Extension],
    ) -> Vec<u8> {
        let tbs = tbs_certificate(&CertificateSpec {
            serial,
            signature: self.key.algorithm.clone(),
            issuer: &self.certificate.subject.der,
            subject,
            not_before: LONG.0,
            not_after: LONG.0.plus(20 * 365 * DAY),
            spki,
            extensions,
        });
        self.key.signed(&tbs)
    }
}
