//! A certificate with its chain and its private key.

use std::fmt;

use keys::{PrivateKey, Signer as _};
use x509::{Certificate, Fingerprint};
use zeroize::Zeroizing;

/// Maximum number of certificates in a chain. Real ones have at most five.
const CHAIN_MAX: usize = 16;

/// Reason why a chain and a key cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// The chain contains no certificate.
    #[error("the chain contains no certificate")]
    Empty,
    /// The chain is longer than the allowed maximum.
    #[error("the chain contains more than {CHAIN_MAX} certificates")]
    TooLong,
    /// A certificate of the chain cannot be parsed.
    #[error("certificate {position} of the chain cannot be parsed: {reason}")]
    Certificate {
        /// Position in the chain; 0 is the leaf.
        position: usize,
        /// The error of the parser.
        reason: String,
    },
    /// The key does not match the leaf.
    #[error("the private key does not match the certificate")]
    Mismatch,
}

/// A leaf, its intermediate certificates without the root, and the leaf's key. `Debug` omits the key.
pub struct Material {
    leaf: Certificate,
    chain: Vec<Vec<u8>>,
    key: PrivateKey,
}

impl Material {
    /// Parses `chain`, DER with the leaf first, and checks that the key matches.
    ///
    /// # Errors
    /// [`MaterialError`] says which part is invalid.
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

    /// Same as [`Material::new`], with the chain in PEM.
    ///
    /// # Errors
    /// Same as [`Material::new`].
    pub fn from_pem(chain_pem: &str, key: PrivateKey) -> Result<Self, MaterialError> {
        Self::new(x509::pem::certificates(chain_pem.as_bytes()).map(|(_, der)| der).collect(), key)
    }

    /// Returns the parsed leaf certificate.
    #[must_use]
    pub fn leaf(&self) -> &Certificate {
        &self.leaf
    }

    /// Returns the SHA-256 of the leaf, which a probe must find.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.leaf.fingerprint
    }

    /// Returns the chain in DER, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[Vec<u8>] {
        &self.chain
    }

    /// Returns only the leaf, in PEM.
    #[must_use]
    pub fn cert_pem(&self) -> String {
        certificates_pem(&self.chain[..1])
    }

    /// Returns the chain without the leaf in PEM. Empty when the chain has only the leaf.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        certificates_pem(&self.chain[1..])
    }

    /// Returns leaf and chain in PEM.
    #[must_use]
    pub fn fullchain_pem(&self) -> String {
        certificates_pem(&self.chain)
    }

    /// Returns the key as PKCS#8 PEM with a final line break.
    #[must_use]
    pub fn key_pem(&self) -> Zeroizing<String> {
        self.key.to_pkcs8_pem()
    }

    /// Returns the key as PKCS#8 DER.
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
