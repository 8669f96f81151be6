//! The lock of the data folder: at most one control plane writes its files for local commands.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cli::exit::{Exit, Outcome, Problem};
use store::StoreUrl;

use crate::data_folder;

/// Name of the file that a control plane locks. It contains the process ID.
const LOCK: &str = "server.lock";

/// The ownership of the data folder's files. The lock lasts as long as the process.
pub(super) enum FolderLock {
    /// This process writes the files. `None` on a file system without locks.
    Own { _lock: Option<File> },
    /// Another node of the same PostgreSQL database has the lock. This process does not change the files.
    Other,
}

impl FolderLock {
    /// Locks the data folder.
    ///
    /// # Errors
    /// Another control plane runs with this folder, and its database is SQLite: one process at a time may serve such a database.
    pub(super) fn take(url: &StoreUrl) -> Outcome<Self> {
        let folder = data_folder::folder()?;
        let path = folder.join(LOCK);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = match options.open(&path) {
            Ok(lock) => lock,
            // A server also starts on a full disk.
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the data folder is not locked");
                return Ok(Self::Own { _lock: None });
            }
        };
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if url.is_postgres() => {
                let process = owner(&mut lock);
                tracing::info!(
                    process,
                    folder = %folder.display(),
                    "another process owns the data folder: commands on this machine keep its addresses"
                );
                Ok(Self::Other)
            }
            Err(TryLockError::WouldBlock) => Err(in_use(&folder, &owner(&mut lock))),
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the data folder cannot be locked");
                Ok(Self::Own { _lock: None })
            }
            Ok(()) => {
                write_owner(&mut lock);
                Ok(Self::Own { _lock: Some(lock) })
            }
        }
    }

    /// Returns whether this process writes the files for commands on this machine.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }
}

/// Writes the process ID for messages of other processes. It is not needed for the lock, so a full disk is no error.
fn write_owner(lock: &mut File) {
    let written = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
    if let Err(error) = written {
        tracing::debug!(%error, "cannot write the process ID to the lock of the data folder");
    }
}

fn owner(lock: &mut File) -> String {
    let mut text = String::new();
    // The process ID may be unreadable, if the other process belongs to another user. The message then omits the ID.
    let _ = lock.rewind().and_then(|()| lock.read_to_string(&mut text));
    text.trim().to_owned()
}

fn in_use(folder: &Path, process: &str) -> Problem {
    let folder = folder.display();
    let process = if process.is_empty() { String::new() } else { format!(" (process {process})") };
    Problem::new(Exit::Machine, format_args!("another bulla{process} runs with the data folder {folder}"))
        .hint(
            "stop that process, or set BULLA_DATA to another folder; several processes need PostgreSQL: \
         --db postgres://USER@HOST/DATABASE",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_the_process_and_what_to_do() {
        let problem = in_use(Path::new("/srv/bulla"), "42");
        assert_eq!(problem.message, "another bulla (process 42) runs with the data folder /srv/bulla");
        assert!(problem.hint.is_some_and(|hint| hint.contains("BULLA_DATA")));
        assert!(!in_use(Path::new("/srv/bulla"), "").message.contains("process"));
    }
}
