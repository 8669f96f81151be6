//! A certificate with its chain and its private key.

use std::fmt;

use keys::{PrivateKey, Signer as _};
use x509::{Certificate, Fingerprint};
use zeroize::Zeroizing;

/// Certificates a chain may have: real ones have five at most.
const CHAIN_MAX: usize = 16;

/// Why a chain and a key are nothing that can be deployed.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// No certificate at all.
    #[error("the chain holds no certificate")]
    Empty,
    /// More than any honest issuer gives.
    #[error("the chain holds more than {CHAIN_MAX} certificates")]
    TooLong,
    /// One of the chain cannot be read.
    #[error("certificate {position} of the chain cannot be read: {reason}")]
    Certificate {
        /// 0 is the leaf.
        position: usize,
        /// The error.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

/// A leaf, the certificates above it without the root, and the leaf's key. `Debug` shows no key.
pub struct Material {
    leaf: Certificate,
    chain: Vec<Vec<u8>>,
    key: PrivateKey,
}

impl Material {
    /// `chain` in DER, leaf first. That it and the key belong together is checked.
    ///
    /// # Errors
    /// [`MaterialError`] says which part is wrong.
    pub fn new(chain: Vec<Vec<u8>>, key: PrivateKey) -> Result<Self, MaterialError> {
        if chain.len() > CHAIN_MAX {
            return Err(MaterialError::TooLong);
        }
        let mut leaf = None;
        for (position, der) in chain.iter().enumerate() {
            let read = Certificate::parse(der)
                .map_err(|error| MaterialError::Certificate { position, reason: error.to_string() })?;
            leaf.get_or_insert(read);
        }
        let leaf = leaf.ok_or(MaterialError::Empty)?;
        if key.spki() != &*leaf.public_key.spki {
            return Err(MaterialError::Mismatch);
        }
        Ok(Self { leaf, chain, key })
    }

    /// [`Material::new`] from the chain in PEM.
    ///
    /// # Errors
    /// As [`Material::new`].
    pub fn from_pem(chain_pem: &str, key: PrivateKey) -> Result<Self, MaterialError> {
        Self::new(x509::pem::certificates(chain_pem.as_bytes()).map(|(_, der)| der).collect(), key)
    }

    /// The certificate the key belongs to.
    #[must_use]
    pub fn leaf(&self) -> &Certificate {
        &self.leaf
    }

    /// SHA-256 of the leaf: what a probe has to see.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.leaf.fingerprint
    }

    /// DER, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[Vec<u8>] {
        &self.chain
    }

    /// The leaf alone, PEM.
    #[must_use]
    pub fn cert_pem(&self) -> String {
        certificates_pem(&self.chain[..1])
    }

    /// What stands above the leaf, PEM; empty when nothing does.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        certificates_pem(&self.chain[1..])
    }

    /// The certificate and its chain, PEM.
    #[must_use]
    pub fn fullchain_pem(&self) -> String {
        certificates_pem(&self.chain)
    }

    /// The key, PKCS#8 PEM, ending in a line end.
    #[must_use]
    pub fn key_pem(&self) -> Zeroizing<String> {
        self.key.to_pkcs8_pem()
    }

    /// The key, PKCS#8 DER.
    #[must_use]
    pub fn key_der(&self) -> Zeroizing<Vec<u8>> {
        self.key.to_pkcs8_der()
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material")
            .field("fingerprint", &self.leaf.fingerprint)
            .field("certificates", &self.chain.len())
            .finish_non_exhaustive()
    }
}

fn certificates_pem(ders: &[Vec<u8>]) -> String {
    ders.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect()
}
