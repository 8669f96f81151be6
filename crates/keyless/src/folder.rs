//! A folder of files that hold one thing each, looked at again and again: private keys (`*.key`, PEM or DER), or what else
//! is read so.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keys::{KeyFileError, KeyRef, PrivateKey};

/// Files read of one folder: some 10 KB each.
const FILES_MAX: usize = 100_000;

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system did not let us.
    #[error("the folder {path} cannot be read: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// More files than are read.
    #[error("the folder {0} has more than {FILES_MAX} files")]
    TooMany(PathBuf),
}

/// What tells that a file is another than it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    inode: u64,
    octets: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self { inode: found.ino(), octets: found.len(), changed: (found.mtime(), found.mtime_nsec()) }
    }
}

/// A file's, and that of the one beside it.
type Stamps = (Stamp, Option<Stamp>);

/// What is known of a file.
#[derive(Debug)]
struct File<T> {
    stamps: Stamps,
    /// What it holds, or held before.
    held: Option<T>,
    is_broken: bool,
}

/// Which files are read, and how.
#[derive(Clone, Copy, Debug)]
pub struct FileKind<T, E> {
    /// Of their names; others are not looked at.
    pub ending: &'static str,
    /// The ending of a file of the same name that `read` reads, too, where there is one.
    pub beside: Option<&'static str>,
    /// Reads one, on this thread.
    pub read: fn(&Path) -> Result<T, E>,
}

/// The folder and what was read of it. Files that did not change are not read again.
#[derive(Debug)]
pub struct Folder<T = KeyRef, E = KeyFileError> {
    path: PathBuf,
    kind: FileKind<T, E>,
    files: HashMap<PathBuf, File<T>>,
}

/// What a look found.
#[derive(Debug)]
pub struct Look<T = KeyRef, E = KeyFileError> {
    /// Everything there is now; of a file which no longer can be read it is what it held before.
    pub held: Vec<T>,
    /// Whether it is something else than at the last look.
    pub changed: bool,
    /// Files that changed and cannot be read, with what is wrong.
    pub broken: Vec<(PathBuf, E)>,
    /// Files that cannot be read, those told of before included.
    pub broken_in_all: usize,
}

impl Folder {
    /// Of private keys. Nothing is read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let read = |path: &Path| PrivateKey::from_file(path).map(|key| Arc::new(key) as KeyRef);
        Self::of(path, FileKind { ending: "key", beside: None, read })
    }
}

impl<T: Clone, E> Folder<T, E> {
    /// Of anything. Nothing is read yet.
    #[must_use]
    pub fn of(path: impl Into<PathBuf>, kind: FileKind<T, E>) -> Self {
        Self { path: path.into(), kind, files: HashMap::new() }
    }

    /// Which.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks, on this thread: reading an RSA key takes 0.2 ms.
    ///
    /// # Errors
    /// [`FolderError`]; what was read before stays.
    pub fn look(&mut self) -> Result<Look<T, E>, FolderError> {
        let there = self.there()?;
        let before = self.files.len();
        let names: HashSet<&PathBuf> = there.iter().map(|(path, _)| path).collect();
        self.files.retain(|path, _| names.contains(path));
        let changed = self.files.len() != before;
        let mut look = Look { held: Vec::new(), changed, broken: Vec::new(), broken_in_all: 0 };
        for (path, stamps) in there {
            let known = self.files.get(&path);
            if known.is_some_and(|known| known.stamps == stamps) {
                continue;
            }
            let file = match (self.kind.read)(&path) {
                Ok(held) => {
                    look.changed = true;
                    File { stamps, held: Some(held), is_broken: false }
                }
                Err(error) => {
                    look.broken.push((path.clone(), error));
                    File { stamps, held: known.and_then(|known| known.held.clone()), is_broken: true }
                }
            };
            self.files.insert(path, file);
        }
        look.held = self.files.values().filter_map(|file| file.held.clone()).collect();
        look.broken_in_all = self.files.values().filter(|file| file.is_broken).count();
        Ok(look)
    }

    fn there(&self) -> Result<Vec<(PathBuf, Stamps)>, FolderError> {
        let failed = |source| FolderError::Io { path: self.path.clone(), source };
        let mut there = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|ending| ending != self.kind.ending) {
                continue;
            }
            // Through links: secrets of clusters are links into a folder that is replaced as a whole. What has gone
            // since the listing, is not there.
            let Ok(found) = std::fs::metadata(&path) else { continue };
            if !found.is_file() {
                continue;
            }
            if there.len() == FILES_MAX {
                return Err(FolderError::TooMany(self.path.clone()));
            }
            let beside =
                self.kind.beside.and_then(|ending| std::fs::metadata(path.with_extension(ending)).ok());
            let stamps = (Stamp::of(&found), beside.as_ref().map(Stamp::of));
            there.push((path, stamps));
        }
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keys::KeyType;

    fn key() -> PrivateKey {
        PrivateKey::generate(KeyType::P256).unwrap()
    }

    fn names(look: &Look) -> Vec<Vec<u8>> {
        let mut all: Vec<_> = look.held.iter().map(|key| key.spki().to_vec()).collect();
        all.sort();
        all
    }

    #[test]
    fn what_changes_is_read_anew_and_what_breaks_stays_as_it_was() {
        use keys::Signer;
        let place = tempfile::tempdir().unwrap();
        let put = |name: &str, key: &PrivateKey| {
            std::fs::write(place.path().join(name), key.to_pkcs8_pem().as_bytes()).unwrap();
        };
        let (a, b, c) = (key(), key(), key());
        put("a.key", &a);
        put("b.key", &b);
        put("c.pem", &c);
        std::fs::create_dir(place.path().join("d.key")).unwrap();
        let mut folder = Folder::new(place.path());
        let look = folder.look().unwrap();
        let mut both = vec![a.spki().to_vec(), b.spki().to_vec()];
        both.sort();
        assert_eq!((names(&look), look.changed, look.broken.len()), (both, true, 0));
        assert!(!folder.look().unwrap().changed);

        std::fs::remove_file(place.path().join("a.key")).unwrap();
        std::fs::rename(place.path().join("c.pem"), place.path().join("b.key")).unwrap();
        let look = folder.look().unwrap();
        assert_eq!((names(&look), look.changed), (vec![c.spki().to_vec()], true));

        std::fs::write(place.path().join("b.key"), "half a key").unwrap();
        let look = folder.look().unwrap();
        assert_eq!((names(&look), look.changed), (vec![c.spki().to_vec()], false), "the one before stays");
        assert_eq!(look.broken.len(), 1);
        let look = folder.look().unwrap();
        assert_eq!((look.broken.len(), look.broken_in_all), (0, 1), "told once");

        std::fs::remove_dir_all(place.path()).unwrap();
        assert!(matches!(folder.look(), Err(FolderError::Io { .. })));
    }
}
