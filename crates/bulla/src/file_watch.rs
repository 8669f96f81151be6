//! Detects whether a file has changed and is no longer being written.

use std::path::Path;
use std::time::{Duration, SystemTime};

/// Interval of checks of the configuration file.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The modification time, the length and the inode of a file; `None` without a file. A different stamp means different content.
pub(crate) type FileStamp = Option<(SystemTime, u64, u64)>;

/// The stamps of a file that is polled.
#[derive(Debug)]
pub(crate) struct FileWatch {
    /// The stamp of the file when it was last read.
    read: FileStamp,
    /// The stamp of the file at the last poll.
    polled: FileStamp,
}

impl FileWatch {
    pub(crate) fn new(stamp: FileStamp) -> Self {
        Self { read: stamp, polled: stamp }
    }

    /// Returns whether the file with this stamp should be read. Its content must have changed, and the last poll must have found the same
    /// stamp: then the file is not being written.
    pub(crate) fn is_ready_to_read(&mut self, now: FileStamp) -> bool {
        let is_steady = std::mem::replace(&mut self.polled, now) == now;
        is_steady && now != self.read
    }

    /// Returns whether the content that was read is complete: the file has the same stamp before and after the read. If not, the
    /// next polls decide when to read again.
    pub(crate) fn confirm_read(&mut self, before: FileStamp, after: FileStamp) -> bool {
        self.polled = after;
        if before == after {
            self.read = after;
        }
        before == after
    }
}

/// Returns the current stamp of a file.
pub(crate) fn stamp(file: Option<&Path>) -> FileStamp {
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(file?).ok()?;
    Some((about.modified().ok()?, about.len(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_is_read_only_after_it_stops_changing() {
        let stamp = |size| Some((SystemTime::UNIX_EPOCH, size, 1));
        let mut watch = FileWatch::new(stamp(1));
        assert!(!watch.is_ready_to_read(stamp(1)), "it was read");
        for size in 2..5 {
            assert!(!watch.is_ready_to_read(stamp(size)), "it grows: {size}");
        }
        assert!(watch.is_ready_to_read(stamp(4)));
        // The file grew while it was read, so the content is incomplete.
        assert!(!watch.confirm_read(stamp(4), stamp(5)));
        assert!(watch.is_ready_to_read(stamp(5)));
        assert!(watch.confirm_read(stamp(5), stamp(5)));
        assert!(!watch.is_ready_to_read(stamp(5)), "once is enough");
        assert!(!watch.is_ready_to_read(None) && watch.is_ready_to_read(None), "one that is gone is told of");
    }
}
