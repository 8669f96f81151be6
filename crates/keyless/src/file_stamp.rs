//! Detection of file changes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Metadata that identify the version of a file. A change of owner or mode updates only `inode_changed`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileStamp {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Modification time: seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
    pub(crate) inode_changed: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of a file's metadata.
    #[must_use]
    pub fn of(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            size: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            inode_changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}
