//! The CA that signs leaves.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use keys::{KeyRef, PrivateKey, Signer};
use rustls::pki_types::CertificateDer;
use x509::build::{self, Attribute, CertificateSpec, Extension};
use x509::{BasicConstraints, Certificate, Fingerprint, KeyUsage, UnixTime};

use super::error::{BadAuthority, MintError};
use super::serial::new_serial;
use super::validity::CLOCK_SKEW_S;

/// Timeout of a signature of the CA.
pub const SIGN_TIMEOUT: Duration = Duration::from_secs(5);
/// Validity of a generated root in seconds; after it, clients must trust a new root.
const ROOT_S: i64 = 10 * 365 * 86_400;

/// A CA whose key may be in this process, in a security module or in a key service.
#[derive(Clone, Debug)]
pub struct Authority {
    certificate: Arc<Certificate>,
    /// Certificates that are sent after the leaf: the chain without its root, which clients must already have.
    chain: Vec<CertificateDer<'static>>,
    signer: KeyRef,
    key_id: Vec<u8>,
    crl_urls: Vec<String>,
}

impl Authority {
    /// Creates a CA from `chain` (DER, its own certificate first); leaves contain `crl_urls`.
    ///
    /// # Errors
    /// [`BadAuthority`]
    pub fn new(chain: &[Vec<u8>], signer: KeyRef, crl_urls: Vec<String>) -> Result<Self, BadAuthority> {
        let own = Certificate::parse(chain.first().ok_or(BadAuthority::Empty)?)?;
        let signs = own.key_usage.is_none_or(|usage| usage.allows(KeyUsage::KEY_CERT_SIGN));
        if !own.is_ca() || !signs {
            return Err(BadAuthority::NotAnAuthority(own.subject.text.clone()));
        }
        if *own.public_key.spki != *signer.spki() {
            return Err(BadAuthority::OtherKey(own.subject.text.clone()));
        }
        let mut sent = Vec::new();
        for der in chain {
            if !Certificate::parse(der)?.is_self_issued() {
                sent.push(CertificateDer::from(der.clone()));
            }
        }
        let computed = || x509::build::key_id(signer.spki()).to_vec();
        let key_id = own.subject_key_id.clone().unwrap_or_else(computed);
        Ok(Self { certificate: Arc::new(own), chain: sent, signer, key_id, crl_urls })
    }

    /// Returns the fingerprint of the CA certificate. It is part of a leaf's identity, so that two CAs never share leaves.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.certificate.fingerprint
    }

    /// Returns the certificate of the CA that signs the leaves.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    pub(super) fn subject(&self) -> &[u8] {
        &self.certificate.subject.der
    }

    pub(super) fn not_before(&self) -> UnixTime {
        self.certificate.not_before
    }

    pub(super) fn not_after(&self) -> UnixTime {
        self.certificate.not_after
    }

    pub(super) fn chain(&self) -> impl Iterator<Item = CertificateDer<'static>> + '_ {
        self.chain.iter().cloned()
    }

    pub(super) fn signer(&self) -> &KeyRef {
        &self.signer
    }

    pub(super) fn key_id(&self) -> &[u8] {
        &self.key_id
    }

    /// Returns whether the path length constraint permits an intermediate CA below this CA.
    pub(super) fn permits_intermediate(&self) -> bool {
        self.certificate.basic_constraints.is_some_and(|own| own.path_len != Some(0))
    }

    pub(super) fn crl_urls(&self) -> &[String] {
        &self.crl_urls
    }
}

/// Creates a self-signed root (DER) for `key`, valid for ten years from `now`. Its name ends with a part of the key identifier, so
/// that people can distinguish several roots.
///
/// # Errors
/// [`MintError::NoRandomness`], [`MintError::NotSigned`].
pub fn new_root(key: &PrivateKey, now: UnixTime) -> Result<Vec<u8>, MintError> {
    let id = build::key_id(key.spki());
    let tag = HEXLOWER.encode(&id[..4]);
    let name = build::distinguished_name(&[(Attribute::CommonName, format!("Bulla proxy {tag}"))]);
    let spec = CertificateSpec {
        serial: &new_serial()?,
        signature: key.algorithm(),
        issuer: &name.der,
        subject: &name.der,
        not_before: now.plus(-CLOCK_SKEW_S),
        not_after: now.plus(ROOT_S),
        spki: key.spki(),
        extensions: &[
            Extension::basic_constraints(BasicConstraints { ca: true, path_len: Some(0) }),
            Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN)),
            Extension::subject_key_id(&id),
        ],
    };
    let tbs = build::tbs_certificate(&spec);
    Ok(build::signed(&tbs, &spec.signature, &key.sign_now(&tbs)?))
}
