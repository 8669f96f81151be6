//! The files of a deployment target, which are always replaced atomically.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::accounts::UnknownAccount;

/// Maximum number of symbolic links that are followed in a row. More are treated as a loop.
const LINKS_MAX: usize = 8;
/// Maximum size in bytes of a file that is replaced. Certificate files have a few thousand bytes.
const FILE_MAX: u64 = 4 * 1_024 * 1_024;
/// Suffix of a temporary file, which is renamed at the end. A leading dot hides it from servers that load whole directories.
const STAGED: &str = ".bulla-new";

/// An error of a target's file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The directory does not exist or cannot be entered.
    #[error("{path}: {reason}")]
    Folder {
        /// Path of the directory that does not exist or cannot be entered.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The directory is world-writable: any user could replace the file.
    #[error("{0} is world-writable; deploy into a folder that only its owner can write (chmod o-w)")]
    WorldWritable(PathBuf),
    /// There are too many symbolic links, or a link leads to an invalid path.
    #[error("{0}: more than {LINKS_MAX} symbolic links, or a link to an invalid path")]
    Links(PathBuf),
    /// The path is a directory, a device or a socket.
    #[error("{0} is not a regular file")]
    NotAFile(PathBuf),
    /// The file is too large to be replaced.
    #[error("{0} is larger than {FILE_MAX} bytes: not a certificate or key")]
    TooLarge(PathBuf),
    /// The user or group is not in `/etc/passwd` or `/etc/group`.
    #[error(transparent)]
    Unknown(#[from] UnknownAccount),
    /// The operating system returned an error.
    #[error("{path}: cannot {what}: {reason}")]
    System {
        /// Path of the file or directory that caused the error.
        path: PathBuf,
        /// The attempted operation.
        what: &'static str,
        /// The error of the operating system.
        reason: String,
    },
}

/// Owner, group and permission bits of a file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Attributes {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permission bits of the mode.
    pub(crate) mode: u32,
}

/// Content and attributes of an existing file.
pub(crate) struct FileContent {
    pub(crate) content: Zeroizing<Vec<u8>>,
    pub(crate) attributes: Attributes,
}

/// A file of a target: its name, and an open handle of its directory, so that no process can swap the directory.
pub(crate) struct TargetFile {
    folder: OwnedFd,
    path: PathBuf,
    name: OsString,
}

impl TargetFile {
    /// Resolves `path`: follows symbolic links and checks every directory on the way.
    pub(crate) fn of(path: &Path) -> Result<Self, FileError> {
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX {
            let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
                return Err(FileError::Links(path.to_owned()));
            };
            reject_unsafe_links(parent)?;
            let parent = parent
                .canonicalize()
                .map_err(|error| FileError::Folder { path: parent.to_owned(), reason: error.to_string() })?;
            check_ancestors(&parent)?;
            let folder = open_folder(&parent)?;
            match rustix::fs::readlinkat(&folder, name, Vec::new()) {
                Ok(link) => at = parent.join(PathBuf::from(OsString::from_vec(link.into_bytes()))),
                // The path is not a link, or does not exist.
                Err(Errno::INVAL | Errno::NOENT) => {
                    let name = name.to_owned();
                    return Ok(Self { folder, path: parent.join(&name), name });
                }
                Err(error) => return Err(refused(&at, "read the link", error)),
            }
        }
        Err(FileError::Links(path.to_owned()))
    }

    /// Returns the resolved path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the current file. `None` when it does not exist.
    pub(crate) fn read(&self) -> Result<Option<FileContent>, FileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(refused(&self.path, "open", error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| refused(&self.path, "look at", error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::NotAFile(self.path.clone()));
        }
        let mut content = Zeroizing::new(Vec::new());
        let read = File::from(fd).take(FILE_MAX + 1).read_to_end(&mut content);
        read.map_err(|error| failed(&self.path, "read", &error))?;
        if content.len() as u64 > FILE_MAX {
            return Err(FileError::TooLarge(self.path.clone()));
        }
        Ok(Some(FileContent { content, attributes: attributes(&stat) }))
    }

    /// Writes the new content to a file in the same directory and syncs it to disk. Replaces an older staged file.
    pub(crate) fn stage(&self, content: &[u8], wanted: Attributes) -> Result<(), FileError> {
        self.remove_staged_file()?;
        let staged = self.staged();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.folder, &staged, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| refused(&self.path, "create a temporary file beside it", error))?;
        // Set owner and mode before the content is written: no other user may read it, not even for a moment.
        let stat = rustix::fs::fstat(&fd).map_err(|error| refused(&self.path, "look at", error))?;
        if (stat.st_uid, stat.st_gid) != (wanted.uid, wanted.gid) {
            let owner = Some(Uid::from_raw(wanted.uid));
            rustix::fs::fchown(&fd, owner, Some(Gid::from_raw(wanted.gid)))
                .map_err(|error| refused(&self.path, "set its owner and group", error))?;
        }
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(wanted.mode))
            .map_err(|error| refused(&self.path, "set its mode", error))?;
        let mut file = File::from(fd);
        file.write_all(content)
            .and_then(|()| file.sync_all())
            .map_err(|error| failed(&self.path, "write the temporary file", &error))
    }

    /// Renames the staged file over the target file and syncs the directory.
    pub(crate) fn commit(&self) -> Result<(), FileError> {
        rustix::fs::renameat(&self.folder, self.staged(), &self.folder, &self.name)
            .map_err(|error| refused(&self.path, "rename the temporary file into place", error))?;
        self.sync()
    }

    /// Removes the staged file, if it exists.
    pub(crate) fn remove_staged_file(&self) -> Result<(), FileError> {
        self.remove_named(&self.staged())
    }

    pub(crate) fn remove(&self) -> Result<(), FileError> {
        self.remove_named(&self.name)?;
        self.sync()
    }

    fn remove_named(&self, name: &OsStr) -> Result<(), FileError> {
        match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(refused(&self.path, "remove", error)),
        }
    }

    fn sync(&self) -> Result<(), FileError> {
        rustix::fs::fsync(&self.folder).map_err(|error| refused(&self.path, "sync the file to disk", error))
    }

    fn staged(&self) -> OsString {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(STAGED);
        name
    }
}

