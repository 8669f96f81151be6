//! Proof of possession of a key: by the CSR it signed, or by the certificate a connection shows.

use uuid::Uuid;
use x509::csr::CertificateRequest;
use x509::{Certificate, KeyAlgorithm, SpkiHash};

/// A public key whose possession was proved.
#[derive(Clone, Debug)]
pub struct ProvedKey {
    /// Its SubjectPublicKeyInfo, DER.
    pub spki: Vec<u8>,
    /// SHA-256 of that.
    pub sha256: [u8; 32],
    /// Its kind.
    pub algorithm: KeyAlgorithm,
}

impl ProvedKey {
    /// The key that has signed this request (PEM or DER).
    ///
    /// # Errors
    /// A text for people when the request cannot be read or its signature is wrong.
    pub fn of_csr(csr: &str) -> Result<Self, String> {
        let csr = CertificateRequest::from_pem_or_der(csr.as_bytes()).map_err(|error| error.to_string())?;
        csr.verify().map_err(|error| error.to_string())?;
        let key = csr.public_key;
        Ok(Self { spki: key.spki.to_vec(), sha256: *key.spki_sha256.as_bytes(), algorithm: key.algorithm })
    }

    /// The idempotency key with which its first certificate is requested, so that a repeated request gets the same one.
    #[must_use]
    pub fn idempotency_key(&self, kind: &str, id: Uuid) -> String {
        format!("{kind}:{id}:enroll:{}", SpkiHash::from_bytes(self.sha256))
    }
}

/// SHA-256 of the SubjectPublicKeyInfo of a certificate that a connection shows; `None` when it cannot be read.
#[must_use]
pub fn shown_key(certificate_der: &[u8]) -> Option<[u8; 32]> {
    Some(*Certificate::parse(certificate_der).ok()?.public_key.spki_sha256.as_bytes())
}
