//! A folder of private keys, one a file (`*.key`, PEM or DER), looked at again and again.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keys::{KeyFileError, KeyRef, KeyType, PrivateKey, Scheme, Signer};

/// Keys read from one folder: some 10 KB each.
const FILES_MAX: usize = 100_000;
/// The ending of files that hold keys.
const ENDING: &str = "key";
/// What a mode lets everybody do.
const OTHERS: u32 = 0o007;

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
    #[error("the folder {0} has more than {FILES_MAX} keys")]
    TooMany(PathBuf),
}

/// What tells that a file is another than it was: its owner and mode change `inode_changed` alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    inode: u64,
    octets: u64,
    modified: (i64, i64),
    inode_changed: (i64, i64),
}

/// What is known of a file.
#[derive(Debug)]
struct File {
    /// What it was when it was read; `None` when it could not be, so that it is tried again at every look.
    stamp: Option<Stamp>,
    /// Its key, or that which it held before.
    key: Option<KeyRef>,
    is_broken: bool,
}

impl File {
    /// A file of which nothing could be made, after what was known of it.
    fn broken(stamp: Stamp, error: &FileError, before: Option<&Self>) -> Self {
        let stamp = Some(stamp).filter(|_| !error.may_heal());
        Self { stamp, key: before.and_then(|before| before.key.clone()), is_broken: true }
    }
}

/// Why a file gives no key.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read, or holds none.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// It holds one, and nothing is signed with its kind here.
    #[error("keys of the kind {0} sign nothing here: RSA, ECDSA and Ed25519 do")]
    Kind(KeyType),
}

impl FileError {
    /// Whether it may be otherwise though the file stays as it is.
    fn may_heal(&self) -> bool {
        matches!(self, Self::File(KeyFileError::Io(_)))
    }
}

/// The folder and what was read of it. Files that did not change are not read again.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    files: HashMap<PathBuf, File>,
}

/// What a look found.
#[derive(Debug)]
pub struct Look {
    /// Every key there is now with the name of its file; that of a file which no longer can be read is the one it held
    /// before.
    pub keys: Vec<(String, KeyRef)>,
    /// Whether they are others than at the last look.
    pub changed: bool,
    /// Files that hold no key, with what is wrong, each told once.
    pub broken: Vec<(PathBuf, FileError)>,
    /// Files that everybody on this machine may read, each told once.
    pub open: Vec<PathBuf>,
    /// Files whose content is no key, those told of before included.
    pub broken_in_all: usize,
}

impl Folder {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), files: HashMap::new() }
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
    pub fn look(&mut self) -> Result<Look, FolderError> {
        let there = self.there()?;
        let before = self.files.len();
        let names: HashSet<&PathBuf> = there.iter().map(|(path, ..)| path).collect();
        self.files.retain(|path, _| names.contains(path));
        let changed = self.files.len() != before;
        let mut look =
            Look { keys: Vec::new(), changed, broken: Vec::new(), open: Vec::new(), broken_in_all: 0 };
        for (path, stamp, mode) in there {
            let known = self.files.get(&path);
            if known.is_some_and(|known| known.stamp == Some(stamp)) {
                continue;
            }
            let file = match read(&path) {
                Ok(key) => {
                    look.changed = true;
                    if mode & OTHERS != 0 {
                        look.open.push(path.clone());
                    }
                    File { stamp: Some(stamp), key: Some(Arc::new(key)), is_broken: false }
                }
                Err(error) => {
                    let file = File::broken(stamp, &error, known);
                    if !known.is_some_and(|known| known.is_broken && known.stamp == file.stamp) {
                        look.broken.push((path.clone(), error));
                    }
                    file
                }
            };
            self.files.insert(path, file);
        }
        look.keys =
            self.files.iter().filter_map(|(path, file)| Some((name(path), file.key.clone()?))).collect();
        look.broken_in_all = self.files.values().filter(|file| file.is_broken).count();
        Ok(look)
    }

    /// The files, what each is, and its mode.
    fn there(&self) -> Result<Vec<(PathBuf, Stamp, u32)>, FolderError> {
        let failed = |source| FolderError::Io { path: self.path.clone(), source };
        let mut there = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            // Through links: secrets of clusters are links into a folder that is replaced as a whole. What has gone
            // since the listing, is not there.
            let found = match std::fs::metadata(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            if !found.is_file() {
                continue;
            }
            if there.len() == FILES_MAX {
                return Err(FolderError::TooMany(self.path.clone()));
            }
            let stamp = Stamp {
                inode: found.ino(),
                octets: found.len(),
                modified: (found.mtime(), found.mtime_nsec()),
                inode_changed: (found.ctime(), found.ctime_nsec()),
            };
            there.push((path, stamp, found.mode()));
        }
        Ok(there)
    }
}

/// A key that something can be signed with.
fn read(path: &Path) -> Result<PrivateKey, FileError> {
    let key = PrivateKey::from_file(path)?;
    match key.key_type() {
        kind if Scheme::any(kind) => Ok(key),
        kind => Err(FileError::Kind(kind)),
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn key() -> PrivateKey {
        PrivateKey::generate(KeyType::P256).unwrap()
    }

    fn names(look: &Look) -> Vec<Vec<u8>> {
        let mut all: Vec<_> = look.keys.iter().map(|(_, key)| key.spki().to_vec()).collect();
        all.sort();
        all
    }

    #[test]
    fn what_could_not_be_read_is_tried_again_and_told_once() {
        let io = || FileError::File(KeyFileError::Io(io::ErrorKind::PermissionDenied.into()));
        let stamp = Stamp { inode: 1, octets: 1, modified: (1, 0), inode_changed: (1, 0) };
        assert_eq!(File::broken(stamp, &io(), None).stamp, None);
        let kind = FileError::Kind(KeyType::MlDsa44);
        assert_eq!(File::broken(stamp, &kind, None).stamp, Some(stamp), "as long as it is the same");
        let had = File { stamp: Some(stamp), key: Some(Arc::new(key())), is_broken: false };
        assert!(File::broken(stamp, &io(), Some(&had)).key.is_some(), "the key it held signs on");
    }

    #[test]
    fn what_changes_is_read_anew_and_what_breaks_stays_as_it_was() {
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

        // Changing nothing but the mode heals; who everybody may read is told.
        std::fs::remove_file(place.path().join("b.key")).unwrap();
        std::fs::create_dir(place.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere/e.pem", place.path().join("e.key")).unwrap();
        std::fs::write(place.path().join("elsewhere/e.pem"), a.to_pkcs8_pem().as_bytes()).unwrap();
        let mode = |mode| {
            let path = place.path().join("elsewhere/e.pem");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o604);
        let look = folder.look().unwrap();
        assert_eq!((look.keys.len(), look.open.len()), (1, 1));
        assert_eq!(folder.look().unwrap().open.len(), 0, "told once");
        mode(0o600);
        assert_eq!(folder.look().unwrap().open.len(), 0);

        std::fs::remove_dir_all(place.path()).unwrap();
        assert!(matches!(folder.look(), Err(FolderError::Io { .. })));
    }
}
