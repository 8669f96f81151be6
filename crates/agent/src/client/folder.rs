//! The agent's state directory: its identity, keys and certificates.

use std::path::{Path, PathBuf};

use enrollment::Material;
use enrollment::client::{IdentityFolder, JoinError, read_key};
use enrollment::state_folder::{
    STAGED, StateError, make_folder, read_json, remove, write_json, write_private,
};
use keys::PrivateKey;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::SpkiHash;

use crate::deploy::name_text;

/// Subdirectories of the agent's state directory.
const FOLDERS: [&str; 3] = ["keys", "csr", "certificates"];
/// Number of keys that are kept for each certificate: the current one, and the previous one for a rollback.
const KEYS_KEPT: usize = 2;

/// Identity of the agent and address of its server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    pub(super) agent: Uuid,
    pub(super) name: String,
    pub(super) server: String,
    /// SHA-256 of the pinned certificate by which the agent trusts the server. Used when there is no file of trust anchors.
    pub(super) pin: Option<String>,
}

/// A CSR that was generated for a job. A repeated job gets the same CSR.
#[derive(Deserialize, Serialize)]
pub(super) struct NewCsr {
    pub(super) spki: String,
    pub(super) csr_pem: String,
}

/// A certificate that the agent has deployed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeployedCertificate {
    /// Id of the managed certificate.
    pub certificate: Uuid,
    /// Name of the managed certificate.
    pub name: String,
    /// DNS names and addresses in the leaf.
    pub names: Vec<String>,
    /// SHA-256 of the leaf, in hexadecimal.
    pub fingerprint: String,
    /// End of the leaf's validity, seconds since 1970-01-01 UTC.
    pub not_after: i64,
    /// SHA-256 of the public keys kept for the certificate, newest first.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// Status of an enrolled agent, as read from its state directory.
#[derive(Clone, Debug, Serialize)]
pub struct AgentStatus {
    /// Id that the server assigned to the agent.
    pub agent: Uuid,
    /// Name with which the agent was enrolled.
    pub name: String,
    /// URL of the agent's server.
    pub server: String,
    /// End of the client certificate's validity, seconds since 1970-01-01 UTC.
    pub certificate_not_after: i64,
    /// Number of interrupted deployments. The next start undoes them.
    pub cut_off: usize,
    /// Certificates that the agent has deployed on this host.
    pub certificates: Vec<DeployedCertificate>,
}

