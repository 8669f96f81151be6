//! Proof of possession of a key: by a signed CSR, or by the certificate of a connection.

use uuid::Uuid;
use x509::csr::CertificateRequest;
use x509::{Certificate, KeyAlgorithm, SpkiHash};

/// A public key whose possession was proved.
#[derive(Clone, Debug)]
pub struct ProvedKey {
    /// SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
    /// SHA-256 of `spki`.
    pub sha256: [u8; 32],
    /// Algorithm of the key.
    pub algorithm: KeyAlgorithm,
}

impl ProvedKey {
    /// Verifies a CSR (PEM or DER) and returns its key.
    ///
    /// # Errors
    /// A human-readable text when the CSR cannot be parsed or its signature is invalid.
    pub fn from_csr(csr: &str) -> Result<Self, String> {
        let csr = CertificateRequest::from_pem_or_der(csr.as_bytes()).map_err(|error| error.to_string())?;
        csr.verify().map_err(|error| error.to_string())?;
        let key = csr.public_key;
        Ok(Self { spki: key.spki.to_vec(), sha256: *key.spki_sha256.as_bytes(), algorithm: key.algorithm })
    }

    /// Returns the idempotency key for the first certificate, so that a repeated request gets the same certificate.
    #[must_use]
    pub fn idempotency_key(&self, kind: &str, id: Uuid) -> String {
        format!("{kind}:{id}:enroll:{}", SpkiHash::from_bytes(self.sha256))
    }
}

/// Returns the SHA-256 of the SubjectPublicKeyInfo of a connection's certificate. `None` when the certificate cannot be parsed.
#[must_use]
pub fn certificate_spki_sha256(certificate_der: &[u8]) -> Option<[u8; 32]> {
    Some(*Certificate::parse(certificate_der).ok()?.public_key.spki_sha256.as_bytes())
}
