//! The agent's folder: its identity, its keys, its certificates.

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

/// Folders in the agent's own.
const FOLDERS: [&str; 3] = ["keys", "csr", "certificates"];
/// Keys kept for a certificate: the one in use, and the one before it for a version that is put back.
const KEYS_KEPT: usize = 2;

/// Who the agent is and where its server is.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    pub(super) agent: Uuid,
    pub(super) name: String,
    pub(super) server: String,
    /// SHA-256 of the certificate the server is trusted by, where there is no file of them.
    pub(super) pin: Option<String>,
}

/// A CSR that was made for a job: the same job gets the same one.
#[derive(Deserialize, Serialize)]
pub(super) struct NewCsr {
    pub(super) spki: String,
    pub(super) csr_pem: String,
}

/// A certificate the agent has deployed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeployedCertificate {
    /// The managed certificate.
    pub certificate: Uuid,
    /// Its name.
    pub name: String,
    /// Names in the leaf.
    pub names: Vec<String>,
    /// SHA-256 of the leaf.
    pub fingerprint: String,
    /// End of its validity, seconds since 1970 UTC.
    pub not_after: i64,
    /// SHA-256 of the public keys kept for it, the newest first.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// The state of an agent's folder.
#[derive(Clone, Debug, Serialize)]
pub struct AgentStatus {
    /// The agent.
    pub agent: Uuid,
    /// Its name.
    pub name: String,
    /// Its server.
    pub server: String,
    /// End of its client certificate's validity, seconds since 1970 UTC.
    pub certificate_not_after: i64,
    /// Deployments that were cut off and are undone at the next start.
    pub cut_off: usize,
    /// The deployed certificates.
    pub certificates: Vec<DeployedCertificate>,
}

/// The agent's folder. Its lock is the deployer's.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    root: PathBuf,
    joined: IdentityFolder,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Result<Self, StateError> {
        make_folder(root)?;
        for name in FOLDERS {
            make_folder(&root.join(name))?;
        }
        Ok(Self { root: root.to_owned(), joined: IdentityFolder::new(root)? })
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

    /// The agent's client certificate, and its trust anchors for the server.
    pub(super) fn joined(&self) -> &IdentityFolder {
        &self.joined
    }

    pub(super) fn made_csr(&self, job: Uuid) -> Result<Option<NewCsr>, StateError> {
        read_json(&self.path("csr").join(format!("{job}.json")))
    }

    /// The key first: a CSR whose key is lost is worth nothing.
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

    /// The key of a public key, if it was made here.
    pub(super) fn key(&self, spki: &SpkiHash) -> Result<Option<PrivateKey>, JoinError> {
        read_key(&self.key_path(&spki.to_string()))
    }

    /// Notes what was deployed, and lets go of keys and CSRs that it replaces.
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
        let mut keys = before.map(|held| held.keys).unwrap_or_default();
        keys.retain(|known| *known != spki);
        keys.insert(0, spki.clone());
        let dropped = keys.split_off(keys.len().min(KEYS_KEPT));
        let held = DeployedCertificate {
            certificate,
            name: name.to_owned(),
            names: leaf.subject_alt_names.iter().map(name_text).collect(),
            fingerprint: leaf.fingerprint.to_string(),
            not_after: leaf.not_after.0,
            keys,
        };
        write_json(&path, &held)?;
        for key in dropped {
            remove(&self.key_path(&key))?;
        }
        self.drop_csrs_of(&spki)
    }

    /// Removes what a crash left: files that were being written, and keys that nothing refers to, as the crash came
    /// between a key and its CSR, so nobody has heard of them.
    pub(super) fn drop_strays(&self) -> Result<(), StateError> {
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
            known.extend(read_json::<DeployedCertificate>(&path)?.into_iter().flat_map(|held| held.keys));
        }
        for path in self.files("keys", "pem") {
            let name = path.file_stem().and_then(|name| name.to_str());
            if name.is_some_and(|name| !known.contains(name)) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// A deployed certificate's CSR has done its work.
    fn drop_csrs_of(&self, spki: &str) -> Result<(), StateError> {
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
        let (Some(settings), Some(identity)) = (self.settings()?, self.joined.identity()?) else {
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
    fn a_key_is_known_by_its_public_half_only() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Folder::new(folder.path()).unwrap();
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let job = Uuid::now_v7();
        let made = kept.write_csr(job, &key, "csr".to_owned()).unwrap();
        assert_eq!(kept.made_csr(job).unwrap().unwrap().csr_pem, "csr");
        assert_eq!(made.spki, key.spki_hash().to_string());
        let found = kept.key(&key.spki_hash()).unwrap().unwrap();
        assert_eq!(found.spki(), key.spki());
        assert!(kept.key(&SpkiHash::of(b"other")).unwrap().is_none());
        // A key without a CSR is nobody's.
        let stray = PrivateKey::generate(KeyType::P256).unwrap();
        let path = kept.key_path(&stray.spki_hash().to_string());
        std::fs::write(&path, stray.to_pkcs8_pem().as_bytes()).unwrap();
        // Nor is one that was being written.
        let half = path.with_file_name("half.new");
        std::fs::write(&half, "-----BEGIN").unwrap();
        kept.drop_strays().unwrap();
        assert!(!path.exists() && !half.exists());
        assert!(kept.key(&key.spki_hash()).unwrap().is_some());
    }
}
