//! Whether a file is the one that was looked at before.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// What tells that a file is another than it was: its owner and mode change `inode_changed` alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileStamp {
    pub(crate) inode: u64,
    pub(crate) octets: u64,
    /// Seconds, and nanoseconds of the next one.
    pub(crate) modified: (i64, i64),
    pub(crate) inode_changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of a file's metadata.
    #[must_use]
    pub fn of(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            octets: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            inode_changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}