/// Opens a directory whose path has no links, one component at a time. Rejects a link that is inserted while the path is opened.
fn open_folder(path: &Path) -> Result<OwnedFd, FileError> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Parent directories need not be readable.
    #[cfg(target_os = "linux")]
    let pass = flags | OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let pass = flags | OFlags::RDONLY;
    let open = |error| refused(path, "open", error);
    let mut fd = rustix::fs::open("/", flags | OFlags::RDONLY, Mode::empty()).map_err(open)?;
    let names: Vec<&OsStr> = path.iter().skip(1).collect();
    for (number, name) in names.iter().enumerate() {
        let flags = if number + 1 == names.len() { flags | OFlags::RDONLY } else { pass };
        fd = rustix::fs::openat(&fd, *name, flags, Mode::empty()).map_err(open)?;
    }
    let stat = rustix::fs::fstat(&fd).map_err(|error| refused(path, "look at", error))?;
    if stat.st_mode & 0o002 != 0 {
        return Err(FileError::WorldWritable(path.to_owned()));
    }
    Ok(fd)
}

/// Checks the parent directories. For a parent directory the sticky bit is enough: only the owner of an entry can rename it.
fn check_ancestors(folder: &Path) -> Result<(), FileError> {
    for ancestor in folder.ancestors().skip(1) {
        let stat = rustix::fs::stat(ancestor).map_err(|error| refused(ancestor, "look at", error))?;
        if stat.st_mode & 0o002 != 0 && stat.st_mode & 0o1000 == 0 {
            return Err(FileError::WorldWritable(ancestor.to_owned()));
        }
    }
    Ok(())
}

/// Rejects links in world-writable directories such as /tmp: any user may have created them.
fn reject_unsafe_links(folder: &Path) -> Result<(), FileError> {
    for ancestor in folder.ancestors() {
        let Some(parent) = ancestor.parent() else { continue };
        let is_link = ancestor.symlink_metadata().is_ok_and(|found| found.is_symlink());
        if is_link {
            let stat = rustix::fs::stat(parent).map_err(|error| refused(parent, "look at", error))?;
            if stat.st_mode & 0o002 != 0 {
                return Err(FileError::WorldWritable(parent.to_owned()));
            }
        }
    }
    Ok(())
}

fn attributes(stat: &Stat) -> Attributes {
    Attributes { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode & 0o7777 }
}

fn refused(path: &Path, what: &'static str, error: Errno) -> FileError {
    failed(path, what, &error.into())
}

fn failed(path: &Path, what: &'static str, error: &std::io::Error) -> FileError {
    FileError::System { path: path.to_owned(), what, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn own_attributes(mode: u32) -> Attributes {
        let (uid, gid) = crate::accounts::own();
        Attributes { uid, gid, mode }
    }

    #[test]
    fn symlink_target_is_replaced_and_the_symlink_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (live, entry) = (folder.path().join("live"), folder.path().join("conf"));
        std::fs::create_dir(&live).unwrap();
        std::fs::create_dir(&entry).unwrap();
        std::fs::write(live.join("a.pem"), "old").unwrap();
        symlink("../live/a.pem", entry.join("a.pem")).unwrap();
        let target_file = TargetFile::of(&entry.join("a.pem")).unwrap();
        assert_eq!(target_file.path(), live.canonicalize().unwrap().join("a.pem"));
        target_file.stage(b"new", own_attributes(0o640)).unwrap();
        assert_eq!(std::fs::read(live.join("a.pem")).unwrap(), b"old");
        target_file.commit().unwrap();
        assert_eq!(std::fs::read(entry.join("a.pem")).unwrap(), b"new");
        assert!(entry.join("a.pem").symlink_metadata().unwrap().is_symlink());
        assert_eq!(target_file.read().unwrap().unwrap().attributes, own_attributes(0o640));
    }

    #[test]
    fn symlink_loops_directories_and_pipes_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink(path("b"), path("a")).unwrap();
        symlink(path("a"), path("b")).unwrap();
        assert!(matches!(TargetFile::of(&path("a")), Err(FileError::Links(_))));
        std::fs::create_dir(path("folder")).unwrap();
        assert!(matches!(TargetFile::of(&path("folder")).unwrap().read(), Err(FileError::NotAFile(_))));
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(matches!(TargetFile::of(&path("pipe")).unwrap().read(), Err(FileError::NotAFile(_))));
        assert!(matches!(TargetFile::of(&path("none/x")), Err(FileError::Folder { .. })));
    }

    #[test]
    fn world_writable_directories_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        let below = open.join("below");
        std::fs::create_dir_all(&below).unwrap();
        set_mode(&open, 0o1777);
        assert!(
            matches!(TargetFile::of(&open.join("x")), Err(FileError::WorldWritable(_))),
            "the folder itself"
        );
        assert!(TargetFile::of(&below.join("x")).is_ok(), "sticky above is enough");
        set_mode(&open, 0o777);
        assert!(matches!(TargetFile::of(&below.join("x")), Err(FileError::WorldWritable(_))), "an ancestor");
        set_mode(&open, 0o1777);
        symlink(&below, open.join("link")).unwrap();
        assert!(
            matches!(TargetFile::of(&open.join("link/x")), Err(FileError::WorldWritable(_))),
            "a link there"
        );
    }
}
