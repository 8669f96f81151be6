//! The temporary folder of a run. It is removed at the end of the run, or by the next run if the process was killed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use cli::exit::{Exit, Outcome, Problem};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

/// Name prefix of folders that are locked by their runs.
const PREFIX: &str = "bulla-run-";
/// Name prefix of folders that are not locked yet. They are empty.
const NEW_PREFIX: &str = "bulla-new-run-";

/// The folder of this run. The lock lasts as long as the process.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// Creates a folder in `parent`, after removing the folders of ended runs.
    pub(super) fn make(parent: &Path) -> Outcome<Self> {
        remove_abandoned(parent);
        let name = uuid::Uuid::new_v4().simple();
        let (new, path) =
            (parent.join(format!("{NEW_PREFIX}{name}")), parent.join(format!("{PREFIX}{name}")));
        let make = || -> io::Result<File> {
            DirBuilder::new().mode(0o700).create(&new)?;
            let lock = opened(&new)?;
            // On a file system without locks, other runs cannot take the lock either, so they never remove this folder.
            let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
            fs::rename(&new, &path)?;
            Ok(lock)
        };
        let lock = make().map_err(|error| write_error(&path, &error))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, folder = %self.path.display(), "cannot remove the folder of this run");
        }
    }
}

/// Opens a folder, without following a link.
fn opened(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(folder, flags, Mode::empty())?.into())
}

/// Removes the folders of this user's killed runs. Their locks are free.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let user = rustix::process::geteuid().as_raw();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(PREFIX) && is_abandoned(&path, user) {
            let removed = fs::remove_dir_all(&path);
            tracing::debug!(?removed, folder = %path.display(), "removed the folder of a run that was killed");
        }
    }
}

fn is_abandoned(folder: &Path, user: u32) -> bool {
    let Ok(folder) = opened(folder) else { return false };
    folder.metadata().is_ok_and(|found| found.uid() == user)
        && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
}

pub(super) fn write_error(path: &Path, error: &io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
        .hint("set TMPDIR to a folder that you may write to")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_runs_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join("bulla-run-1");
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join("roots.pem"), "roots").unwrap();
        let target = parent.path().join("other");
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, parent.path().join("bulla-run-2")).unwrap();
        let first = RunFolder::make(parent.path()).unwrap();
        assert!(!abandoned.exists() && target.exists());
        let second = RunFolder::make(parent.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        let removed = first.path().to_owned();
        drop(first);
        assert!(!removed.exists() && second.path().exists());
    }
}
