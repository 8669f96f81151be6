//! An authority of the test's own.

use std::sync::atomic::{AtomicU8, Ordering};

use keys::{KeyType, PrivateKey, Signer as _};
use x509::build::{Attribute, CertificateSpec, Extension, distinguished_name, signed, tbs_certificate};
use x509::{BasicConstraints, SerialNumber, UnixTime};

/// Seconds a certificate lives: real clients check it against the real time.
const LIFE: i64 = 90 * x509::DAY;

/// Issues nodes' certificates: a root and an intermediate.
pub(crate) struct Issuer {
    root: Vec<u8>,
    intermediate: Vec<u8>,
    key: PrivateKey,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let (root_key, key) = (made(), made());
        let authority = BasicConstraints { ca: true, path_len: None };
        let extensions = [Extension::basic_constraints(authority)];
        let root = certificate("Root", root_key.spki(), "Root", &root_key, &extensions);
        let intermediate = certificate("Issuing", key.spki(), "Root", &root_key, &extensions);
        Self { root, intermediate, key }
    }

    /// A certificate with the names and key usage of the extensions, and what stands above it.
    pub(crate) fn chain(&self, subject: &str, spki: &[u8], extensions: &[Extension]) -> Vec<Vec<u8>> {
        vec![certificate(subject, spki, "Issuing", &self.key, extensions), self.intermediate.clone()]
    }

    pub(crate) fn root_pem(&self) -> String {
        x509::pem::encode("CERTIFICATE", &self.root)
    }
}

fn made() -> PrivateKey {
    PrivateKey::generate(KeyType::P256).unwrap()
}

fn certificate(
    subject: &str,
    spki: &[u8],
    issuer: &str,
    by: &PrivateKey,
    extensions: &[Extension],
) -> Vec<u8> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let now = store::Clock::system().now_seconds();
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
