//! The disk of the database, and its free space.

use std::fmt;
use std::path::{Path, PathBuf};

/// Free bytes below which a disk counts as full. A batch commit needs a few hundred KiB, and SQLite's log grows before the database
/// file does.
pub const DISK_FREE_BYTES_MIN: u64 = 1 << 20;

/// The disk that stores a database, with its free space.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Disk {
    /// Path of the database file. `None` for the disk of a database server.
    pub path: Option<PathBuf>,
    /// Bytes that are free for this process. `None` when unknown.
    pub free_bytes: Option<u64>,
}

impl Disk {
    /// Returns the current state of the disk that contains `path`.
    pub(crate) fn of(path: &Path) -> Self {
        // An empty directory name means the working directory.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let found = rustix::fs::statvfs(path).or_else(|_| rustix::fs::statvfs(parent));
        let free_bytes = found.ok().map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        Self { path: Some(path.to_owned()), free_bytes }
    }

    /// Returns whether fewer than [`DISK_FREE_BYTES_MIN`] bytes are free.
    pub(crate) fn is_full(&self) -> bool {
        self.free_bytes.is_some_and(|bytes| bytes < DISK_FREE_BYTES_MIN)
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "the disk of {}", path.display())?,
            None => f.write_str("the disk of the database server")?,
        }
        self.free_bytes.map_or(Ok(()), |bytes| write!(f, " ({bytes} bytes free)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_display_includes_path_and_free_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not-there-yet.db");
        let disk = Disk::of(&path);
        assert!(disk.free_bytes.is_some());
        let text = Disk { free_bytes: Some(7), ..disk }.to_string();
        assert_eq!(text, format!("the disk of {} (7 bytes free)", path.display()));
        assert_eq!(Disk::default().to_string(), "the disk of the database server");
        assert!(!Disk::default().is_full(), "nobody knows");
    }
}
