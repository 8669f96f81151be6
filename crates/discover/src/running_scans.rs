//! The running scans of this machine. Each scan has a locked file in the data folder. If a scan's process is killed, the lock
//! becomes free, so the scan is then marked as interrupted.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cli::exit::{Outcome, Problem, chain};
use store::{ScanState, Scans, Store, StoreError};
use uuid::Uuid;

/// Name of the folder of lock files in the data folder.
const FOLDER: &str = "scans";

/// The lock of a running scan. [`Self::end`] removes the lock file. If `end` is not called, the scan counts as killed.
#[derive(Debug)]
pub(crate) struct RunningScan {
    path: PathBuf,
    _lock: File,
}

impl RunningScan {
    /// Locks a scan. Returns `None` without a writable data folder: other processes can then not detect that this one was killed.
    ///
    /// # Errors
    /// Another process runs the scan.
    pub(crate) fn begin(scan: Uuid) -> Outcome<Option<Self>> {
        let Ok(folder) = cli::data::folder() else { return Ok(None) };
        match Self::locked(&folder.join(FOLDER), scan) {
            Ok(Some(running)) => Ok(Some(running)),
            Ok(None) => Err(Problem::usage(format_args!("another process runs the scan {scan}"))
                .hint("wait until it ends, or stop it and resume the scan again")),
            Err(error) => {
                tracing::debug!(%error, "cannot lock the scan: if it is killed, it stays in the state running");
                Ok(None)
            }
        }
    }

    /// Creates and locks the file of a scan. Returns `None` if another process has the lock.
    fn locked(folder: &Path, scan: Uuid) -> io::Result<Option<Self>> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let path = folder.join(scan.to_string());
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path, _lock: lock })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Removes the file, once the database has the state of the scan, and the folder of lock files if it is empty.
    pub(crate) fn end(self) {
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Marks the running scans of killed processes of this machine as interrupted.
pub async fn mark_killed(store: &Store) {
    let Ok(folder) = cli::data::folder() else { return };
    mark_killed_in(&folder.join(FOLDER), store).await;
}

async fn mark_killed_in(folder: &Path, store: &Store) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for scan in names.filter_map(|name| name.parse::<Uuid>().ok()) {
        let Ok(Some(killed)) = RunningScan::locked(folder, scan) else { continue };
        match mark(store, scan).await {
            Ok(true) => killed.end(),
            // The scan is in another database.
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(error = chain(&error), %scan, "cannot mark a killed scan as interrupted");
            }
        }
    }
}

/// Marks a running scan as interrupted. Returns false if the database does not have the scan.
async fn mark(store: &Store, scan: Uuid) -> Result<bool, StoreError> {
    let Some(row) = Scans::of(store).get(scan).await? else { return Ok(false) };
    if row.state == ScanState::Running {
        Scans::of(store).interrupt(scan).await?;
    }
    Ok(true)
}
