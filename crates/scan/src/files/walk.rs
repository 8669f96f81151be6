//! A folder and everything below it, one file at a time.

use std::fs::{DirEntry, ReadDir};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Contents, FileError, Passwords, read};

/// Folders inside one another, each costing one open descriptor. Real trees stay under 30.
pub const DEPTH_MAX: usize = 64;

/// A file that was read, or a folder that could not be.
#[derive(Debug)]
pub struct WalkedFile {
    /// The path.
    pub path: PathBuf,
    /// The contents of the file, or the error.
    pub result: Result<Contents, FileError>,
}

/// What a walk passed by without a word of its own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WalkCounts {
    /// Files that were read.
    pub read: u64,
    /// Files that hold no certificate.
    pub without_certificate: u64,
    /// Symbolic links that lead out of the folder (or nowhere): not followed, because nobody asked
    /// for what lies there. Name it by itself to have it read. Links that stay inside are not
    /// followed either, and not counted: what they point to is met by itself.
    pub links_out: u64,
    /// Pipes, devices and sockets, none of which are opened.
    pub special: u64,
}

/// Looks at a file, or at every file below a folder, in the order in which the system lists them.
///
/// A file that was named itself and holds no certificate is an error; inside a folder it is only
/// counted. The folder or file named may be a symbolic link; those inside are not followed.
pub struct Walk<'p> {
    passwords: &'p Passwords,
    named: Option<PathBuf>,
    /// The folder named, without symbolic links.
    root: PathBuf,
    folders: Vec<Folder>,
    counts: WalkCounts,
    stop: Box<dyn Fn() -> bool + Send + 'p>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    entries: ReadDir,
    /// Device and inode, by which a folder mounted into itself is known.
    identity: (u64, u64),
}

impl<'p> Walk<'p> {
    /// A walk over `path`. Nothing is touched before the first [`Iterator::next`].
    #[must_use]
    pub fn new(path: &Path, passwords: &'p Passwords) -> Self {
        Self {
            passwords,
            named: Some(path.to_owned()),
            root: PathBuf::new(),
            folders: Vec::new(),
            counts: WalkCounts::default(),
            stop: Box::new(|| false),
        }
    }

    /// The same walk, which ends before the next file once `stop` says so. A large folder may hold no
    /// certificate for minutes, and nothing is returned meanwhile.
    #[must_use]
    pub fn stopped_by(mut self, stop: impl Fn() -> bool + Send + 'p) -> Self {
        self.stop = Box::new(stop);
        self
    }

    /// Counters of skipped files.
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
            return self.descend(path);
        }
        self.counts.read += 1;
        let result = read(&path, self.passwords);
        Some(WalkedFile { path, result })
    }

    /// Opens a folder; returns the error, if any.
    fn descend(&mut self, path: PathBuf) -> Option<WalkedFile> {
        let opened = self.open(&path);
        match opened {
            Ok(folder) => {
                self.folders.extend(folder);
                None
            }
            Err(error) => Some(WalkedFile { path, result: Err(error) }),
        }
    }

    /// Opens a folder; `None` if a parent folder is the same one.
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

    fn look_at(&mut self, entry: &DirEntry) -> Option<WalkedFile> {
        let path = entry.path();
        // Of the entry itself, not of what it may point to.
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => return Some(WalkedFile { path, result: Err(error.into()) }),
        };
        if kind.is_dir() {
            return self.descend(path);
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
        if let Some(look) = self.named.take().and_then(|path| self.begin(path)) {
            return Some(look);
        }
        while !(self.stop)() {
            let folder = self.folders.last_mut()?;
            let look = match folder.entries.next() {
                Some(Ok(entry)) => self.look_at(&entry),
                Some(Err(error)) => Some(WalkedFile { path: folder.path.clone(), result: Err(error.into()) }),
                None => {
                    self.folders.pop();
                    None
                }
            };
            if look.is_some() {
                return look;
            }
        }
        None
    }
}
