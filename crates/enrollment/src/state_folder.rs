//! The private directory of an agent or a node: files that only their owner may read, written atomically.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Reason why a private directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The operating system returned an error.
    #[error("{path}: cannot {what}: {reason}")]
    System {
        /// Path of the file or directory.
        path: PathBuf,
        /// The attempted operation.
        what: &'static str,
        /// The error of the operating system.
        reason: String,
    },
    /// Other users can read the keys in the directory.
    #[error("{0} must belong to the user that runs this process and be closed to others (chmod 700)")]
    Open(PathBuf),
    /// The file is corrupt, or another program wrote it.
    #[error("{path} cannot be parsed: {reason}")]
    Corrupt {
        /// Path of the corrupt file.
        path: PathBuf,
        /// The error of the parser.
        reason: String,
    },
    /// Another process uses the directory.
    #[error("another agent uses {0}; stop it first")]
    Locked(PathBuf),
}

/// Creates a directory that only its owner may enter, and its parents.
///
/// # Errors
/// [`StateError::System`]
pub fn make_folder(path: &Path) -> Result<(), StateError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| failed(path, "create the folder", &error))
}

/// Extension of a file until it is completely written. A file with this extension that a crash left behind is removed.
pub const STAGED: &str = "new";

/// Writes a file that only its owner may read, atomically and synced to disk.
///
/// # Errors
/// [`StateError::System`]
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), StateError> {
    let staged = path.with_extension(STAGED);
    let written = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&staged)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&staged, path));
    if let Err(error) = written {
        // The file may contain a part of a key. If it cannot be removed now, the next start removes it.
        let _ = std::fs::remove_file(&staged);
        return Err(failed(path, "write", &error));
    }
    sync_parent_folder(path)
}

/// Removes a file if it exists, and syncs the change to disk.
///
/// # Errors
/// [`StateError::System`]
pub fn remove(path: &Path) -> Result<(), StateError> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_parent_folder(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path, "remove", &error)),
    }
}

fn sync_parent_folder(path: &Path) -> Result<(), StateError> {
    let folder = path.parent().unwrap_or(path);
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| failed(folder, "sync the folder to disk", &error))
}

/// Writes a value as JSON, with [`write_private`].
///
/// # Errors
/// [`StateError`]
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StateError> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(|error| StateError::Corrupt { path: path.to_owned(), reason: error.to_string() })?;
    write_private(path, &Zeroizing::new(text))
}

/// Reads a value from JSON. `None` when the file does not exist.
///
/// # Errors
/// [`StateError::Corrupt`] when the file does not contain such a value; [`StateError::System`]
pub fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, StateError> {
    let text = match std::fs::read(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, "read", &error)),
    };
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|error| StateError::Corrupt { path: path.to_owned(), reason: error.to_string() })
}

/// Converts an error of the operating system.
#[must_use]
pub fn failed(path: &Path, what: &'static str, error: &std::io::Error) -> StateError {
    StateError::System { path: path.to_owned(), what, reason: error.to_string() }
}
