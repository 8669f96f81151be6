//! A node's directory: its identity, its keys, and the last state from the server.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use enrollment::client::{IdentityFolder, JoinError};
use enrollment::state_folder::{StateError, failed, read_json, remove, write_json, write_private};
use keyless::places::SignedStatement;
use keys::sealed::NodeKey;
use keys::{Context, Keyring};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

/// Identity of the node and address of its control plane.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    pub(super) node: Uuid,
    pub(super) name: String,
    pub(super) site: String,
    pub(super) server: String,
    /// SHA-256 of the server's certificate, or of a CA certificate in the chain that the server sends. Used when there is no file
    /// of trust anchors.
    pub(super) pin: Option<String>,
    /// The public key that verifies statements, DER in base64.
    pub(super) statement_key: String,
    /// The CA certificates of all nodes in PEM.
    pub(super) nodes_ca_pem: String,
}

/// The members that the node last knew of.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct KnownMembers {
    pub(super) since: i64,
    pub(super) nodes: Vec<SignedStatement>,
    /// Nodes whose heartbeats the control plane does not receive.
    #[serde(default)]
    pub(super) absent: Vec<SignedStatement>,
}

/// The context to which the node's own key is sealed.
const KEM: Context<'_> = Context { table: "key-node", row: b"kem", column: "key" };

fn broken(path: &Path, error: &dyn std::fmt::Display) -> JoinError {
    JoinError::Identity(format!("{}: {error}", path.display()))
}

/// Reads a file. `None` when it does not exist.
fn read_if_exists(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, JoinError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(broken(path, &error)),
    }
}

fn key_at(path: &Path) -> Result<Option<NodeKey>, JoinError> {
    let bytes = read_if_exists(path)?;
    bytes.map(|bytes| NodeKey::from_bytes(&bytes).map_err(|error| broken(path, &error))).transpose()
}

/// Generates a key, and returns it after `keep` has stored it.
fn new_key(keep: impl FnOnce(&[u8]) -> Result<(), JoinError>) -> Result<NodeKey, JoinError> {
    let new_key = NodeKey::generate().map_err(|error| JoinError::Identity(error.to_string()))?;
    keep(&*new_key.to_bytes())?;
    Ok(new_key)
}

/// The node's directory. Only its owner may enter it.
#[derive(Clone, Debug)]
pub(super) struct Folder(IdentityFolder);

impl Folder {
    pub(super) fn new(root: &Path) -> Result<Self, StateError> {
        Ok(Self(IdentityFolder::new(root)?))
    }

    pub(super) fn joined(&self) -> &IdentityFolder {
        &self.0
    }

    pub(super) fn settings(&self) -> Result<Option<Settings>, StateError> {
        read_json(&self.0.path("node.json"))
    }

    pub(super) fn write_settings(&self, settings: &Settings) -> Result<(), StateError> {
        write_json(&self.0.path("node.json"), settings)
    }

    /// Returns the key to which policy keys are wrapped. It is stored under the master key of `custody`, or unencrypted without
    /// one.
    ///
    /// An unencrypted key is encrypted once there is a master key. An encrypted key is not read without its master key, and no new
    /// key replaces it.
    pub(super) fn load_or_create_kem_key(&self, custody: Option<&Keyring>) -> Result<NodeKey, JoinError> {
        let (clear, sealed) = (self.0.path("kem.key"), self.0.path("kem.sealed"));
        let Some(ring) = custody else {
            if sealed.exists() {
                return Err(broken(
                    &sealed,
                    &"the key is sealed under a master key: name the master key in keys.node.seed_key",
                ));
            }
            return Ok(match key_at(&clear)? {
                Some(key) => key,
                None => new_key(|bytes| Ok(write_private(&clear, bytes)?))?,
            });
        };
        if let Some(bytes) = read_if_exists(&sealed)? {
            let opened = ring.open_sealed(&KEM, &bytes).map_err(|error| broken(&sealed, &error))?;
            return NodeKey::from_bytes(&opened).map_err(|error| broken(&sealed, &error));
        }
        let seal = |bytes: &[u8]| Ok(write_private(&sealed, &ring.seal(&KEM, bytes))?);
        let Some(key) = key_at(&clear)? else { return new_key(seal) };
        seal(&*key.to_bytes())?;
        remove(&clear)?;
        Ok(key)
    }

    /// Returns whether the control plane rejected the node in the last request.
    pub(super) fn is_suspended(&self) -> bool {
        self.0.path("suspended").exists()
    }

    pub(super) fn suspend(&self, suspended: bool) -> Result<(), StateError> {
        let path = self.0.path("suspended");
        if suspended { write_private(&path, b"") } else { remove(&path) }
    }

    pub(super) fn members(&self) -> Result<KnownMembers, StateError> {
        Ok(read_json(&self.0.path("members.json"))?.unwrap_or_default())
    }

    pub(super) fn write_members(&self, members: &KnownMembers) -> Result<(), StateError> {
        write_json(&self.0.path("members.json"), members)
    }

    /// Returns the log of pages with sealed keys.
    pub(super) fn pages(&self) -> JsonLinesLog {
        JsonLinesLog { path: self.0.path("sealed.log") }
    }
}

