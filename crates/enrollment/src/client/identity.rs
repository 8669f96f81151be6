//! The client identity of a host, and its files.

use std::path::{Path, PathBuf};

use keys::{KeyType, PrivateKey, Signer as _};
use x509::build::signed;
use x509::{Certificate, DistinguishedName};
use zeroize::Zeroizing;

use super::error::JoinError;
use crate::material::Material;
use crate::state_folder::{StateError, make_folder, remove, write_private};

/// Part of the lifetime after which a certificate is renewed.
const RENEW_AT: (i64, i64) = (2, 3);

/// A client certificate and its key.
pub struct Identity {
    /// Private key of the client certificate.
    pub key: PrivateKey,
    /// The chain in DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// The parsed leaf of the chain.
    pub leaf: Certificate,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.leaf.fingerprint).finish_non_exhaustive()
    }
}

impl Identity {
    /// Returns the renewal time, seconds since 1970-01-01 UTC: after two thirds of the lifetime.
    #[must_use]
    pub fn renew_at(&self) -> i64 {
        let life = self.leaf.not_after.since(self.leaf.not_before);
        self.leaf.not_before.0.saturating_add(life / RENEW_AT.1 * RENEW_AT.0)
    }
}

/// The directory with a host's identity. Only its owner can read the files.
#[derive(Clone, Debug)]
pub struct IdentityFolder {
    root: PathBuf,
}

impl IdentityFolder {
    /// Opens or creates the directory.
    ///
    /// # Errors
    /// [`StateError::System`]
    pub fn new(root: &Path) -> Result<Self, StateError> {
        make_folder(root)?;
        Ok(Self { root: root.to_owned() })
    }

    /// Returns the path of a file in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn key(&self) -> Result<Option<PrivateKey>, JoinError> {
        read_key(&self.path("identity-key.pem"))
    }

    /// Returns the key (P-256). Generates it if missing. After a lost response the request is repeated with the same key.
    ///
    /// # Errors
    /// [`JoinError`]
    #[crate::boxed]
    pub async fn load_or_generate_key(&self) -> Result<PrivateKey, JoinError> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let made = PrivateKey::generate_in_background(KeyType::P256).await;
        let made = made.map_err(|error| JoinError::Identity(error.to_string()))?;
        write_private(&self.path("identity-key.pem"), made.to_pkcs8_pem().as_bytes())?;
        Ok(made)
    }

    /// Stores the certificate if it matches the key.
    ///
    /// # Errors
    /// [`JoinError::Identity`] when it does not match; [`JoinError::State`]
    pub fn write_certificate(&self, key: &PrivateKey, pem: &str) -> Result<(), JoinError> {
        Material::from_pem(pem, key.clone()).map_err(|error| {
            JoinError::Identity(format!(
                "the certificate that the server issued for this host is invalid: {error}"
            ))
        })?;
        Ok(write_private(&self.path("identity.pem"), pem.as_bytes())?)
    }

    /// Reads the identity. `None` before the host has joined.
    ///
    /// # Errors
    /// [`JoinError`] when its files cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, JoinError> {
        let Some(key) = self.key()? else { return Ok(None) };
        let pem = read_text(&self.path("identity.pem"))?;
        let chain: Vec<_> = x509::pem::certificates(pem.as_bytes()).map(|(_, der)| der).collect();
        let Some(first) = chain.first() else { return Ok(None) };
        let leaf = Certificate::parse(first).map_err(|error| {
            JoinError::Identity(format!("the stored certificate of this host cannot be parsed: {error}"))
        })?;
        Ok(Some(Identity { key, leaf, chain }))
    }

    pub(super) fn ca(&self) -> Result<String, JoinError> {
        read_text(&self.path("server-ca.pem"))
    }

    pub(super) fn write_ca(&self, pem: &str) -> Result<(), StateError> {
        if pem.is_empty() {
            remove(&self.path("server-ca.pem"))
        } else {
            write_private(&self.path("server-ca.pem"), pem.as_bytes())
        }
    }

    /// Adds trust anchors for the server. Existing ones stay, so that the server is trusted during a change of its CA.
    ///
    /// # Errors
    /// [`JoinError`]
    pub fn add_ca(&self, pem: &str) -> Result<(), JoinError> {
        let known = self.ca()?;
        let have: Vec<_> = x509::pem::certificates(known.as_bytes()).map(|(_, der)| der).collect();
        let all_known = x509::pem::certificates(pem.as_bytes()).all(|(_, der)| have.contains(&der));
        if all_known { Ok(()) } else { Ok(self.write_ca(&format!("{known}{pem}"))?) }
    }
}

/// Builds a CSR that only proves the possession of the key. It requests no names: the server decides them.
///
/// # Errors
/// [`JoinError::Identity`] when signing fails.
pub fn bare_csr(key: &PrivateKey) -> Result<String, JoinError> {
    let tbs = x509::csr::tbs(&DistinguishedName::empty().der, key.spki(), &[], None);
    let signature = key.sign_now(&tbs);
    let signature =
        signature.map_err(|error| JoinError::Identity(format!("the CSR cannot be created: {error}")))?;
    Ok(x509::pem::encode("CERTIFICATE REQUEST", &signed(&tbs, &key.algorithm(), &signature)))
}

fn read_text(path: &Path) -> Result<String, JoinError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(JoinError::Identity(format!("{}: {error}", path.display()))),
    }
}

/// Reads the key in a file. `None` when the file does not exist.
///
/// # Errors
/// [`JoinError::Identity`] when it cannot be read.
pub fn read_key(path: &Path) -> Result<Option<PrivateKey>, JoinError> {
    let text = Zeroizing::new(read_text(path)?);
    if text.is_empty() {
        return Ok(None);
    }
    let key = PrivateKey::from_pem(&text);
    key.map(Some).map_err(|error| JoinError::Identity(format!("{}: {error}", path.display())))
}