/// The agent's state directory. `Deployer` locks it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    root: PathBuf,
    identity_folder: IdentityFolder,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Result<Self, StateError> {
        make_folder(root)?;
        for name in FOLDERS {
            make_folder(&root.join(name))?;
        }
        Ok(Self { root: root.to_owned(), identity_folder: IdentityFolder::new(root)? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn settings(&self) -> Result<Option<Settings>, StateError> {
        read_json(&self.path("agent.json"))
    }

    pub(super) fn write_settings(&self, settings: &Settings) -> Result<(), StateError> {
        write_json(&self.path("agent.json"), settings)
    }

    /// Returns the agent's client certificate and its trust anchors for the server.
    pub(super) fn identity_folder(&self) -> &IdentityFolder {
        &self.identity_folder
    }

    pub(super) fn load_csr(&self, job: Uuid) -> Result<Option<NewCsr>, StateError> {
        read_json(&self.path("csr").join(format!("{job}.json")))
    }

    /// Writes the key before the CSR: a CSR without its key is useless.
    pub(super) fn write_csr(
        &self,
        job: Uuid,
        key: &PrivateKey,
        csr_pem: String,
    ) -> Result<NewCsr, StateError> {
        let spki = key.spki_hash().to_string();
        write_private(&self.key_path(&spki), key.to_pkcs8_pem().as_bytes())?;
        let made = NewCsr { spki, csr_pem };
        write_json(&self.path("csr").join(format!("{job}.json")), &made)?;
        Ok(made)
    }

    fn key_path(&self, spki: &str) -> PathBuf {
        self.path("keys").join(format!("{spki}.pem"))
    }

    /// Returns the private key that belongs to a public key, if the agent generated it.
    pub(super) fn key(&self, spki: &SpkiHash) -> Result<Option<PrivateKey>, JoinError> {
        read_key(&self.key_path(&spki.to_string()))
    }

    /// Records a deployed certificate, and removes the keys and CSRs that it replaces.
    pub(super) fn deployed(
        &self,
        certificate: Uuid,
        name: &str,
        material: &Material,
    ) -> Result<(), StateError> {
        let leaf = material.leaf();
        let spki = leaf.public_key.spki_sha256.to_string();
        let path = self.path("certificates").join(format!("{certificate}.json"));
        let before: Option<DeployedCertificate> = read_json(&path)?;
        let mut keys = before.map(|record| record.keys).unwrap_or_default();
        keys.retain(|known| *known != spki);
        keys.insert(0, spki.clone());
        let dropped = keys.split_off(keys.len().min(KEYS_KEPT));
        let record = DeployedCertificate {
            certificate,
            name: name.to_owned(),
            names: leaf.subject_alt_names.iter().map(name_text).collect(),
            fingerprint: leaf.fingerprint.to_string(),
            not_after: leaf.not_after.0,
            keys,
        };
        write_json(&path, &record)?;
        for key in dropped {
            remove(&self.key_path(&key))?;
        }
        self.remove_csrs_for_key(&spki)
    }

    /// Removes files that a crash left behind: half-written files, and keys that belong to neither a CSR nor a deployed
    /// certificate. The server does not know such a key.
    pub(super) fn remove_leftover_files(&self) -> Result<(), StateError> {
        for folder in FOLDERS {
            for path in self.files(folder, STAGED) {
                remove(&path)?;
            }
        }
        let mut known = std::collections::HashSet::new();
        for path in self.files("csr", "json") {
            known.extend(read_json::<NewCsr>(&path)?.map(|made| made.spki));
        }
        for path in self.files("certificates", "json") {
            known.extend(read_json::<DeployedCertificate>(&path)?.into_iter().flat_map(|record| record.keys));
        }
        for path in self.files("keys", "pem") {
            let name = path.file_stem().and_then(|name| name.to_str());
            if name.is_some_and(|name| !known.contains(name)) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the CSR of a deployed certificate, because the CSR is no longer needed.
    fn remove_csrs_for_key(&self, spki: &str) -> Result<(), StateError> {
        for path in self.files("csr", "json") {
            let made: Option<NewCsr> = read_json(&path).unwrap_or_default();
            if made.is_some_and(|made| made.spki == spki) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn files(&self, folder: &str, end: &str) -> Vec<PathBuf> {
        let Ok(listing) = std::fs::read_dir(self.path(folder)) else { return Vec::new() };
        let paths = listing.filter_map(|entry| Some(entry.ok()?.path()));
        paths.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
    }

    pub(super) fn status(&self) -> Result<Option<AgentStatus>, JoinError> {
        let (Some(settings), Some(identity)) = (self.settings()?, self.identity_folder.identity()?) else {
            return Ok(None);
        };
        let mut certificates: Vec<DeployedCertificate> = self
            .files("certificates", "json")
            .iter()
            .filter_map(|path| read_json(path).ok().flatten())
            .collect();
        certificates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Some(AgentStatus {
            agent: settings.agent,
            name: settings.name,
            server: settings.server,
            certificate_not_after: identity.leaf.not_after.0,
            cut_off: self.files("journal", "json").len(),
            certificates,
        }))
    }
}

#[cfg(test)]
mod tests {
    use keys::{KeyType, Signer as _};

    use super::*;

    #[test]
    fn key_is_found_by_its_public_key_and_unused_files_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let agent_folder = Folder::new(folder.path()).unwrap();
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let job = Uuid::now_v7();
        let made = agent_folder.write_csr(job, &key, "csr".to_owned()).unwrap();
        assert_eq!(agent_folder.load_csr(job).unwrap().unwrap().csr_pem, "csr");
        assert_eq!(made.spki, key.spki_hash().to_string());
        let found = agent_folder.key(&key.spki_hash()).unwrap().unwrap();
        assert_eq!(found.spki(), key.spki());
        assert!(agent_folder.key(&SpkiHash::of(b"other")).unwrap().is_none());
        // A key without a CSR is unused.
        let stray = PrivateKey::generate(KeyType::P256).unwrap();
        let path = agent_folder.key_path(&stray.spki_hash().to_string());
        std::fs::write(&path, stray.to_pkcs8_pem().as_bytes()).unwrap();
        // A half-written key file is unused too.
        let half = path.with_file_name("half.new");
        std::fs::write(&half, "-----BEGIN").unwrap();
        agent_folder.remove_leftover_files().unwrap();
        assert!(!path.exists() && !half.exists());
        assert!(agent_folder.key(&key.spki_hash()).unwrap().is_some());
    }
}
