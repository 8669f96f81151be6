//! A certification authority for one test.

use keys::{KeyType, PrivateKey, Signer as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use x509::build::{Attribute, CertificateSpec, Extension, distinguished_name, signed, tbs_certificate};
use x509::{BasicConstraints, SerialNumber, UnixTime};

/// Lifetime of a certificate in seconds. Real clients compare it with the current time.
const LIFE: i64 = 90 * x509::DAY;

/// A root and an intermediate that issues leaves.
pub struct Issuer {
    root: Vec<u8>,
    intermediate: Vec<u8>,
    key: PrivateKey,
}

impl Default for Issuer {
    fn default() -> Self {
        Self::new()
    }
}

impl Issuer {
    /// Creates an authority with new keys.
    #[must_use]
    pub fn new() -> Self {
        let made = || PrivateKey::generate(KeyType::P256).unwrap();
        let (root_key, key) = (made(), made());
        let extensions = [Extension::basic_constraints(BasicConstraints { ca: true, path_len: None })];
        let root = certificate("Root", root_key.spki(), "Root", &root_key, &extensions);
        let intermediate = certificate("Issuing", key.spki(), "Root", &root_key, &extensions);
        Self { root, intermediate, key }
    }

    /// Creates a chain of a leaf with these extensions, and the intermediate.
    #[must_use]
    pub fn chain(&self, subject: &str, spki: &[u8], extensions: &[Extension]) -> Vec<Vec<u8>> {
        vec![certificate(subject, spki, "Issuing", &self.key, extensions), self.intermediate.clone()]
    }

    /// Returns the root certificate, DER.
    #[must_use]
    pub fn root(&self) -> &[u8] {
        &self.root
    }

    /// Returns the root certificate, PEM.
    #[must_use]
    pub fn root_pem(&self) -> String {
        x509::pem::encode("CERTIFICATE", &self.root)
    }
}

fn certificate(
    subject: &str,
    spki: &[u8],
    issuer: &str,
    by: &PrivateKey,
    extensions: &[Extension],
) -> Vec<u8> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    let name = |text: &str| distinguished_name(&[(Attribute::CommonName, text.to_owned())]);
    let serial = SerialNumber::from_random([NEXT.fetch_add(1, Ordering::Relaxed); 16]);
    let spec = CertificateSpec {
        serial: &serial,
        signature: by.algorithm(),
        issuer: &name(issuer).der,
        subject: &name(subject).der,
        not_before: UnixTime(now - x509::DAY),
        not_after: UnixTime(now + LIFE),
        spki,
        extensions,
    };
    let tbs = tbs_certificate(&spec);
    signed(&tbs, &by.algorithm(), &by.sign_now(&tbs).unwrap())
}
