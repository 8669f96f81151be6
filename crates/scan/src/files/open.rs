//! Opens and reads regular files of limited size. Devices, pipes and sockets are never opened.

use std::fs::{File, FileType, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::error::FileError;

/// Maximum bytes read of a file. The largest root bundles have less than one million; a key store with a thousand chains has about
/// four million.
pub const FILE_MAX: u64 = 16 * 1_024 * 1_024;

/// Bytes that may contain a key or password, wiped on drop.
pub(super) type SecretBytes = Zeroizing<Vec<u8>>;

/// Reads a regular file of at most [`FILE_MAX`] bytes. Other files are never opened: a pipe would block, and opening a device may
/// have effects.
pub(super) fn read_regular_file(path: &Path) -> Result<SecretBytes, FileError> {
    regular(path.metadata()?.file_type())?;
    // The file may have been replaced in the meantime: open without blocking, and check the opened file again.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    regular(metadata.file_type())?;
    if metadata.len() > FILE_MAX {
        return Err(FileError::TooLarge { size: metadata.len(), max: FILE_MAX });
    }
    read_bounded(file, metadata.len())
}

fn read_bounded(file: File, size: u64) -> Result<SecretBytes, FileError> {
    // Allocated with its full size, so that growing leaves no copy in memory.
    let mut bytes = SecretBytes::new(Vec::with_capacity(size as usize + 1));
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    let size = bytes.len() as u64;
    if size > FILE_MAX {
        return Err(FileError::TooLarge { size, max: FILE_MAX });
    }
    Ok(bytes)
}

fn regular(kind: FileType) -> Result<(), FileError> {
    let name = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "folder"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    };
    Err(FileError::Special(name))
}