/// A log of values, each a line of JSON. An incomplete last line, left by a crash, is ignored.
pub(super) struct JsonLinesLog {
    path: std::path::PathBuf,
}

impl JsonLinesLog {
    /// Returns all complete pages. Truncates an incomplete last one.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, StateError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("read", &error)),
        };
        let (mut values, mut complete_len, mut line) = (Vec::new(), 0, Vec::new());
        let mut reader = BufReader::new(file);
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line).map_err(|error| self.failed("read", &error))?;
            if count == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let Ok(value) = serde_json::from_slice(&line) else { break };
            values.push(value);
            complete_len += count as u64;
        }
        self.truncate(complete_len)?;
        Ok(values)
    }

    fn truncate(&self, bytes: u64) -> Result<(), StateError> {
        let file = OpenOptions::new().write(true).open(&self.path);
        file.and_then(|file| file.set_len(bytes)).map_err(|error| self.failed("cut", &error))
    }

    /// Appends a value and syncs it to disk. On an error nothing is appended.
    pub(super) fn append(&self, value: &impl Serialize) -> Result<(), StateError> {
        let (line, before) = (self.line(value)?, self.bytes());
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(&line).and_then(|()| file.sync_data()));
        written.map_err(|error| {
            // A partial line would corrupt the next one.
            let _ = self.truncate(before);
            self.failed("write", &error)
        })
    }

    /// Replaces the whole log by this value.
    pub(super) fn replace(&self, value: &impl Serialize) -> Result<(), StateError> {
        write_private(&self.path, &self.line(value)?)
    }

    fn line(&self, value: &impl Serialize) -> Result<Vec<u8>, StateError> {
        let mut line = serde_json::to_vec(value)
            .map_err(|error| StateError::Corrupt { path: self.path.clone(), reason: error.to_string() })?;
        line.push(b'\n');
        Ok(line)
    }

    /// Returns the size of the log in bytes.
    pub(super) fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    fn failed(&self, what: &'static str, error: &std::io::Error) -> StateError {
        failed(&self.path, what, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_log_entry_is_ignored_and_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let log = Folder::new(folder.path()).unwrap().pages();
        assert!(log.read::<u32>().unwrap().is_empty());
        (1..=3).for_each(|n| log.append(&n).unwrap());
        let path = folder.path().join("sealed.log");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend(b"{\"half");
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(log.read::<u32>().unwrap(), [1, 2, 3]);
        log.append(&4).unwrap();
        assert_eq!(log.read::<u32>().unwrap(), [1, 2, 3, 4]);
        log.replace(&9).unwrap();
        assert_eq!(log.read::<u32>().unwrap(), [9]);
    }

    #[test]
    fn node_key_is_generated_once() {
        let folder = tempfile::tempdir().unwrap();
        let node_folder = Folder::new(folder.path()).unwrap();
        let new_key = node_folder.load_or_create_kem_key(None).unwrap();
        assert_eq!(node_folder.load_or_create_kem_key(None).unwrap().public(), new_key.public());
        std::fs::write(folder.path().join("kem.key"), "short").unwrap();
        assert!(node_folder.load_or_create_kem_key(None).unwrap_err().to_string().contains("kem.key"));
    }

    /// A thief of the disk has a copy of the directory, but no master key.
    #[test]
    fn stolen_folder_does_not_reveal_the_node_key() {
        let folder = tempfile::tempdir().unwrap();
        let node_folder = Folder::new(folder.path()).unwrap();
        let ring = Keyring::ephemeral();
        let new_key = node_folder.load_or_create_kem_key(Some(&ring)).unwrap();
        assert_eq!(node_folder.load_or_create_kem_key(Some(&ring)).unwrap().public(), new_key.public());
        let (stolen, bytes) = (tempfile::tempdir().unwrap(), new_key.to_bytes());
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            let content = std::fs::read(&path).unwrap();
            assert!(!content.windows(bytes.len()).any(|part| *part == bytes[..]), "{}", path.display());
            std::fs::write(stolen.path().join(path.file_name().unwrap()), content).unwrap();
        }
        let thief = Folder::new(stolen.path()).unwrap();
        for custody in [None, Some(Keyring::ephemeral())] {
            let error = thief.load_or_create_kem_key(custody.as_ref()).unwrap_err().to_string();
            assert!(error.contains("kem.sealed"), "{error}");
        }
        assert!(!stolen.path().join("kem.key").exists(), "no other key is made in its place");
        assert_eq!(thief.load_or_create_kem_key(Some(&ring)).unwrap().public(), new_key.public());
    }

    #[test]
    fn plaintext_node_key_is_migrated_under_the_master_key() {
        let folder = tempfile::tempdir().unwrap();
        let node_folder = Folder::new(folder.path()).unwrap();
        let ring = Keyring::ephemeral();
        let new_key = node_folder.load_or_create_kem_key(None).unwrap();
        assert_eq!(node_folder.load_or_create_kem_key(Some(&ring)).unwrap().public(), new_key.public());
        assert!(!folder.path().join("kem.key").exists());
        assert!(node_folder.load_or_create_kem_key(None).is_err());
        assert_eq!(node_folder.load_or_create_kem_key(Some(&ring)).unwrap().public(), new_key.public());
    }
}
