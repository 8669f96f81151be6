//! The agent's state directory: backups from before each deployment, and journals of deployments in progress.
//!
//! A deployment's journal is written before the first file changes and removed after the last check. While the journal exists, the
//! backup that it names contains the previous files. Any process that finds a journal restores these files.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use enrollment::state_folder::{
    StateError, failed, make_folder, read_json, remove, write_json, write_private,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::file::Attributes;
use super::hook::Hook;

/// Number of backups that are kept for each target.
pub const BACKUPS_KEPT: usize = 3;

/// Progress of a deployment.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Files were being written. The server was not reloaded yet.
    Writing,
    /// The server may have loaded the new files.
    Reloading,
}

/// A deployment in progress.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Journal {
    pub(crate) target: Uuid,
    pub(crate) phase: Phase,
    /// Number of the backup that has the previous files.
    pub(crate) backup: u64,
    pub(crate) reload: Option<Hook>,
}

/// List of the files in a backup.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Manifest {
    pub(crate) files: Vec<BackupFile>,
}

/// One file of a backup. Its content is stored in a file that is named after the position of this entry in the manifest.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct BackupFile {
    /// Path as given in the target. Links are resolved again on restore.
    pub(crate) path: PathBuf,
    /// Attributes of the file. `None` when it did not exist.
    pub(crate) attributes: Option<Attributes>,
}

/// The agent's state directory, locked for one process.
#[derive(Debug)]
pub(crate) struct StateFolder {
    root: PathBuf,
    _lock: File,
}

impl StateFolder {
    /// Opens and locks the directory, or creates it.
    pub(crate) fn open(root: &Path) -> Result<Self, StateError> {
        make_folder(root)?;
        let found = root.metadata().map_err(|error| failed(root, "look at", &error))?;
        if found.mode() & 0o077 != 0 || found.uid() != crate::accounts::own().0 {
            return Err(StateError::Open(root.to_owned()));
        }
        for name in ["journal", "backups", "exec"] {
            make_folder(&root.join(name))?;
        }
        let path = root.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = lock.map_err(|error| failed(&path, "open", &error))?;
        take(&lock).map_err(|_| StateError::Locked(root.to_owned()))?;
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory for the files of an `exec` target.
    pub(crate) fn exec_folder(&self, target: Uuid) -> Result<PathBuf, StateError> {
        let folder = self.exec_path(target);
        make_folder(&folder)?;
        Ok(folder)
    }

    pub(crate) fn exec_path(&self, target: Uuid) -> PathBuf {
        self.root.join("exec").join(target.to_string())
    }

    pub(crate) fn journal_path(&self, target: Uuid) -> PathBuf {
        self.root.join("journal").join(format!("{target}.json"))
    }

    pub(crate) fn write_journal(&self, journal: &Journal) -> Result<(), StateError> {
        write_json(&self.journal_path(journal.target), journal)
    }

    pub(crate) fn journal(&self, target: Uuid) -> Result<Option<Journal>, StateError> {
        read_json(&self.journal_path(target))
    }

    pub(crate) fn remove_journal(&self, target: Uuid) -> Result<(), StateError> {
        remove(&self.journal_path(target))
    }

    /// Returns the journals of all interrupted deployments. A journal that cannot be read is an error: the previous files are then
    /// unknown.
    pub(crate) fn journals(&self) -> Result<Vec<Journal>, StateError> {
        let mut found = Vec::new();
        for path in entries(&self.root.join("journal"))? {
            if path.extension().is_some_and(|extension| extension == "json") {
                found.extend(read_json(&path)?);
            } else {
                // A half-written journal: no file was changed yet.
                remove(&path)?;
            }
        }
        Ok(found)
    }

    fn backup_folder(&self, target: Uuid, number: u64) -> PathBuf {
        self.root.join("backups").join(target.to_string()).join(format!("{number:020}"))
    }

    /// Returns the numbers of the complete backups, oldest first.
    pub(crate) fn backups(&self, target: Uuid) -> Result<Vec<u64>, StateError> {
        let folder = self.root.join("backups").join(target.to_string());
        make_folder(&folder)?;
        let names = entries(&folder)?;
        let whole = names.iter().filter(|path| path.join("manifest.json").exists());
        let mut numbers: Vec<u64> =
            whole.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Backs up the current files and syncs them to disk. The manifest is written last: a backup without a manifest is incomplete.
    pub(crate) fn write_backup(
        &self,
        target: Uuid,
        files: &[(BackupFile, Option<Zeroizing<Vec<u8>>>)],
    ) -> Result<u64, StateError> {
        let number = self.backups(target)?.last().map_or(1, |last| last + 1);
        let folder = self.backup_folder(target, number);
        make_folder(&folder)?;
        for (position, (_, content)) in files.iter().enumerate() {
            if let Some(content) = content {
                write_private(&folder.join(position.to_string()), content)?;
            }
        }
        let manifest = Manifest { files: files.iter().map(|(backup_file, _)| backup_file.clone()).collect() };
        write_json(&folder.join("manifest.json"), &manifest)?;
        Ok(number)
    }

    /// Reads a backup with the contents of its files.
    pub(crate) fn read_backup(
        &self,
        target: Uuid,
        number: u64,
    ) -> Result<Vec<(BackupFile, Option<Zeroizing<Vec<u8>>>)>, StateError> {
        let folder = self.backup_folder(target, number);
        let path = folder.join("manifest.json");
        let manifest: Manifest = read_json(&path)?
            .ok_or_else(|| StateError::Corrupt { path, reason: "the file is missing".to_owned() })?;
        let mut files = Vec::with_capacity(manifest.files.len());
        for (position, backup_file) in manifest.files.into_iter().enumerate() {
            let path = folder.join(position.to_string());
            let content = match backup_file.attributes {
                Some(_) => {
                    let read = std::fs::read(&path).map_err(|error| failed(&path, "read", &error))?;
                    Some(Zeroizing::new(read))
                }
                None => None,
            };
            files.push((backup_file, content));
        }
        Ok(files)
    }

    /// Deletes all backups of a target except the newest [`BACKUPS_KEPT`].
    pub(crate) fn prune_backups(&self, target: Uuid) -> Result<(), StateError> {
        let numbers = self.backups(target)?;
        for number in &numbers[..numbers.len().saturating_sub(BACKUPS_KEPT)] {
            let folder = self.backup_folder(target, *number);
            std::fs::remove_dir_all(&folder).map_err(|error| failed(&folder, "remove", &error))?;
        }
        Ok(())
    }

    /// Removes everything stored for a deleted target.
    pub(crate) fn forget(&self, target: Uuid) -> Result<(), StateError> {
        for name in ["backups", "exec"] {
            let folder = self.root.join(name).join(target.to_string());
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(&folder, "remove", &error));
                }
                _ => {}
            }
        }
        self.remove_journal(target)
    }
}

/// Takes the lock. Retries for a second: a process that was just forked holds its parent's lock until it calls exec.
fn take(lock: &File) -> Result<(), rustix::io::Errno> {
    let mut tries = 20;
    loop {
        match rustix::fs::flock(lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Err(_) if tries > 0 => std::thread::sleep(std::time::Duration::from_millis(50)),
            result => return result,
        }
        tries -= 1;
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, StateError> {
    let listed = std::fs::read_dir(folder).and_then(|list| list.map(|entry| Ok(entry?.path())).collect());
    listed.map_err(|error: std::io::Error| failed(folder, "list", &error))
}
