//! What a host keeps of who it is: its key, its certificate, what it trusts its server by.

use std::path::{Path, PathBuf};

use keys::{KeyType, PrivateKey, Signer};
use x509::{Certificate, DistinguishedName};
use zeroize::Zeroizing;

use super::{HostError, Trust};
use crate::deploy::{Material, StateError, make_folder, remove, write_private};

/// After this part of its life the certificate is renewed.
const RENEW_AT: (i64, i64) = (2, 3);

/// What a host shows itself with.
pub(crate) struct Identity {
    pub(crate) key: PrivateKey,
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) leaf: Certificate,
}

impl Identity {
    /// Whether its certificate is to be renewed, at a time in seconds since 1970.
    pub(crate) fn is_due(&self, now: i64) -> bool {
        let life = self.leaf.not_after.since(self.leaf.not_before);
        now >= self.leaf.not_before.0.saturating_add(life / RENEW_AT.1 * RENEW_AT.0)
    }
}

/// A CSR that proves the possession of the key and asks for nothing: the server knows what this host gets.
pub(crate) fn bare_csr(key: &PrivateKey) -> Result<String, HostError> {
    let tbs = x509::csr::tbs(&DistinguishedName::empty().der, key.spki(), &[], None);
    let signature = key.sign_now(&tbs);
    let signature = signature.map_err(|error| HostError::Identity(format!("no CSR can be made: {error}")))?;
    let der = x509::build::signed(&tbs, &key.algorithm(), &signature);
    Ok(x509::pem::encode("CERTIFICATE REQUEST", &der))
}

/// The folder of one who joined; only its owner may enter it.
#[derive(Clone, Debug)]
pub(crate) struct IdentityFolder {
    root: PathBuf,
}

impl IdentityFolder {
    pub(crate) fn new(root: &Path) -> Result<Self, StateError> {
        make_folder(root)?;
        Ok(Self { root: root.to_owned() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The key, made and kept if there is none yet.
    pub(crate) async fn made_key(&self) -> Result<PrivateKey, HostError> {
        if let Some(key) = self.identity_key()? {
            return Ok(key);
        }
        let made = PrivateKey::generate_aside(KeyType::P256).await;
        let made = made.map_err(|error| HostError::Identity(error.to_string()))?;
        self.write_identity_key(&made)?;
        Ok(made)
    }

    fn identity_key(&self) -> Result<Option<PrivateKey>, HostError> {
        read_key(&self.path("identity-key.pem"))
    }

    fn write_identity_key(&self, key: &PrivateKey) -> Result<(), StateError> {
        write_private(&self.path("identity-key.pem"), key.to_pkcs8_pem().as_bytes())
    }

    /// Keeps the client certificate, if it is one for the key.
    pub(crate) fn write_certificate(&self, key: &PrivateKey, pem: &str) -> Result<(), HostError> {
        Material::from_pem(pem, key.clone()).map_err(|error| {
            HostError::Identity(format!("the server's certificate for this host: {error}"))
        })?;
        Ok(write_private(&self.path("identity.pem"), pem.as_bytes())?)
    }

    pub(crate) fn identity(&self) -> Result<Option<Identity>, HostError> {
        let Some(key) = self.identity_key()? else { return Ok(None) };
        let pem = read_text(&self.path("identity.pem"))?;
        let chain: Vec<_> = x509::pem::certificates(pem.as_bytes()).map(|(_, der)| der).collect();
        let Some(first) = chain.first() else { return Ok(None) };
        let leaf = Certificate::parse(first)
            .map_err(|error| HostError::Identity(format!("this host's own certificate: {error}")))?;
        Ok(Some(Identity { key, leaf, chain }))
    }

    pub(crate) fn ca(&self) -> Result<String, HostError> {
        read_text(&self.path("server-ca.pem"))
    }

    pub(crate) fn write_ca(&self, pem: &str) -> Result<(), StateError> {
        if pem.is_empty() {
            remove(&self.path("server-ca.pem"))
        } else {
            write_private(&self.path("server-ca.pem"), pem.as_bytes())
        }
    }

    /// What is trusted already stays, so that a server that changes its authority is known before and after.
    pub(crate) fn add_ca(&self, pem: &str) -> Result<(), HostError> {
        let known = self.ca()?;
        let have: Vec<_> = x509::pem::certificates(known.as_bytes()).map(|(_, der)| der).collect();
        let all_known = x509::pem::certificates(pem.as_bytes()).all(|(_, der)| have.contains(&der));
        if all_known { Ok(()) } else { Ok(self.write_ca(&format!("{known}{pem}"))?) }
    }

    /// What the server is trusted by: what it said of itself, else the one certificate that was pinned, else the host's
    /// roots.
    pub(crate) fn trust(&self, pin: Option<&str>) -> Result<Trust, HostError> {
        let ca = self.ca()?;
        match (ca.is_empty(), pin) {
            (false, _) => Trust::roots(&ca),
            (true, Some(pin)) => {
                let pin = pin.parse().map_err(|_| HostError::Trust(format!("{pin:?} is no SHA-256")))?;
                Ok(Trust::Pinned(pin))
            }
            (true, None) => Ok(Trust::System),
        }
    }
}

fn read_text(path: &Path) -> Result<String, HostError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(HostError::Identity(format!("{}: {error}", path.display()))),
    }
}

pub(crate) fn read_key(path: &Path) -> Result<Option<PrivateKey>, HostError> {
    let text = Zeroizing::new(read_text(path)?);
    if text.is_empty() {
        return Ok(None);
    }
    let key = PrivateKey::from_pem(&text);
    key.map(Some).map_err(|error| HostError::Identity(format!("{}: {error}", path.display())))
}
