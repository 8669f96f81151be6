//! Walks a directory tree, one file at a time.

use std::fs::{DirEntry, ReadDir};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Contents, FileError, Passwords, read};

/// Maximum nesting of directories, each with one open descriptor. Real trees have less than 30.
pub const DEPTH_MAX: usize = 64;

/// A file that was read, or a directory that could not be read.
#[derive(Debug)]
pub struct WalkedFile {
    /// Path of the file or directory.
    pub path: PathBuf,
    /// Certificates of the file, or the reason why it could not be read.
    pub result: Result<Contents, FileError>,
}

/// Numbers of files that a directory walk read, and of files and links that it skipped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WalkCounts {
    /// Number of files read.
    pub read: u64,
    /// Number of files without a certificate.
    pub without_certificate: u64,
    /// Number of symbolic links that point outside the directory or to a missing file. They are not followed; scan their targets by
    /// name instead. Links inside the directory are neither followed nor counted, because the walk reaches their targets anyway.
    pub links_out: u64,
    /// Number of pipes, devices and sockets, which are not opened.
    pub special: u64,
}

/// Traversal of a file, or of every file in a directory tree, in the order in which the system lists them.
///
/// A file given by name that contains no certificate is an error; inside a directory it is only counted. The given path may be a
/// symbolic link; links inside are not followed.
pub struct Walk<'p> {
    passwords: &'p Passwords,
    start: Option<PathBuf>,
    /// The given directory, with symbolic links resolved.
    root: PathBuf,
    folders: Vec<Folder>,
    counts: WalkCounts,
    stop: Box<dyn Fn() -> bool + Send + 'p>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    entries: ReadDir,
    /// Device and inode, to detect a directory that is mounted into itself.
    identity: (u64, u64),
}

impl<'p> Walk<'p> {
    /// Creates a walk over `path`. Nothing is read before the first [`Iterator::next`].
    #[must_use]
    pub fn new(path: &Path, passwords: &'p Passwords) -> Self {
        Self {
            passwords,
            start: Some(path.to_owned()),
            root: PathBuf::new(),
            folders: Vec::new(),
            counts: WalkCounts::default(),
            stop: Box::new(|| false),
        }
    }

    /// Returns the same walk, which ends before the next file once `stop` returns true. A large directory without certificates
    /// takes minutes and returns nothing in that time.
    #[must_use]
    pub fn stopped_by(mut self, stop: impl Fn() -> bool + Send + 'p) -> Self {
        self.stop = Box::new(stop);
        self
    }

    /// Returns the counters of the walk so far.
    #[must_use]
    pub fn counts(&self) -> WalkCounts {
        self.counts
    }

    fn begin(&mut self, path: PathBuf) -> Option<WalkedFile> {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return Some(WalkedFile { path, result: Err(error.into()) }),
        };
        if metadata.is_dir() {
            self.root = path.canonicalize().unwrap_or_default();
            return self.open_directory(path);
        }
        self.counts.read += 1;
        let result = read(&path, self.passwords);
        Some(WalkedFile { path, result })
    }

    /// Opens a directory; returns the error, if any.
    fn open_directory(&mut self, path: PathBuf) -> Option<WalkedFile> {
        let opened = self.open(&path);
        match opened {
            Ok(folder) => {
                self.folders.extend(folder);
                None
            }
            Err(error) => Some(WalkedFile { path, result: Err(error) }),
        }
    }

    /// Opens a directory; `None` if a parent directory is the same one.
    fn open(&self, path: &Path) -> Result<Option<Folder>, FileError> {
        if self.folders.len() >= DEPTH_MAX {
            return Err(FileError::TooDeep { max: DEPTH_MAX });
        }
        let metadata = path.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        if self.folders.iter().any(|folder| folder.identity == identity) {
            return Ok(None);
        }
        Ok(Some(Folder { path: path.to_owned(), entries: path.read_dir()?, identity }))
    }

    fn visit(&mut self, entry: &DirEntry) -> Option<WalkedFile> {
        let path = entry.path();
        // The type of the entry itself, not of a link's target.
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => return Some(WalkedFile { path, result: Err(error.into()) }),
        };
        if kind.is_dir() {
            return self.open_directory(path);
        }
        if kind.is_symlink() {
            let inside = path.canonicalize().is_ok_and(|target| target.starts_with(&self.root));
            self.counts.links_out += u64::from(!inside);
            return None;
        }
        if !kind.is_file() {
            self.counts.special += 1;
            return None;
        }
        self.counts.read += 1;
        match read(&path, self.passwords) {
            Err(FileError::NoCertificate) => {
                self.counts.without_certificate += 1;
                None
            }
            result => Some(WalkedFile { path, result }),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = WalkedFile;

    fn next(&mut self) -> Option<WalkedFile> {
        if let Some(walked) = self.start.take().and_then(|path| self.begin(path)) {
            return Some(walked);
        }
        while !(self.stop)() {
            let folder = self.folders.last_mut()?;
            let walked = match folder.entries.next() {
                Some(Ok(entry)) => self.visit(&entry),
                Some(Err(error)) => Some(WalkedFile { path: folder.path.clone(), result: Err(error.into()) }),
                None => {
                    self.folders.pop();
                    None
                }
            };
            if walked.is_some() {
                return walked;
            }
        }
        None
    }
}
